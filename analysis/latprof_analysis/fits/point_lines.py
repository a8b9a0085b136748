"""Lines through weighted points: least squares, Huber, Tukey, quantile regression.

Each takes x and y of shape (n,) and weights that say how often each point counts,
and returns the slope and the intercept.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog

from latprof_analysis.fits.rounds import Floats

SlopeIntercept = tuple[float, float]

# Constants of 95% efficiency under normal noise.
HUBER_T = 1.345
TUKEY_C = 4.685
# A normal variable's median absolute value, in standard deviations.
_NORMAL_MAD = 0.6744897501960817
_STEPS = 100
_CLOSE = 1e-9  # of the residuals' scale, between two steps
_FLAT = 1e-12  # of y's range: residuals below are rounding


def least_squares_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    """Fit the line that leaves the smallest sum of squares.

    The best of all unbiased lines that are linear in y, if noise has one variance
    [1]_. That of queueing grows with load and comes in bursts: one long wait moves
    the line. It stands here since so many results were got by it.

    References
    ----------
    .. [1] Draper and Smith (1998). Applied Regression Analysis, 3rd ed.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> least_squares_line(x, 1 + 2 * x, np.ones(4))
    (2.0, 1.0)
    """
    total = weights.sum()
    mean_x, mean_y = weights @ x / total, weights @ y / total
    from_mean = x - mean_x
    spread = weights @ from_mean**2
    slope = weights @ (from_mean * (y - mean_y)) / spread
    return float(slope), float(mean_y - slope * mean_x)


def huber_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    """Fit Huber's M-estimate: squares near the line, absolute values far away.

    The scale is the median absolute residual, taken anew at each step [1]_. Noise
    on one side lifts the intercept; the slope is not biased where all sizes have
    the same noise.

    References
    ----------
    .. [1] Huber and Ronchetti (2009). Robust Statistics, 2nd ed., chapter 7.

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> slope, intercept = huber_line(x, 1 + 2 * x + 1e3 * (x == 7), np.ones(10))
    >>> round(slope, 6), round(intercept, 6)
    (2.0, 1.0)
    """
    return _reweighted(x, y, weights, huber_weight, least_squares_line(x, y, weights))


def tukey_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    """Fit Tukey's biweight M-estimate, from Huber's on: far points count nothing.

    References
    ----------
    .. [1] Beaton and Tukey (1974). The fitting of power series, meaning
       polynomials, illustrated on band-spectroscopic data. Technometrics 16,
       147-185.

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> slope, intercept = tukey_line(x, 1 + 2 * x + 1e3 * (x == 6), np.ones(10))
    >>> round(slope, 6), round(intercept, 6)
    (2.0, 1.0)
    """
    return _reweighted(x, y, weights, tukey_weight, huber_line(x, y, weights))


def quantile_line(
    x: Floats, y: Floats, weights: Floats, p: float = 0.1
) -> SlopeIntercept:
    """Fit the line below which a share `p` of the points lies [1]_.

    What the 10th percentile of each size is where sizes repeat, without need of
    repetition: for traffic that was watched and has each size once.

    A linear programme; the dual is solved, which has two constraints however many
    points there are, and whose multipliers are the line.

    References
    ----------
    .. [1] Koenker and Bassett (1978). Regression quantiles. Econometrica 46, 33-50.

    Examples
    --------
    >>> x = np.arange(20.0)
    >>> slope, intercept = quantile_line(x, 1 + 2 * x + 9 * (x % 2), np.ones(20))
    >>> round(slope, 6), round(intercept, 6)
    (2.0, 1.0)
    """
    some = weights > 0
    x, y, weights = x[some], y[some], weights[some]
    unit_x, unit_y = float(np.abs(x).max()), float(np.ptp(y)) or 1.0
    terms = np.vstack([np.ones_like(x), x / unit_x])
    found = linprog(
        -(y - y.min()) / unit_y,
        A_eq=terms,
        b_eq=(1 - p) * terms @ weights,
        bounds=np.column_stack([np.zeros_like(x), weights]),
        method="highs-ds",
    )
    if not found.success:
        raise ValueError(f"quantile regression found no line: {found.message}")
    intercept, slope = -found.eqlin.marginals
    return float(slope * unit_y / unit_x), float(intercept * unit_y + y.min())


def huber_weight(u: Floats) -> Floats:
    """Return Huber's weight of residuals in scales."""
    return HUBER_T / np.maximum(np.abs(u), HUBER_T)


def tukey_weight(u: Floats) -> Floats:
    """Return Tukey's weight of residuals in scales."""
    inside: Floats = np.maximum(0.0, 1 - (u / TUKEY_C) ** 2) ** 2
    return inside


def residual_scale(residual: Floats) -> float:
    """Return the standard deviation of normal residuals with this median size."""
    return float(np.median(np.abs(residual))) / _NORMAL_MAD


def _reweighted(
    x: Floats,
    y: Floats,
    weights: Floats,
    weigh: Callable[[Floats], Floats],
    start: SlopeIntercept,
) -> SlopeIntercept:
    """Repeat weighted least squares until the line stands."""
    line, times = start, weights.astype(np.int64)
    flat = _FLAT * float(np.ptp(y))
    for _ in range(_STEPS):
        residual = y - line[0] * x - line[1]
        scale = residual_scale(np.repeat(residual, times))
        if scale <= flat:  # over half of the points are on the line
            return line
        last, line = line, least_squares_line(x, y, weights * weigh(residual / scale))
        moved = np.abs((line[0] - last[0]) * x + line[1] - last[1]).max()
        if moved < _CLOSE * scale:
            break
    return line
