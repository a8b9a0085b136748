"""Which processes descend from others, as /proc tells."""

from __future__ import annotations

from pathlib import Path

PROC = Path("/proc")


def _parent_of(process: Path) -> int:
    try:
        stat = (process / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended
    return int(stat[stat.rindex(")") + 2 :].split()[1])


def processes_below(pids: set[int], proc: Path = PROC) -> set[int]:
    """All descendants of these processes."""
    parents = {int(p.name): _parent_of(p) for p in proc.glob("[0-9]*")}
    found: set[int] = set()
    fresh = set(pids)
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found - pids
