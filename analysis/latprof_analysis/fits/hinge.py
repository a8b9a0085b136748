"""Two straight lines that meet at a knot, against one line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Points on each side of a knot that can be believed; knots between two points.
FEWEST_BESIDE = 3
_KNOTS_BETWEEN = 32


@dataclass(frozen=True)
class HingeFit:
    """How well the best hinge y = a + b x + c max(0, x - knot) fits.

    Attributes
    ----------
    knot : float
    split : int
        Points up to the knot.
    delta_bic : float
        BIC of the straight line less BIC of the hinge: positive if the hinge
        explains more than its two parameters cost.
    bend : float
        Largest distance between hinge and straight line, as a share of the
        range of y.
    """

    knot: float
    split: int
    delta_bic: float
    bend: float


def fit_hinge(x: Floats, y: Floats, resolution: float) -> HingeFit | None:
    """Fit a hinge by a grid of knots; None with too few points for one.

    For a given knot the fit is linear, so each knot of the grid costs one
    projection; the one that leaves the smallest sum of squares is taken.

    Parameters
    ----------
    x, y : ndarray, shape (k,)
        `x` strictly increasing.
    resolution : float
        Unit of y below which a residual says nothing (the clock's).

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> hinge = fit_hinge(x, 5 + 2 * np.maximum(0, x - 4), resolution=1e-3)
    >>> hinge.knot, hinge.split, hinge.delta_bic > 10
    (4.0, 5, True)
    """
    if x.size < 2 * FEWEST_BESIDE:
        return None
    knots = knot_grid(x)
    # What the straight line leaves of y, and of each hinge term.
    basis, _ = np.linalg.qr(np.column_stack([np.ones_like(x), x]))
    left = y - basis @ (basis.T @ y)
    terms = np.maximum(0.0, x[:, None] - knots)
    terms -= basis @ (basis.T @ terms)
    gain = (left @ terms) ** 2 / (terms**2).sum(axis=0)

    knot = float(knots[np.argmax(gain)])
    floor = x.size * resolution**2
    rss_line = floor + left @ left
    # A hinge that fits exactly leaves a difference of rounding errors.
    rss_hinge = floor + max(0.0, float(left @ left - gain.max()))
    ratio = float(np.log(rss_line / rss_hinge))
    term = terms[:, np.argmax(gain)]
    hinge_less_line = term * (left @ term) / (term @ term)
    return HingeFit(
        knot=knot,
        split=int(np.sum(x <= knot)),
        delta_bic=float(x.size * ratio - 2 * np.log(x.size)),
        bend=float(np.abs(hinge_less_line).max() / max(np.ptp(y), resolution)),
    )


def fit_sides(
    x: Floats, y: Floats, split: int
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Fit a line to each side of a knot, for many samples of y at once.

    The best hinge whose knot lies between two given points is these two lines,
    if they meet there [1]_.

    Parameters
    ----------
    x : ndarray, shape (k,)
    y : ndarray, shape (b, k)
    split : int
        How many points belong to the first line.

    Returns
    -------
    below, above : tuple of (slope, intercept), each of shape (b,)

    References
    ----------
    .. [1] Hudson (1966). Fitting segmented curves whose join points have to be
       estimated. JASA 61, 1097-1129.

    Examples
    --------
    >>> x = np.arange(6.0)
    >>> below, above = fit_sides(x, np.array([[1, 1, 1, 3, 5, 7.0]]), split=3)
    >>> np.round(below, 9).tolist(), np.round(above, 9).tolist()
    ([[0.0], [1.0]], [[2.0], [-3.0]])
    """
    below, above = (
        _least_squares(x[side], y[:, side])
        for side in (slice(None, split), slice(split, None))
    )
    return below, above


def _least_squares(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    from_mean = x - x.mean()
    slope = y @ from_mean / (from_mean @ from_mean)
    return slope, y.mean(axis=1) - slope * x.mean()


def knot_grid(x: Floats) -> Floats:
    """Return a grid of knots from the second point to the last but one."""
    inner = x[1:-1]
    share = np.arange(_KNOTS_BETWEEN) / _KNOTS_BETWEEN
    between = inner[:-1, None] + np.diff(inner)[:, None] * share
    return np.append(between.ravel(), inner[-1])
