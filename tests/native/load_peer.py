"""The other end of latprof-load, written from its documented wire alone."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt
from latprof_agent.executables import find_executable

HEADER = struct.Struct(">BBIIQ")  # kind, version, size, sequence, created_ns
CLEAR = struct.Struct(">Hqq")  # size, tv_sec, tv_usec
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
def echo(*words: object) -> Iterator[Echo]:
    """`latprof-load echo`, which also ends with this process."""
    process = load("echo", "--until-eof", *words, stdin=subprocess.PIPE)
    assert process.stdout
    try:
        word, port = process.stdout.readline().split()
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


@contextmanager
def tcp_peer(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A responder of ours for one connection; gives its port."""
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
def udp_peer(answer: Callable[[bytes], list[bytes]]) -> Iterator[int]:
    """A responder of ours that gives any number of datagrams for each."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.bind((LOOPBACK, 0))
        stopping = b"stop"

        def run() -> None:
            while True:
                message, sender = peer.recvfrom(65536)
                if message == stopping:
                    return
                for datagram in answer(message):
                    peer.sendto(datagram, sender)

        thread = threading.Thread(target=run)
        thread.start()
        yield peer.getsockname()[1]
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.sendto(stopping, peer.getsockname())
        thread.join(DEADLINE_S)
