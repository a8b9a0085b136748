"""Times in which a process read nothing while messages waited for it together.

A stall begins when the first of them could be read, or the process had read something
else for the last time, and ends when it reads again. What is shown are the longest.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from latprof_analysis.records.message_rows import WARMUP, Ints, Messages

# Shorter, or of fewer messages, is no news.
LEAST_NS = 5_000_000
LEAST_MESSAGES = 5
# As many are kept at a time, and reported in the end.
MOST = 64
REPORTED = 5


@dataclass
class Stall:
    """One process that did not read."""

    reader_pid: int
    reader_comm: str
    from_ns: int
    until_ns: int
    messages: int = 0

    @property
    def length_ns(self) -> int:
        return self.until_ns - self.from_ns


class Stalls:
    """Takes finished messages, about in the order in which they were read."""

    def __init__(self) -> None:
        self._stalls: list[Stall] = []
        self._last_read_ns: dict[int, int] = {}
        self._first_ns: int | None = None

    def add(self, rows: Messages) -> None:
        """Look for stalls in more messages."""
        numbers = rows.numbers
        read, ready = numbers["read_ns"], numbers["ready_ns"]
        seen = (read > 0) & (ready > 0) & (numbers["reader_pid"] > 0)
        at = np.flatnonzero(seen & (rows.texts["kind"][0] != WARMUP))
        if not len(at):
            return
        first_ns = int(ready[at].min())
        self._first_ns = min(first_ns, self._first_ns or first_ns)
        pid, read, ready = (numbers["reader_pid"][at], read[at], ready[at])
        order = np.lexsort((read, pid))
        pid, read, ready, at = pid[order], read[order], ready[order], at[order]
        before = self._read_before(pid, read)
        self._correct(pid, read, ready)
        since = np.maximum(before, ready)
        names, words = rows.texts["reader_comm"]
        for i in np.flatnonzero((read - since >= LEAST_NS) & (before > 0)):
            # the first that is read need not have waited longest
            waiting = (pid == pid[i]) & (read >= read[i]) & (ready <= read[i])
            begin = max(int(before[i]), int(ready[waiting].min()))
            stall = Stall(int(pid[i]), words[names[at[i]]], begin, int(read[i]))
            stall.messages = int(waiting.sum())
            self._stalls.append(stall)
        if len(self._stalls) > 2 * MOST:
            self._stalls = self._longest(MOST)

    def _read_before(self, pid: Ints, read: Ints) -> Ints:
        """When each reader had read for the last time before; 0: never."""
        before: Ints = np.r_[0, read[:-1]]
        firsts = np.flatnonzero(np.r_[True, pid[1:] != pid[:-1]])
        for first in firsts:
            before[first] = self._last_read_ns.get(int(pid[first]), 0)
        lasts = np.r_[firsts[1:], len(pid)] - 1
        for reader, last in zip(pid[lasts].tolist(), read[lasts].tolist(), strict=True):
            self._last_read_ns[reader] = max(last, self._last_read_ns.get(reader, 0))
        return before

    def _correct(self, pid: Ints, read: Ints, ready: Ints) -> None:
        """Some messages come late: they were read within a stall, or waited, too."""
        for stall in self._stalls:
            mine = pid == stall.reader_pid
            within = read[mine & (read < stall.until_ns) & (read > stall.from_ns)]
            stall.from_ns = int(within.max(initial=stall.from_ns))
            waited = mine & (ready <= stall.until_ns) & (read >= stall.until_ns)
            stall.messages += int(waited.sum())
        self._stalls = [s for s in self._stalls if s.length_ns >= LEAST_NS]

    def _longest(self, most: int) -> list[Stall]:
        enough = [s for s in self._stalls if s.messages >= LEAST_MESSAGES]
        return sorted(enough, key=lambda s: -s.length_ns)[:most]

    def as_list(self) -> list[dict[str, Any]]:
        """Return the longest first; `after_ns` counts from the first message."""
        return [
            asdict(stall) | {"after_ns": stall.from_ns - (self._first_ns or 0)}
            for stall in self._longest(REPORTED)
        ]
