"""The Theil-Sen line, for many samples of y at once."""

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
