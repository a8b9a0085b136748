"""Processes known by pid and start time, so that a pid used again is another."""

from __future__ import annotations

import os
import select
import signal
from dataclasses import dataclass
from pathlib import Path

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
        """Identify a live process, or tell with None that there is none."""
        fields = stat_fields(pid, proc)
        if not fields or fields[0] in "ZX":
            return None
        return cls(pid, int(fields[19]))


def _wait(descriptor: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(int(seconds * 1000)))


def end(process: ProcessId) -> bool:
    """End exactly this process, first asking; tell if it was there."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Asked after the descriptor was opened, so the two are the same process.
        if ProcessId.of(process.pid) != process:
            return False
        for number, seconds in (
            (signal.SIGTERM, _TERMINATE_S),
            (signal.SIGKILL, _KILL_S),
        ):
            signal.pidfd_send_signal(descriptor, number)
            if _wait(descriptor, seconds):
                break
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True
