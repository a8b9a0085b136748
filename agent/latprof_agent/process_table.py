"""What is known of processes: by /proc, and by the status they end with."""

from __future__ import annotations

import signal
from pathlib import Path

from latprof_analysis.kernel_names import name_of

PROC = Path("/proc")


def stat_fields(pid: int, proc: Path = PROC) -> list[str]:
    """Fields of /proc/PID/stat from the third, the state; none of what has ended."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The command, field 2, may hold anything, a parenthesis too.
    return stat[stat.rindex(")") + 2 :].split()


def comm_of(pid: int, proc: Path = PROC) -> str:
    """The name of a process; empty where it has ended."""
    try:
        return name_of((proc / str(pid) / "comm").read_bytes().removesuffix(b"\n"))
    except OSError:
        return ""


def all_stat_fields(proc: Path = PROC) -> dict[int, list[str]]:
    """Return `stat_fields` of each process that has not ended meanwhile."""
    pids = (int(path.name) for path in proc.glob("[0-9]*"))
    found = {pid: stat_fields(pid, proc) for pid in pids}
    return {pid: fields for pid, fields in found.items() if fields}


def processes_below(pids: set[int], proc: Path = PROC) -> set[int]:
    """All descendants of these processes."""
    parents = {pid: int(fields[1]) for pid, fields in all_stat_fields(proc).items()}
    found: set[int] = set()
    fresh = set(pids)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found - pids


def is_stopped(pid: int) -> bool:
    """Whether somebody stopped the process, as by SIGSTOP."""
    return stat_fields(pid)[:1] == ["T"]


def how_it_ended(status: int) -> str:
    """Say an exit status as of Popen: below 0 it is of a signal.

    Examples
    --------
    >>> how_it_ended(-9), how_it_ended(3)
    ('signal 9 (SIGKILL)', 'status 3')
    """
    if status >= 0:
        return f"status {status}"
    names = {int(number): number.name for number in signal.Signals}
    return f"signal {-status} ({names.get(-status, 'real-time')})"
