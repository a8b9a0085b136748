"""Reads recordings for a responder and for its clients, with no rights. A program.

    lend    what a recording has of a client, on the connection that it asked on
    check   that what a responder sent is a recording, all of it

Arguments are what to do, as JSON, and who asks; files and connections are descriptors.
A recording has what others sent, so that it is read as nobody, with bounds on memory
and CPU time, and not by whoever measures.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import resource
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

if not __package__:  # run by its path, isolated: our package is where we are
    sys.path.insert(0, str(Path(__file__).parents[2]))

from latprof_analysis.read.result import ReadError
from latprof_analysis.records.recording import Recording
from numpy.typing import NDArray

from latprof_agent.capture.recording_writer import RecordingWriter
from latprof_agent.foreign_files import NOBODY
from latprof_agent.lend.client_records import ALWAYS, ClientRecords
from latprof_agent.lend.frames import (
    LEND_SECONDS,
    SILENT_SECONDS,
    Ending,
    Outlet,
    TooLarge,
)

_MEMORY_BYTES = 2 << 30
_CPU_SECONDS = 100
_SECONDS = int(LEND_SECONDS) + 30  # then it ends, whatever it waits for
_LAZINESS = 10  # of who reads, beside those that are measured
_LOOK_SECONDS = 0.05
_PR_SET_PDEATHSIG = 1
_NO_END = {"link": "", "figures": {}, "cost": {}, "probe_cost": {}}


class _Growing(io.RawIOBase):
    """A file that is still written: at its end there may be more, until `until`."""

    def __init__(self, descriptor: int, until: float, wait: Callable[[], None]) -> None:
        self._descriptor, self._until, self._wait = descriptor, until, wait
        self._at = 0

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def readinto(self, buffer: Any) -> int:
        # others' offset must not move, so that it is not used
        self._wait()
        while not (read := os.preadv(self._descriptor, [buffer], self._at)):
            if time.monotonic() > self._until:
                return 0
            time.sleep(_LOOK_SECONDS)
            self._wait()
        self._at += read
        return read


def main(task: dict[str, Any], parent: int) -> None:
    """Do it, and say on stdout how it went; ends with the process that started us."""
    import pyarrow  # noqa: F401  before there are no rights to read it

    os.nice(_LAZINESS)
    signal.alarm(_SECONDS)
    for bound, most in (
        (resource.RLIMIT_DATA, _MEMORY_BYTES),
        (resource.RLIMIT_CPU, _CPU_SECONDS),
    ):
        resource.setrlimit(bound, (most, most))
    if os.geteuid() == 0:
        NOBODY.take()
    # a change of credentials takes back what was said before
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    if "connection" in task:
        _lend(**task)
    else:
        sys.stdout.write(_check(**task))


def _check(file: int) -> str:
    """Read all of a recording: why it cannot be read, nothing where it can."""
    try:
        recording = Recording(Path(), io.FileIO(file))
        for _ in recording.steps():
            pass
    except ReadError as error:
        return error.why
    return "it breaks off" if recording.cut_off else ""


def _lend(
    file: int,
    connection: int,
    since_ns: int,
    asked_ns: int,
    most_bytes: int,
    rate_bps: int | None,
    sources: dict[str, Any],
) -> None:
    import pyarrow as pa

    client = socket.socket(fileno=connection)
    silent = struct.pack("ll", int(SILENT_SECONDS), 0)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, silent)
    outlet = Outlet(client.sendall, most_bytes, rate_bps)
    until = time.monotonic() + LEND_SECONDS
    growing = _Growing(file, until, outlet.wait)
    try:
        recording = Recording(Path(), growing)
        mine = _records_of(client, since_ns)
        header = recording.header | {"lent": True}
        writer = _LentWriter(outlet.write, recording.layout.rings, header)
        how = _copy(recording, mine, writer, asked_ns, until)
        if how is Ending.WHOLE:
            _finish(writer, mine, sources)
    except OSError:  # the client has gone, or takes nothing
        return
    except TooLarge:
        how = Ending.TOO_LARGE
    except (ReadError, pa.ArrowException, LookupError, ValueError):
        how = Ending.FAILED
    with suppress(OSError):
        outlet.end(how)
        client.shutdown(socket.SHUT_WR)


class _LentWriter(RecordingWriter):
    """Reads clocks at the end alone: what it copies is older, and stands before."""

    has_copied = False

    def _clocks(self) -> NDArray[Any] | None:
        return super()._clocks() if self.has_copied else None


def _records_of(client: socket.socket, since_ns: int) -> ClientRecords:
    address, port, *_ = client.getpeername()
    found = ip_address(address.partition("%")[0])
    mapped = (
        found.packed if found.version == 6 else bytes(10) + b"\xff\xff" + found.packed
    )
    return ClientRecords(mapped, port, since_ns)


def _copy(
    recording: Recording,
    mine: ClientRecords,
    writer: RecordingWriter,
    asked_ns: int,
    until: float,
) -> Ending:
    """Copy what was recorded until it was asked for, or until there is no more."""
    for step in recording.steps(since_ns=mine.since_ns, always=ALWAYS):
        if kept := mine.of(step):
            writer.copy(kept)
        if (step.drained_ns or 0) >= asked_ns:
            return Ending.WHOLE
        if time.monotonic() > until:
            return Ending.TOO_LATE
    return Ending.TOO_LATE if recording.cut_off else Ending.WHOLE


def _finish(writer: _LentWriter, mine: ClientRecords, sources: dict[str, Any]) -> None:
    """End it as a run does that was not cut off."""
    over = {"state": "done", "failure": None, "link_counters": None}
    writer.note(end=True)
    writer.has_copied = True
    writer.step(None, {})
    writer.end(sources, run=_NO_END | {"description": mine.description | over})


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
