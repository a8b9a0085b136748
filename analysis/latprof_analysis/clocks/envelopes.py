"""Bounds of a function whose rate is limited, from bounds of it at single times.

If f(s) <= v(s) at some times s, and f changes by at most the `reach` between two times,
then f(t) <= v(s) + reach between s and t for each s. The least of these is the
envelope: with a constant rate the cones of McShane's extension [1]_. What bounds from
below is bounded from above when both are negated; so there is one direction here.

References
----------
.. [1] McShane (1934). Extension of range of functions. Bulletin of the AMS 40, 837-842.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latprof_analysis.stats import Floats, Ints

# Of a bin the least value stays. Without the others a bound is at most one bin's
# reach wider, never narrower: at 100 us/s and a bin of 1 ms by 0.1 us.
_BIN_NS = 1_000_000
_MOST_BINS = 1 << 18


@dataclass(frozen=True)
class Bounds:
    """Times, increasing, and what the function is not above of at each."""

    at: Floats  # ns, shape (n,)
    value: Floats  # ns, shape (n,)

    def __len__(self) -> int:
        return int(self.at.size)

    def part(self, low: int, high: int) -> Bounds:
        """Those from the place `low` up to the place `high`, which is not in it."""
        return Bounds(self.at[low:high], self.value[low:high])

    def between(self, begin: float, end: float) -> Bounds:
        """Those from a time to another, both in it."""
        low = int(np.searchsorted(self.at, begin, "left"))
        return self.part(low, int(np.searchsorted(self.at, end, "right")))

    def less(self, trend: Floats) -> Bounds:
        """Bounds of what a function leaves over of a trend, given at these times."""
        return Bounds(self.at, self.value - trend)


def thinned(at: Ints, value: Ints, span_ns: int) -> Bounds:
    """Keep the least value of each bin of time.

    Parameters
    ----------
    at, value : ndarray of int64, shape (n,)
        In any order; times from 0 to `span_ns`.
    """
    if at.size == 0:
        return Bounds(np.empty(0), np.empty(0))
    width = max(_BIN_NS, span_ns // _MOST_BINS + 1)
    place = at // width
    least = np.full(span_ns // width + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, place, value)
    kept = np.flatnonzero(value == least[place])
    kept = kept[np.argsort(at[kept], kind="stable")]
    _, first = np.unique(place[kept], return_index=True)
    return Bounds(at[kept[first]].astype(float), value[kept[first]].astype(float))


def envelope(value: Floats, reach: Floats, asked: Floats) -> Floats:
    """Bound the function where its reach is `asked`; inf without any value.

    Parameters
    ----------
    value : ndarray, shape (n,)
        Bounds at single times.
    reach : ndarray, shape (n,)
        The integral of the largest rate up to these times, increasing.
    asked : ndarray, shape (k,)
        The same at the times at which a bound is asked for.
    """
    found = np.full(asked.size, np.inf)
    if value.size == 0:
        return found
    before = np.minimum.accumulate(value - reach)
    after = np.minimum.accumulate((value + reach)[::-1])[::-1]
    place = np.searchsorted(reach, asked, "right")
    some, left = place > 0, place < value.size
    found[some] = before[place[some] - 1] + asked[some]
    found[left] = np.minimum(found[left], after[place[left]] - asked[left])
    return found
