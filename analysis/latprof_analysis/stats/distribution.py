"""How a sample is distributed: percentiles, three pieces with its tail, and a CCDF."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Ints, Result
from latprof_analysis.stats.histogram import Histogram, bucket_edges
from latprof_analysis.stats.quantiles import (
    Quantile,
    check_fraction,
    checked_values,
    rank,
    ranks_around,
    sorted_quantile,
)
from latprof_analysis.stats.series import variance_inflation

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
Scale = Literal["linear", "log"]
# The pieces of the Time Warp measurements of 1988, and their bins: a spreadsheet
# of that time drew 100 points, which is still as many as an eye distinguishes.
CUTS = (0.95, 0.999)
_NAMES = ("fastest 95%", "95% to 99.9%", "slowest 0.1%")
_BINS = 100


@dataclass(frozen=True)
class Piece(Result):
    """Part of a sample from one rank to another, with its histogram."""

    name: str
    count: int  # 0 if the sample is too small to reach it
    low: float | None  # the smallest value, and the largest; None if there is none
    high: float | None
    scale: Scale  # on which bins are equally wide
    # shape (b + 1,): bin i holds [edges[i], edges[i + 1]), the last one both ends.
    # Empty with `counts` if no value is there; both ends alike if all values are.
    edges: Floats
    counts: Ints  # shape (b,); counts.sum() + zeros == count
    zeros: int  # values of 0, which have no place on a log scale


@dataclass(frozen=True)
class Ccdf(Result):
    """Share of values at or above each of some values: arrays of shape (k,)."""

    value: Floats  # ascending, from the smallest of the sample to the largest
    share: Floats  # from 1 to 1 / n, so that the largest can stand on a log axis
    low: Floats  # interval of the true share at each value by itself
    high: Floats
    n: int
    confidence: float


def percentiles(
    sample: ArrayLike, ps: Sequence[float] = PERCENTILES, confidence: float = 0.95
) -> tuple[Quantile, ...]:
    """Estimate several quantiles as `quantile_ci` does, sorting once.

    Parameters
    ----------
    sample : array_like, shape (n,)
        Independent values, any unit, finite.
    ps : sequence of float
        Each in (0, 1).
    confidence : float
        In (0, 1).

    Examples
    --------
    >>> [(q.p, q.value, q.low, q.high) for q in percentiles(range(1, 101), [0.5, 0.9])]
    [(0.5, 50.0, 40.0, 61.0), (0.9, 90.0, 84.0, 96.0)]
    """
    x = np.sort(checked_values("sample", sample))
    return tuple(sorted_quantile(x, p, confidence) for p in ps)


def percentiles_by_group(
    sample: ArrayLike,
    group: ArrayLike,
    ps: Sequence[float] = PERCENTILES,
    confidence: float = 0.95,
) -> dict[int, tuple[Quantile, ...]]:
    """Return the percentiles of each group: per hop count, number of packets, size.

    Parameters
    ----------
    sample : array_like, shape (n,)
        As in `percentiles`.
    group : array_like of int, shape (n,)
        To which group each value belongs.
    ps, confidence
        As in `percentiles`.

    Returns
    -------
    dict
        From each group, ascending, to its quantiles.

    Examples
    --------
    >>> by_hops = percentiles_by_group([5.0, 9.0, 6.0, 7.0], [1, 2, 1, 1], [0.5])
    >>> [(hops, q.value, q.n) for hops, (q,) in by_hops.items()]
    [(1, 6.0, 3), (2, 9.0, 1)]
    """
    x = checked_values("sample", sample)
    label = np.asarray(group)
    if label.shape != x.shape:
        raise ValueError(f"group must have shape {x.shape}, got {label.shape}")
    if not np.issubdtype(label.dtype, np.integer):
        raise ValueError(f"group must hold integers, got {label.dtype}")
    order = np.argsort(label, kind="stable")
    labels, first = np.unique(label[order], return_index=True)
    parts = np.split(x[order], first[1:])
    return {
        int(one): percentiles(part, ps, confidence)
        for one, part in zip(labels, parts, strict=True)
    }


def percentiles_in_order(
    series: ArrayLike, ps: Sequence[float] = PERCENTILES, confidence: float = 0.95
) -> tuple[Quantile, ...]:
    """Estimate quantiles of values that depend on those before them.

    Queueing makes neighbours alike, so that n values hold less than n independent
    ones. What matters for a quantile is whether each value is up to it: by what
    dependence raises the variance of the share of those that are (see
    `variance_inflation`), by that n is divided before the ranks of the interval
    are taken [1]_.

    Parameters
    ----------
    series : array_like, shape (n,)
        In the order of time, any unit, finite.
    ps, confidence
        As in `percentiles`.

    References
    ----------
    .. [1] Heidelberger and Lewis (1984). Quantile estimation in dependent
       sequences. Operations Research 32, 185-209.

    Examples
    --------
    >>> tenfold = np.repeat(np.random.default_rng(7).random(1000), 10)
    >>> (honest,) = percentiles_in_order(tenfold, [0.5])
    >>> (blind,) = percentiles(tenfold, [0.5])
    >>> honest.high - honest.low > 2 * (blind.high - blind.low)
    True
    """
    values = checked_values("sample", series)
    x = np.sort(values)
    made = []
    for p in ps:
        check_fraction("p", p)
        reached = (values <= x[rank(p, x.size) - 1]).astype(np.float64)
        made.append(sorted_quantile(x, p, confidence, variance_inflation(reached)))
    return tuple(made)


def histogram_percentiles(
    histogram: Histogram, ps: Sequence[float] = PERCENTILES, confidence: float = 0.95
) -> tuple[Quantile, ...]:
    """Estimate quantiles of what a histogram counted, in nanoseconds.

    The ends of an interval are those of the buckets that hold them, or the exact
    extremes, so that it covers what the sample's own interval does, and at most
    0.8% more on each side. A percentile that lies among the overflow is left out.

    Parameters
    ----------
    histogram : Histogram
        With at least one value; merged from as many as one likes.
    ps, confidence
        As in `percentiles`.

    Examples
    --------
    >>> counted = Histogram()
    >>> counted.record(np.arange(1, 101))
    >>> (median,) = histogram_percentiles(counted, [0.5])
    >>> median.value, median.low, median.high, median.n
    (50.0, 40.0, 61.0, 100)
    """
    n = histogram.count
    if not n or histogram.min_ns is None or histogram.max_ns is None:
        raise ValueError("histogram must hold at least one value, got none")
    made = []
    for p in ps:
        lower, upper = ranks_around(p, n, confidence)
        low, value, high = (
            _bucket(histogram, min(max(at, 1), n)) for at in (lower, rank(p, n), upper)
        )
        if math.isinf(value[1]):
            continue
        made.append(
            Quantile(
                p=p,
                value=min(max(sum(value) / 2, histogram.min_ns), histogram.max_ns),
                low=max(low[0], histogram.min_ns) if lower >= 1 else -math.inf,
                high=min(high[1], histogram.max_ns) if upper <= n else math.inf,
                n=n,
                confidence=confidence,
            )
        )
    return tuple(made)


def three_pieces(
    sample: ArrayLike, scale: Scale = "linear", bins: int = _BINS
) -> tuple[Piece, Piece, Piece]:
    """Split a sample into its fastest 95%, the next 4.9%, and the slowest 0.1%.

    One histogram of all latencies shows either the body or the tail; these show
    both, each over its own range [1]_. The split is by rank, so equal values may
    stand on both sides of a cut.

    Parameters
    ----------
    sample : array_like, shape (n,)
        Latencies of at least 0, any unit, of which edges are too; finite.
    scale : {"linear", "log"}
        On which bins are equally wide.
    bins : int
        In each piece.

    References
    ----------
    .. [1] Bellenot (1988). Time Warp Measurements on Message Times.

    Examples
    --------
    >>> fast, middle, slow = three_pieces(np.arange(10_000))
    >>> fast.count, middle.count, slow.count
    (9500, 490, 10)
    >>> slow.low, slow.high, fast.counts[:3].tolist()
    (9990.0, 9999.0, [95, 95, 95])
    """
    x = np.sort(checked_values("sample", sample))
    if x[0] < 0:
        raise ValueError(f"sample must be latencies of at least 0, got {x[0]}")
    if scale not in ("linear", "log"):
        raise ValueError(f"scale must be linear or log, got {scale}")
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    first, second = (rank(cut, x.size) for cut in CUTS)
    parts = x[:first], x[first:second], x[second:]
    fast, middle, slow = (
        _piece(name, part, scale, bins)
        for name, part in zip(_NAMES, parts, strict=True)
    )
    return fast, middle, slow


def ccdf(sample: ArrayLike, points: int = 200, confidence: float = 0.95) -> Ccdf:
    """Return how large a share of the values is at or above what, for plotting.

    Half of the points stand at equal steps of rank, so that the body is smooth;
    the others at equal ratios of the number of values above, down to the largest
    one. So the tail keeps its slowest values one by one. The true share above the
    value with m values at or above it is distributed as Beta(m, n - m + 1),
    whatever the distribution of the values [1]_.

    Parameters
    ----------
    sample : array_like, shape (n,)
        Independent values, any unit, finite.
    points : int
        At most so many are kept; at least 4.
    confidence : float
        In (0, 1).

    References
    ----------
    .. [1] David and Nagaraja (2003). Order Statistics, 3rd ed., section 2.3.

    Examples
    --------
    >>> tail = ccdf([1.0, 2.0, 2.0, 5.0])
    >>> tail.value.tolist(), tail.share.tolist()
    ([1.0, 2.0, 5.0], [1.0, 0.75, 0.25])
    """
    from scipy import special  # takes long to load; few get here

    x = np.sort(checked_values("sample", sample))
    check_fraction("confidence", confidence)
    if points < 4:
        raise ValueError(f"points must be at least 4, got {points}")
    n = x.size
    even = np.linspace(1, n, points // 2)
    geometric = np.geomspace(1, n, points - points // 2)
    above = np.unique(np.rint(np.concatenate([even, geometric])).astype(np.int64))
    value = np.unique(x[n - above])
    at_or_above = n - np.searchsorted(x, value)
    tail = (1 - confidence) / 2
    low, high = (
        special.betaincinv(at_or_above, n - at_or_above + 1, end)
        for end in (tail, 1 - tail)
    )
    high[at_or_above == n] = 1.0  # beside a share of 1
    return Ccdf(value, at_or_above / n, low, high, n, confidence)


def _bucket(histogram: Histogram, at: int) -> tuple[float, float]:
    """Return the least and largest value that the bucket of a rank may hold."""
    bucket = int(np.searchsorted(np.cumsum(histogram.counts), at))
    edges = bucket_edges()
    if bucket + 1 == edges.size:
        return float(edges[-1]), math.inf
    # the values are whole nanoseconds
    return float(edges[bucket]), math.ceil(edges[bucket + 1]) - 1.0


def _piece(name: str, ascending: Floats, scale: Scale, bins: int) -> Piece:
    zeros = int(np.searchsorted(ascending, 0.0, "right")) if scale == "log" else 0
    edges = shown = ascending[zeros:]
    if shown.size:
        low, high = shown[0], shown[-1]
        spaced = np.linspace if scale == "linear" else np.geomspace
        edges = np.array([low, high]) if low == high else spaced(low, high, bins + 1)
    # Of an ascending array the count below each edge is found by bisection.
    below = np.searchsorted(shown, edges[1:-1])
    counts = np.diff(below, prepend=0, append=shown.size) if edges.size else below
    return Piece(
        name=name,
        count=ascending.size,
        low=float(ascending[0]) if ascending.size else None,
        high=float(ascending[-1]) if ascending.size else None,
        scale=scale,
        edges=edges,
        counts=counts,
        zeros=zeros,
    )
