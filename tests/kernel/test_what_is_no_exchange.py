"""What is no exchange, or only looks like one: held against the programs' own clocks.

Each program here knows which of its bytes answer which, and when: an exchange must
lie within the times that its client took, and what is none must be counted.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
import termios
import time
from collections import deque
from contextlib import suppress

import pandas as pd
import pytest
from free_ports import free_port
from latprof_agent.monitor.totals import Counted
from latprof_agent.probes.filter import Filter
from latprof_analysis.records.exchanges import AT_ONCE_NS
from monitored import monitored
from recording import recording
from talkers import (
    connected,
    dns,
    listening,
    make_certificate,
    read_whole,
    tls_contexts,
    tls_server,
)

MS = 1_000_000
THINK_SECONDS = 0.03


def table_of(recorded, name):
    return pd.read_csv(recorded.folder.path / f"{name}.csv")


def exchanges_of(recorded):
    assert recorded.lost() == {}
    return table_of(recorded, "exchanges").sort_values("request_sent_ns")


def causes_of(recorded):
    """Messages of no exchange, by cause."""
    found = {}
    for (_, cause), count in recorded.totals.tally.no_exchange.items():
        found[cause] = found.get(cause, 0) + count
    return found


def watched(port, folder):
    return recording(Filter(ports=(port,)), folder)


def lie_within(rows, asked):
    """Whether each exchange lies within the times that its client took for it."""
    assert len(rows) == len(asked)
    for (_, row), (begun_ns, ended_ns) in zip(rows.iterrows(), asked, strict=True):
        assert begun_ns <= row["request_sent_ns"] <= row["reply_read_ns"] <= ended_ns


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.parametrize("tickets", [2, 0])
@pytest.mark.parametrize("version", ["TLSv1_3", "TLSv1_2"])
def test_a_handshake_and_tickets_are_no_exchange(
    tmp_path, certificate, version, tickets
):
    count = 8
    of_server, of_client = tls_contexts(certificate, version, tickets)

    serve = tls_server(of_server, THINK_SECONDS)
    asked = []
    with listening(serve) as port, watched(port, tmp_path) as recorded:
        for _ in range(count):
            with of_client.wrap_socket(connected(port)) as connection:
                begun_ns = time.monotonic_ns()
                connection.sendall(bytes(30))
                read_whole(connection, 500)
                asked.append((begun_ns, time.monotonic_ns()))
    rows = exchanges_of(recorded)
    lie_within(rows, asked)
    assert (rows["server_ns"] >= THINK_SECONDS * 1e9).all()
    others = table_of(recorded, "other_turns")
    handshakes = others[others["kind"] == "handshake"]
    assert len(handshakes) == count
    assert (handshakes["response_ns"] < rows["request_sent_ns"].iloc[-1]).all()
    assert not recorded.totals.exchanges.unanswered, "closing words ask for nothing"


def test_requests_without_an_answer_say_what_ended_the_waiting(tmp_path):
    def serve(connection):
        with connection:
            while (asked := connection.recv(100)) and asked != b"never":
                connection.sendall(b"answer")
            with suppress(ConnectionResetError):
                while asked and connection.recv(100):
                    continue

    with listening(serve) as port:
        with watched(port, tmp_path) as recorded:
            for ending in ("answered", "closed", "reset", "words"):
                connection = connected(port)
                connection.sendall(b"question")
                read_whole(connection, 6)
                if ending in ("closed", "reset"):
                    connection.sendall(b"never")
                    time.sleep(0.05)
                if ending == "reset":
                    linger = struct.pack("ii", 1, 0)
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                begun = time.monotonic_ns()
                if ending == "words":
                    connection.sendall(b"never")  # and waits for nothing
                connection.close()
            # unless a busy host makes it wait
            waited = time.monotonic_ns() - begun > AT_ONCE_NS
            waiting = connected(port)
            waiting.sendall(b"question")
            read_whole(waiting, 6)
            waiting.sendall(b"never")
            time.sleep(0.05)
        waiting.close()
    assert len(exchanges_of(recorded)) == 5
    others = table_of(recorded, "other_turns")
    assert set(others["kind"]) == {"unanswered"}
    ended = ["client closed", "not by the end", "reset"]
    found = sorted(others["outcome"])
    assert found == ended or (waited and found == ["client closed", *ended])
    assert (others["waited_ns"] >= 50 * MS).sum() >= len(ended)


def test_a_datagram_that_is_given_up_takes_no_later_answer(tmp_path):
    """One of four is never answered, and one when the next was sent."""

    def serve(sock):
        while (asked := sock.recvfrom(100))[0] != b"end":
            number = asked[0][0]
            if number % 4 == 1:
                time.sleep(0.15)  # too late
            if number % 4 != 3:
                sock.sendto(*asked)

    asked, given_up = [], 0
    with (
        listening(serve, socket.SOCK_DGRAM) as port,
        watched(port, tmp_path) as recorded,
        socket.socket(type=socket.SOCK_DGRAM) as client,
    ):
        client.connect(("127.0.0.1", port))
        client.settimeout(0.1)
        for number in range(16):
            begun_ns = time.monotonic_ns()
            client.send(bytes([number] * 20))
            try:
                while client.recv(100)[0] != number:
                    continue
                asked.append((begun_ns, time.monotonic_ns()))
            except TimeoutError:
                given_up += 1
        client.send(b"end")
    assert given_up == 8
    lie_within(exchanges_of(recorded), asked)
    others = table_of(recorded, "other_turns")
    assert (others["outcome"] == "next one sent").sum() == given_up
    assert (others["waited_ns"].head(given_up) >= 90 * MS).all()
    assert causes_of(recorded)["answer to a request that was given up"] == 4


def test_a_window_of_requests_takes_back_what_was_one_before(tmp_path):
    def serve(connection):
        with connection:
            while asked := connection.recv(64):
                for _ in range(len(asked) // 8):
                    time.sleep(0.003)
                    connection.sendall(bytes(10))

    with listening(serve) as port, watched(port, tmp_path) as recorded:
        with connected(port) as other:
            for _ in range(5):
                other.sendall(bytes(8))
                read_whole(other, 10)
        took_ns = []
        with connected(port) as window:
            for _ in range(20):
                window.sendall(bytes(8))
                read_whole(window, 10)
            time.sleep(3)  # longer than anything is held back: those are written
            sent_ns = deque()
            for _ in range(3):
                sent_ns.append(time.monotonic_ns())
                window.sendall(bytes(8))
            for _ in range(30):
                read_whole(window, 10)
                took_ns.append(time.monotonic_ns() - sent_ns.popleft())
                sent_ns.append(time.monotonic_ns())
                window.sendall(bytes(8))
            read_whole(window, 30)
    rows = exchanges_of(recorded)
    assert len(rows) == 5, "those of the connection without a window"
    # at most: a client that comes late sends another just before it is answered
    (least_ns,) = recorded.totals.tally.least_responses_ns.values()
    assert 0 < least_ns <= min(took_ns)
    (figures,) = recorded.totals.exchanges.as_dict().values()
    assert figures["exchanges"] == 5
    assert causes_of(recorded) == {"both sides talked at once": 2 * (20 + 33)}
    sizes = recorded.totals.tally.no_exchange_bytes.values()
    assert sum(sizes) == (20 + 33) * (8 + 10)


@pytest.mark.parametrize("protocol", ["udp", "tcp"])
def test_answers_of_dns_are_paired_by_identification(tmp_path, protocol):
    """Four questions at once, answered in reverse."""
    stream = protocol == "tcp"

    def framed(message):
        return struct.pack(">H", len(message)) + message if stream else message

    def serve(sock):
        while True:
            ids, client = [], None
            for _ in range(4):
                try:
                    if stream:
                        (size,) = struct.unpack(">H", read_whole(sock, 2))
                        asked = read_whole(sock, size)
                    else:
                        asked, client = sock.recvfrom(500)
                except (OSError, AssertionError):
                    sock.close()
                    return
                if len(asked) < 12:
                    return
                ids.append(struct.unpack(">H", asked[:2])[0])
            for identification in reversed(ids):
                time.sleep(0.004)
                answer = framed(dns(identification, answer=True))
                sock.sendall(answer) if stream else sock.sendto(answer, client)

    kind = socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
    begun, took = {}, {}
    with (
        listening(serve, kind) as port,
        watched(port, tmp_path) as recorded,
        socket.socket(type=kind) as client,
    ):
        client.connect(("127.0.0.1", port))
        for burst in range(5):
            for identification in range(10 * burst, 10 * burst + 4):
                begun[identification] = time.monotonic_ns()
                client.sendall(framed(dns(identification)))
            for _ in range(4):
                found = read_whole(client, 42) if stream else client.recv(500)
                (identification,) = struct.unpack(">H", found[-40:][:2])
                took[identification] = begun[identification], time.monotonic_ns()
        if not stream:
            client.send(b"end")
    rows = exchanges_of(recorded)
    lie_within(rows, [took[identification] for identification in sorted(took)])
    # each response is the wait for those before it in the server's order, too
    assert (rows["response_ns"].to_numpy()[::4] >= 16 * MS).all()


def test_an_interim_answer_is_no_reply(tmp_path):
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"

    def serve(connection):
        with connection:
            while connection.recv(100):
                connection.sendall(interim)
                read_whole(connection, 5000)
                time.sleep(THINK_SECONDS)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    asked = []
    with (
        listening(serve) as port,
        watched(port, tmp_path) as recorded,
        connected(port) as client,
    ):
        for _ in range(5):
            begun_ns = time.monotonic_ns()
            client.sendall(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n")
            assert read_whole(client, 25) == interim
            client.sendall(bytes(5000))
            read_whole(client, 38)
            asked.append((begun_ns, time.monotonic_ns()))
    rows = exchanges_of(recorded)
    lie_within(rows, asked)
    assert (rows["requests"] == 2).all()
    assert causes_of(recorded) == {"interim answer": 5}


def test_what_is_said_before_a_pause_is_no_part_of_a_request(tmp_path):
    def serve(connection):
        with connection:
            while asked := connection.recv(100):
                if asked != b"p":
                    connection.sendall(b"answer")
                    time.sleep(0.15)
                    connection.sendall(b"pushed")

    asked = []
    with (
        listening(serve) as port,
        watched(port, tmp_path) as recorded,
        connected(port) as client,
    ):
        for _ in range(4):
            client.sendall(b"p")
            time.sleep(0.2)
            begun_ns = time.monotonic_ns()
            client.sendall(b"question")
            read_whole(client, 6)
            answered_ns = time.monotonic_ns()
            read_whole(client, 6)
            asked.append((begun_ns, answered_ns, time.monotonic_ns()))
    rows = exchanges_of(recorded)
    lie_within(rows, [(begun, ended) for begun, _, ended in asked])
    # whether what is pushed is part of the reply cannot be known: both are there
    until_ns = rows["request_sent_ns"] + rows["until_pause_ns"]
    assert (until_ns.to_numpy() <= [answered for _, answered, _ in asked]).all()
    assert (rows["response_ns"] >= 150 * MS).all()
    (figures,) = recorded.totals.exchanges.as_dict().values()
    assert figures["paused"] == 4
    assert causes_of(recorded)["not answered before a pause"] == 4


def test_http2_has_no_exchange_from_its_first_bytes(tmp_path):
    def serve(connection):
        with connection:
            while connection.recv(100):
                connection.sendall(bytes(20))

    with (
        listening(serve) as port,
        watched(port, tmp_path) as recorded,
        connected(port) as client,
    ):
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        for _ in range(5):
            read_whole(client, 20)
            client.sendall(bytes(9))
        read_whole(client, 20)
    assert len(exchanges_of(recorded)) == 0
    assert causes_of(recorded) == {"HTTP/2: both sides talk at once": 12}


def test_a_long_reply_is_in_every_figure(tmp_path):
    """Of many pieces over a time in which our own cost is measured several times."""

    def serve(connection):
        with connection:
            while connection.recv(100):
                for _ in range(60):
                    time.sleep(0.04)
                    connection.sendall(b"piece")

    with (
        listening(serve) as port,
        watched(port, tmp_path) as recorded,
        connected(port) as client,
    ):
        client.sendall(b"question")
        read_whole(client, 5 * 60)
    rows = exchanges_of(recorded)
    (figures,) = recorded.totals.exchanges.as_dict().values()
    response = figures["parts"]["response"]
    assert (figures["exchanges"], response["n"]) == (1, 1)
    assert response["max_ns"] == rows["response_ns"].iloc[0] > 2400 * MS


def test_the_port_of_another_is_none_of_ours(tmp_path):
    """Nothing is recorded of a port that nobody asked for."""
    with (
        watched(free_port(), tmp_path) as recorded,
        listening(socket.socket.close) as p,
    ):
        connected(p).close()
    assert len(table_of(recorded, "messages")) == 0


def unread(connection):
    """How many bytes the kernel says are there."""
    found = fcntl.ioctl(connection, termios.FIONREAD, bytes(4))
    return int.from_bytes(found, sys.byteorder)


LOW_WATER, TIMES = 1000, 10


def test_bytes_below_the_low_water_mark_are_readable_when_they_came(tmp_path):
    """Nobody is woken for them, and no hook is called."""
    there, asked = [], []

    def serve(connection):
        with connection:
            read_whole(connection, 100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_WATER)
            connection.sendall(bytes(50))
            for _ in range(TIMES):
                while unread(connection) < 100:
                    pass
                there.append(time.monotonic_ns())
                read_whole(connection, 100)
                connection.sendall(bytes(50))

    with (
        listening(serve) as port,
        watched(port, tmp_path) as recorded,
        monitored(Filter(ports=(port,))) as counted,
        connected(port) as client,
    ):
        for _ in range(1 + TIMES):
            begun_ns = time.monotonic_ns()
            client.sendall(bytes(100))
            read_whole(client, 50)
            asked.append((begun_ns, time.monotonic_ns()))
    lie_within(exchanges_of(recorded), asked)
    rows = recorded.messages()
    requests = rows[rows["destination_port"] == port].sort_values("send_ns")[1:]
    spans = zip(asked[1:], there, strict=True)
    for ready_ns, ((begun_ns, _), there_ns) in zip(
        requests["ready_ns"], spans, strict=True
    ):
        assert begun_ns <= ready_ns <= there_ns
    assert (requests["queue_bytes_at_arrival"] == 0).all()
    assert recorded.counters["unseen_ready"] == 0
    client, server = counted.group(role="client"), counted.group(role="server")
    assert client.counted[Counted.EXCHANGES] == 1 + TIMES
    assert server.counted[Counted.EXCHANGES] == 1 + TIMES
    assert server.counted[Counted.RECEIVED_MESSAGES] == 1 + TIMES


def test_what_became_readable_unseen_is_read_when_it_was(tmp_path):
    """As below the low water mark of an end that has sent its FIN."""
    read = []

    def serve(connection):
        with connection:
            read_whole(connection, 100)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, LOW_WATER)
            connection.shutdown(socket.SHUT_WR)
            for _ in range(TIMES):
                while unread(connection) < 100:
                    pass
                begun_ns = time.monotonic_ns()
                connection.recv(4000, socket.MSG_DONTWAIT)
                read.append((begun_ns, time.monotonic_ns()))

    with (
        listening(serve) as port,
        watched(port, tmp_path) as recorded,
        monitored(Filter(ports=(port,))) as counted,
        connected(port) as client,
    ):
        client.sendall(bytes(100))
        assert not client.recv(1)
        for done in range(TIMES):
            client.sendall(bytes(100))
            while len(read) == done:
                pass
    rows = recorded.messages().sort_values("send_ns")[1:]
    assert rows["ready_ns"].isna().all()
    for read_ns, (begun_ns, ended_ns) in zip(rows["read_ns"], read, strict=True):
        assert begun_ns <= read_ns <= ended_ns
    assert recorded.counters["unseen_ready"] == TIMES
    server = counted.group(role="server")
    assert server.counted[Counted.RECEIVED_MESSAGES] == 1 + TIMES
