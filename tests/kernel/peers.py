"""Processes that use or watch one socket and log when; the tests' oracle.

The test's own process drains the probes meanwhile and holds the interpreter's
lock for milliseconds, so what needs a good clock runs beside it. Every log entry
is a bracket: read before and after the call, so an oracle that had no CPU for a
while knows how much less it knows.
"""

from __future__ import annotations

import array
import fcntl
import json
import os
import resource
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any

LIFETIME_SECONDS = 20
FIONREAD = 0x541B
TCP_INFO_BYTES = 232
# struct tcp_info of linux/tcp.h
TOTAL_RETRANS, BYTES_ACKED, DATA_SEGS_OUT, RWND_LIMITED, SNDBUF_LIMITED, BYTES_SENT = (
    100,
    120,
    156,
    176,
    184,
    200,
)
REAL_TIME_PRIORITY = 10  # before what else shares the machine; each runs shortly

now = time.monotonic_ns


def tcp_info(sock: socket.socket, offset: int, form: str = "Q") -> int:
    """One field of TCP_INFO."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    return int(struct.unpack_from(form, info, offset)[0])


def first_sent_bytes(sock: socket.socket) -> int:
    """How many bytes of the stream TCP has handed on for the first time."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
    sent, again = struct.unpack_from("QQ", info, BYTES_SENT)
    return int(sent - again)


def buffers(
    send_bytes: int, receive_bytes: int
) -> Callable[[socket.socket, socket.socket], None]:
    """For tcp_pair: set both ends' buffers before they connect."""

    def prepare(client: socket.socket, listener: socket.socket) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)

    return prepare


def _pause_until(due_ns: int) -> None:
    while (left := due_ns - now()) > 0:
        select.select((), (), (), left / 1e9)


def _changes(read: Callable[[], int], until: int) -> list[tuple[int, int, int]]:
    """(earliest, latest, value) of each change until a value is reached.

    What the first reading finds may have been so for long: its earliest is 0.
    """
    log: list[tuple[int, int, int]] = []
    value, earliest = -1, 0
    while value < until:
        before = now()
        found = read()
        if found != value:
            log.append((earliest, now(), found))
            value = found
        earliest = before
    return log


def watch_readable(sock: socket.socket, until: int) -> Any:
    """When the bytes that can be read became how many; nobody may read yet."""
    count = array.array("i", [0])

    def read() -> int:
        fcntl.ioctl(sock, FIONREAD, count)
        return count[0]

    return _changes(read, until)


def watch_sent(sock: socket.socket, until: int) -> Any:
    """When TCP had handed how many bytes of the stream to the device."""
    return _changes(lambda: first_sent_bytes(sock), until)


def send(
    sock: socket.socket,
    sizes: list[int],
    gap_ns: int = 0,
    blocking: bool = True,
    pending: bool = True,
) -> Any:
    """(before, after, accepted) of each send call; 0: no room.

    Unless they may be pending, each message has left before the next is sent.
    """
    sock.setblocking(blocking)
    written = first_sent_bytes(sock)
    log = []
    due = now()
    for size in sizes:
        _pause_until(due)
        message = bytes(size)
        before = now()
        try:
            accepted = sock.send(message)
        except BlockingIOError:
            accepted = 0
        log.append((before, now(), accepted))
        if not accepted:
            select.select((), (sock,), (), LIFETIME_SECONDS)
        written += accepted
        while not pending and first_sent_bytes(sock) < written:
            _pause_until(now() + 50_000)
        due += gap_ns
    return log


def _compute_for(duration_ns: int) -> None:
    until = now() + duration_ns
    while now() < until:
        continue


def _compute_through(preemptions: int) -> None:
    until = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw + preemptions
    while resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw < until:
        continue


def read(
    sock: socket.socket,
    pieces: list[int],
    total: int,
    gap_ns: int = 0,
    preemptions: int = 0,
) -> Any:
    """(before, after, bytes) of each receive call, to `total` or to the end.

    It sleeps until the next call is due, then computes until it has lost its CPU
    `preemptions` times.
    """
    sock.setblocking(True)
    log: list[tuple[int, int, int]] = []
    due = now()
    for piece in cycle(pieces):
        if total <= 0:
            return log
        _pause_until(due)
        _compute_through(preemptions)
        before = now()
        got = len(sock.recv(min(piece, total)))
        log.append((before, now(), got))
        total = total - got if got else 0
        due += gap_ns
    return log


def run_delay_ns(pid: int) -> int:
    """How long a process has been runnable without a CPU, as the kernel counts it."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])


def _is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"


def ask(sock: socket.socket, size: int, count: int, gap_ns: int, peer: int) -> Any:
    """The answering process's run delay before each question; it sleeps then."""
    sock.setblocking(True)
    log = []
    for _ in range(count):
        due = now() + gap_ns
        while not _is_asleep(peer):
            _pause_until(now() + 50_000)
        log.append(run_delay_ns(peer))
        sock.sendall(bytes(size))
        sock.recv(1)
        _pause_until(due)
    return log


def answer(sock: socket.socket, size: int, count: int) -> Any:
    """The own run delay after each question was read."""
    sock.setblocking(True)
    log = []
    for _ in range(count):
        sock.recv(size)
        log.append(run_delay_ns(os.getpid()))
        sock.send(b"!")
    return log


def answer_preempted(sock: socket.socket, size: int, preemptions: int) -> Any:
    """Answer a question at once, and one more only after so many preemptions.

    Gives (before, after, run delay between) while it computes, and when it has read.
    """
    sock.setblocking(True)
    sock.recv(size)
    sock.send(b"!")
    log = []
    until = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw + preemptions
    while resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw < until:
        log.append((now(), run_delay_ns(os.getpid()), now()))
    sock.recv(size)
    log.append((now(), run_delay_ns(os.getpid()), now()))
    sock.send(b"!")
    return log


def hog(_sock: socket.socket, busy_ns: int, idle_ns: int, count: int) -> Any:
    """Take the CPU in turns from everything that is not real time."""
    for _ in range(count):
        _compute_for(busy_ns)
        _pause_until(now() + idle_ns)


ROLES = {
    role.__name__: role
    for role in (
        watch_readable,
        watch_sent,
        send,
        read,
        ask,
        answer,
        answer_preempted,
        hog,
    )
}


class Peer:
    """One of ROLES as a process of its own; `go` starts what it does."""

    def __init__(
        self,
        role: Callable[..., Any],
        sock: socket.socket,
        cpu: int | None = None,
        real_time: bool = True,
        **options: Any,
    ) -> None:
        words = [role.__name__, sock.fileno(), cpu, real_time, options]
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, json.dumps(words)],
            pass_fds=(sock.fileno(),),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout and self.process.stdout.readline() == "ready\n"

    def go(self) -> Peer:
        """Let it begin."""
        assert self.process.stdin
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self

    def result(self) -> Any:
        """What it logged; waits until it is done."""
        text, _ = self.process.communicate(timeout=LIFETIME_SECONDS)
        assert self.process.returncode == 0
        return json.loads(text)

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.communicate()


def _main() -> None:
    role, descriptor, cpu, real_time, options = json.loads(sys.argv[1])
    signal.alarm(LIFETIME_SECONDS)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    if real_time:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REAL_TIME_PRIORITY))
    with socket.socket(fileno=descriptor) as sock:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(ROLES[role](sock, **options)))


if __name__ == "__main__":
    _main()
