"""Rows to draw: some of all evenly over the run, and apart the slowest messages.

What is computed of the even ones holds for all; with the slowest among them tails
would be too heavy. What needs neighbours (trains, variation from one message to the
next) has a stretch without gaps.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.batches import Batch
from latprof_analysis.read.result import concatenated
from latprof_analysis.stages import BLANK, PROBE_STATISTICS

EVEN_ROWS = 200_000
SLOWEST_ROWS = 1_000
STRETCH_ROWS = 50_000
# Multiples of the golden ratio stand apart evenly, and in step with nothing.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
# To choose the slowest takes longer than to keep some rows more.
_PRUNED_ABOVE = 20_000
# Of what the slowest are kept: by which columns told apart, and slow in what.
_SLOW = {
    "messages": (("protocol", "kind"), "end_to_end_ns"),
    "exchanges": (("protocol", "kind"), "response_ns"),
}

Rows = NDArray[np.intp]


class Drawn:
    """Rows of a table that are kept as they are.

    Attributes
    ----------
    table : {'messages', 'round_trips', 'exchanges'}
    even, slow, stretch : list of DataFrame
        By the number of the row, which is unique among all that are merged, and
        rises in their order.
    """

    def __init__(self, table: str) -> None:
        self.table = table
        self.even: list[pd.DataFrame] = []
        self.slow: list[pd.DataFrame] = []
        self.stretch: list[pd.DataFrame] = []

    def merge(self, later: Drawn) -> None:
        """Take over what `later` keeps."""
        self.even += later.even
        self.slow += later.slow
        self.stretch += later.stretch
        if sum(map(len, self.even)) > 4 * EVEN_ROWS:
            self.even = [_evenly(_indexed(self.even), 2 * EVEN_ROWS)]
        if sum(map(len, self.slow)) > _PRUNED_ABOVE:
            self.prune()

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame] | None:
        """Return the even ones in the order of the files, and the slowest left.

        None where there are none.
        """
        if not self.even:
            return None
        even = _evenly(_indexed(self.even).sort_index(), EVEN_ROWS)
        slow = even.iloc[:0]
        if self.slow:
            self.prune()
            slow = _indexed(self.slow).sort_index()
            slow = slow[~slow.index.isin(even.index)]
        return even.reset_index(drop=True), slow.reset_index(drop=True)

    def prune(self) -> None:
        """Keep the slowest of each kind; of equal ones the first."""
        if not self.slow:
            return
        whole = _indexed(self.slow).sort_index()
        by, time = _SLOW[self.table]
        whole = whole.sort_values(time, ascending=False, kind="stable")
        self.slow = [whole.groupby(list(by), observed=True).head(SLOWEST_ROWS)]


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
        self._even: list[tuple[Rows, Batch]] = []
        self._slow: list[tuple[Rows, Batch]] = []
        self._slowest = _Slowest(*_SLOW[table]) if table in _SLOW else None
        self._stretch: list[tuple[Rows, Batch]] = []
        self._until = first + stretch

    def add(self, batch: Batch) -> None:
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
                kept.append((self._next + rows, batch.take(rows)))
        self._next += len(batch)

    def finished(self, run: str) -> Drawn:
        """Return what was chosen, as rows of a run."""
        drawn = Drawn(self._table)
        drawn.even = _frames(self._even, run)
        drawn.slow = _frames(self._slow, run)
        drawn.stretch = _frames(self._stretch, run)
        drawn.prune()
        return drawn


def _frames(kept: list[tuple[Rows, Batch]], run: str) -> list[pd.DataFrame]:
    if not kept:
        return []
    frame = concatenated(
        [batch.frame() for batch in Batch.joined([batch for _, batch in kept])]
    )
    frame["run"] = pd.Categorical.from_codes(
        np.zeros(len(frame), np.int8), categories=[run]
    )
    frame.index = pd.Index(np.concatenate([rows for rows, _ in kept]))
    return [frame]


def _one_of_each(before: int, count: int, stride: int) -> Rows:
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
    """Tells which rows may be among the slowest of their kind, batch by batch."""

    def __init__(self, by: tuple[str, ...], time: str) -> None:
        self._by = by
        self._time = time
        # of those so far, by kind
        self._times: dict[tuple[str | None, ...], NDArray[np.int64]] = {}

    def of(self, batch: Batch) -> Rows:
        """Return the slowest undisturbed rows of each kind; of equal ones the first."""
        disturbed = batch.numbers[PROBE_STATISTICS] == 1
        times = np.where(disturbed, BLANK, batch.numbers[self._time])
        found = [np.empty(0, np.intp)]
        for kind, rows in _by_kind(batch, self._by):
            before = self._times.get(kind, np.empty(0, np.int64))
            full = len(before) == SLOWEST_ROWS
            least = before.min() if full else BLANK
            slow = _longest(rows[times[rows] > least], times)
            after = np.sort(np.concatenate([before, times[slow]]))
            self._times[kind] = after[-SLOWEST_ROWS:]
            found.append(slow)
        return np.sort(np.concatenate(found))


def _by_kind(
    batch: Batch, by: tuple[str, ...]
) -> Iterator[tuple[tuple[str | None, ...], Rows]]:
    """Split the rows of a batch by columns of text."""
    texts = [batch.texts[name] for name in by]
    key = np.zeros(len(batch), np.int64)
    for codes, labels in texts:
        key = key * (len(labels) + 1) + codes + 1
    for kind in np.flatnonzero(np.bincount(key)).tolist():
        rows = np.flatnonzero(key == kind)
        first = [(int(codes[rows[0]]), labels) for codes, labels in texts]
        yield tuple(labels[i] if i >= 0 else None for i, labels in first), rows


def _longest(rows: Rows, times: NDArray[np.int64]) -> Rows:
    """Return those of the longest times; of equal ones the first."""
    if len(rows) <= SLOWEST_ROWS:
        return rows
    values = times[rows]
    least = np.partition(values, -SLOWEST_ROWS)[-SLOWEST_ROWS]
    above = rows[values > least]
    equal = rows[values == least][: SLOWEST_ROWS - len(above)]
    return np.concatenate([above, equal])


def _indexed(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate frames that keep the numbers of their rows."""
    index = np.concatenate([frame.index.to_numpy() for frame in frames])
    whole = concatenated(list(frames))
    whole.index = pd.Index(index)
    return whole


def _evenly(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    if len(frame) <= most:
        return frame
    return frame.iloc[np.linspace(0, len(frame) - 1, most).astype(np.intp)]
