"""Lines that bend: once at a knot, or as often as the data pay for, up to three times.

Delays may bend more than once: at a segment, at the window with which a connection
starts, at a token bucket's burst. Knots are added one by one, each where it leaves
the smallest sum of squares, then moved in turn; one is kept if BIC falls by 10 [1]_.

References
----------
.. [1] Kass and Raftery (1995). Bayes factors. JASA 90, 773-795: a difference of BIC
   above 10 is very strong evidence.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from latprof_analysis.fit.rounds import Floats

# Points on each side of a knot that can be believed; knots between two points.
FEWEST_BESIDE = 3
_KNOTS_BETWEEN = 32
MOST_KNOTS = 3
_DELTA_BIC = 10.0
_PASSES = 3


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


@dataclass(frozen=True)
class Bends:
    """A continuous line of several straight pieces through the low delays.

    Attributes
    ----------
    knots_bytes : tuple of float
        Where they meet, in bytes of the message, ascending; between two sizes that
        were sent.
    slopes_ns_per_byte : tuple of float
        Of each piece, one more than knots: of the round trip time per byte of
        payload, no factor applied. None of them is the link's until something that
        needs no model (dispersion, stages) says so.
    delta_bic : float
        BIC of the straight line less BIC of these pieces.
    """

    knots_bytes: tuple[float, ...]
    slopes_ns_per_byte: tuple[float, ...]
    delta_bic: float


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


def fit_hinges(x: Floats, y: Floats, resolution: float) -> tuple[Floats, Floats, float]:
    """Fit a continuous line of one to four pieces.

    Parameters
    ----------
    x, y : ndarray, shape (k,)
        `x` strictly increasing.
    resolution : float
        Unit of y below which a residual says nothing (the clock's).

    Returns
    -------
    knots : ndarray, shape (0 to 3,)
    slopes : ndarray
        One more than knots.
    delta_bic : float
        0 without a knot.

    Examples
    --------
    >>> x = np.arange(24.0)
    >>> y = x + 3 * np.maximum(0, x - 8) - 2 * np.maximum(0, x - 15)
    >>> knots, slopes, gain = fit_hinges(x, y, resolution=1e-3)
    >>> knots, np.round(slopes, 6), gain > 10
    (array([ 8., 15.]), array([1., 4., 2.]), True)
    """
    knots = np.empty(0)
    rss = [_squares(x, y, knots, resolution)]
    while knots.size < MOST_KNOTS:
        more = _moved(x, y, _added(x, y, knots))
        if more.size == knots.size:
            break
        left = _squares(x, y, more, resolution)
        if _gain(x.size, rss[-1], left) < _DELTA_BIC:
            break
        knots = more
        rss.append(left)
    slopes = np.cumsum(np.linalg.lstsq(_basis(x, knots), y, rcond=None)[0][1:])
    gains = [_gain(x.size, a, b) for a, b in pairwise(rss)]
    return knots, slopes, float(sum(gains))


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


def knot_grid(x: Floats) -> Floats:
    """Return a grid of knots from the second point to the last but one."""
    inner = x[1:-1]
    share = np.arange(_KNOTS_BETWEEN) / _KNOTS_BETWEEN
    between = inner[:-1, None] + np.diff(inner)[:, None] * share
    return np.append(between.ravel(), inner[-1])


def _least_squares(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    from_mean = x - x.mean()
    slope = y @ from_mean / (from_mean @ from_mean)
    return slope, y.mean(axis=1) - slope * x.mean()


def _gain(n: int, before: float, after: float) -> float:
    return float(n * np.log(before / after) - 2 * np.log(n))


def _basis(x: Floats, knots: Floats) -> Floats:
    terms = np.maximum(0.0, x[:, np.newaxis] - knots)
    return np.column_stack([np.ones_like(x), x, terms])


def _squares(x: Floats, y: Floats, knots: Floats, resolution: float) -> float:
    basis = _basis(x, knots)
    left = y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    return float(left @ left) + x.size * resolution**2


def _added(x: Floats, y: Floats, knots: Floats) -> Floats:
    """Return the knots and the one more that leaves least; the same if none fits."""
    grid = knot_grid(x)
    # Each piece has points enough to be believed.
    ends = np.append(np.searchsorted(x, knots, side="right"), [0, x.size])
    up_to = np.searchsorted(x, grid, side="right")
    grid = grid[(np.abs(up_to[:, np.newaxis] - ends) >= FEWEST_BESIDE).all(axis=1)]
    if grid.size == 0:
        return knots
    orthogonal, _ = np.linalg.qr(_basis(x, knots))
    left = y - orthogonal @ (orthogonal.T @ y)
    terms = np.maximum(0.0, x[:, np.newaxis] - grid)
    terms -= orthogonal @ (orthogonal.T @ terms)
    squares = (terms**2).sum(axis=0)
    gain = (left @ terms) ** 2 / np.maximum(squares, 1e-12 * squares.max())
    return np.sort(np.append(knots, grid[np.argmax(gain)]))


def _moved(x: Floats, y: Floats, knots: Floats) -> Floats:
    """Take each knot out in turn and put it where it leaves least."""
    for _ in range(_PASSES):
        before = knots
        for nth in range(knots.size):
            knots = _added(x, y, np.delete(knots, nth))
        if np.array_equal(before, knots):
            break
    return knots
