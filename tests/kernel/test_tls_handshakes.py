"""Handshakes of TLS in all their forms, and what comes with and behind them.

What a run records, and what is counted live, against the programs' own clocks.
"""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from contextlib import ExitStack
from dataclasses import dataclass, field

import pytest
from free_ports import free_port
from latprof_agent.monitor.totals import Counted, Quantity
from latprof_agent.probes.filter import Filter
from monitored import histogram, monitored
from nginx import nginx
from recording import recording
from talkers import connected, listening, make_certificate, read_whole, tls_contexts
from test_exchanges import need, served
from test_what_is_no_exchange import (
    causes_of,
    exchanges_of,
    lie_within,
    table_of,
)

THINK_SECONDS = 0.03
HANDSHAKE_SECONDS = 0.01  # that the server takes for it, at least
CONNECTIONS, REQUESTS = 8, 2
EARLY = "TLS 0-RTT: sent with the handshake"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@dataclass
class Asked:
    """When requests were sent and their replies read, and how long handshakes took."""

    times: list[tuple[int, int]] = field(default_factory=list)
    handshakes_ns: list[int] = field(default_factory=list)
    resumed: int = 0

    def took_ns(self):
        return sum(ended - begun for begun, ended in self.times)

    def ask(self, connection, size):
        begun_ns = time.monotonic_ns()
        connection.sendall(bytes(37))
        read_whole(connection, size)
        self.times.append((begun_ns, time.monotonic_ns()))


def serving(context, *, plain=False):
    """What answers each request with 500 bytes, in two parts; `plain`: STARTTLS."""

    def serve(raw):
        if plain:
            raw.sendall(b"220 greeting\r\n")
            read_whole(raw, 37)
            raw.sendall(b"220 go ahead\r\n")
        raw.recv(1, socket.MSG_PEEK)  # the client's hello
        time.sleep(HANDSHAKE_SECONDS)
        with context.wrap_socket(raw, server_side=True) as connection:
            while connection.recv(4000):
                time.sleep(THINK_SECONDS)
                connection.sendall(bytes(200))
                connection.sendall(bytes(300))

    return serve


def talk(port, context, asked, *, plain=False, resume=False):
    session = None
    for _ in range(CONNECTIONS):
        raw = connected(port)
        if plain:
            read_whole(raw, 14)
            asked.ask(raw, 14)
        begun_ns = time.monotonic_ns()
        with context.wrap_socket(raw, session=session) as connection:
            asked.handshakes_ns.append(time.monotonic_ns() - begun_ns)
            asked.resumed += bool(connection.session_reused)
            for _ in range(REQUESTS):
                asked.ask(connection, 500)
            session = connection.session if resume else None


def contexts(certificate, version, kind):
    of_server, of_client = tls_contexts(certificate, version, 2)
    if kind == "mutual":
        of_server.verify_mode = ssl.CERT_REQUIRED
        of_server.load_verify_locations(certificate[0])
        of_client.load_cert_chain(*certificate)
    if kind == "other curve":  # than the client's first: it must say hello again
        of_server.set_ecdh_curve("secp384r1")
    return of_server, of_client


KINDS = [
    ("TLSv1_3", "plain"),
    ("TLSv1_3", "mutual"),
    ("TLSv1_3", "resumed"),
    ("TLSv1_3", "other curve"),
    ("TLSv1_3", "starttls"),
    ("TLSv1_2", "plain"),
    ("TLSv1_2", "mutual"),
    ("TLSv1_2", "resumed"),
    ("TLSv1_2", "starttls"),
]


@pytest.fixture(scope="module")
def talked(tmp_path_factory, certificate):
    """All kinds at once: of each its port, and what was asked; and what was seen."""
    with ExitStack() as stack:
        ports = {}
        for version, kind in KINDS:
            of_server, of_client = contexts(certificate, version, kind)
            serve = serving(of_server, plain=kind == "starttls")
            port = stack.enter_context(listening(serve))
            ports[version, kind] = port, of_client, Asked()
        watched = Filter(ports=tuple(port for port, _, _ in ports.values()))
        folder = tmp_path_factory.mktemp("runs")
        with recording(watched, folder) as recorded, monitored(watched) as counted:
            for (_, kind), (port, of_client, asked) in ports.items():
                plain, resume = kind == "starttls", kind == "resumed"
                talk(port, of_client, asked, plain=plain, resume=resume)
    return ports, exchanges_of(recorded), table_of(recorded, "other_turns"), counted


def of_port(table, port):
    return table[table["server_port"] == port]


@pytest.mark.always
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_each_request_of_each_kind_is_one_exchange_of_a_run(talked, version, kind):
    ports, exchanges, others, _ = talked
    port, _, asked = ports[version, kind]
    assert asked.resumed == (CONNECTIONS - 1) * (kind == "resumed")
    rows = of_port(exchanges, port)
    lie_within(rows, asked.times)
    encrypted = rows[rows["response_ns"] > THINK_SECONDS * 1e9]
    assert len(encrypted) == CONNECTIONS * REQUESTS
    known = encrypted["server_ns"].dropna()
    assert len(known) >= CONNECTIONS * (REQUESTS - 1)
    assert (known >= THINK_SECONDS * 1e9).all()
    apart = of_port(others, port)
    assert set(apart["kind"]) == {"handshake"}
    took = list(
        zip(sorted(apart["response_ns"]), sorted(asked.handshakes_ns), strict=True)
    )
    assert all(HANDSHAKE_SECONDS * 1e9 < ours < its for ours, its in took), took


@pytest.mark.always
@pytest.mark.parametrize(("version", "kind"), KINDS)
def test_each_request_of_each_kind_is_one_exchange_live(talked, version, kind):
    ports, _, _, counted = talked
    port, _, asked = ports[version, kind]
    plain = kind == "starttls"
    client, server = (
        counted.group(role=role, service=str(port)) for role in ("client", "server")
    )
    response = histogram(client, Quantity.RESPONSE)
    count = CONNECTIONS * (REQUESTS + plain)
    assert client.counted[Counted.EXCHANGES] == response.count == count
    assert response.sum_ns <= asked.took_ns()
    assert client.counted[Counted.UNANSWERED] == 0
    handshake = histogram(client, Quantity.TLS_HANDSHAKE)
    assert handshake.count == CONNECTIONS
    assert handshake.sum_ns > HANDSHAKE_SECONDS * 1e9 * CONNECTIONS
    assert handshake.sum_ns < sum(asked.handshakes_ns)
    # where more than a last word was read, what was with it is not known
    at_most = server.counted[Counted.UNCOUNTED]
    assert at_most <= CONNECTIONS * (kind == "mutual" and version == "TLSv1_3")
    assert count - at_most <= server.counted[Counted.EXCHANGES] <= count
    of_server_ns = histogram(server, Quantity.SERVER)
    thought_ns = THINK_SECONDS * 1e9 * (of_server_ns.count - CONNECTIONS * plain)
    assert thought_ns <= of_server_ns.sum_ns <= response.sum_ns


def test_a_flight_of_several_messages_is_of_the_handshake(tmp_path, certificate):
    """Some send each word of it by itself (Java): the request is none of them."""
    of_server, of_client = contexts(certificate, "TLSv1_3", "mutual")
    asked = Asked()

    with listening(serving(of_server)) as port:
        watched = Filter(ports=(port,))
        with recording(watched, tmp_path) as recorded, monitored(watched) as counted:
            for _ in range(CONNECTIONS):
                with connected(port) as raw:
                    talk_by_words(raw, of_client, asked)
    lie_within(exchanges_of(recorded), asked.times)
    client = counted.group(role="client")
    response = histogram(client, Quantity.RESPONSE)
    assert response.count == client.counted[Counted.EXCHANGES] == CONNECTIONS
    assert response.sum_ns <= asked.took_ns()
    assert histogram(client, Quantity.TLS_HANDSHAKE).count == CONNECTIONS


def talk_by_words(raw, context, asked):
    """Send each record of the client's flight in a call of its own."""
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    of_tls = context.wrap_bio(coming, going)
    while True:
        try:
            of_tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            raw.sendall(going.read())
            coming.write(raw.recv(1 << 16))
    flight = going.read()
    while flight:
        size = 5 + int.from_bytes(flight[3:5], "big")
        raw.sendall(flight[:size])
        flight = flight[size:]
    of_tls.write(bytes(37))
    begun_ns, found = time.monotonic_ns(), b""
    raw.sendall(going.read())
    while len(found) < 500:
        coming.write(raw.recv(1 << 16))
        try:
            while more := of_tls.read(500):
                found += more
        except ssl.SSLWantReadError:
            continue
    asked.times.append((begun_ns, time.monotonic_ns()))


def test_a_request_that_came_with_the_handshake_is_said_to_be_in_no_exchange(
    tmp_path, certificate
):
    need("nginx")
    port, count = free_port(), 5
    request = tmp_path / "request"
    request.write_bytes(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    client = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-ign_eof"]
    session = tmp_path / "session"
    early = "ssl_early_data on;"
    server = nginx(tmp_path, port, certificate=certificate, http=early)
    watched = Filter(ports=(port,))
    with (
        served(server, port),
        recording(watched, tmp_path) as recorded,
        monitored(watched) as counted,
    ):
        s_client([*client, "-sess_out", session], request.read_bytes())
        said = [
            s_client([*client, "-sess_in", session, "-early_data", request])
            for _ in range(count)
        ]
    assert all("Early data was accepted" in words for words in said)
    assert len(exchanges_of(recorded)) == 1
    others = table_of(recorded, "other_turns")
    assert (others["kind"] == "handshake").sum() == 1 + count
    assert causes_of(recorded)[EARLY] >= count
    of_client = counted.group(role="client").counted
    assert (of_client[Counted.EXCHANGES], of_client[Counted.UNCOUNTED]) == (1, count)


def s_client(words, asked=b""):
    done = subprocess.run(
        words, input=asked, capture_output=True, check=True, timeout=60
    )
    return done.stdout.decode(errors="replace")


@pytest.mark.parametrize("form", ["handshake", "port"])
def test_quic_has_no_exchange(tmp_path, form):
    """Both ends of it talk at once; later packets are known by its port alone."""
    first = b"\xc3\x00\x00\x00\x01\x08" + bytes(1194)
    later = b"\x40" + bytes(60)
    address = "127.0.0.1", 443 if form == "port" else free_port()
    rounds = 10
    with (
        socket.socket(type=socket.SOCK_DGRAM) as server,
        socket.socket(type=socket.SOCK_DGRAM) as client,
    ):
        try:
            server.bind(address)
        except OSError as error:
            pytest.skip(f"needs port 443: {error}")
        client.connect(address)
        watched = Filter(ports=(address[1],), protocols=("udp",))
        with recording(watched, tmp_path) as recorded, monitored(watched) as counted:
            for i in range(rounds):
                client.send(first if i == 0 and form == "handshake" else later)
                _, asker = server.recvfrom(2000)
                server.sendto(later, asker)
                client.recv(2000)
    assert not len(exchanges_of(recorded))
    cause = "QUIC: both sides talk at once"
    assert causes_of(recorded) == {cause: 2 * rounds}
    for role in ("client", "server"):
        found = counted.group(role=role).counted
        assert (found[Counted.EXCHANGES], found[Counted.NO_TURNS]) == (0, rounds)
