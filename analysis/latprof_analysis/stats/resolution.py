"""The step of a clock, or of rounding, in values that were taken with it."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats.quantiles import checked_values

# Decimal digits to which values are looked at: doubles have 15.
_DIGITS = 12
# Of values that lie off a clock's steps there may be so many.
_OFF = 0.05
# Pieces of a series whose steps are held against each other.
_PIECE, _PIECES, _FEWEST_DIFFERENT, _TIMES = 100, 20, 20, 4.9


def resolution(sample: ArrayLike) -> float:
    """Estimate the step in which values were taken or written.

    The largest step of which all values are multiples; where most values are there
    more than once, also that below which hardly any neighbours among them are apart:
    a clock's ticks need not be whole units.

    Parameters
    ----------
    sample : array_like, shape (n,)
        At least 0, finite, any unit, of which the step is too.

    Returns
    -------
    float
        0 where all values are 0. Of values that are all equal the value.

    Examples
    --------
    >>> waits_us = np.random.default_rng(1).lognormal(5, 0.5, 3000)
    >>> resolution(10 * (waits_us / 10).round()), resolution(waits_us.round(1)) < 0.11
    (10.0, True)
    """
    x = checked_values("sample", sample)
    distinct, counts = np.unique(x[x > 0], return_counts=True)
    if not distinct.size:
        return 0.0
    digits = _DIGITS - math.floor(math.log10(float(distinct[-1])))
    # to divide by 10^k is exact where to multiply by 10^-k is not
    unit = 10.0 ** abs(digits)
    scaled = distinct * unit if digits > 0 else distinct / unit
    common = float(np.gcd.reduce(np.rint(scaled).astype(np.int64)))
    step = common / unit if digits > 0 else common * unit
    if distinct.size == 1 or 2 * distinct.size > x.size:
        return step
    gaps = np.diff(distinct)
    # of each gap as often as values stand at its ends
    weights = np.minimum(counts[1:], counts[:-1])
    order = np.argsort(gaps)
    below = np.cumsum(weights[order]) / weights.sum()
    return max(step, float(gaps[order][np.searchsorted(below, _OFF)]))


def resolution_change(series: ArrayLike) -> tuple[int, float, float] | None:
    """Find where the step of values became another, at least five times as large.

    Parameters
    ----------
    series : array_like, shape (n,)
        In the order of time, as in `resolution`.

    Returns
    -------
    tuple of int, float and float, or None
        The first value of a piece of n / 20, of 100 at least, that has another step
        than those before it, and both steps. None where all are alike, or pieces have
        too few different values.

    Examples
    --------
    >>> waits_ms = np.random.default_rng(1).lognormal(5, 0.5, 1000)
    >>> resolution_change([*waits_ms.round(), *waits_ms.round(2)])
    (1000, 1.0, 0.01)
    """
    x = checked_values("series", series)
    length = max(_PIECE, x.size // _PIECES)
    before = None
    for start in range(0, x.size - length + 1, length):
        piece = x[start : start + length]
        if np.unique(piece).size < _FEWEST_DIFFERENT:
            continue
        step = resolution(piece)
        if before and not before / _TIMES < step < before * _TIMES:
            return start, before, step
        before = step
    return None
