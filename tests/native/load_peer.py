"""The other end of latprof-load, written from its documented wire alone."""

from __future__ import annotations

import hmac
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from latprof_agent.executables import find_executable

HEADER = struct.Struct(">BBIIQ")  # kind, version, size, sequence, created_ns
CLEAR = struct.Struct(">Hqq")  # size, tv_sec, tv_usec
# magic, version, workload, transport, nonce, reply, largest, think, duration, own
HELLO = struct.Struct(">4sHBB16sIIQQ8Q")
CHALLENGE = struct.Struct(">4sHBBI16sQ")  # .., status, secret, workloads, nonce, bound
ACCEPT = struct.Struct(">B16sIQQ")  # status, token, limits; then the proof
PROOF_BYTES = 32
PREFIX_BYTES = 7  # of HELLO and CHALLENGE, the same in every version
PINGPONG = 1
BEGIN = b"\1\0\0\0\0"  # a frame without a body
# What the handshake takes of each direction of a TCP session.
SENT_BEFORE = HELLO.size + PROOF_BYTES
RECEIVED_BEFORE = CHALLENGE.size + ACCEPT.size + PROOF_BYTES
OPENS = 1  # datagrams of a UDP session before the first message
HEADER_BYTES = 18
DEADLINE_S = 30
LOOPBACK = "127.0.0.1"
MASK = 2**64 - 1

LOAD = str(find_executable("latprof-load"))


class Header(NamedTuple):
    kind: int
    version: int
    size: int
    sequence: int
    created_ns: int


class Result(NamedTuple):
    status: int
    summary: dict[str, Any]
    records: npt.NDArray[Any]
    stderr: str


def splitmix64(index: int) -> int:
    z = ((index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def payload(sequence: int, size: int) -> bytes:
    """The whole message but for its header, which is zero here."""
    start = 64 * (sequence % 61)
    first, last = start // 8, (start + size) // 8 + 1
    words = b"".join(splitmix64(j).to_bytes(8, "big") for j in range(first, last))
    return bytes(HEADER_BYTES) + words[HEADER_BYTES:size]


def request(sequence: int, size: int, created_ns: int = 1) -> bytes:
    return HEADER.pack(1, 1, size, sequence, created_ns) + payload(sequence, size)[18:]


def reply_to(message: bytes, created_ns: int = 7) -> bytes:
    header = Header(*HEADER.unpack_from(message))
    return HEADER.pack(2, 1, len(message), header.sequence, created_ns) + message[18:]


def receive_exactly(stream: socket.socket, size: int) -> bytes:
    parts: list[bytes] = []
    while size and (part := stream.recv(size)):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive_message(stream: socket.socket) -> bytes:
    """One latprof message; empty at the end of the stream."""
    head = receive_exactly(stream, HEADER_BYTES)
    if not head:
        return b""
    size = Header(*HEADER.unpack(head)).size
    return head + receive_exactly(stream, size - HEADER_BYTES)


def read_records(path: Path) -> npt.NDArray[Any]:
    """Read a client's log; it has none where no session began."""
    if not path.exists():
        return np.empty(0)
    with path.open("rb") as file:
        names = file.readline().decode().split()
        rest = file.read()
    dtype = np.dtype([(name, "<u8") for name in names])
    return np.frombuffer(rest[: len(rest) // dtype.itemsize * dtype.itemsize], dtype)


def load(*words: object, **keywords: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [LOAD, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **keywords,
    )


def finish(client: subprocess.Popen[str], output: Path) -> Result:
    stdout, stderr = client.communicate(timeout=DEADLINE_S)
    summary = json.loads(stdout) if stdout else {}
    return Result(client.returncode, summary, read_records(output), stderr)


@contextmanager
def told_progress(
    output: Path, *words: object
) -> Iterator[tuple[subprocess.Popen[str], IO[str]]]:
    """Start a ping-pong client, and read the progress that it tells."""
    reads, writes = os.pipe()
    told = ("--output", output, "--progress-fd", writes)
    client = load("pingpong", *words, *told, pass_fds=[writes])
    os.close(writes)
    with os.fdopen(reads) as progress:
        yield client, progress


def pingpong(tmp_path: Path, port: int, *words: object) -> Result:
    output = tmp_path / "records"
    client = load("pingpong", "--port", port, "--output", output, *words)
    return finish(client, output)


class Echo(NamedTuple):
    process: subprocess.Popen[str]
    port: int

    def stop(self) -> dict[str, Any]:
        """End it by closing its stdin; its summary."""
        stdout, _ = self.process.communicate(timeout=DEADLINE_S)
        summary: dict[str, Any] = json.loads(stdout)
        return summary


@contextmanager
def echo(*words: object, **keywords: Any) -> Iterator[Echo]:
    """`latprof-load echo`, which also ends with this process."""
    process = load("echo", "--until-eof", *words, stdin=subprocess.PIPE, **keywords)
    assert process.stdout
    try:
        word, port, *_ = process.stdout.readline().split()
        assert word == "ready"
        yield Echo(process, int(port))
    finally:
        process.kill()
        for pipe in (process.stdin, process.stdout, process.stderr):
            close(pipe)
        process.wait()


def close(pipe: IO[str] | None) -> None:
    if pipe and not pipe.closed:
        pipe.close()


class Refused(Exception):
    """The status that an echo gave, and the bound that it named."""


class Grant(NamedTuple):
    token: bytes
    message_bytes: int
    duration_ns: int
    bytes_per_second: int


def hello(
    *,
    magic: bytes = b"LPse",
    version: int = 1,
    workload: int = PINGPONG,
    transport: int = 0,
    reply: int = 0,
    largest: int = 65507,
    think_ns: int = 0,
    duration_ns: int = 0,
    own: Sequence[int] = (),
) -> bytes:
    """What a client asks for."""
    nonce = os.urandom(16)
    head = (magic, version, workload, transport, nonce, reply, largest)
    own = [*own, *[0] * (8 - len(own))]
    return HELLO.pack(*head, think_ns, duration_ns, *own)


def proof(secret: bytes, word: bytes, *said: bytes) -> bytes:
    """HMAC-SHA256 as Python has it."""
    if not secret:
        return bytes(PROOF_BYTES)
    return hmac.digest(secret, word + b"".join(said), "sha256")


def greet(stream: socket.socket, said: bytes, secret: bytes = b"") -> Grant:
    """The client's half of the handshake."""
    stream.sendall(said)
    challenge = receive_exactly(stream, CHALLENGE.size)
    if len(challenge) < CHALLENGE.size:
        raise ConnectionError(f"{len(challenge)} bytes of a challenge")
    magic, version, status, wants_secret, *_, bound = CHALLENGE.unpack(challenge)
    assert (magic, version) == (b"LPse", 1)
    if status:
        raise Refused(status, bound)
    assert bool(wants_secret) == bool(secret)
    stream.sendall(proof(secret, b"client", said, challenge))
    accept = receive_exactly(stream, ACCEPT.size)
    theirs = receive_exactly(stream, PROOF_BYTES)
    status, token, *limits = ACCEPT.unpack(accept)
    if status:
        assert theirs == bytes(PROOF_BYTES), "nothing to try secrets on"
        raise Refused(status, 0)
    assert theirs == proof(secret, b"server", said, challenge, accept)
    return Grant(token, *limits)


@contextmanager
def session(port: int, said: bytes, secret: bytes = b"") -> Iterator[socket.socket]:
    """A session with an echo: its TCP connection."""
    with socket.create_connection((LOOPBACK, port), DEADLINE_S) as stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        greet(stream, said, secret)
        yield stream


@contextmanager
def datagram_session(
    port: int, said: bytes, secret: bytes = b""
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A session over UDP with an echo: its connection, and its socket."""
    with (
        socket.create_connection((LOOPBACK, port), DEADLINE_S) as control,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data,
    ):
        grant = greet(control, said, secret)
        data.settimeout(DEADLINE_S)
        data.connect((LOOPBACK, port))
        data.send(b"LPop" + grant.token)
        assert data.recv(100) == b"LPok" + grant.token
        control.sendall(BEGIN)
        yield control, data


def welcome(
    stream: socket.socket, secret: bytes = b"", token: bytes = b"t" * 16
) -> bytes:
    """The responder's half of the handshake; what the client asked for."""
    said = receive_exactly(stream, HELLO.size)
    assert HELLO.unpack(said)[:2] == (b"LPse", 1)
    nonce = os.urandom(16)
    challenge = CHALLENGE.pack(b"LPse", 1, 0, bool(secret), 2, nonce, 0)
    stream.sendall(challenge)
    theirs = receive_exactly(stream, PROOF_BYTES)
    assert theirs == proof(secret, b"client", said, challenge)
    accept = ACCEPT.pack(0, token, 0, 0, 0)
    stream.sendall(accept + proof(secret, b"server", said, challenge, accept))
    return said


@contextmanager
def raw_peer(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """Serve one connection as it comes, without a handshake; gives its port."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        listener.settimeout(DEADLINE_S)

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(DEADLINE_S)
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(DEADLINE_S)


@contextmanager
def tcp_peer(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A responder of ours for one session over TCP; gives its port."""

    def run(stream: socket.socket) -> None:
        welcome(stream)
        serve(stream)

    with raw_peer(run) as port:
        yield port


@contextmanager
def udp_peer(answer: Callable[[bytes], list[bytes]]) -> Iterator[int]:
    """A responder of ours that gives any number of datagrams for each."""
    stopping = b"stop"

    def control(stream: socket.socket) -> None:
        welcome(stream)
        with suppress(ConnectionError):
            assert receive_exactly(stream, len(BEGIN)) == BEGIN
            stream.recv(1)  # until the client goes

    with (
        raw_peer(control) as port,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
    ):
        peer.bind((LOOPBACK, port))

        def run() -> None:
            while True:
                message, sender = peer.recvfrom(65536)
                if message == stopping:
                    return
                if message[:4] == b"LPop":
                    peer.sendto(b"LPok" + message[4:], sender)
                    continue
                for datagram in answer(message):
                    peer.sendto(datagram, sender)

        thread = threading.Thread(target=run)
        thread.start()
        yield port
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(stopping, peer.getsockname())
        thread.join(DEADLINE_S)


@contextmanager
def udp_session_peer(
    serve: Callable[[socket.socket, socket.socket], None],
) -> Iterator[int]:
    """A responder of ours for one session over UDP: its two sockets."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data:
        data.settimeout(DEADLINE_S)
        data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)

        def run(control: socket.socket) -> None:
            welcome(control)
            message, sender = data.recvfrom(65536)
            data.connect(sender)
            data.send(b"LPok" + message[4:])
            assert receive_exactly(control, len(BEGIN)) == BEGIN
            serve(control, data)

        with raw_peer(run) as port:
            data.bind((LOOPBACK, port))
            yield port
