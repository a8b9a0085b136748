"""A histogram of nanoseconds: fixed memory, mergeable, exact to half a percent.

Buckets are log-linear: one nanosecond wide below 64 ns, then 128 in each octave
up to 2**36 ns (68.7 s), so a bucket is at most 1/128 wide of where it stands and
its middle is at most 0.4% away from any value in it. Values from 2**36 ns on are
counted, and lie in the exact maximum and sum, but have no bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats import Floats, Ints
from latprof_analysis.stats.quantiles import rank, samples_needed

_SUB_BUCKET_BITS = 7
_SUB_BUCKETS = 1 << _SUB_BUCKET_BITS
_DOUBLE_BIAS = 1023
FIRST_OCTAVE = 6
_LAST_OCTAVE = 36
LINEAR = 1 << FIRST_OCTAVE  # so many buckets are of one nanosecond
_LIMIT_NS = 1 << _LAST_OCTAVE
# Their counts, 4,000 buckets each at most, stay in the cache.
_PARTS_AT_ONCE = 64
_BUCKETS = LINEAR + _SUB_BUCKETS * (_LAST_OCTAVE - FIRST_OCTAVE)


class Histogram:
    """Counts of durations in nanoseconds, with their exact extremes and sum.

    Attributes
    ----------
    counts : ndarray of int64, shape (b,)
        Values in each bucket; `bucket_edges` has where the buckets lie.
    overflow : int
        How many values were from 2**36 ns on.
    count, sum_ns : int
        Number of values and their exact sum.
    min_ns, max_ns : int or None
        Exact extremes; None as long as there is no value.

    Examples
    --------
    >>> latencies = Histogram()
    >>> latencies.record([1_000, 2_000, 3_000])
    >>> latencies.record([4_000, 5_000])
    >>> latencies.count, latencies.min_ns, latencies.max_ns, latencies.sum_ns
    (5, 1000, 5000, 15000)
    >>> latencies.quantile(0.5)  # within 0.4% of 3000
    3000.0
    >>> latencies.quantile(0.99) is None  # five values are too few for a p99
    True
    """

    def __init__(self) -> None:
        self.counts = np.zeros(_BUCKETS, dtype=np.int64)
        self.overflow = 0
        self.sum_ns = 0
        self.min_ns: int | None = None
        self.max_ns: int | None = None

    @property
    def count(self) -> int:
        return int(self.counts.sum()) + self.overflow

    @property
    def mean_ns(self) -> float | None:
        return self.sum_ns / self.count if self.count else None

    def record(self, values: ArrayLike) -> None:
        """Count durations.

        Parameters
        ----------
        values : array_like of int, shape (n,)
            Nanoseconds, from 0 to below 2**63. A larger one is taken for a
            negative difference of unsigned stamps and refused.
        """
        ns = np.asarray(values)
        if ns.ndim != 1:
            raise ValueError(f"values must have shape (n,), got {ns.shape}")
        if not ns.size:
            return
        if not np.issubdtype(ns.dtype, np.integer):
            raise ValueError(f"values must be whole nanoseconds, got {ns.dtype}")
        low, high = int(ns.min()), int(ns.max())
        if low < 0 or high >= 2**63:
            wrong = low if low < 0 else high
            raise ValueError(f"values must be from 0 to below 2**63 ns, got {wrong}")
        record_parts([self], ns.astype(np.int64, copy=False), np.array([ns.size]))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state with only the buckets that hold something."""
        used = np.flatnonzero(self.counts)
        return self.__dict__ | {"counts": (used, self.counts[used])}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of another."""
        used, counts = state["counts"]
        self.__init__()  # type: ignore[misc]
        self.__dict__.update(state | {"counts": self.counts})
        self.counts[used] = counts

    def merge(self, other: Histogram) -> None:
        """Add all that `other` has counted.

        Merging is exact: the order in which values and histograms come together
        makes no difference.
        """
        self.counts += other.counts
        self.overflow += other.overflow
        self.sum_ns += other.sum_ns
        if other.min_ns is not None and other.max_ns is not None:
            self._widen(other.min_ns, other.max_ns)

    def quantile(self, p: float) -> float | None:
        """Return the `p` quantile in nanoseconds, within 0.4% of the sample's.

        Below 64 ns it is exact. None if there are fewer values than
        `samples_needed` asks for, or if it lies among the overflow.

        Parameters
        ----------
        p : float
            In (0, 1).
        """
        n = self.count
        if n < samples_needed(p) or self.min_ns is None or self.max_ns is None:
            return None
        bucket = int(np.searchsorted(np.cumsum(self.counts), rank(p, n)))
        if bucket == _BUCKETS:
            return None
        edges = bucket_edges()
        middle = edges[bucket]
        if bucket >= LINEAR:
            middle = (edges[bucket] + edges[bucket + 1]) / 2
        return float(np.clip(middle, self.min_ns, self.max_ns))

    def as_dict(self) -> dict[str, Any]:
        """Return the state for JSON; only buckets that hold something."""
        used = np.flatnonzero(self.counts)
        return {
            "count": self.count,
            "sum_ns": self.sum_ns,
            "min_ns": self.min_ns,
            "max_ns": self.max_ns,
            "overflow": self.overflow,
            "bucket_low_ns": bucket_edges()[used].tolist(),
            "bucket_count": self.counts[used].tolist(),
        }

    def _widen(self, low: int, high: int) -> None:
        self.min_ns = low if self.min_ns is None else min(self.min_ns, low)
        self.max_ns = high if self.max_ns is None else max(self.max_ns, high)


def octave_edges(parts: int) -> Floats:
    """Return the edges in ns of so many equal parts of each octave."""
    octave = np.arange(FIRST_OCTAVE, _LAST_OCTAVE)[:, None]
    edges = 2.0**octave * (1 + np.arange(parts) / parts)
    return np.append(edges.ravel(), _LIMIT_NS)


def bucket_edges() -> Floats:
    """Return the edges of the buckets in ns: bucket i holds [e[i], e[i + 1])."""
    return np.append(np.arange(LINEAR), octave_edges(_SUB_BUCKETS))


def record_parts(
    histograms: Sequence[Histogram], values: Ints, lengths: NDArray[Any]
) -> None:
    """Count durations that stand part by part, each part in its own histogram.

    In one pass over all values, which is faster than part by part.

    Parameters
    ----------
    histograms : sequence of Histogram, of length k
    values : ndarray of int64, shape (n,)
        Nanoseconds from 0.
    lengths : ndarray of int, shape (k,)
        Of each part; together n.
    """
    filled = np.flatnonzero(lengths)
    ends = np.cumsum(lengths[filled])
    first = 0
    for begin in range(0, len(filled), _PARTS_AT_ONCE):
        chosen = slice(begin, begin + _PARTS_AT_ONCE)
        last = ends[chosen][-1]
        parts = [histograms[i] for i in filled[chosen]]
        _record(parts, values[first:last], ends[chosen] - first)
        first = last


def _record(histograms: Sequence[Histogram], ns: Ints, ends: Ints) -> None:
    begins = np.r_[0, ends[:-1]]
    lows = np.minimum.reduceat(ns, begins).tolist()
    highs = np.maximum.reduceat(ns, begins).tolist()
    if min(lows) < 0:
        raise ValueError(f"values must be 0 or more, got {min(lows)}")
    sums = _exact_sums(ns, begins, max(highs))
    # what has no bucket gets the one behind the last
    fits = ns if max(highs) < _LIMIT_NS else np.minimum(ns, _LIMIT_NS)
    bounds = np.minimum([min(lows), max(highs)], _LIMIT_NS)
    first, last = bucket_of(bounds).tolist()
    width = last + 1 - first
    rows = np.arange(-first, len(ends) * width - first, width)
    places = bucket_of(fits) + np.repeat(rows, ends - begins)
    counts = np.bincount(places, minlength=len(ends) * width).reshape(-1, width)
    there = slice(first, min(last + 1, _BUCKETS))
    for i, histogram in enumerate(histograms):
        histogram.counts[there] += counts[i, : there.stop - first]
        histogram.overflow += int(counts[i, there.stop - first :].sum())
        histogram.sum_ns += sums[i]
        histogram._widen(lows[i], highs[i])


def bucket_of(ns: Ints) -> Ints:
    """Return the bucket of each value up to the limit; that of the limit is none."""
    # a double has its octave and then, in 52 bits, where in the octave it is: the
    # upper 7 of these number the bucket
    bits = ns.astype(np.float64).view(np.int64) >> (52 - _SUB_BUCKET_BITS)
    first = (_DOUBLE_BIAS + FIRST_OCTAVE) << _SUB_BUCKET_BITS
    bits -= first - LINEAR
    return bits if ns.min() >= LINEAR else np.where(ns < LINEAR, ns, bits)


def _exact_sums(ns: Ints, begins: Ints, high: int) -> list[int]:
    """Return the sums of parts; where 64 bits might not do, of halves that fit."""
    if high * ns.size < 2**63:
        return [int(each) for each in np.add.reduceat(ns, begins)]
    upper = np.add.reduceat(ns >> 32, begins).tolist()
    lower = np.add.reduceat(ns & 0xFFFFFFFF, begins).tolist()
    return [(u << 32) + v for u, v in zip(upper, lower, strict=True)]
