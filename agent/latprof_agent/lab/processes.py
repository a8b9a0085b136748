"""Processes known by pid and start time, so that a pid used again is another."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from latprof_agent.errors import LabError
from latprof_agent.process_table import PROC, stat_fields

_TERMINATE_S = 2.0
_KILL_S = 5.0


@dataclass(frozen=True)
class ProcessId:
    """One process of this boot; `start_ticks` is field 22 of /proc/PID/stat."""

    pid: int
    start_ticks: int

    @classmethod
    def of(cls, pid: int, proc: Path = PROC) -> ProcessId | None:
        """Identify a live process; None: there is none."""
        fields = stat_fields(pid, proc)
        if not fields or fields[0] in "ZX":
            return None
        return cls(pid, int(fields[19]))


def _wait(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


@contextmanager
def _held(process: ProcessId) -> Iterator[int | None]:
    """Open a descriptor of exactly this process; None where it has ended."""
    descriptor = None
    with suppress(ProcessLookupError):
        # a number used again may be a thread's, of which there is no descriptor
        if ProcessId.of(process.pid) == process:
            descriptor = os.pidfd_open(process.pid)
    if descriptor is None:
        yield None
        return
    try:
        # Asked after the descriptor was opened, so the two are the same process.
        yield descriptor if ProcessId.of(process.pid) == process else None
    finally:
        os.close(descriptor)


def send(process: ProcessId, number: int) -> None:
    """Signal exactly this process, if it is there."""
    with _held(process) as descriptor, suppress(ProcessLookupError):
        if descriptor is not None:
            signal.pidfd_send_signal(descriptor, number)


def end(process: ProcessId) -> bool:
    """End exactly this process, first asking; say if it was there.

    Raises LabError where it stays.
    """
    with _held(process) as descriptor, suppress(ProcessLookupError):
        if descriptor is None:
            return False
        for number, seconds in (
            (signal.SIGTERM, _TERMINATE_S),
            (signal.SIGKILL, _KILL_S),
        ):
            signal.pidfd_send_signal(descriptor, number)
            if _wait(descriptor, seconds):
                return True
        raise LabError(
            f"cannot end process {process.pid}: it was killed and is still there; "
            "see what it waits for"
        )
    return False
