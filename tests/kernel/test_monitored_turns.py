"""What watch and agent count as exchanges, and as none, held against the programs."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

import pytest
from latprof_agent.monitor.totals import Counted, Quantity
from latprof_agent.probes.filter import Filter
from monitored import LAST_DATAGRAMS, histogram, monitored, need_quantity
from recording import wait_until
from talkers import (
    connected,
    dns,
    listening,
    make_certificate,
    read_whole,
    tls_contexts,
    tls_server,
)

THINK_SECONDS = 0.03


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


def watched(port):
    return monitored(Filter(ports=(port,)))


@pytest.mark.parametrize("version", ["TLSv1_3", "TLSv1_2"])
def test_a_handshake_and_tickets_are_no_exchange(certificate, version):
    count = 10
    of_server, of_client = tls_contexts(certificate, version, 2)

    serve = tls_server(of_server, THINK_SECONDS)
    took = []
    with listening(serve) as port, watched(port) as counted:
        for _ in range(count):
            with of_client.wrap_socket(connected(port)) as connection:
                begun = time.monotonic_ns()
                connection.sendall(bytes(30))
                read_whole(connection, 500)
                took.append(time.monotonic_ns() - begun)
    client, server = counted.group(role="client"), counted.group(role="server")
    response = histogram(client, Quantity.RESPONSE)
    of_server_ns = histogram(server, Quantity.SERVER)
    assert (response.count, of_server_ns.count) == (count, count)
    assert count * THINK_SECONDS * 1e9 <= of_server_ns.sum_ns <= response.sum_ns
    assert response.sum_ns <= sum(took)
    assert client.counted[Counted.UNANSWERED] == 0


def test_an_interim_answer_is_no_reply():
    interim, count = b"HTTP/1.1 100 Continue\r\n\r\n", 10

    def serve(connection):
        with connection:
            while connection.recv(100):
                connection.sendall(interim)
                read_whole(connection, 5000)
                time.sleep(THINK_SECONDS)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    took = []
    with listening(serve) as port, watched(port) as counted, connected(port) as client:
        for _ in range(count):
            begun = time.monotonic_ns()
            client.sendall(b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\n\r\n")
            assert read_whole(client, len(interim)) == interim
            client.sendall(bytes(5000))
            read_whole(client, 38)
            took.append(time.monotonic_ns() - begun)
    response = histogram(counted.group(role="client"), Quantity.RESPONSE)
    of_server_ns = histogram(counted.group(role="server"), Quantity.SERVER)
    assert (response.count, of_server_ns.count) == (count, count)
    assert count * THINK_SECONDS * 1e9 <= of_server_ns.sum_ns <= response.sum_ns
    assert response.sum_ns <= sum(took)


@pytest.mark.parametrize("begin", [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"window"])
def test_who_talks_at_once_has_no_exchange_any_more(begin):
    def serve(connection):
        with connection:
            while connection.recv(100):
                connection.sendall(bytes(10))

    with listening(serve) as port, watched(port) as counted, connected(port) as client:
        client.sendall(begin)
        if begin == b"window":  # a part of the answer waits when this is sent
            wait_until(lambda: client.recv(10, socket.MSG_PEEK), "an answer")
            read_whole(client, 5)
            client.sendall(b"more")
            read_whole(client, 10)
            client.sendall(b"more")
            read_whole(client, 5)
        for _ in range(50):
            read_whole(client, 10)
            client.sendall(b"politely")
        read_whole(client, 10)
    at_client = counted.group(role="client").counted
    assert at_client[Counted.EXCHANGES] == 0
    assert at_client[Counted.NO_TURNS] >= 50


def test_a_window_of_requests_leaves_no_exchange_that_it_began_with():
    """Answered in order, it looks like turns until a byte is left unread."""
    window, count = 4, 40

    def serve(connection):
        with connection:
            for _ in range(count):
                read_whole(connection, 10)
                time.sleep(0.005)
                connection.sendall(bytes(10))

    with listening(serve) as port, watched(port) as counted, connected(port) as client:
        for _ in range(window):
            client.sendall(bytes(10))
        for _ in range(count - window):
            read_whole(client, 10)
            client.sendall(bytes(10))
        read_whole(client, 10 * window)
    for role in ("client", "server"):
        found = counted.group(role=role)
        assert found.counted[Counted.EXCHANGES] == 0, role
        assert found.counted[Counted.NO_TURNS] >= count / 2


def test_requests_without_an_answer_are_counted():
    need_quantity(LAST_DATAGRAMS)

    def serve(connection):
        with connection:
            while (asked := connection.recv(100)) and asked != b"never":
                connection.sendall(b"answer")
            while asked and connection.recv(100):
                continue

    def answer(sock):
        while (asked := sock.recvfrom(100))[0] != b"end":
            if asked[0] != b"never":
                sock.sendto(*asked)

    with ExitStack() as stack:
        port = stack.enter_context(listening(serve))
        datagrams = stack.enter_context(listening(answer, socket.SOCK_DGRAM))
        with monitored(Filter(ports=(port, datagrams))) as counted:
            waiting = connected(port)
            for connection in connected(port), waiting:
                connection.sendall(b"question")
                read_whole(connection, 6)
                connection.sendall(b"never")
                time.sleep(0.05)
                if connection is not waiting:
                    connection.close()
            with socket.socket(type=socket.SOCK_DGRAM) as client:
                client.connect(("127.0.0.1", datagrams))
                for words in (b"one", b"never", b"two", b"never", b"three"):
                    client.send(words)
                    if words != b"never":
                        client.recv(100)
                    time.sleep(0.05)
                client.send(b"end")
            time.sleep(1.5)  # requests that wait are looked for each second
            found = wait_until(lambda: counted.monitor.totals().waiting, "looked")
        waiting.close()
    # a client of another test may have one of these ports by chance
    tcp, udp = (
        counted.group(role="client", protocol=protocol, service=str(at)).counted
        for protocol, at in (("tcp", port), ("udp", datagrams))
    )
    assert (tcp[Counted.EXCHANGES], tcp[Counted.UNANSWERED]) == (2, 1)
    assert (udp[Counted.EXCHANGES], udp[Counted.UNANSWERED]) == (3, 2)
    (of_tcp,) = (one for group, one in found.items() if group.service == str(port))
    assert of_tcp.count == 1
    assert of_tcp.oldest_seconds >= 1


def test_half_of_a_connection_closed_is_no_end_of_the_waiting():
    """Who has said all waits for its answer; a server that has gives none."""
    answered, in_vain, behind = 4, 3, 2

    def serve(connection):
        with connection:
            asked = read_whole(connection, 5)
            if asked == b"after":
                connection.sendall(b"answer")
                connection.shutdown(socket.SHUT_WR)
            while connection.recv(100):
                continue  # until its client has said all
            time.sleep(0.02)  # who closes at once need not be waited for
            if asked == b"reply":
                connection.sendall(b"answer")

    with listening(serve) as port, watched(port) as counted:
        words = [b"reply"] * answered + [b"never"] * in_vain + [b"after"] * behind
        for word in words:
            with connected(port) as client:
                client.sendall(word)
                if word == b"after":
                    read_whole(client, 6)
                    assert not client.recv(1)
                    client.sendall(b"which asks for nothing")
                    continue
                client.shutdown(socket.SHUT_WR)
                while client.recv(100):
                    continue
    found = counted.group(role="client").counted
    assert found[Counted.EXCHANGES] == answered + behind
    assert found[Counted.UNANSWERED] == in_vain


def test_answers_of_dns_are_paired_by_identification():
    """Four questions at once, answered in reverse."""

    def serve(sock):
        while True:
            asked = [sock.recvfrom(500) for _ in range(4)]
            if len(asked[0][0]) < 12:
                return
            for query, client in reversed(asked):
                time.sleep(0.004)
                identification = int.from_bytes(query[:2], "big")
                sock.sendto(dns(identification, answer=True), client)

    begun, took = {}, []
    with (
        listening(serve, socket.SOCK_DGRAM) as port,
        watched(port) as counted,
        socket.socket(type=socket.SOCK_DGRAM) as client,
    ):
        client.connect(("127.0.0.1", port))
        for burst in range(10):
            for identification in range(10 * burst, 10 * burst + 4):
                begun[identification] = time.monotonic_ns()
                client.send(dns(identification))
            for _ in range(4):
                identification = int.from_bytes(client.recv(500)[:2], "big")
                took.append(time.monotonic_ns() - begun[identification])
        for _ in range(4):
            client.send(b"end")
    response = histogram(counted.group(role="client"), Quantity.RESPONSE)
    assert response.count == len(took) == 40
    assert 10 * 10 * 4e6 <= response.sum_ns <= sum(took)
