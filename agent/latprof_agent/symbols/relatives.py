"""Processes that run the same image: who was forked, and who forked.

A server that forks for each connection has children that end before anybody can look
at their mappings. These are their parent's: fork copies them, and `start_stack` with
them, which each exec draws anew. What either of them mapped since then may differ: of
code that a child loaded after its fork the place is unknown, or what its parent has
loaded there.
"""

from __future__ import annotations

from pathlib import Path

from latprof_agent.process_table import PROC, all_stat_fields
from latprof_agent.symbols.images import image_of

_AGAIN_NS = 1_000_000_000  # between two looks at all processes
_START_STACK = 25  # of the fields of /proc/PID/stat, from the third on


class Relatives:
    """Knows which process runs an image, as of a second ago at most."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._looked_ns = 0
        self._pids: dict[int, int] = {}

    def of(self, image: int, now_ns: int) -> int | None:
        """Return a process that runs an image; None: there is none, or not seen."""
        if not self._looked_ns or now_ns >= self._looked_ns + _AGAIN_NS:
            self._looked_ns = now_ns
            self._pids = self._look()
        return self._pids.get(image)

    def _look(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for pid, fields in all_stat_fields(self._proc).items():
            # 0: a kernel's thread, or one that we may not see
            if start := int(fields[_START_STACK]):
                found.setdefault(image_of(start), pid)
        return found
