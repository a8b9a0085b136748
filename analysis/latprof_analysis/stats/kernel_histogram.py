"""Histograms as the probes keep them in the kernel: 32 buckets to an octave.

Log-linear as those of `histogram`, and nested in them: four neighbours there are one
bucket here, so both merge exactly. One bucket for what is below 64 ns, 32 in each
octave up to 2**36 ns (68.7 s), one for what is longer. A bucket is at most 1/32 wide
of where it stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.stats.quantiles import rank, samples_needed

SUB_BUCKETS = 32
FIRST_OCTAVE = 6
LAST_OCTAVE = 36
BUCKETS = SUB_BUCKETS * (LAST_OCTAVE - FIRST_OCTAVE) + 2
_NESTED = 4  # buckets of `histogram` in one of ours
_LINEAR = 1 << FIRST_OCTAVE

Counts = NDArray[np.int64]


@cache
def edges_ns() -> NDArray[np.float64]:
    """Return the edges of the buckets: bucket i holds [e[i], e[i + 1]).

    The last edge is infinite. The array is everybody's: not to be written to.

    Examples
    --------
    >>> edges_ns()[:3].tolist(), bool(edges_ns()[-2] == 2**36), len(edges_ns()) - 1
    ([0.0, 64.0, 66.0], True, 962)
    """
    octave = np.arange(FIRST_OCTAVE, LAST_OCTAVE)[:, None]
    steps = (2.0**octave * (1 + np.arange(SUB_BUCKETS) / SUB_BUCKETS)).ravel()
    edges = np.concatenate([[0.0], steps, [2.0**LAST_OCTAVE, np.inf]])
    edges.setflags(write=False)
    return edges


def quantiles(
    counts: Counts, fractions: Sequence[float], measured: Counts | None = None
) -> NDArray[np.float64]:
    """Return quantiles of many histograms at once: the middles of their buckets.

    Parameters
    ----------
    counts : ndarray of int64, shape (k, BUCKETS)
    fractions : sequence of float, of length m
        Each in (0, 1).
    measured : ndarray of int64, shape (k,), optional
        How many values each rests on, where counts were scaled; else all.

    Returns
    -------
    ndarray, shape (k, m)
        In nanoseconds. NaN where fewer values were measured than `samples_needed`
        asks for, or where it lies in the last bucket, whose end is not known.

    Examples
    --------
    >>> two = [CoarseHistogram.of(range(1000, 2000)), CoarseHistogram()]
    >>> quantiles(np.stack([h.counts for h in two]), (0.5, 0.99)).tolist()
    [[1488.0, 2000.0], [nan, nan]]
    """
    edges = edges_ns()
    middles = np.append((edges[:-2] + edges[1:-1]) / 2, np.nan)
    up_to = np.cumsum(counts, axis=1)
    n = up_to[:, -1]
    rests_on = n if measured is None else np.minimum(n, measured)
    found = np.full((len(counts), len(fractions)), np.nan)
    for column, p in enumerate(fractions):
        told = rests_on >= samples_needed(p)
        wanted = np.array([rank(p, k) for k in n[told].tolist()], np.int64)
        below = up_to[told] < wanted[:, None]
        found[told, column] = middles[below.sum(axis=1)]
    return found


_INNER_EDGES = edges_ns()[1:-1].astype(np.int64)


def bucket_of(values: ArrayLike) -> Counts:
    """Return the bucket of each duration in whole nanoseconds from 0.

    Examples
    --------
    >>> bucket_of([0, 63, 64, 66, 2**36]).tolist()
    [0, 0, 1, 2, 961]
    """
    return np.asarray(np.searchsorted(_INNER_EDGES, values, side="right"))


@dataclass
class CoarseHistogram:
    """Counts of durations in nanoseconds, with their exact sum.

    Attributes
    ----------
    counts : ndarray of int64, shape (BUCKETS,)
    sum_ns : int
    unmeasured : int
        How many of the counts are no values of their own: where a part of the time
        was measured, each value stands for others, too, and tells no more by that.

    Examples
    --------
    >>> a = CoarseHistogram.of([1_000, 2_000, 3_000])
    >>> (a + a).count, (a + a - a).sum_ns
    (6, 6000)
    >>> CoarseHistogram.of(range(1000, 2000)).quantile(0.5)  # within 3.2% of 1499.5
    1488.0
    """

    counts: Counts = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    sum_ns: int = 0
    unmeasured: int = 0

    @classmethod
    def of(cls, values: ArrayLike) -> CoarseHistogram:
        """Count whole nanoseconds from 0, of shape (n,)."""
        fine = Histogram()
        fine.record(np.asarray(values))
        return cls.coarsened(fine)

    @classmethod
    def coarsened(cls, fine: Histogram) -> CoarseHistogram:
        """Return the same counts in our buckets, exactly."""
        counts = np.empty(BUCKETS, np.int64)
        counts[0] = fine.counts[:_LINEAR].sum()
        counts[1:-1] = fine.counts[_LINEAR:].reshape(-1, _NESTED).sum(axis=1)
        counts[-1] = fine.overflow
        return cls(counts, fine.sum_ns)

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def measured(self) -> int:
        """How many values it rests on."""
        return self.count - self.unmeasured

    def __add__(self, other: CoarseHistogram) -> CoarseHistogram:
        return CoarseHistogram(
            self.counts + other.counts,
            self.sum_ns + other.sum_ns,
            self.unmeasured + other.unmeasured,
        )

    def __sub__(self, earlier: CoarseHistogram) -> CoarseHistogram:
        """Return what came since `earlier`, a state of the same histogram."""
        return CoarseHistogram(
            self.counts - earlier.counts,
            self.sum_ns - earlier.sum_ns,
            self.unmeasured - earlier.unmeasured,
        )

    def copy(self) -> CoarseHistogram:
        """Return a state that stays as it is."""
        return CoarseHistogram(self.counts.copy(), self.sum_ns, self.unmeasured)

    def quantile(self, p: float) -> float | None:
        """Return the `p` quantile in nanoseconds: the middle of its bucket.

        None if fewer values were measured than `samples_needed` asks for, or if it
        lies in the last bucket, whose end is not known.
        """
        measured = np.array([self.measured])
        found = float(quantiles(self.counts[None], (p,), measured)[0, 0])
        return None if np.isnan(found) else found

    def as_dict(self) -> dict[str, Any]:
        """Return the state for JSON; only buckets that hold something."""
        used = np.flatnonzero(self.counts)
        return {
            "count": self.count,
            "sum_ns": self.sum_ns,
            "unmeasured": self.unmeasured,
            "bucket_low_ns": edges_ns()[used].tolist(),
            "bucket_count": self.counts[used].tolist(),
        }
