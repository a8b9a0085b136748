"""`latprof echo --lend`: gives clients what was recorded of them, one after the other.

The responder's process hands over who asks, once both ends have agreed (the workload
`recording` in `native/load/recording.h`); a program without rights reads the
recording for each (`lend/lending.py`). All that is done here is to start it.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from latprof_agent.capture.clock_sources import read_clock_sources
from latprof_agent.lab.child import start
from latprof_agent.lab.lab import Lab
from latprof_agent.lend import frames
from latprof_agent.lend.frames import WAIT, WAIT_SECONDS
from latprof_agent.workload.attached import Attached, Target
from latprof_agent.workload.workload import RunContext

# Not imported: whoever measures loads no library that it needs.
_PROGRAM = Path(frames.__file__).with_name("lending.py")
_TERMS = struct.Struct("=QQ")  # as the responder hands them over
_MOST_ASKING = 64  # at once; the others are told by their client's patience


class _Asking(NamedTuple):
    """A client that wants what was recorded of it since then."""

    connection: socket.socket
    since_ns: int
    asked_ns: int
    most_bytes: int


class Lender:
    """Takes who asks, from the responder's process, and lends to each in turn.

    `process_end` is what that process gets. Both bounds are of each recording.
    """

    def __init__(self, most_bytes: int, rate_bps: int | None) -> None:
        kind = socket.SOCK_SEQPACKET
        self._asked, self.process_end = socket.socketpair(socket.AF_UNIX, kind)
        self._asked.setblocking(False)
        self._most_bytes, self._rate_bps = most_bytes, rate_bps
        self._queue: deque[_Asking] = deque()
        self._turn: tuple[_Asking, subprocess.Popen[bytes]] | None = None
        self._said = 0.0
        self.lent = 0  # to so many clients

    def look(self, recording: int) -> None:
        """Go on, of a recording that is this descriptor; never waits."""
        self._queue.extend(self._new())
        if self._turn and self._turn[1].poll() is not None:
            self._end_turn()
        if self._queue and not self._turn:
            self._begin(self._queue.popleft(), recording)
        if time.monotonic() - self._said > WAIT_SECONDS:
            self._said = time.monotonic()
            for client in self._queue:
                # whose end does not take a few bytes will see no more of them
                with suppress(OSError):
                    client.connection.send(WAIT, socket.MSG_DONTWAIT)

    def _new(self) -> Iterator[_Asking]:
        while len(self._queue) < _MOST_ASKING:
            try:
                words, found, _, _ = socket.recv_fds(self._asked, _TERMS.size, 1)
            except BlockingIOError:
                return
            if not found:
                return  # the process has ended
            age_ns, most_bytes = _TERMS.unpack(words)
            now_ns = time.monotonic_ns()
            yield _Asking(
                socket.socket(fileno=found[0]),
                max(0, now_ns - age_ns),
                now_ns,
                min(most_bytes, self._most_bytes),
            )

    def _begin(self, client: _Asking, recording: int) -> None:
        task = {
            "file": recording,
            "connection": client.connection.fileno(),
            "since_ns": client.since_ns,
            "asked_ns": client.asked_ns,
            "most_bytes": client.most_bytes,
            "rate_bps": self._rate_bps,
            "sources": read_clock_sources(),
        }
        self._turn = client, start_lending(task, stdout=subprocess.DEVNULL)

    def _end_turn(self) -> None:
        assert self._turn
        client, process = self._turn
        self.lent += process.returncode == 0
        self._turn = None
        _hang_up(client.connection)

    def close(self) -> None:
        """End what goes on: it is the end of the recording."""
        self._queue.extend(self._new())
        if self._turn:
            self._turn[1].kill()
            self._turn[1].wait()
            _hang_up(self._turn[0].connection)
            self._turn = None
        while self._queue:
            _hang_up(self._queue.popleft().connection)
        self._asked.close()
        self.process_end.close()


def _hang_up(connection: socket.socket) -> None:
    """End a connection of which the responder's process has a descriptor, too."""
    with suppress(OSError):  # the client was faster
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def start_lending(task: dict[str, Any], **options: Any) -> subprocess.Popen[bytes]:
    """Start the program that reads recordings; it ends with us."""
    passed = [task[name] for name in ("file", "connection") if name in task]
    words = [json.dumps(task), str(os.getpid())]
    return start(
        [sys.executable, "-I", str(_PROGRAM), *words],
        env={"PATH": ""},
        pass_fds=passed,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        **options,
    )


@dataclass(frozen=True)
class LentTarget(Target):
    """What runs already, whose recording is lent."""

    lender: Lender | None = None

    def open(self, lab: Lab | None) -> Attached:
        """Find its processes; raises WorkloadError where one has ended."""
        assert not lab
        assert self.lender
        return _Lent(self, self.lender)


class _Lent(Attached):
    def __init__(self, target: Target, lender: Lender) -> None:
        super().__init__(target)
        self._lender = lender
        self._recording: int | None = None

    def follow(self, scene: RunContext) -> None:
        """Record, and lend meanwhile."""
        self._recording = scene.folder.recording
        super().follow(scene)

    def running(self) -> bool:
        """Whether there may be more to see."""
        if self._recording is not None:
            self._lender.look(self._recording)
        return super().running()
