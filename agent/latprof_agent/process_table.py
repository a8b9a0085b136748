"""What /proc/PID/stat tells of processes: whose children they are, and more."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def stat_fields(pid: int, proc: Path = PROC) -> list[str]:
    """Fields of /proc/PID/stat from the third, the state; none of what has ended."""
    try:
        stat = (proc / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The command, field 2, may hold anything, a parenthesis too.
    return stat[stat.rindex(")") + 2 :].split()


def processes_below(pids: set[int], proc: Path = PROC) -> set[int]:
    """All descendants of these processes."""
    fields = {int(p.name): stat_fields(int(p.name), proc) for p in proc.glob("[0-9]*")}
    parents = {pid: int(found[1]) for pid, found in fields.items() if found}
    found: set[int] = set()
    fresh = set(pids)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found - pids
