"""Percentiles by the handful: of a sample, of a series, of a histogram."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.histogram import Histogram, bucket_edges
from latprof_analysis.quantiles import (
    Quantile,
    binomial_quantile,
    bracketed,
    check_fraction,
    checked_values,
    rank,
)
from latprof_analysis.series import variance_inflation

Floats = NDArray[np.float64]

PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)


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
    return tuple(_quantile(x, p, confidence, 1.0) for p in ps)


def percentiles_in_order(
    series: ArrayLike, ps: Sequence[float] = PERCENTILES, confidence: float = 0.95
) -> tuple[Quantile, ...]:
    """Estimate quantiles of values that depend on those before them.

    Queueing makes neighbours alike, so that n values tell less than n independent
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
        made.append(_quantile(x, p, confidence, variance_inflation(reached)))
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
        lower, upper = _ranks(p, n, confidence, 1.0)
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


def _bucket(histogram: Histogram, at: int) -> tuple[float, float]:
    """Return the least and largest value that the bucket of a rank may hold."""
    bucket = int(np.searchsorted(np.cumsum(histogram.counts), at))
    edges = bucket_edges()
    if bucket + 1 == edges.size:
        return float(edges[-1]), math.inf
    # the values are whole nanoseconds
    return float(edges[bucket]), math.ceil(edges[bucket + 1]) - 1.0


def _quantile(
    ascending: Floats, p: float, confidence: float, inflation: float
) -> Quantile:
    ranks = _ranks(p, ascending.size, confidence, inflation)
    return bracketed(ascending, p, ranks, confidence)


def _ranks(p: float, n: int, confidence: float, inflation: float) -> tuple[int, int]:
    """Return the ranks that bracket a quantile; 0 or n + 1 where none does."""
    check_fraction("p", p)
    check_fraction("confidence", confidence)
    tail = (1 - confidence) / 2
    worth = max(1, round(n / inflation))
    below = binomial_quantile(tail, worth, p)
    above = binomial_quantile(1 - tail, worth, p) + 1
    if above > worth:
        return math.floor(below * n / worth), n + 1
    return math.floor(below * n / worth), math.ceil(above * n / worth)
