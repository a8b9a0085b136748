"""Quantiles of a sample, each with its confidence interval and its n."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Result
from latprof_analysis.stats.beta import beta_quantile

# Below this tail a quantile rests on the extremes of the sample.
_FAR_TAIL = 0.1


@dataclass(frozen=True)
class Quantile(Result):
    """One quantile of a sample, with its confidence interval.

    In JSON a side without a bound is None.
    """

    p: float
    value: float
    low: float
    high: float
    n: int
    confidence: float


def quantile_ci(
    sample: ArrayLike, p: float, confidence: float = 0.95, *, in_order: bool = False
) -> Quantile:
    """Estimate the `p` quantile of a sample from its order statistics.

    The number of observations below the true quantile is Binomial(n, p), so two
    order statistics bracket it whatever the distribution of latency is [1]_.

    Parameters
    ----------
    sample : array_like, shape (n,)
        Independent latencies, any unit. Must hold no NaN. Latencies of a busy
        link are not independent: their interval is then too narrow, unless
        `in_order` says so.
    p : float
        In (0, 1); 0.99 asks for p99.
    confidence : float
        In (0, 1): at least this share of the intervals holds the true quantile.
    in_order : bool
        Whether the sample is in the order of time, and finite: then n is divided by
        what dependence between neighbours takes from it, as in
        `percentiles_in_order`.

    Returns
    -------
    Quantile
        ``value`` is the smallest observation that at least ``p * n`` of the
        observations do not exceed. ``low`` is -inf or ``high`` is +inf where
        `n` is too small to bound that side: the p99 of 50 packets has no upper
        bound.

    References
    ----------
    .. [1] David and Nagaraja (2003). Order Statistics, 3rd ed., section 7.1.

    Examples
    --------
    >>> median = quantile_ci(range(1, 101), 0.5)
    >>> median.value, median.low, median.high, median.n
    (50.0, 40.0, 61.0, 100)
    >>> quantile_ci(range(50), 0.99).high
    inf
    """
    if in_order:
        from latprof_analysis.stats.distribution import percentiles_in_order

        return percentiles_in_order(sample, [p], confidence)[0]
    x = _of_one_axis("sample", sample)
    if np.isnan(x).any():
        raise ValueError(f"sample must hold no NaN, got {np.isnan(x).sum()} of them")
    return sorted_quantile(np.sort(x), p, confidence)


def samples_needed(p: float) -> int:
    """Return the smallest sample from which the `p` quantile may be shown.

    With tail = min(p, 1 - p): 10 samples must lie in a far tail (at most 0.1),
    so that one stray value cannot make the figure; nearer to the median 2.5 are
    enough. p50 needs 5 samples, p90 100, p99 1000 and p99.9 10 000.

    Parameters
    ----------
    p : float
        In (0, 1).

    Examples
    --------
    >>> [samples_needed(p) for p in (0.5, 0.75, 0.9, 0.99, 0.999)]
    [5, 10, 100, 1000, 10000]
    """
    check_fraction("p", p)
    # Rounded, since 1 - 0.9 is not 0.1 in binary.
    tail = round(min(p, 1 - p), 12)
    return math.ceil(round((10 if tail <= _FAR_TAIL else 2.5) / tail, 6))


def sorted_quantile(
    ascending: Floats, p: float, confidence: float, inflation: float = 1.0
) -> Quantile:
    """Return a quantile of ascending values, of which `inflation` count as one does."""
    n = ascending.size
    lower, upper = ranks_around(p, n, confidence, inflation)
    return Quantile(
        p=p,
        value=float(ascending[rank(p, n) - 1]),
        low=float(ascending[lower - 1]) if lower >= 1 else -math.inf,
        high=float(ascending[upper - 1]) if upper <= n else math.inf,
        n=n,
        confidence=confidence,
    )


def ranks_around(
    p: float, n: int, confidence: float, inflation: float = 1.0
) -> tuple[int, int]:
    """Return the ranks, from 1, that bracket a quantile; 0 or n + 1 where none does."""
    check_fraction("p", p)
    check_fraction("confidence", confidence)
    tail = (1 - confidence) / 2
    worth = max(1, round(n / inflation))
    below = binomial_quantile(tail, worth, p)
    above = binomial_quantile(1 - tail, worth, p) + 1
    if above > worth:
        return math.floor(below * n / worth), n + 1
    return math.floor(below * n / worth), math.ceil(above * n / worth)


def rank(p: float, n: int) -> int:
    """Return the rank, from 1, of the observation that is the `p` quantile.

    Examples
    --------
    >>> rank(0.9, 100), rank(0.5, 5)
    (90, 3)
    """
    # Rounded, since 0.07 * 100 is a little more than 7.
    return min(n, max(1, math.ceil(round(p * n, 6))))


@cache
def binomial_quantile(probability: float, n: int, p: float) -> int:
    """Return the smallest k with P(Binomial(n, p) <= k) >= probability.

    Of each chance its ratio to the one before is summed up, around the mean: beyond
    twelve deviations nothing is left. By hand, since scipy.special takes as long to
    load as all else of a small run.

    Examples
    --------
    >>> binomial_quantile(0.025, 100, 0.5), binomial_quantile(0.975, 100, 0.5)
    (40, 60)
    """
    around = 12 * math.sqrt(n * p * (1 - p)) + 50
    low, high = max(0, int(n * p - around)), min(n, int(n * p + around))
    k = np.arange(low, high, dtype=np.float64)
    steps = np.log((n - k) / (k + 1) * (p / (1 - p)))
    logs = np.append(0.0, np.cumsum(steps))
    chances = np.cumsum(np.exp(logs - logs.max()))
    return low + int(np.searchsorted(chances, probability * chances[-1]))


def normal_quantile(probability: float) -> float:
    """Return the value below which so much of a standard normal lies."""
    from statistics import NormalDist  # loads sooner than scipy.special

    return NormalDist().inv_cdf(probability)


def share_interval(hits: int, of: int, confidence: float = 0.95) -> tuple[float, float]:
    """Return the interval of Clopper and Pearson (1934) of a share, `hits` of `of`.

    Raises
    ------
    ValueError
        There are more hits than there were tries.

    Examples
    --------
    >>> [round(end, 4) for end in share_interval(0, 100)]
    [0.0, 0.0362]
    """
    if not 0 <= hits <= of:
        raise ValueError(f"hits must lie from 0 to {of}, got {hits}")
    tail = (1 - confidence) / 2
    if hits in (0, of):  # as most shares of lost messages are: 1 - high is tail ** 1/n
        end = tail ** (1 / of) if of else 0.0
        return (end, 1.0) if hits else (0.0, 1 - end)
    low = beta_quantile(tail, hits, of - hits + 1)
    return low, beta_quantile(1 - tail, hits + 1, of - hits)


def quantiles_by(keys: ArrayLike, values: ArrayLike, p: float) -> tuple[Floats, Floats]:
    """Return each key, ascending, with a quantile of its values.

    Between two values it is interpolated, as `numpy.quantile` does.

    Examples
    --------
    >>> keys, medians = quantiles_by([7, 3, 7, 3, 7], [1, 10, 3, 30, 2], 0.5)
    >>> keys.tolist(), medians.tolist()
    ([3.0, 7.0], [20.0, 2.0])
    """
    groups, x = np.asarray(keys, np.float64), np.asarray(values, np.float64)
    order = np.lexsort((x, groups))
    groups, x = groups[order], x[order]
    begins = np.flatnonzero(np.diff(groups, prepend=np.nan))
    places = begins + p * (np.diff(begins, append=groups.size) - 1)
    below = np.floor(places).astype(np.intp)
    above = np.ceil(places).astype(np.intp)
    return groups[begins], x[below] + (places - below) * (x[above] - x[below])


def check_fraction(name: str, value: float) -> None:
    """Refuse what is no share between 0 and 1."""
    if not 0 < value < 1:
        raise ValueError(f"{name} must be between 0 and 1, got {value}")


def checked_values(name: str, values: ArrayLike) -> Floats:
    """Return the values as floats of shape (n,), or say what is wrong with them."""
    x = _of_one_axis(name, values)
    wrong = x.size - int(np.isfinite(x).sum())
    if wrong:
        raise ValueError(f"{name} must be finite, got {wrong} that are not")
    return x


def _of_one_axis(name: str, values: ArrayLike) -> Floats:
    x = np.asarray(values, dtype=np.float64)
    if x.ndim != 1 or not x.size:
        raise ValueError(f"{name} must have shape (n,) with n >= 1, got {x.shape}")
    return x
