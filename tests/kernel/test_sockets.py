"""Many sockets, short ones, old ones, shared ones, and ones that end badly."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import numpy as np
import pandas as pd
import pytest
from logged import (
    END_TO_END_NS,
    Calls,
    assert_rows_are,
    assert_stamps_in_order,
    read_calls_of,
    rows_between,
)
from recording import recording, socket_in, tcp_pair, udp_pair, wait_until

pytestmark = pytest.mark.timed

CONNECTIONS = 5000
SHORT_SECONDS, SHORT_PER_SECOND = 3, 1000
MESSAGES = 100
SIZE = 64


def _listener(lab):
    listener = socket_in(lab.b_netns, socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((lab.b_address, 0))
    listener.listen(1024)
    return listener


def _connect_all(lab, count):
    """Connected pairs; a listener each 1000, so that no path runs out of ports."""
    pairs = []
    while len(pairs) < count:
        with _listener(lab) as listener:
            for _ in range(min(1000, count - len(pairs))):
                client = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
                client.connect(listener.getsockname())
                pairs.append((client, listener.accept()[0]))
    return pairs


def test_5000_open_sockets_each_have_their_rows(make_lab, tmp_path):
    lab = make_lab()
    with recording(lab, tmp_path, ("tcp",)) as recorded:
        pairs = _connect_all(lab, CONNECTIONS)
        ports = {(c.getsockname()[1], s.getsockname()[1]) for c, s in pairs}
        logged = []
        for number in range(2):
            for client, server in pairs:
                begin = time.monotonic_ns()
                client.send(bytes(SIZE + number))
                assert len(server.recv(1000)) == SIZE + number
                server.send(bytes(2 * SIZE))
                logged.append(time.monotonic_ns() - begin)
                assert len(client.recv(1000)) == 2 * SIZE
        for pair in pairs:
            for end in pair:
                end.close()

    rows = recorded.messages()
    assert recorded.lost() == {}
    assert recorded.counters["failed_storage"] == 0
    counts = rows.groupby("size_bytes").size().to_dict()
    assert counts == {64: CONNECTIONS, 65: CONNECTIONS, 128: 2 * CONNECTIONS}
    assert rows["end_to_end_ns"].notna().all()
    assert_stamps_in_order(rows)
    requests = rows[rows["size_bytes"] < 128]
    per_port = requests.groupby(["source_port", "destination_port"]).size()
    assert set(per_port.index) == ports
    assert (per_port == 2).all()
    assert (
        requests.groupby(["source_port", "destination_port"])["sequence"]
        .agg(list)
        .map(lambda found: sorted(found) == [64, 129])
        .all()
    )
    # the whole of request and reply's call is all that lies around
    spent = requests["end_to_end_ns"].median()
    assert 0 <= np.median(logged) - spent < END_TO_END_NS


def test_each_short_connection_has_its_rows_and_a_port_used_again_is_another(
    make_lab, tmp_path
):
    lab = make_lab()
    count = SHORT_SECONDS * SHORT_PER_SECOND
    firsts = 50  # so few ports that each is used many times
    begun = time.monotonic()
    late = 0
    listener = _listener(lab)
    address = listener.getsockname()
    linger = struct.pack("ii", 1, 0)  # no TIME_WAIT, so the port is free at once
    ports = []
    pause = threading.Event()
    with recording(lab, tmp_path, ("tcp",)) as recorded, listener:
        for i in range(count):
            due = begun + i / SHORT_PER_SECOND
            pause.wait(max(0.0, due - time.monotonic()))
            late = max(late, time.monotonic() - due)
            client = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            client.bind((lab.a_address, 20000 + i % firsts))
            client.connect(address)
            server, _ = listener.accept()
            client.send(bytes(1 + i))
            left = 1 + i
            while left:
                left -= len(server.recv(left))
            server.send(bytes(10))
            assert len(client.recv(100)) == 10
            ports.append(client.getsockname()[1])
            client.close()
            server.close()

    rows = recorded.messages()
    assert recorded.lost() == {}
    requests = rows[rows["destination_port"] == address[1]].sort_values("send_ns")
    assert requests["size_bytes"].tolist() == list(range(1, count + 1))
    # each connection's stream begins anew: its only request ends at its size
    assert (requests["sequence"] == requests["size_bytes"]).all()
    assert requests["source_port"].tolist() == ports
    replies = rows[rows["source_port"] == address[1]].sort_values("send_ns")
    assert replies["sequence"].tolist() == [10] * count
    assert replies["destination_port"].tolist() == ports
    assert rows["end_to_end_ns"].notna().all()
    assert_stamps_in_order(rows)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_sockets_older_than_the_run_are_right_from_its_first_message(
    make_lab, tmp_path, protocol
):
    lab = make_lab()
    client, server = {"tcp": tcp_pair, "udp": udp_pair}[protocol](lab)
    ports = client.getsockname()[1], server.getsockname()[1]
    before = 0
    for size in (10, 1000, 500):
        client.send(bytes(size))
        before += size
    assert server.recv(10) == bytes(10)  # the rest stays in the queue
    server.send(bytes(5))
    wait_until(lambda: client.recv(10), "the answer")
    sizes = [100 + i for i in range(MESSAGES)]
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        for size in sizes[:10]:
            sends.do(client.send, bytes(size))
        unread = before - 10
        while unread:  # what is older than the run: not a message of it
            unread -= len(server.recv(unread))
        for size in sizes[10:]:
            reads.do(server.recv, 100)
            sends.do(client.send, bytes(size))
        left = sum(sizes) - sum(map(len, reads.results))
        while left if protocol == "tcp" else len(reads.results) < len(sizes):
            left -= len(reads.do(server.recv, 150))

    rows = rows_between(recorded.messages(), *ports)
    assert recorded.lost() == {}
    if protocol == "tcp":  # offsets count from the first byte of the stream
        assert rows["sequence"].iloc[0] == before + sizes[0]
        rows["sequence"] -= before
        read_of = read_calls_of(sizes, reads)
    else:
        read_of = list(range(len(sizes)))
    assert_rows_are(rows, sizes, sends, reads, read_of=read_of)


def _read_records(sock, size, read):
    """Read whole messages until the peer says, by a first byte of 255, no more."""
    while True:
        begin = time.monotonic_ns()
        data = sock.recv(size, socket.MSG_WAITALL)
        end = time.monotonic_ns()
        if not data or data[0] == 255:
            return
        number = int.from_bytes(data[1:5], "big")
        read.append((number, begin, end, os.getpid()))


def _reading_process(sock, size, report):
    """Fork a reader that reports what it read through a pipe."""
    pid = os.fork()
    if pid:
        return pid
    read = []
    try:
        _read_records(sock, size, read)
        os.write(report, b"".join(struct.pack("qqqq", *entry) for entry in read))
    finally:
        os._exit(0)


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_several_readers_of_one_socket_each_get_their_reads(
    make_lab, tmp_path, protocol, kind
):
    lab = make_lab()
    client, server = {"tcp": tcp_pair, "udp": udp_pair}[protocol](lab)
    server.settimeout(None)
    ports = client.getsockname()[1], server.getsockname()[1]
    readers, read, pids = 3, [], []
    out, into = os.pipe()
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        if kind == "threads":
            threads = [
                threading.Thread(target=_read_records, args=(server, SIZE, read))
                for _ in range(readers)
            ]
            for thread in threads:
                thread.start()
        else:
            pids = [_reading_process(server, SIZE, into) for _ in range(readers)]
        pause = threading.Event()
        sends = Calls()
        for number in range(MESSAGES):
            data = b"\0" + number.to_bytes(4, "big") + bytes(SIZE - 5)
            sends.do(client.send, data)
            pause.wait(0.0005)
        for _ in range(readers):
            client.send(b"\xff" * SIZE)
        if kind == "threads":
            for thread in threads:
                thread.join()
        for pid in pids:
            os.waitpid(pid, 0)
    os.close(into)
    with os.fdopen(out, "rb") as reports:
        read += struct.iter_unpack("qqqq", reports.read())

    rows = rows_between(recorded.messages(), *ports).iloc[:MESSAGES]
    assert recorded.lost() == {}
    logged = pd.DataFrame(sorted(read), columns=["number", "begin", "end", "pid"])
    assert logged["number"].tolist() == list(range(MESSAGES))
    assert rows["size_bytes"].tolist() == [SIZE] * MESSAGES
    assert_stamps_in_order(rows)
    inside = (rows["read_ns"] >= logged["begin"]) & (rows["read_ns"] <= logged["end"])
    assert inside.all(), rows[~inside]
    assert (rows["reader_pid"] == logged["pid"]).all()
    spent = logged["end"] - np.array(sends.begins_ns)
    assert np.median(spent - rows["end_to_end_ns"]) < END_TO_END_NS
