"""Histograms as files have them, whatever their buckets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stats.quantiles import rank, ranks_around, samples_needed


class Band(NamedTuple):
    """A quantile of a histogram: between these ends, in ns.

    ``low_95_ns`` and ``high_95_ns`` are the ends for the population, of values that do
    not depend on each other; inf where they are too few to bound it.
    """

    low_ns: float
    high_ns: float
    low_95_ns: float
    high_95_ns: float


@dataclass(frozen=True)
class Buckets:
    """A histogram of latencies as a file has it: their order and values are gone.

    Attributes
    ----------
    low_ns, high_ns : ndarray of float64, shape (b,)
        Ends of each bucket, in any order; buckets may overlap, as those of several
        files do. One without end ends at inf.
    count : ndarray of int64, shape (b,)
        Values in it; of one at least it is not 0.
    """

    low_ns: NDArray[np.float64]
    high_ns: NDArray[np.float64]
    count: NDArray[np.int64]

    @property
    def n(self) -> int:
        """Count all values."""
        return int(self.count.sum())

    def __add__(self, other: Buckets) -> Buckets:
        columns = ("low_ns", "high_ns", "count")
        return Buckets(
            *(np.append(getattr(self, name), getattr(other, name)) for name in columns)
        )

    def quantile(self, p: float) -> Band:
        """Return where the `p` quantile of the values lies.

        Since each value is at least its bucket's low end, the k-th value is at least
        the k-th low end; and so of high ends.

        Examples
        --------
        >>> found = Buckets(np.array([0, 4.0]), np.array([4, 8.0]), np.array([5, 95]))
        >>> found.quantile(0.5)
        Band(low_ns=4.0, high_ns=8.0, low_95_ns=4.0, high_95_ns=8.0)
        """
        n = self.n
        below, above = ranks_around(p, n, 0.95)
        here = rank(p, n)
        return Band(
            self._ranked(self.low_ns, here),
            self._ranked(self.high_ns, here),
            self._ranked(self.low_ns, below) if below >= 1 else -np.inf,
            self._ranked(self.high_ns, above) if above <= n else np.inf,
        )

    def _ranked(self, ends: NDArray[np.float64], of: int) -> float:
        order = np.argsort(ends, kind="stable")
        return float(ends[order][np.searchsorted(np.cumsum(self.count[order]), of)])

    def percentiles(self) -> dict[str, Band]:
        """Return by name those that there are enough values for."""
        shown = {name: p for name, p in _OF_HISTOGRAMS if self.n >= samples_needed(p)}
        return {name: self.quantile(p) for name, p in shown.items()}


_OF_HISTOGRAMS = (
    *(("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)),
    *(("p99.9", 0.999), ("p99.99", 0.9999)),
)
