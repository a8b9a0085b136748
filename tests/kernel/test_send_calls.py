"""Every way to send: one row per call, with its size and true stamps."""

from __future__ import annotations

import os
import socket
import threading

import numpy as np
import pytest
from logged import (
    Calls,
    assert_inside,
    assert_rows_are,
    ping,
    read_calls_of,
    rows_between,
)
from recording import recording, tcp_pair, udp_pair
from system_calls import Uring, sendmmsg

pytestmark = pytest.mark.timed

MESSAGES = 50
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
SMALL_SEND_BUFFER = socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000


def _sizes(n=MESSAGES):
    return [100 + 37 * i for i in range(n)]


@pytest.mark.parametrize(
    "way", ["send", "sendall", "write", "writev", "sendmsg", "zerocopy", "uring"]
)
def test_each_way_to_send_a_tcp_message_gives_a_row(make_lab, tmp_path, way):
    lab = make_lab()
    client, server = tcp_pair(lab)
    client.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    uring = Uring(tmp_path)
    ways = {
        "send": client.send,
        "sendall": client.sendall,
        "write": lambda data: os.write(client.fileno(), data),
        "writev": lambda data: os.writev(client.fileno(), [data[:9], data[9:]]),
        "sendmsg": lambda data: client.sendmsg([data[:50], data[50:]]),
        "zerocopy": lambda data: client.send(data, MSG_ZEROCOPY),
        "uring": lambda data: uring.send(client, data),
    }
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for size in _sizes():
            data = bytes(size)
            ping(sends, reads, ways[way], data, server)
        ends = client.getsockname()[1], server.getsockname()[1]

    rows = recorded.messages()
    rows = rows[rows["destination_port"] == ends[1]].sort_values("sequence")
    rows = rows.reset_index(drop=True)
    assert recorded.lost() == {}
    assert_rows_are(
        rows, _sizes(), sends, reads, read_of=read_calls_of(_sizes(), reads)
    )


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_each_message_of_a_sendmmsg_has_a_row(make_lab, tmp_path, protocol):
    lab = make_lab()
    client, server = {"tcp": tcp_pair, "udp": udp_pair}[protocol](lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sizes, count = _sizes(20), 20  # few enough for any send buffer
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        for _ in range(5):
            payloads = [bytes(size) for size in sizes]
            assert sends.do(sendmmsg, client, payloads) == count
            for size in sizes:
                reads.do(server.recv, size, socket.MSG_WAITALL)

    rows = rows_between(recorded.messages(), *ports)
    spread = np.subtract(reads.ends_ns[count - 1 :: count], sends.begins_ns)
    assert_rows_are(
        rows,
        sizes * 5,
        sends,
        reads,
        send_of=np.repeat(range(5), count),
        spread_ns=int(spread.max()),
    )
    # one after the other: each call begins where the one before it ended
    for _, call in rows.groupby(np.repeat(range(5), count)):
        assert (np.diff(call["send_ns"]) > 0).all()
        assert (call["send_ns"].to_numpy()[1:] >= call["queue_ns"][:-1]).all() or (
            protocol == "tcp"
        )


@pytest.mark.parametrize("way", ["sendfile", "splice"])
def test_a_file_sent_over_tcp_is_as_many_messages_as_the_kernel_makes_of_it(
    make_lab, tmp_path, way
):
    lab = make_lab()
    client, server = tcp_pair(lab)
    client.settimeout(None)
    server.settimeout(None)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200_000)
    ports = client.getsockname()[1], server.getsockname()[1]
    size, piece = 100_000, 65_536  # the kernel passes a pipe's 16 pages at a time
    (tmp_path / "file").write_bytes(os.urandom(size))
    sends, reads = Calls(), Calls()
    out, into = os.pipe()
    with (
        recording(lab, tmp_path, ("tcp",)) as recorded,
        (tmp_path / "file").open("rb") as file,
        client,
        server,
    ):
        for _ in range(MESSAGES):
            sent = 0
            while sent < size:
                ends, left = (client.fileno(), file.fileno()), size - sent
                if way == "sendfile":
                    sent += sends.do(os.sendfile, *ends, sent, left)
                else:
                    ready = os.splice(file.fileno(), into, left, sent)
                    sent += sends.do(os.splice, out, client.fileno(), ready)
            reads.do(server.recv, size, socket.MSG_WAITALL)
    os.close(out)
    os.close(into)

    rows = rows_between(recorded.messages(), *ports)
    sizes = rows["size_bytes"].tolist()
    assert sizes == [piece, size - piece] * MESSAGES
    assert_rows_are(
        rows,
        sizes,
        sends,
        reads,
        send_of=np.searchsorted(np.cumsum(sends.results), np.cumsum(sizes)),
        read_of=read_calls_of(sizes, reads),
        spread_ns=max(np.subtract(sends.ends_ns, sends.begins_ns)),
    )


@pytest.mark.parametrize("way", ["more", "cork"])
def test_corked_tcp_messages_wait_in_the_send_queue(make_lab, tmp_path, way):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sizes, rounds, pause = [10, 20, 30], 11, threading.Event()
    sends, reads, opens = Calls(), Calls(), Calls()
    flags = socket.MSG_MORE if way == "more" else 0
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for _ in range(rounds):
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, way == "cork")
            for size in sizes:
                sends.do(client.send, bytes(size), flags)
            pause.wait(0.01)
            if way == "cork":
                opens.do(client.setsockopt, socket.IPPROTO_TCP, socket.TCP_CORK, 0)
            else:
                opens.do(client.send, b"the end")
            reads.do(server.recv, 1000)

    rows = rows_between(recorded.messages(), *ports)
    rows = rows[rows["size_bytes"] != len(b"the end")].reset_index(drop=True)
    rows["sequence"] = rows["size_bytes"].cumsum()
    read_of = np.repeat(range(rounds), len(sizes))
    assert_rows_are(rows, sizes * rounds, sends, reads, read_of=read_of)
    assert_inside(rows["queue_ns"], opens, read_of)
    assert (rows["send_queue_ns"] > 10_000_000).all()  # the pause


def test_a_partial_send_is_a_message_of_what_it_gave(make_lab, tmp_path):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    client.setblocking(False)
    sends, reads = Calls(), Calls()
    refused = 0
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        while refused < 20:
            try:
                sends.do(client.send, bytes(100_000))
            except BlockingIOError:
                sends.begins_ns.pop()
                refused += 1
                reads.do(server.recv, 70_000)
        left = sum(sends.results) - sum(map(len, reads.results))
        while left:
            left -= len(reads.do(server.recv, 70_000))

    sizes = sends.results
    assert min(sizes) < 100_000, "no send was partial"
    rows = rows_between(recorded.messages(), *ports)
    assert_rows_are(rows, sizes, sends, reads, read_of=read_calls_of(sizes, reads))


@pytest.mark.parametrize("way", ["send", "writev"])
def test_the_rest_of_a_partial_send_is_a_message_of_its_own(make_lab, tmp_path, way):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    client.setblocking(False)
    give = {
        "send": client.send,
        "writev": lambda data: client.sendmsg([data[:333], data[333:]]),
    }[way]
    sends, reads = Calls(), Calls()
    left, whole = memoryview(b""), bytes(200_000)
    rests = 0
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        while rests < 20:
            left = left or memoryview(whole)
            rests += len(left) < len(whole)
            try:
                left = left[sends.do(give, left) :]
            except BlockingIOError:
                sends.begins_ns.pop()
                reads.do(server.recv, 70_000)
        unread = sum(sends.results) - sum(map(len, reads.results))
        while unread:
            unread -= len(reads.do(server.recv, 70_000))

    sizes = sends.results
    rows = rows_between(recorded.messages(), *ports)
    assert_rows_are(rows, sizes, sends, reads, read_of=read_calls_of(sizes, reads))


def test_a_refused_last_send_leaves_no_row(make_lab, tmp_path):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    client.setblocking(False)
    sizes = []
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        with pytest.raises(BlockingIOError):
            while True:
                sizes.append(client.send(bytes(100_000)))
        client.shutdown(socket.SHUT_WR)
        while server.recv(70_000):
            continue

    rows = rows_between(recorded.messages(), *ports)
    assert min(sizes) < 100_000, "no send was partial"
    assert rows["size_bytes"].tolist() == sizes
    assert rows["end_to_end_ns"].notna().all()


def test_a_call_of_many_buffers_that_waits_for_room_is_one_message(make_lab, tmp_path):
    lab = make_lab()
    client, server = tcp_pair(lab, lambda c, _: c.setsockopt(*SMALL_SEND_BUFFER))
    ports = client.getsockname()[1], server.getsockname()[1]
    client.settimeout(None)
    buffers = [bytes(4096)] * 200
    size = sum(map(len, buffers))
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for _ in range(5):
            thread = threading.Thread(target=client.sendmsg, args=(buffers,))
            thread.start()
            left = size
            while left:
                left -= len(server.recv(min(left, 3000)))
            thread.join()

    rows = rows_between(recorded.messages(), *ports)
    assert rows["size_bytes"].tolist() == [size] * 5
