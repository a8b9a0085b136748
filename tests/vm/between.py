"""In one of several guests: records while clients and a server of these talk.

between.py FOLDER NAME: all guests share the folder. Each says by files there how far it
is; plan.json has what it is to do. What its programs know of their messages is in
calls.json then, and marks.json has files that it made there: a time by its own clock
before and after, and the file's, which is of the machine's clock.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

PORT = 7100
SIZES = (64, 1448, 9000)
DATAGRAM_SIZES = (64, 700, 1400)
DATAGRAM_EACH = 3  # requests over TCP
MARK_EACH = 10
NUMBER_BYTES = 4
MOST_BYTES = 65536
READINGS = 10

Times = tuple[int, int]


def timed(function: Callable[..., Any], *words: Any) -> tuple[Any, Times]:
    """Call it; what it gave, and the time by this host's clock before and after."""
    before = time.monotonic_ns()
    found = function(*words)
    return found, (before, time.monotonic_ns())


class Shared:
    """The folder that all guests and their machine share."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.plan = json.loads((folder / "plan.json").read_text())
        self.calls: list[tuple[str, str, int, int, int]] = []
        self.marks: list[tuple[int, int, int]] = []

    def say(self, what: str) -> None:
        (self.folder / what).touch()

    def said(self, *what: str) -> bool:
        assert not (self.folder / "failed").exists()
        return all((self.folder / each).exists() for each in what)

    def wait_for(self, *what: str) -> None:
        while not self.said(*what):
            time.sleep(0.05)

    def wait_for_all(self, what: str) -> None:
        """Go on together."""
        self.say(f"{self.name}.{what}")
        self.wait_for(*(f"{name}.{what}" for name in self.plan["guests"]))

    def mark(self) -> None:
        """Let the machine say what its clock is, between two readings of this one."""
        path = self.folder / f"{self.name}.mark{len(self.marks)}"
        flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
        made, (before, after) = timed(os.open, path, flags)
        os.close(made)
        self.marks.append((before, after, path.stat().st_mtime_ns))

    def add(self, client: str, what: str, number: int, times: Times) -> None:
        self.calls.append((client, what, number, *times))


def payload(number: int, sizes: tuple[int, ...]) -> bytes:
    size = sizes[number % len(sizes)]
    return number.to_bytes(NUMBER_BYTES, "big") + bytes(size - NUMBER_BYTES)


def in_background(function: Callable[..., None], *words: Any) -> None:
    threading.Thread(target=function, args=words, daemon=True).start()


class Server:
    """Answers all who ask, with what they said."""

    def __init__(self, shared: Shared) -> None:
        self.shared, self.clients = shared, shared.plan["clients"]
        self.listening = socket.create_server(("", PORT))
        self.datagrams = socket.socket(type=socket.SOCK_DGRAM)
        self.datagrams.bind(("", PORT))
        in_background(self._accept)
        in_background(self._answer_datagrams)

    def _accept(self) -> None:
        while True:
            stream, (address, _) = self.listening.accept()
            in_background(self._answer, stream, self.clients[address])

    def _answer(self, stream: socket.socket, client: str) -> None:
        for number in count():
            size = SIZES[number % len(SIZES)]
            asked, times = timed(stream.recv, size, socket.MSG_WAITALL)
            if not asked:
                return
            self.shared.add(client, "tcp received", number, times)
            _, times = timed(stream.send, asked)
            self.shared.add(client, "tcp sent", number, times)

    def _answer_datagrams(self) -> None:
        while True:
            (asked, peer), times = timed(self.datagrams.recvfrom, MOST_BYTES)
            number = int.from_bytes(asked[:NUMBER_BYTES], "big")
            self.shared.add(self.clients[peer[0]], "udp received", number, times)
            _, times = timed(self.datagrams.sendto, asked, peer)
            self.shared.add(self.clients[peer[0]], "udp sent", number, times)


class Client:
    """Asks one thing after the other."""

    def __init__(self, shared: Shared, server: str) -> None:
        self.shared = shared
        self.stream = socket.create_connection((server, PORT))
        self.datagrams = socket.socket(type=socket.SOCK_DGRAM)
        self.datagrams.connect((server, PORT))

    def ask(self, requests: range) -> None:
        for number in requests:
            self._ask("tcp", self.stream, number, payload(number, SIZES))
            if number % DATAGRAM_EACH == 0:
                data = payload(number, DATAGRAM_SIZES)
                self._ask("udp", self.datagrams, number, data)
            if number % MARK_EACH == 0:
                self.shared.mark()

    def _ask(self, protocol: str, end: socket.socket, number: int, data: bytes) -> None:
        me = self.shared.name
        _, times = timed(end.send, data)
        self.shared.add(me, f"{protocol} sent", number, times)
        answer, times = timed(end.recv, len(data), socket.MSG_WAITALL)
        self.shared.add(me, f"{protocol} received", number, times)
        assert answer == data


def take_part(shared: Shared) -> None:
    """Be the client or the server that this guest has, until all clients are done."""
    part = shared.plan["guests"][shared.name]
    if part["asks"]:
        ask(shared, part)
        return
    Server(shared)
    shared.say("serves")
    while not shared.said(*(f"{c}.done" for c in shared.plan["clients"].values())):
        shared.mark()
        time.sleep(0.1)


def ask(shared: Shared, part: dict[str, Any]) -> None:
    """Do so; midway the wall clock is set, or something else is waited for."""
    shared.wait_for("serves")
    requests = shared.plan["requests"]
    client = Client(shared, part["asks"])
    client.ask(range(requests // 2))
    if seconds := part.get("sets_wall_clock_by_s"):
        time.clock_settime(time.CLOCK_REALTIME, time.time() + seconds)
    if part.get("waits"):
        shared.say(f"{shared.name}.half")
        shared.wait_for("go-on")
    client.ask(range(requests // 2, requests))
    shared.say(f"{shared.name}.done")


def record(shared: Shared) -> subprocess.Popen[bytes]:
    """Record what goes through the port, from now on."""
    words = ["--port", str(PORT), "--duration", "1h", "--quiet", "--out", "run"]
    latprof = [sys.executable, "-m", "latprof_agent", "run", "attach"]
    recording = subprocess.Popen([*latprof, *words, *shared.plan["words"]])
    while not is_attached():
        assert recording.poll() is None, "latprof ended"
        time.sleep(0.1)
    return recording


def is_attached() -> bool:
    """Look at what is known of the run since its probes are attached."""
    try:
        return bool(json.loads(Path("run/run.json").read_text())["workload"]["runs"])
    except FileNotFoundError:
        return False


def wall_clock_ahead_ns() -> Times:
    """Bounds of what the wall clock is ahead of CLOCK_MONOTONIC."""
    readings = [timed(time.time_ns) for _ in range(READINGS)]
    found = [(wall - after, wall - before) for wall, (before, after) in readings]
    return max(low for low, _ in found), min(high for _, high in found)


def steer(words: list[str]) -> None:
    """Let chrony have the clock; where it follows another one, until it does."""
    subprocess.Popen(["/usr/sbin/chronyd", "-d", "-u", "root", *words])
    look = ["/run/busybox", "adjtimex"]
    while words[0].startswith("server"):
        if "UNSYNC" not in subprocess.check_output(look, text=True):
            return
        time.sleep(0.2)


def main() -> None:
    folder, name = sys.argv[1:]
    shared = Shared(Path(folder), name)
    walls = [wall_clock_ahead_ns()]
    if words := shared.plan["guests"][name].get("chronyd"):
        steer(words)
    recording = record(shared)
    shared.wait_for_all("records")
    take_part(shared)
    shared.wait_for_all("ends")
    recording.terminate()
    assert recording.wait() == 0
    walls.append(wall_clock_ahead_ns())
    for what in ("calls", "marks"):
        Path(f"{what}.json").write_text(json.dumps(getattr(shared, what)))
    Path("walls.json").write_text(json.dumps(walls))


if __name__ == "__main__":
    main()
