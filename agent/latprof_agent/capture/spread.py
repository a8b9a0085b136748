"""How far counts hold that stand for time in which nothing was measured.

A window's rate stands for the pauses around it. How wrong that is, the differences
between windows show: two that follow each other differ by as much as traffic does in
such a time, whatever it does over hours.

    variance of a pause of P seconds, estimated from a window of c seconds:
        P (P + c) s2,   s2 = mean of (rate - rate of the window before)**2 / 2

of the last windows; where they are few, s2 is known badly itself and is taken larger.
It is never below that of independent events: that none came in any window does not say
that none came between.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_WINDOWS = 20  # that s2 is the mean of


class Spread:
    """Variances of counts, shape (groups, columns), each in its unit squared."""

    def __init__(self, groups: int, columns: int) -> None:
        shape = groups, columns
        self.variance = np.zeros(shape)
        self._between = np.zeros(shape)  # the mean of half the squared differences
        self._mean = np.zeros(shape)  # counts in a window
        self._counts = np.zeros(shape)  # of the stretch that stands for others
        self._seconds = 0.0
        self._paused = 0.0  # that it stands for so far
        self._windows = 0

    def learn(self, counts: Floats, seconds: float) -> None:
        """Take in a window, before it stands for anything."""
        rows = slice(len(counts))
        self._windows = min(self._windows + 1, _WINDOWS)
        share = 1 / self._windows
        if self._seconds:
            before = self._counts[rows] / self._seconds
            halved = (counts / seconds - before) ** 2 / 2
            self._between[rows] += share * (halved - self._between[rows])
        self._mean[rows] += share * (counts - self._mean[rows])

    def begin(self, counts: Floats, seconds: float) -> None:
        """From now on this stretch of time stands for others."""
        self._counts[: len(counts)] = counts
        self._seconds, self._paused = seconds, 0.0

    def stand_for(self, seconds: float, groups: int) -> None:
        """Let it stand for so much more time."""
        long, short = self._paused + seconds, self._paused
        measured = self._seconds
        more = long * (long + measured) - short * (short + measured)
        self._paused = long
        self.variance[:groups] += more * self._of_rate(slice(groups))

    def _of_rate(self, rows: slice) -> Floats:
        """The variance of the stretch's rate."""
        if not self._windows:  # nothing is known: as large as it is itself
            return (np.maximum(self._counts[rows], 1) / self._seconds) ** 2
        n = self._windows
        independent = (self._mean[rows] + 1 / n) / self._seconds**2
        return np.maximum(self._between[rows] * (1 + 2 / n), independent)

    def move(self, group: int, to: int) -> None:
        """What was one group's is another's from now on."""
        for array in (self.variance, self._between, self._mean, self._counts):
            array[to] += array[group]
            array[group] = 0
