"""Shapes of the last intervals, for heat maps: of every group and quantity, small."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_agent.live.figures import CELLS, Figures, Shape
from latprof_agent.monitor.totals import Group, Quantity

MOST_INTERVALS = 200
_Key = tuple[Group, Quantity]


@dataclass(frozen=True)
class _Interval:
    """Only cells that hold something: row `r` has those of [begin[r], begin[r + 1])."""

    numbers: NDArray[np.uint32]  # of keys, ascending
    begin: NDArray[np.uint32]
    cells: NDArray[np.uint8]
    counts: NDArray[np.uint32]

    def shape_of(self, number: int) -> Shape:
        shape = np.zeros(CELLS, np.int64)
        row = int(np.searchsorted(self.numbers, number))
        if row < len(self.numbers) and self.numbers[row] == number:
            there = slice(self.begin[row], self.begin[row + 1])
            shape[self.cells[there]] = self.counts[there]
        return shape


class History:
    """What heat maps are made of. 250 busy groups take 25 MB at most."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._intervals: deque[_Interval] = deque(maxlen=MOST_INTERVALS)
        self.seconds: deque[float] = deque(maxlen=MOST_INTERVALS)

    def clear(self) -> None:
        """Forget everything: other groups come."""
        self._numbers.clear()
        self._intervals.clear()
        self.seconds.clear()

    def copy(self) -> History:
        """Return one that later intervals do not change."""
        other = History()
        other._numbers = dict(self._numbers)
        other._intervals, other.seconds = self._intervals.copy(), self.seconds.copy()
        return other

    def add(self, figures: Figures, seconds: float) -> None:
        """Take in an interval."""
        shapes = {
            self._numbers.setdefault((group, quantity), len(self._numbers)): f.shape
            for group, of_group in figures.items()
            for quantity, f in of_group.items()
        }
        numbers = sorted(shapes)
        stacked = np.stack([shapes[n] for n in numbers]) if numbers else _NONE
        rows, cells = np.nonzero(stacked)
        self._intervals.append(
            _Interval(
                np.array(numbers, np.uint32),
                np.searchsorted(rows, np.arange(len(numbers) + 1)).astype(np.uint32),
                cells.astype(np.uint8),
                stacked[rows, cells].astype(np.uint32),
            )
        )
        self.seconds.append(seconds)

    def heat(self, group: Group, quantity: Quantity, columns: int) -> NDArray[np.int64]:
        """Return the shapes of the last intervals, newest last: (CELLS, <= columns)."""
        number = self._numbers.get((group, quantity), -1)
        chosen = list(self._intervals)[-columns:]
        if number < 0 or not chosen:
            return np.zeros((CELLS, len(chosen)), np.int64)
        return np.stack([interval.shape_of(number) for interval in chosen], axis=1)


_NONE = np.zeros((0, CELLS), np.int64)
