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

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Ints
from latprof_analysis.stats.histogram import LINEAR, Histogram, octave_edges
from latprof_analysis.stats.quantiles import rank, samples_needed

Counts = Ints
SUB_BUCKETS = 32
_NESTED = 4  # buckets of `histogram` in one of ours


@cache
def edges_ns() -> Floats:
    """Return the edges of the buckets: bucket i holds [e[i], e[i + 1]).

    The last edge is infinite. The array is everybody's: not to be written to.
    """
    edges = np.concatenate([[0.0], octave_edges(SUB_BUCKETS), [np.inf]])
    edges.setflags(write=False)
    return edges


BUCKETS = len(edges_ns()) - 1
_INNER_EDGES = edges_ns()[1:-1].astype(np.int64)


def quantiles(
    counts: Counts, fractions: Sequence[float], measured: Counts | None = None
) -> Floats:
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
    """
    edges = edges_ns()
    middles = np.append((edges[:-2] + edges[1:-1]) / 2, np.nan)
    up_to = np.cumsum(counts, axis=1)
    n = up_to[:, -1]
    rests_on = n if measured is None else np.minimum(n, measured)
    found = np.full((len(counts), len(fractions)), np.nan)
    for column, p in enumerate(fractions):
        enough = rests_on >= samples_needed(p)
        wanted = np.array([rank(p, k) for k in n[enough].tolist()], np.int64)
        below = up_to[enough] < wanted[:, None]
        found[enough, column] = middles[below.sum(axis=1)]
    return found


def bucket_of(values: ArrayLike) -> Counts:
    """Return the bucket of each duration in whole nanoseconds from 0.

    >>> bucket_of([0, 63, 64, 66, 2**36]).tolist()
    [0, 0, 1, 2, 961]
    """
    return np.asarray(np.searchsorted(_INNER_EDGES, values, side="right"))


@dataclass
class CoarseHistogram:
    """Counts of durations in nanoseconds, with their exact sum.

    Examples
    --------
    >>> a = CoarseHistogram.of([1_000, 2_000, 3_000])
    >>> (a + a).count, (a + a - a).sum_ns
    (6, 6000)
    >>> CoarseHistogram.of(range(1000, 2000)).quantile(0.5)  # within 3.2% of 1499.5
    1488.0
    """

    # Shape (BUCKETS,).
    counts: Counts = field(default_factory=lambda: np.zeros(BUCKETS, np.int64))
    sum_ns: int = 0
    # How many of the counts are no values of their own: where a part of the time was
    # measured, each value stands for others, too, and adds nothing by that.
    unmeasured: int = 0
    variance: float = 0.0  # of the count, where it stands for more than was measured

    @classmethod
    def of(cls, values: ArrayLike) -> CoarseHistogram:
        """Count whole nanoseconds from 0, of shape (n,)."""
        fine = Histogram()
        fine.record(np.asarray(values))
        counts = np.empty(BUCKETS, np.int64)
        counts[0] = fine.counts[:LINEAR].sum()
        counts[1:-1] = fine.counts[LINEAR:].reshape(-1, _NESTED).sum(axis=1)
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
            self.variance + other.variance,
        )

    def __sub__(self, earlier: CoarseHistogram) -> CoarseHistogram:
        """Return what came since `earlier`, a state of the same histogram."""
        return CoarseHistogram(
            self.counts - earlier.counts,
            self.sum_ns - earlier.sum_ns,
            self.unmeasured - earlier.unmeasured,
            self.variance - earlier.variance,
        )

    def copy(self) -> CoarseHistogram:
        """Return a state that stays as it is."""
        return CoarseHistogram(
            self.counts.copy(), self.sum_ns, self.unmeasured, self.variance
        )

    def quantile(self, p: float) -> float | None:
        """Return the `p` quantile in nanoseconds: the middle of its bucket.

        None if fewer values were measured than `samples_needed` asks for, or if it
        lies in the last bucket, whose end is not known.
        """
        measured = np.array([self.measured])
        found = float(quantiles(self.counts[None], (p,), measured)[0, 0])
        return None if np.isnan(found) else found
