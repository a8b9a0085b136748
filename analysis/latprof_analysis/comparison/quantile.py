"""A quantile of two samples: ratio, difference, and whether chance explains it.

Why no bootstrap: hundreds of groups are compared together, and a correction for
that needs probabilities far below one in the number of resamples. What stands here
is as wide as a moving-block bootstrap, and covers as often (simulated on
autocorrelated series with heavy tails: 93 to 98 of 100).
"""

from __future__ import annotations

import math

import numpy as np

from latprof_analysis.comparison.change import QuantileChange, QuantileOf, recovered
from latprof_analysis.comparison.repeats import compare_repeats
from latprof_analysis.comparison.worth import (
    FEWEST_INDEPENDENT,
    Floats,
    Runs,
    Spread,
    checked_runs,
    critical,
    independent_count,
)
from latprof_analysis.quantiles import check_fraction, rank, samples_needed
from latprof_analysis.text import plural


def compare_quantile(a: Runs, b: Runs, p: float) -> QuantileChange:
    """Compare the `p` quantile of two samples.

    One run on each side: the interval of each quantile takes the ranks at which a
    binomial share of as many independent values may lie [1]_, and those of ratio
    and difference are recovered from the two [2]_. The test compares the shares of
    both sides up to the common quantile, as Mood's median test does, with the
    variance of dependent values.

    Several runs on a side: a run is what was drawn [3]_, and the logarithms of the
    runs' quantiles are compared by Welch's t; a side of one run is taken to vary as
    the other does.

    Parameters
    ----------
    a, b : sequence of ndarray
        For each run its values, in the order of time, finite, any unit.
    p : float
        In (0, 1).

    References
    ----------
    .. [1] Woodruff (1952). Confidence intervals for medians and other position
       measures. JASA 47, 635-646.
    .. [2] Donner and Zou (2012). Closed-form confidence intervals for functions of
       the normal mean and standard deviation. Statistical Methods in Medical
       Research 21, 347-359.
    .. [3] Kalibera and Jones (2013). Rigorous benchmarking in reasonable time.
       International Symposium on Memory Management, 63-74.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> a, b = rng.exponential(100, 2000), 1.2 * rng.exponential(100, 2000)
    >>> change = compare_quantile([a], [b], 0.5)
    >>> change.ratio.low < 1.2 < change.ratio.high, change.p_value < 0.001
    (True, True)
    """
    check_fraction("p", p)
    a, b = checked_runs("a", a), checked_runs("b", b)
    if len(a) > 1 or len(b) > 1:
        return compare_repeats(a, b, p)
    return _of_single_runs(a[0], b[0], p)


def _of_single_runs(a: Floats, b: Floats, p: float) -> QuantileChange:
    sorted_a, sorted_b = np.sort(a), np.sort(b)
    of_a, of_b = _quantile(a, sorted_a, p), _quantile(b, sorted_b, p)
    if not of_a or not of_b:
        return QuantileChange(p, of_a, of_b, None, None, None, _few(a, b, p))
    ratio, difference = recovered(of_a, of_b)
    reason = _unbounded(of_a, of_b)
    p_value = None
    if not reason:
        counts = (of_a.n_effective or 1.0, of_b.n_effective or 1.0)
        p_value = _share_test(sorted_a, sorted_b, p, counts)
    return QuantileChange(p, of_a, of_b, ratio, difference, p_value, reason)


def _quantile(series: Floats, ascending: Floats, p: float) -> QuantileOf | None:
    n = series.size
    if n < samples_needed(p):
        return None
    value = float(ascending[rank(p, n) - 1])
    worth = independent_count((series <= value).astype(np.float64))
    half = critical(worth - 1) * math.sqrt(p * (1 - p) / worth)
    return QuantileOf(
        value,
        _at(ascending, p - half) if p - half > 0 else None,
        _at(ascending, p + half) if p + half < 1 else None,
        n,
        worth,
        1,
    )


def _at(ascending: Floats, share: float) -> float:
    """Return the value below which a share lies, between those of two ranks."""
    place = min(max(share * ascending.size - 0.5, 0.0), ascending.size - 1.0)
    below = int(place)
    above = min(below + 1, ascending.size - 1)
    step = float(ascending[above] - ascending[below])
    return float(ascending[below]) + (place - below) * step


def _share_test(a: Floats, b: Floats, p: float, counts: tuple[float, float]) -> float:
    """Test whether as many of both sides lie below the quantile of all."""
    together = np.concatenate([a, b])
    at = rank(p, together.size) - 1
    quantile = np.partition(together, at)[at]
    # Of those equal to it, half count as below: they may be many.
    below = [np.searchsorted(side, quantile, "left") / side.size for side in (a, b)]
    equal = [
        np.searchsorted(side, quantile, "right") / side.size - share
        for side, share in zip((a, b), below, strict=True)
    ]
    scores = [share + ties / 2 for share, ties in zip(below, equal, strict=True)]
    sizes = np.array([a.size, b.size])
    mean = float(sizes @ scores) / together.size
    squares = float(sizes @ (np.array(below) + np.array(equal) / 4)) / together.size
    variance = max(0.0, squares - mean * mean)
    error = math.sqrt(variance * (1 / counts[0] + 1 / counts[1]))
    return Spread(error, sum(counts) - 2).p_value(float(scores[1] - scores[0]))


def _few(a: Floats, b: Floats, p: float) -> str:
    return f"{plural(min(a.size, b.size), 'value')}, {samples_needed(p)} are needed"


def _unbounded(a: QuantileOf, b: QuantileOf) -> str | None:
    """Say why the dependence of values leaves too little to judge by."""
    worth = min(of.n_effective or 0.0 for of in (a, b))
    if worth < FEWEST_INDEPENDENT:
        return (
            f"values that follow each other are alike: worth {worth:.0f} independent"
            f" ones, {FEWEST_INDEPENDENT} are needed"
        )
    if any(end is None for of in (a, b) for end in (of.low, of.high)):
        return f"worth {worth:.0f} independent values, which do not bound the interval"
    return None
