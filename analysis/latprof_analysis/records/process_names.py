"""Names of processes by time: exec, prctl and a number that is used again change them.

A process is called by its first thread's name, as `ps` does; other threads stand by
their own numbers beside the processes. What a process was called before the first time
that is known of it is not known: it gets the first name.
"""

from __future__ import annotations

from bisect import insort
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.csv_cells import cell_of
from latprof_analysis.kernel_names import name_of

# Of one process; one that changes its name all the time keeps the newest.
NAMES_KEPT = 64

Ints = NDArray[np.int64]
# An index into words.
Names = tuple[NDArray[np.int32], list[str]]


class ProcessNames:
    """Who has the number of a process, or of a thread, and since when."""

    def __init__(self) -> None:
        self._names: dict[int, list[tuple[int, str]]] = {}  # pid -> (since, name)

    def __contains__(self, pid: int) -> bool:
        return pid in self._names

    def add(self, records: NDArray[Any]) -> None:
        """Take in what the probes say, of several CPUs in no order."""
        for task in records:
            name = name_of(task["comm"].tobytes())
            self.note(int(task["pid"]), name, int(task["t_ns"]))

    def note(self, pid: int, name: str, since_ns: int) -> None:
        """A process has this name from then on."""
        names = self._names.setdefault(pid, [])
        before = [known for since, known in names if since <= since_ns]
        if before[-1:] != [name]:
            insort(names, (since_ns, name))
            del names[:-NAMES_KEPT]

    def newest(self, pid: int) -> str:
        """The last name of a process; empty where none is known."""
        return self._names[pid][-1][1] if pid in self._names else ""

    def keep(self, most: int) -> None:
        """Forget processes but so many, those first that were met first."""
        for pid in list(self._names)[: max(0, len(self._names) - most)]:
            del self._names[pid]

    def of(self, pids: Ints, t_ns: Ints) -> Names:
        """Name the processes that had these numbers at these times; empty: unknown."""
        unique = np.unique(pids)  # they are few: to search is faster than to sort
        index = np.searchsorted(unique, pids).astype(np.int32)
        known = [self._names.get(pid, [(0, "")]) for pid in unique.tolist()]
        words = [names[0][1] for names in known]
        for pid, names in zip(unique.tolist(), known, strict=True):
            if len(names) == 1:
                continue
            rows = np.flatnonzero(pids == pid)
            since = [since for since, _ in names[1:]]
            later = np.searchsorted(since, t_ns[rows], side="right")
            index[rows] = len(words) + later
            words += [name for _, name in names]
        return index, words


def as_cells(names: Names) -> Names:
    """Names as a column of a file."""
    index, words = names
    return index, [cell_of(word) for word in words]
