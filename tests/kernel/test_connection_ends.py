"""Half-closed and reset connections, and what they still held."""

from __future__ import annotations

import ctypes
import select
import socket
import struct
import time
from collections import Counter
from functools import partial

import numpy as np
import pytest
from latprof_agent.monitor.totals import Counted
from latprof_agent.netns import run_in
from logged import (
    Calls,
    assert_rows_are,
    assert_stamps_in_order,
    read_calls_of,
    rows_between,
)
from monitored import monitored
from network_counters import kernel_counter
from recording import DEADLINE_SECONDS, recording, socket_in, tcp_pair

MESSAGES = 100


def test_after_a_half_close_the_other_direction_goes_on(make_lab, tmp_path):
    lab = make_lab()
    client, server = tcp_pair(lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    sizes = [50 + i for i in range(MESSAGES)]
    requests, read, sends, reads = Calls(), Calls(), Calls(), Calls()
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for size in sizes:
            requests.do(client.send, bytes(size))
        client.shutdown(socket.SHUT_WR)
        while read.do(server.recv, 1000):
            continue
        for size in sizes:
            sends.do(server.send, bytes(size))
            reads.do(client.recv, size, socket.MSG_WAITALL)

    rows = recorded.messages()
    there = rows_between(rows, *ports)
    read_of = read_calls_of(sizes, read)
    assert_rows_are(there, sizes, requests, read, read_of=read_of)
    back = rows_between(rows, *reversed(ports))
    assert_rows_are(back, sizes, sends, reads)
    # no hook tells the segment that a socket in FIN_WAIT receives: it is the last in
    # the queue, unless the kernel hid what it did
    assert back["arrive_ns"].isna().sum() <= recorded.totals.untraced.count


def test_what_a_reset_connection_never_sent_or_read_is_blank_and_counted(
    make_lab, tmp_path
):
    lab = make_lab()

    def small_window(_client, listener):
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)

    client, server = tcp_pair(lab, small_window)
    ports = client.getsockname()[1], server.getsockname()[1]
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sends, received = Calls(), 0
    with recording(lab, tmp_path, ("tcp",)) as recorded, server:
        client.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sends.do(client.send, bytes(3000))
        client.close()
        with pytest.raises(ConnectionResetError):
            while True:
                received += len(server.recv(1000))

    rows = rows_between(recorded.messages(), *ports)
    assert recorded.lost() == {}
    assert rows["size_bytes"].tolist() == sends.results
    assert rows["sequence"].tolist() == np.cumsum(sends.results).tolist()
    assert_stamps_in_order(rows)
    read = rows["read_ns"].notna()
    assert read.tolist() == (rows["sequence"] <= received).tolist()
    assert 0 < read.sum() < len(rows)
    assert rows["send_ns"].notna().all()
    assert rows["xmit_ns"].isna().sum() > 0
    assert sum(recorded.recorder.joiner.unmatched.values()) == (~read).sum()


def test_a_socket_that_connects_anew_begins_a_stream_anew(make_lab, tmp_path):
    lab = make_lab()
    rounds = 5
    nowhere = struct.pack("H14x", socket.AF_UNSPEC)
    listener = socket_in(lab.b_netns, socket.AF_INET, socket.SOCK_STREAM)
    client = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
    libc = ctypes.CDLL(None, use_errno=True)
    with recording(lab, tmp_path, ("tcp",)) as recorded, listener, client:
        listener.bind((lab.b_address, 0))
        listener.listen()
        for number in range(1, rounds + 1):
            client.connect(listener.getsockname())
            server, _ = listener.accept()
            with server:
                for _ in range(3):
                    client.send(bytes(number))
                    server.recv(number, socket.MSG_WAITALL)
                    server.send(bytes(10))
                    client.recv(10, socket.MSG_WAITALL)
                # dissolves the association, keeps the socket
                assert not libc.connect(client.fileno(), nowhere, len(nowhere))

    rows = recorded.messages()
    requests = rows[rows["size_bytes"] < 10].sort_values("send_ns")
    expected = [n * i for n in range(1, rounds + 1) for i in (1, 2, 3)]
    assert requests["sequence"].tolist() == expected
    replies = rows[rows["size_bytes"] == 10].sort_values("send_ns")
    assert replies["sequence"].tolist() == [10, 20, 30] * rounds
    assert rows["end_to_end_ns"].notna().all()
    assert_stamps_in_order(rows)


def half_closed(client, server):
    """The server knows where the question ends by its end, and the client likewise."""
    client.sendall(b"question")
    client.shutdown(socket.SHUT_WR)
    read_to_the_end(server)
    server.sendall(b"answer")
    server.close()
    wait_for(client, select.POLLHUP)
    read_to_the_end(client)


def asked_once_too_often(client, server):
    """An answer and the end are read at once, and then the client asks again."""
    client.sendall(b"question")
    server.recv(100)
    server.sendall(b"answer")
    server.close()
    wait_for(client, select.POLLRDHUP)
    client.recv(100)
    client.sendall(b"too late")


def reset_before_it_is_read(client, server):
    """The answer is there, and then a reset."""
    client.sendall(b"question")
    server.recv(100)
    server.sendall(b"answer")
    server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wait_for(client, select.POLLIN)
    server.close()
    wait_for(client, select.POLLHUP)
    assert client.recv(100) == b"answer"


def wait_for(sock, event):
    poll = select.poll()
    poll.register(sock, event)
    assert poll.poll(1000 * DEADLINE_SECONDS)


def read_to_the_end(sock):
    while sock.recv(100):
        continue


@pytest.mark.parametrize(
    "talk", [half_closed, asked_once_too_often, reset_before_it_is_read]
)
def test_the_last_exchange_of_a_connection_is_counted(make_lab, talk):
    rounds = 20
    lab = make_lab(rate_bps=0, delay_ns=0)
    with monitored(lab, protocols=("tcp",)) as counted:
        for _ in range(rounds):
            client, server = tcp_pair(lab)
            with client, server:
                talk(client, server)

    found = Counter()
    for group, totals in counted.totals.groups.items():
        found[group.role] += totals.counted[Counted.EXCHANGES]
    assert found == {"client": rounds, "server": rounds}
    for cause in ("talked_at_once", "unreadable_headers"):
        assert counted.totals.own.unmatched[cause] == 0


@pytest.mark.parametrize(
    ("late", "counter"), [(False, "TCPAbortOnClose"), (True, "TCPAbortOnData")]
)
def test_what_a_reader_closed_without_reading_is_named(
    make_lab, tmp_path, late, counter
):
    """It came before the close, or after it: the reader's kernel counts either."""
    lab = make_lab()

    def aborted():
        read = partial(kernel_counter, "netstat", "TcpExt", counter)
        return run_in(lab.a_netns, read)

    pairs = [tcp_pair(lab) for _ in range(20)]
    with recording(lab, tmp_path, ("tcp",)) as recorded:
        before = aborted()
        for client, server in pairs:
            server.send(bytes(100))
            assert len(client.recv(100, socket.MSG_WAITALL)) == 100
            if late:
                client.close()
                assert server.recv(1) == b""
                server.send(bytes(24))
            else:
                server.send(bytes(24))
                assert select.select([client], [], [], DEADLINE_SECONDS)[0]
                client.close()
        deadline = time.monotonic() + DEADLINE_SECONDS
        while aborted() < before + len(pairs) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert aborted() == before + len(pairs)
    for _, server in pairs:
        server.close()

    assert recorded.lost() == {}
    assert recorded.recorder.joiner.unmatched == {"sent, receiver closed": len(pairs)}
