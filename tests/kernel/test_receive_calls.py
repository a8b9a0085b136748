"""Every way to read: each message's `read` is the call that took its last byte."""

from __future__ import annotations

import array
import fcntl
import os
import select
import socket
import termios

import numpy as np
import pytest
from logged import (
    Calls,
    assert_rows_are,
    read_calls_of,
    rows_between,
)
from recording import recording, tcp_pair, udp_pair, wait_until
from system_calls import Uring, recvmmsg

pytestmark = pytest.mark.timed

MESSAGES = 50
SIZES = [100 + 37 * i for i in range(MESSAGES)]
ROOM = 8192


def _read_into(read):
    buffer = bytearray(ROOM)
    return bytes(buffer[: read(buffer)])


def _after(wait, sock):
    """A read that first waits by other means for the socket to be readable."""
    assert wait()
    return sock.recv(ROOM)


def _epoll(sock):
    watch = select.epoll()
    watch.register(sock, select.EPOLLIN)
    return lambda: _after(watch.poll, sock)


def _poll(sock):
    watch = select.poll()
    watch.register(sock, select.POLLIN)
    return lambda: _after(watch.poll, sock)


def _nonblocking(sock):
    sock.setblocking(False)

    def read():
        while True:
            try:
                return sock.recv(ROOM)
            except BlockingIOError:
                continue

    return read


def _blocking(sock):
    sock.settimeout(None)
    return lambda: sock.recv(ROOM)


WAYS = {
    "blocking": _blocking,
    "nonblocking": _nonblocking,
    "epoll": _epoll,
    "poll": _poll,
    "read": lambda sock: lambda: os.read(sock.fileno(), ROOM),
    "recvmsg": lambda sock: lambda: sock.recvmsg(ROOM)[0],
    "recv_into": lambda sock: lambda: _read_into(sock.recv_into),
    "recvmmsg": lambda sock: lambda: recvmmsg(sock, 1, ROOM)[0],
}


def _read_by(way, sock, folder):
    if way == "uring":
        uring = Uring(folder)
        return lambda: uring.recv(sock, ROOM)
    return WAYS[way](sock)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("way", [*WAYS, "uring"])
def test_each_way_to_read_gives_the_read_of_each_message(
    make_lab, tmp_path, protocol, way
):
    lab = make_lab()
    client, server = {"tcp": tcp_pair, "udp": udp_pair}[protocol](lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    read = _read_by(way, server, tmp_path)
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        for size in SIZES:
            data = bytes(size)
            sends.do(client.send, data)
            left = size
            while left:
                left -= len(reads.do(read))

    rows = rows_between(recorded.messages(), *ports)
    assert recorded.lost() == {}
    assert_rows_are(rows, SIZES, sends, reads, read_of=read_calls_of(SIZES, reads))


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_peek_is_no_read(make_lab, tmp_path, protocol):
    lab = make_lab()
    client, server = {"tcp": tcp_pair, "udp": udp_pair}[protocol](lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        for size in SIZES:
            data = bytes(size)
            sends.do(client.send, data)
            for _ in range(3):
                assert server.recv(ROOM, socket.MSG_PEEK)
            left = size
            while left:
                left -= len(reads.do(server.recv, ROOM))

    rows = rows_between(recorded.messages(), *ports)
    assert_rows_are(rows, SIZES, sends, reads, read_of=read_calls_of(SIZES, reads))
    assert not recorded.counters["unmatched_datagram_reads"]


def test_a_datagram_that_was_cut_short_is_one_message_of_its_full_size(
    make_lab, tmp_path
):
    lab = make_lab()
    client, server = udp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        for i, size in enumerate(SIZES):
            data = bytes(size)
            sends.do(client.send, data)
            flags = socket.MSG_TRUNC if i % 2 else 0
            assert len(reads.do(server.recvmsg, 10, 0, flags)[0]) == 10

    rows = rows_between(recorded.messages(), *ports)
    assert_rows_are(rows, SIZES, sends, reads)


def test_bytes_that_msg_trunc_discards_are_read_by_that_call(make_lab, tmp_path):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for size in SIZES:
            data = bytes(size)
            sends.do(client.send, data)
            flags = socket.MSG_TRUNC | socket.MSG_WAITALL
            reads.do(server.recv_into, bytearray(size), size, flags)

    assert reads.results == SIZES
    rows = rows_between(recorded.messages(), *ports)
    assert_rows_are(rows, SIZES, sends, reads)


def _waiting(sock):
    count = array.array("i", [0])
    fcntl.ioctl(sock, termios.FIONREAD, count)
    return count[0]


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_many_messages_read_by_one_call_are_read_at_its_end(
    make_lab, tmp_path, protocol
):
    lab = make_lab()
    client, server = {"tcp": tcp_pair, "udp": udp_pair}[protocol](lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        for size in SIZES:
            data = bytes(size)
            sends.do(client.send, data)
        if protocol == "tcp":
            wait_until(lambda: _waiting(server) == sum(SIZES), "all bytes")
            flags = socket.MSG_WAITALL
            reads.do(server.recv, sum(SIZES), flags)
        else:
            received = reads.do(recvmmsg, server, MESSAGES, ROOM)
            assert [len(data) for data in received] == SIZES

    rows = rows_between(recorded.messages(), *ports)
    whole = reads.ends_ns[0] - reads.begins_ns[0]
    spread = whole if protocol == "udp" else 0  # one after the other
    of = [0] * MESSAGES
    assert_rows_are(rows, SIZES, sends, reads, read_of=of, spread_ns=spread)
    # what comes in one packet finds the same before it
    assert (np.diff(rows["queue_bytes_at_arrival"]) >= 0).all()


def _splice(source, target, count):
    return bytes(os.splice(source, target, count))


def test_splice_from_a_socket_is_a_read(make_lab, tmp_path):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    server.settimeout(None)
    out, into = os.pipe()
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for size in SIZES:
            data = bytes(size)
            sends.do(client.send, data)
            left = size
            while left:
                left -= len(reads.do(_splice, server.fileno(), into, left))
            assert len(os.read(out, size)) == size
    os.close(out)
    os.close(into)

    rows = rows_between(recorded.messages(), *ports)
    assert_rows_are(rows, SIZES, sends, reads, read_of=read_calls_of(SIZES, reads))
