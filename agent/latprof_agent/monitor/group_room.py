"""Room for groups: more of it where there is memory, else that of the idlest.

Containers and services come and go for months. When no number is free and there is no
memory for more, those groups give theirs back that have counted nothing for longest:
what they had counted is then of `other`, so that sums stay what they are, and whoever
comes again begins at nothing.

    idle -> its name is forgotten, all sockets are asked to decide again
         -> SETTLE_SECONDS later no socket counts in it: its counts move to `other`
         -> its number is given out again
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latprof_agent.capture.histograms import BLOCK_GROUPS, GROUPS, GroupTables
from latprof_agent.monitor.totals import Room

Ints = NDArray[np.int64]

# New groups in the time until the next step find a number.
LEAST_FREE = 32
LOOK_SECONDS = 1.0
# A group that counted since is none that nobody would miss.
IDLE_SECONDS = 10.0
# By then what was on its way in the kernel is counted.
SETTLE_SECONDS = 1.0
# So many at once: each time all sockets decide again.
MOST_AT_ONCE = BLOCK_GROUPS
# A socket that found no room may be of a group that has none yet, or of one of them.
MOST_WANTED = 1024
# "full" is said for so long after a group found no room.
FULL_SECONDS = 60.0
_MEMORY_SHARE = 1 / 32  # of the host's, and at most half of what is available
_LEAST_BYTES = 64 << 20

Memory = Callable[[], tuple[int, int]]  # bytes of the host, and of them available


class GroupRoom:
    """Gives out numbers of groups.

    `taken` counts those that the kernel has taken in all, and how often none was left.
    """

    def __init__(
        self,
        tables: GroupTables,
        taken: Callable[[], tuple[int, int]],
        memory: Memory,
    ) -> None:
        self._tables = tables
        self._taken = taken
        self._memory = memory
        self._evicted = 0
        self._refused = 0
        self._refused_at = -np.inf
        self._may_grow = True
        self._active = np.zeros(GROUPS, "i8")
        self._changed_at = np.zeros(GROUPS)
        self._looked_at = -np.inf
        self._leaving: list[int] = []
        self._left_at = 0.0
        self._asked_again = 0

    def begin(self) -> None:
        """Make the first room; raises OSError."""
        while self._tables.room < LEAST_FREE + BLOCK_GROUPS:
            self._tables.grow()

    def state(self, now: float) -> Room:
        """Say how much there is; `now` in seconds, as of `step`."""
        taken, refused = self._taken()
        named = taken - self._evicted
        limit = self._limit() if self._may_grow else self._tables.room
        full = now - self._refused_at < FULL_SECONDS
        return Room(named, limit, self._evicted, refused, full)

    def step(
        self, now: float, named: Callable[[], list[int]]
    ) -> tuple[list[int], bool]:
        """Make room where it is needed; `named` lists the numbers that have a name.

        Returns numbers of groups that shall be forgotten, and whether sockets must
        decide again: those of these groups, and those that found no room.
        """
        if now - self._looked_at >= LOOK_SECONDS:
            self._look(now)
        taken, refused = self._taken()
        free = self._tables.given - taken
        wanted = LEAST_FREE + min(refused - self._refused, MOST_WANTED)
        while free < wanted and self._grow():
            free += BLOCK_GROUPS
        chosen: list[int] = []
        if free < LEAST_FREE and not self._leaving:
            chosen = self._idlest(now, named())
            self._leaving, self._left_at = chosen, now
        again = bool(chosen)
        if refused > self._asked_again and free:
            self._asked_again, again = refused, True
        if refused > self._refused:
            self._refused = refused
            if not free:
                self._refused_at = now
        return chosen, again

    def _look(self, now: float) -> None:
        """See which groups have counted since the last time."""
        active = self._tables.active()
        before = self._active[: len(active)]
        self._changed_at[: len(active)][active != before] = now
        before[:] = active
        self._looked_at = now

    def settled(self, now: float) -> list[int]:
        """Return the groups whose counts can move now; then `give` their numbers."""
        if self._leaving and now - self._left_at >= SETTLE_SECONDS:
            return self._leaving
        return []

    def give(self) -> None:
        """Let new groups have the numbers of those that left."""
        self._evicted += len(self._leaving)
        self._tables.give(self._leaving)
        self._leaving = []

    def _idlest(self, now: float, named: list[int]) -> list[int]:
        """Those that are idle for longest, but no more than are wanted at once."""
        # of those that are alike the first that was named
        known = np.array(sorted(n for n in named if n >= self._tables.first), "i8")
        idle = known[now - self._changed_at[known] > IDLE_SECONDS]
        order = np.argsort(self._changed_at[idle], kind="stable")
        found: list[int] = idle[order][:MOST_AT_ONCE].tolist()
        return found

    def _grow(self) -> bool:
        if not self._may_grow or self._tables.room >= self._limit():
            return False
        try:
            self._tables.grow()
        except OSError:
            self._may_grow = False  # a control group's limit, for instance
        return self._may_grow

    def _limit(self) -> int:
        """For how many groups there may be memory."""
        whole, available = self._memory()
        each = self._tables.block_bytes / BLOCK_GROUPS
        allowed = max(whole * _MEMORY_SHARE, min(_LEAST_BYTES, whole / 8))
        more = min(allowed, self._tables.room * each + available / 2)
        blocks = int(more / self._tables.block_bytes)
        return min(max(blocks * BLOCK_GROUPS, self._tables.room), GROUPS)


def memory(proc: Path = Path("/proc")) -> tuple[int, int]:
    """Bytes of this host, and of them available."""
    found = {}
    for line in (proc / "meminfo").read_text("ascii").splitlines():
        name, _, rest = line.partition(":")
        found[name] = 1024 * int(rest.split()[0])
    return found["MemTotal"], found.get("MemAvailable", found["MemFree"])
