"""Programs whose traffic is recorded: each prints what it knows of it itself.

`python talk.py NAME` on loopback. `exchanges` is how many requests were answered,
`sent` how many send calls gave bytes of which another end here read the last,
`response_ms` the shortest and longest response by the client's own clock.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Truth = dict[str, Any]


def pair() -> tuple[socket.socket, socket.socket]:
    """A TCP connection of this host: who connected, who accepted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    for end in (client, server):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client, server


def exactly(sock: socket.socket, count: int, flags: int = 0) -> None:
    while count:
        with suppress(BlockingIOError):
            count -= len(sock.recv(count, flags))


class Clock:
    """What the client's own clock says of responses."""

    def __init__(self) -> None:
        self.times_ms: list[float] = []

    def ask(self, client: socket.socket, request: bytes, reply: int) -> None:
        begin = time.perf_counter()
        client.sendall(request)
        exactly(client, reply)
        self.times_ms.append((time.perf_counter() - begin) * 1e3)

    def range_ms(self) -> list[float]:
        return [min(self.times_ms), max(self.times_ms)]


def serve(server: socket.socket, request: int, reply: bytes, rounds: int) -> None:
    """Answer; each tenth takes 5 ms of work."""
    for number in range(rounds):
        exactly(server, request)
        if number % 10 == 9:
            time.sleep(0.005)
        server.sendall(reply)


def answer_each(
    listener: socket.socket, connections: int, request: int, reply: bytes
) -> None:
    """Answer once on each connection, which its client ends."""
    for _ in range(connections):
        server, _ = listener.accept()
        exactly(server, request)
        server.sendall(reply)
        server.recv(1)
        server.close()


def beside(work: Callable[..., None], *arguments: Any) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread


def keep_alive() -> Truth:
    """Request and reply, one after the other."""
    client, server = pair()
    thread, clock = beside(serve, server, 50, b"r" * 3000, 200), Clock()
    for _ in range(200):
        clock.ask(client, b"q" * 50, 3000)
    thread.join()
    return {"exchanges": 200, "sent": 400, "response_ms": clock.range_ms()}


def in_pieces() -> Truth:
    """Requests of two sends, replies of five."""
    client, server = pair()

    def answer() -> None:
        for _ in range(100):
            exactly(server, 60)
            for _ in range(5):
                server.sendall(b"r" * 700)

    thread, clock = beside(answer), Clock()
    for _ in range(100):
        client.sendall(b"q" * 10)
        clock.ask(client, b"q" * 50, 3500)
    thread.join()
    return {"exchanges": 100, "sent": 700}


def short_connections() -> Truth:
    """A connection for each request, closed by the client."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)

    thread, clock = beside(answer_each, listener, 100, 20, b"r" * 40), Clock()
    for _ in range(100):
        with socket.create_connection(listener.getsockname()) as client:
            clock.ask(client, b"q" * 20, 40)
    thread.join()
    return {"exchanges": 100, "sent": 200}


def half_closed() -> Truth:
    """The client ends its side, and then gets the answer."""
    for _ in range(50):
        client, server = pair()
        client.sendall(b"q" * 500)
        client.shutdown(socket.SHUT_WR)
        while server.recv(100):
            pass
        server.sendall(b"r" * 900)
        server.close()
        exactly(client, 900)
        client.close()
    return {"exchanges": 50, "sent": 100}


def long_reply() -> Truth:
    """Replies of 30 sends over half a second: no length leaves a figure."""
    client, server = pair()

    def answer() -> None:
        for _ in range(3):
            exactly(server, 10)
            for _ in range(30):
                server.sendall(b"r" * 1000)
                time.sleep(0.016)

    thread, clock = beside(answer), Clock()
    for _ in range(3):
        clock.ask(client, b"q" * 10, 30_000)
    thread.join()
    return {"exchanges": 3, "sent": 93, "response_ms": clock.range_ms()}


def window_of_requests() -> Truth:
    """Four requests are under way at any time: both ends talk at once."""
    client, server = pair()

    def answer() -> None:
        for _ in range(200):
            exactly(server, 30)
            time.sleep(0.001)
            server.sendall(b"r" * 30)

    thread = beside(answer)
    for _ in range(4):
        client.sendall(b"q" * 30)
        time.sleep(0.0003)
    for number in range(200):
        exactly(client, 30)
        if number < 196:
            client.sendall(b"q" * 30)
    thread.join()
    return {"exchanges": 0, "sent": 400, "no_exchange": 400}


def unanswered() -> Truth:
    """Requests whose connections end in three ways, by three ends."""
    for _ in range(5):
        client, server = pair()
        client.sendall(b"q" * 30)
        exactly(server, 30)
        time.sleep(0.005)
        client.close()  # given up
        server.close()
    for _ in range(4):
        client, server = pair()
        client.sendall(b"q" * 30)
        exactly(server, 30)
        server.close()  # by the server, which has read it
        client.close()
    for _ in range(3):
        client, server = pair()
        client.sendall(b"q" * 30)
        time.sleep(0.002)
        server.close()  # unread: a reset
        client.close()
    ended = {"client closed": 5, "server closed": 4, "reset": 3}
    return {"exchanges": 0, "unanswered": ended}


def half_closed_in_vain() -> Truth:
    """One end has said all: who closes the other half ends the waiting."""
    for _ in range(6):
        client, server = pair()
        client.sendall(b"q" * 30)
        client.shutdown(socket.SHUT_WR)
        exactly(server, 30)
        time.sleep(0.005)
        server.close()
        assert not client.recv(1)
        client.close()
    for _ in range(5):
        client, server = pair()
        client.sendall(b"q" * 30)
        client.shutdown(socket.SHUT_WR)
        exactly(server, 30)
        time.sleep(0.005)
        client.close()
        time.sleep(0.005)
        server.close()
    for _ in range(4):
        client, server = pair()
        client.sendall(b"q" * 30)
        exactly(server, 30)
        server.sendall(b"r" * 40)
        server.shutdown(socket.SHUT_WR)
        exactly(client, 40)
        assert not client.recv(1)
        client.sendall(b"q" * 30)  # which asks for nothing
        exactly(server, 30)
        time.sleep(0.005)
        client.close()
        server.close()
    return {"exchanges": 4, "unanswered": {"server closed": 6, "client closed": 5}}


def continued() -> Truth:
    """Uploads that are asked to go on: the interim answer is none."""
    client, server = pair()
    head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n"
    interim = b"HTTP/1.1 100 Continue\r\n\r\n"

    def answer() -> None:
        for _ in range(50):
            exactly(server, len(head))
            server.sendall(interim)
            exactly(server, 5000)
            time.sleep(0.002)
            server.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

    thread = beside(answer)
    for _ in range(50):
        client.sendall(head)
        exactly(client, len(interim))
        client.sendall(b"u" * 5000)
        exactly(client, 27)
    thread.join()
    return {"exchanges": 50, "sent": 200}


def pushed() -> Truth:
    """A server that says something of its own between two requests."""
    client, server = pair()
    thread = beside(serve, server, 20, b"r" * 30, 20)
    for _ in range(20):
        Clock().ask(client, b"q" * 20, 30)
    thread.join()
    for _ in range(20):
        server.sendall(b"p" * 100)
        exactly(client, 100)
        time.sleep(0.02)
    return {"sent": 60}


def certificate(folder: str) -> tuple[str, str]:
    """Files of a certificate and its key."""
    found = f"{folder}/certificate", f"{folder}/key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-nodes"),
            *("-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-out", found[0], "-keyout", found[1], "-days", "1"),
            *("-subj", "/CN=localhost"),
        ],
        check=True,
        capture_output=True,
    )
    return found


def over_tls(
    version: ssl.TLSVersion,
    *,
    mutual: bool = False,
    resumed: bool = False,
    curve: str = "",
    greeting: bool = False,
    reply: int = 2000,
    closing: bool = False,
) -> Truth:
    """20 connections of 3 requests of 5 ms; after a greeting: STARTTLS.

    `closing`: both ends take leave.
    """
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_client = ssl.create_default_context()
    of_client.check_hostname, of_client.verify_mode = False, ssl.CERT_NONE
    of_client.minimum_version = of_client.maximum_version = version
    with tempfile.TemporaryDirectory() as folder:
        files = certificate(folder)
        of_server.load_cert_chain(*files)
        if mutual:
            of_server.verify_mode = ssl.CERT_REQUIRED
            of_server.load_verify_locations(files[0])
            of_client.load_cert_chain(*files)
    if curve:
        of_server.set_ecdh_curve(curve)
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        for _ in range(20):
            plain, _ = listener.accept()
            if greeting:
                plain.sendall(b"220 hello\r\n")
                exactly(plain, 10)
                plain.sendall(b"220 go on\r\n")
            server = of_server.wrap_socket(plain, server_side=True)
            for _ in range(3):
                exactly(server, 100)
                time.sleep(0.005)
                server.sendall(b"r" * reply)
            server.recv(1)
            if closing:
                server.unwrap()
            server.close()

    thread, clock, session, again = beside(answer), Clock(), None, 0
    for _ in range(20):
        plain = socket.create_connection(listener.getsockname())
        if greeting:
            exactly(plain, 11)
            clock.ask(plain, b"STARTTLS\r\n", 11)
        client = of_client.wrap_socket(plain, session=session)
        again += bool(client.session_reused)
        for _ in range(3):
            clock.ask(client, b"q" * 100, reply)
        if closing:
            client.unwrap()
        session = client.session if resumed else None
        client.close()
    thread.join()
    assert again == 19 * resumed
    count = 20 * (3 + greeting)
    return {"exchanges": count, "handshakes": 20, "response_ms": clock.range_ms()}


def encrypted() -> Truth:
    """TLS 1.3 with tickets."""
    return over_tls(ssl.TLSVersion.TLSv1_3)


def encrypted_as_before() -> Truth:
    """TLS 1.2."""
    return over_tls(ssl.TLSVersion.TLSv1_2)


def with_certificates() -> Truth:
    """TLS 1.3, and the client shows one, too."""
    return over_tls(ssl.TLSVersion.TLSv1_3, mutual=True)


def with_certificates_as_before() -> Truth:
    """The same of TLS 1.2."""
    return over_tls(ssl.TLSVersion.TLSv1_2, mutual=True)


def resumed() -> Truth:
    """TLS 1.3: all sessions but the first go on."""
    return over_tls(ssl.TLSVersion.TLSv1_3, resumed=True)


def resumed_as_before() -> Truth:
    """TLS 1.2: the client has the last word then."""
    return over_tls(ssl.TLSVersion.TLSv1_2, resumed=True)


def hello_again() -> Truth:
    """The server wants another curve than the client's first."""
    return over_tls(ssl.TLSVersion.TLSv1_3, curve="secp384r1")


def encrypted_later() -> Truth:
    """STARTTLS: a greeting, a request in clear, and then TLS."""
    return over_tls(ssl.TLSVersion.TLSv1_3, greeting=True)


def short_replies() -> Truth:
    """TLS 1.3: replies as long as the words by which each end takes leave."""
    return over_tls(ssl.TLSVersion.TLSv1_3, reply=2, closing=True)


def below_low_water() -> Truth:
    """A reader that looks by itself: nobody wakes it for so few bytes."""
    client, server = pair()

    def answer() -> None:
        for number in range(50):
            exactly(server, 100, socket.MSG_DONTWAIT)
            if not number:
                server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5000)
            server.sendall(b"r" * 50)

    thread, clock = beside(answer), Clock()
    for _ in range(50):
        clock.ask(client, b"q" * 100, 50)
    thread.join()
    truth = {"exchanges": 50, "sent": 100, "response_ms": clock.range_ms()}
    return truth | {"not_ready": 0}


def unseen() -> Truth:
    """The same, after its own end: no hook sees what it gets."""
    client, server = pair()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 5000)
    client.sendall(b"q" * 5000)
    exactly(server, 5000)
    server.shutdown(socket.SHUT_WR)
    assert not client.recv(1)
    for _ in range(50):
        client.sendall(b"q" * 100)
        exactly(server, 100, socket.MSG_DONTWAIT)
    return {"sent": 51, "not_ready": 50}


def backlog_coalesced() -> int:
    """How many segments the kernel added to one that waited for its socket's owner."""
    text = Path("/proc/net/netstat").read_text().splitlines()
    names, values = (line.split() for line in text[:2])
    return int(values[names.index("TCPBacklogCoalesce")])


def coalesced() -> Truth:
    """A reader that keeps its socket while more comes, which the backlog joins."""
    client, server = pair()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    before, sent, size = backlog_coalesced(), 0, 3000

    def read() -> None:
        while server.recv(1 << 20):
            continue

    thread = beside(read)
    while backlog_coalesced() == before or sent < 500:
        for _ in range(100):
            client.sendall(b"m" * size)
        sent += 100
        assert sent <= 20_000, "the backlog joined nothing"
    client.close()
    thread.join()
    return {"sent": sent, "backlog_coalesced": backlog_coalesced() - before}


def quic() -> Truth:
    """As QUIC begins, and then one datagram there, one back."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    later = b"\x40" + bytes(60)
    for number in range(100):
        client.send(later if number else b"\xc3\0\0\0\x01\x08" + bytes(1194))
        _, address = server.recvfrom(2000)
        server.sendto(later, address)
        client.recv(2000)
    return {"exchanges": 0, "sent": 200, "no_exchange": 200}


def datagrams() -> Truth:
    """One datagram there, one back."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())

    def answer() -> None:
        for _ in range(200):
            data, address = server.recvfrom(100)
            server.sendto(data, address)

    thread = beside(answer)
    for _ in range(200):
        client.send(b"q" * 64)
        client.recv(100)
    thread.join()
    return {"exchanges": 200, "sent": 400}


def full_socket() -> Truth:
    """A reader who sleeps while its socket fills; the rest is dropped there."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    for number in range(300):
        client.send(struct.pack("=I", number) * 100)
    server.setblocking(False)
    received = 0
    try:
        while server.recv(1000):
            received += 1
    except BlockingIOError:
        pass
    return {"datagrams": 300, "received": received}


def never_read() -> Truth:
    """Seven datagrams are in the socket when it is closed."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    for number in range(20):
        client.send(b"d" * 50)
        if number < 13:
            server.recv(50)
    server.close()
    return {"datagrams": 20, "received": 13, "unread": 7}


def several_at_once() -> Truth:
    """DNS queries on one socket, answered in another order; by id each has its own."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.53", 53))
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect(server.getsockname())
    name = b"\x07example\x03org\x00" + struct.pack("!HH", 1, 1)
    address = struct.pack("!HHHIH4s", 0xC00C, 1, 1, 60, 4, b"\x7f\0\0\x01")

    def answer() -> None:
        for _ in range(40):
            asked = [server.recvfrom(512) for _ in range(5)]
            for query, sender in reversed(asked):
                time.sleep(0.001)
                head = query[:2] + struct.pack("!HHHHH", 0x8180, 1, 1, 0, 0)
                server.sendto(head + name + address, sender)

    thread = beside(answer)
    for number in range(200):
        client.send(struct.pack("!HHHHHH", 1000 + number, 0x100, 1, 0, 0, 0) + name)
        if number % 5 == 4:
            for _ in range(5):
                client.recv(512)
    thread.join()
    return {"exchanges": 200, "sent": 400}


def workers() -> Truth:
    """A server that forks: each child answers on connections it has accepted."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    children = []
    for _ in range(3):
        if not (child := os.fork()):
            Path("/proc/self/comm").write_text("answers")
            for _ in range(10):
                server, _ = listener.accept()
                serve(server, 20, b"r" * 60, 10)
                server.recv(1)
                server.close()
            os._exit(0)
        children.append(child)
    for _ in range(30):
        with socket.create_connection(listener.getsockname()) as client:
            for _ in range(10):
                Clock().ask(client, b"q" * 20, 60)
    for child in children:
        os.waitpid(child, 0)
    return {"exchanges": 300, "sent": 600, "servers": len(children)}


TALKS = {
    talk.__name__.replace("_", "-"): talk
    for talk in (
        *(keep_alive, in_pieces, short_connections, half_closed, long_reply),
        *(window_of_requests, unanswered, half_closed_in_vain, continued),
        *(pushed, encrypted),
        *(encrypted_as_before, with_certificates, with_certificates_as_before),
        *(resumed, resumed_as_before, hello_again, encrypted_later, below_low_water),
        unseen,
        *(short_replies, quic),
        *(datagrams, full_socket, never_read, several_at_once, workers),
        coalesced,
    )
}


if __name__ == "__main__":
    print(json.dumps(TALKS[sys.argv[1]]()))
