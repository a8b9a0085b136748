"""Programs as of talk.py, whose messages wait for a time and a cause that they know.

`python causes.py NAME`. `cause` says of each of `messages` slow ones, in which `stage`
most of its time is, what `kind` of part that is, words of `what` it says, and how long
it takes at least, in ms.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from talk import Truth, beside, exactly, pair

LIMIT = "100ms"  # a guest of its own emulator is slow
ROUNDS, HELD_SECONDS = 6, 0.2


def slow_reads(
    wait: Callable[[], None], beside_it: Callable[[], None] = lambda: None
) -> None:
    """Each request waits until its reader has waited for something else."""
    client, server = pair()

    def answer() -> None:
        for _ in range(ROUNDS):
            wait()
            exactly(server, 100)
            server.sendall(b"r" * 50)

    thread = beside(answer)
    for _ in range(ROUNDS):
        client.sendall(b"q" * 100)
        beside_it()
        exactly(client, 50)
    thread.join()


def truth(kind: str, what: str = "", stage: str = "receive_queue") -> Truth:
    cause = {"stage": stage, "kind": kind, "what": what, "messages": ROUNDS}
    return {"cause": cause | {"least_ms": HELD_SECONDS * 1e3 * 0.9}}


def sleeping_reader() -> Truth:
    """On a timer."""
    slow_reads(lambda: time.sleep(HELD_SECONDS))
    return truth("asleep", "on a timer")


def busy_reader() -> Truth:
    """So much of a CPU's time."""

    def work() -> None:
        until = time.thread_time() + HELD_SECONDS * 1.5
        while time.thread_time() < until:
            pass

    slow_reads(work)
    return truth("busy")


def piped_reader() -> Truth:
    """In a read of a pipe, into which another thread writes."""
    read, write = os.pipe()

    def give() -> None:
        time.sleep(HELD_SECONDS)
        os.write(write, b"x")

    slow_reads(lambda: bool(os.read(read, 1)), give)
    return truth("asleep", "in read")


def locked_reader() -> Truth:
    """For another thread, which holds a lock."""
    gate, ready = threading.Lock(), threading.Event()

    def enter() -> None:
        ready.wait()
        ready.clear()
        with gate:
            pass

    def hold() -> None:
        with gate:
            ready.set()
            time.sleep(HELD_SECONDS)

    slow_reads(enter, hold)
    return truth("asleep", "for another thread")


def reader_of_a_child() -> Truth:
    """For a process of its own to end."""

    def child() -> None:
        if not (pid := os.fork()):
            time.sleep(HELD_SECONDS)
            os._exit(0)
        os.waitpid(pid, 0)

    slow_reads(child)
    return truth("asleep", "wait4")


def stopped_reader() -> Truth:
    """A process that somebody stops for a time."""
    client, server = pair()
    pid = os.fork()
    if not pid:
        client.close()
        Path("/proc/self/comm").write_text("stopped")
        for _ in range(ROUNDS):
            exactly(server, 100)
            server.sendall(b"r" * 50)
        os._exit(0)
    server.close()
    for _ in range(ROUNDS):
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        client.sendall(b"q" * 100)
        time.sleep(HELD_SECONDS)
        os.kill(pid, signal.SIGCONT)
        exactly(client, 50)
    os.waitpid(pid, 0)
    return truth("asleep", "stopped")


def full_window() -> Truth:
    """A sender whose peer has no room: what it says waits in its own socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
    size = 60_000
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * size)
    for _ in range(ROUNDS):
        client.sendall(b"m" * size)
        time.sleep(HELD_SECONDS)
        exactly(server, size)
    return truth("held", "window", "send_queue")


CAUSES = {
    cause.__name__.replace("_", "-"): cause
    for cause in (
        *(sleeping_reader, busy_reader, piped_reader, locked_reader),
        *(reader_of_a_child, stopped_reader, full_window),
    )
}


if __name__ == "__main__":
    print(json.dumps(CAUSES[sys.argv[1]]()))
