"""Rows to draw: some of all evenly over the run, and apart the slowest messages.

What is computed of the even ones holds for all; with the slowest among them tails
would be too heavy. What needs neighbours (trains, variation from one message to the
next) has a stretch without gaps.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.grouping import Places, parted
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.schema import Column
from latprof_analysis.stages import BLANK

EVEN_ROWS = 200_000
SLOWEST_ROWS = 1_000
STRETCH_ROWS = 50_000
# Multiples of the golden ratio stand apart evenly, and in step with nothing.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# To choose the slowest takes longer than to keep some rows more.
_PRUNED_ABOVE = 20_000
# Of what the slowest are kept: grouped by which columns, and slow in what.
_SLOW = {
    "messages": (("protocol", "kind"), "end_to_end_ns"),
    "exchanges": (("protocol", "kind"), "response_ns"),
}

_NO_TIMES = np.empty(0, np.int64)
# The column that is added to what a table has.
RUN = Column("run", "text")


class Kept(NamedTuple):
    """Rows and their numbers, unique among all, which rise in the order of files."""

    numbers: Places
    rows: Rows

    def of(self, places: Places) -> Kept:
        """Return some of them."""
        return Kept(self.numbers[places], self.rows.take(places))

    @classmethod
    def joined(cls, parts: list[Kept]) -> Kept:
        """Put several together, in the order of their numbers."""
        numbers = np.concatenate([part.numbers for part in parts])
        rows = Rows.joined([part.rows for part in parts])
        return cls(numbers, rows).of(np.argsort(numbers, kind="stable"))


class Drawn:
    """Rows of a table that are kept as they are.

    Attributes
    ----------
    table : {'messages', 'round_trips', 'exchanges'}
    even, slow, stretch : list of Kept
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.even: list[Kept] = []
        self.slow: list[Kept] = []
        self.stretch: list[Kept] = []

    def merge(self, later: Drawn) -> None:
        """Take over what `later` keeps."""
        self.even += later.even
        self.slow += later.slow
        self.stretch += later.stretch
        if _count(self.even) > 4 * EVEN_ROWS:
            self.even = [_evenly(Kept.joined(self.even), 2 * EVEN_ROWS)]
        if _count(self.slow) > _PRUNED_ABOVE:
            self.prune()

    def rows(self) -> tuple[Rows, Rows, Rows] | None:
        """Return the even ones in the order of the files, the slowest left, a stretch.

        None where there are none.
        """
        if not self.even:
            return None
        even = _evenly(Kept.joined(self.even), EVEN_ROWS)
        self.prune()
        slow = self.slow[0] if self.slow else even.of(np.empty(0, np.intp))
        slow = slow.of(np.flatnonzero(~np.isin(slow.numbers, even.numbers)))
        stretch = Kept.joined(self.stretch) if self.stretch else slow
        return even.rows, slow.rows, stretch.rows

    def prune(self) -> None:
        """Keep the slowest of each kind; of equal ones the first."""
        if not self.slow:
            return
        whole = Kept.joined(self.slow)
        by, time = _SLOW[self.table]
        times = whole.rows.numbers[time]
        longest = [_longest(rows, times) for _, rows in whole.rows.split(*by)]
        self.slow = [whole.of(np.sort(np.concatenate(longest)))]


def _count(parts: list[Kept]) -> int:
    return sum(len(part.numbers) for part in parts)


class Drawing:
    """Chooses rows of batches that follow each other.

    Parameters
    ----------
    table : {'messages', 'round_trips', 'exchanges'}
    stride : int
        Of so many rows one is kept, evenly.
    first : int
        Number of the first row.
    stretch : int
        So many rows from the first on are kept besides, without gaps.
    """

    def __init__(self, table: str, stride: int, first: int, stretch: int = 0) -> None:
        self._table = table
        self._stride = stride
        self._first = self._next = first
        self._even: list[Kept] = []
        self._slow: list[Kept] = []
        self._slowest = _Slowest(*_SLOW[table]) if table in _SLOW else None
        self._stretch: list[Kept] = []
        self._until = first + stretch

    def add(self, batch: Rows) -> None:
        """Take in the rows that follow."""
        even = _one_of_each(self._next - self._first, len(batch), self._stride)
        slow = self._slowest.of(batch) if self._slowest else np.empty(0, np.intp)
        near = np.arange(min(len(batch), max(0, self._until - self._next)))
        for rows, kept in (
            (even, self._even),
            (slow, self._slow),
            (near, self._stretch),
        ):
            if len(rows):
                kept.append(Kept(self._next + rows, batch.take(rows)))
        self._next += len(batch)

    def finished(self, run: str) -> Drawn:
        """Return what was chosen, as rows of a run."""
        drawn = Drawn(self._table)
        drawn.even = _of_run(self._even, run)
        drawn.slow = _of_run(self._slow, run)
        drawn.stretch = _of_run(self._stretch, run)
        drawn.prune()
        return drawn


def _of_run(parts: list[Kept], run: str) -> list[Kept]:
    """Put together what was kept of a run, which its rows name."""
    if not parts:
        return []
    whole = Kept.joined(parts)
    codes = np.zeros(len(whole.numbers), np.int32)
    return [whole._replace(rows=whole.rows.with_text(RUN.name, codes, [run]))]


def _one_of_each(before: int, count: int, stride: int) -> Places:
    """Return which of `count` rows are kept, one of each `stride`.

    Not the first of each: requests and replies take turns, and an even stride would
    keep the ones and none of the others.

    Examples
    --------
    >>> _one_of_each(0, 12, 4).tolist(), _one_of_each(7, 5, 4).tolist()
    ([0, 5, 10], [3])
    """
    groups = np.arange(before // stride, (before + count) // stride + 1)
    drawn = groups.astype(np.uint64) * _GOLDEN >> np.uint64(32)
    rows = groups * stride + (drawn % np.uint64(stride)).astype(np.intp) - before
    return np.asarray(rows[(rows >= 0) & (rows < count)])


class _Slowest:
    """Says which rows may be among the slowest of their kind, batch by batch."""

    def __init__(self, by: tuple[str, ...], time: str) -> None:
        self._by = by
        self._time = time
        # of those so far, by kind
        self._times: dict[tuple[str | None, ...], NDArray[np.int64]] = {}

    def of(self, batch: Rows) -> Places:
        """Return the slowest rows of each kind; of equal ones the first."""
        times = batch.numbers[self._time]
        key, kinds = batch.keyed(*self._by)
        before = {g: self._times.get(kind, _NO_TIMES) for g, kind in kinds.items()}
        least = {g: _least_of(times) for g, times in before.items()}
        # soon nearly all are below the slowest of every kind
        some = np.flatnonzero(times > min(least.values(), default=BLANK))
        found = [np.empty(0, np.intp)]
        for group, rows in parted(key[some], some):
            slow = _longest(rows[times[rows] > least[group]], times)
            after = np.sort(np.concatenate([before[group], times[slow]]))
            self._times[kinds[group]] = after[-SLOWEST_ROWS:]
            found.append(slow)
        return np.sort(np.concatenate(found))


def _least_of(times: NDArray[np.int64]) -> int:
    """Return above which a time is among the slowest: above none while they are few."""
    return int(times[0]) if len(times) == SLOWEST_ROWS else BLANK


def _longest(rows: Places, times: NDArray[np.int64]) -> Places:
    """Return those of the longest times; of equal ones the first."""
    if len(rows) <= SLOWEST_ROWS:
        return rows
    values = times[rows]
    least = np.partition(values, -SLOWEST_ROWS)[-SLOWEST_ROWS]
    above = rows[values > least]
    equal = rows[values == least][: SLOWEST_ROWS - len(above)]
    return np.concatenate([above, equal])


def _evenly(kept: Kept, most: int) -> Kept:
    count = len(kept.numbers)
    if count <= most:
        return kept
    return kept.of(np.linspace(0, count - 1, most).astype(np.intp))
