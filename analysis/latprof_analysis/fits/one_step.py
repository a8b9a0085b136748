"""Draws of a line that cost one step each: the bootstrap of its scores.

A line through all points solves "the sum of scores is 0". Drawing rounds weighs the
scores anew, and one Newton step from the line leads to the drawn line but for terms
of second order [1]_: a matrix product for all draws, where solving each took 20 s
of regression quantiles through 10,000 points.

References
----------
.. [1] Salibian-Barrera and Zamar (2002). Bootstrapping robust estimates of
   regression. Annals of Statistics 30, 556-582.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import ndtri

from latprof_analysis.fits.point_lines import (
    HUBER_T,
    TUKEY_C,
    SlopeIntercept,
    huber_weight,
    residual_scale,
    tukey_weight,
)
from latprof_analysis.fits.rounds import Floats, Ints

# Of residuals: their score, and its slope in the residual.
Scores = Callable[[Floats], tuple[Floats, Floats]]


def draw_lines(
    line: SlopeIntercept,
    scores: Scores,
    x: Floats,
    y: Floats,
    block: Ints,
    weights: Floats,
) -> tuple[Floats, Floats]:
    """Return slopes and intercepts of draws of blocks, the line itself first.

    Parameters
    ----------
    line : tuple of float
        Slope and intercept that solve the scores.
    scores : callable
        Scores of residuals, and their derivatives.
    x, y : ndarray, shape (n,)
    block : ndarray, shape (n,)
    weights : ndarray, shape (1 + b, blocks)
        Of `block_weights`; the first row is the sample itself.

    Examples
    --------
    >>> x, block = np.arange(6.0), np.array([0, 0, 1, 1, 2, 2])
    >>> y = np.array([0.1, 0.9, 2.0, 3.1, 3.9, 5.0])
    >>> line = tuple(np.polyfit(x, y, 1))
    >>> draw = np.array([[1.0, 1.0, 1.0], [1.0, 1.1, 0.9]])
    >>> slopes, _ = draw_lines(line, least_squares_scores, x, y, block, draw)
    >>> exact = np.polyfit(x, y, 1, w=np.sqrt(draw[1][block]))[0]
    >>> round(float(slopes[1]), 3), round(float(exact), 3)
    (0.989, 0.989)
    """
    slope, intercept = line
    score, derivative = scores(y - slope * x - intercept)
    unit = float(np.abs(x).max())
    terms = np.column_stack([x / unit, np.ones_like(x)])
    blocks = weights.shape[1]
    of_block = np.column_stack(
        [np.bincount(block, weights=score * term, minlength=blocks) for term in terms.T]
    )
    curvature = terms.T @ (terms * derivative[:, np.newaxis])
    steps = np.linalg.solve(curvature, of_block.T @ (weights - 1).T)
    return slope + steps[0] / unit, intercept + steps[1]


def least_squares_scores(residual: Floats) -> tuple[Floats, Floats]:
    """Return the residuals themselves."""
    return residual, np.ones_like(residual)


def huber_scores(residual: Floats) -> tuple[Floats, Floats]:
    """Return Huber's: the residual, and no more than 1.345 scales of it."""
    scale = residual_scale(residual)
    inside = np.abs(residual) <= HUBER_T * scale
    return residual * huber_weight(residual / scale), inside.astype(np.float64)


def tukey_scores(residual: Floats) -> tuple[Floats, Floats]:
    """Return Tukey's: the residual by its biweight, none beyond 4.685 scales."""
    scale = residual_scale(residual)
    share = np.minimum(1.0, (residual / (TUKEY_C * scale)) ** 2)
    derivative = (1 - share) * (1 - 5 * share)
    return residual * tukey_weight(residual / scale), derivative


def quantile_scores(residual: Floats, p: float = 0.1) -> tuple[Floats, Floats]:
    """Return `p` above the line and `p` - 1 below; their derivative is a density.

    It is that of the residuals within a bandwidth of 0 [1]_ [2]_.

    References
    ----------
    .. [1] Hall and Sheather (1988). On the distribution of a Studentized quantile.
       JRSS B 50, 381-391.
    .. [2] Koenker (2005). Quantile Regression. Cambridge University Press.
    """
    normal = float(ndtri(p))
    density = np.exp(-(normal**2) / 2) / np.sqrt(2 * np.pi)
    width = (1.5 * density**2 / (2 * normal**2 + 1)) ** (1 / 3)
    width *= float(ndtri(0.975)) ** (2 / 3) * residual.size ** (-1 / 3)
    ends = np.clip([p - width, p + width], 0, 1)
    low, high = np.quantile(residual, ends)
    near = (residual >= low) & (residual <= high)
    scores = np.where(residual < 0, p - 1.0, p)
    return scores, near / max(float(high - low), np.finfo(np.float64).tiny)
