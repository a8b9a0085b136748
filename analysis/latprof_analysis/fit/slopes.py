"""Lines through points: Theil and Sen's, and those that bend, up to three times.

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

_PAIRS_AT_ONCE = 4_000_000
# Points on each side of a knot that can be believed; knots between two points.
FEWEST_BESIDE = 3
_KNOTS_BETWEEN = 32
MOST_KNOTS = 3
DELTA_BIC = 10.0
_PASSES = 3


def theil_sen(x: Floats, y: Floats) -> tuple[float, float]:
    """Return slope and intercept of y = slope * x + intercept through medians.

    The slope is the median of the slopes of all pairs [1]_; the intercept is the
    median of y - slope * x, which scipy calls the joint method. (Its default,
    median(y) - slope * median(x), was wrong by 0.6 ms where a burst had hit half
    of the sizes.) Up to 29% of the points may be anything.

    Parameters
    ----------
    x, y : ndarray, shape (k,)
        `x` strictly increasing.

    References
    ----------
    .. [1] Sen (1968). Estimates of the regression coefficient based on
       Kendall's tau. JASA 63, 1379-1389.
    """
    i, j = np.triu_indices(x.size, 1)
    slope = float(np.median((y[j] - y[i]) / (x[j] - x[i])))
    return slope, float(np.median(y - slope * x))


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


@dataclass(frozen=True)
class HingeFit:
    """How well the best hinge y = a + b x + c max(0, x - knot) fits."""

    knot: float
    split: int  # points up to the knot
    # BIC of the straight line less that of the hinge: positive if the hinge explains
    # more than its two parameters cost.
    delta_bic: float
    bend: float  # largest distance from the straight line, as a share of y's range


def fit_hinge(x: Floats, y: Floats, resolution: float) -> HingeFit | None:
    """Fit a hinge by a grid of knots; None with too few points for one.

    Parameters
    ----------
    x, y : ndarray, shape (k,)
        `x` strictly increasing.
    resolution : float
        Unit of y below which a residual says nothing (the clock's).
    """
    if x.size < 2 * FEWEST_BESIDE:
        return None
    knots = _knot_grid(x)
    left, terms = _beside_line(x, y, np.empty(0), knots)
    gain = (left @ terms) ** 2 / (terms**2).sum(axis=0)

    knot = float(knots[np.argmax(gain)])
    floor = x.size * resolution**2
    rss_line = float(floor + left @ left)
    # A hinge that fits exactly leaves a difference of rounding errors.
    rss_hinge = floor + max(0.0, float(left @ left - gain.max()))
    term = terms[:, np.argmax(gain)]
    hinge_less_line = term * (left @ term) / (term @ term)
    return HingeFit(
        knot=knot,
        split=int(np.sum(x <= knot)),
        delta_bic=_gain(x.size, rss_line, rss_hinge),
        bend=float(np.abs(hinge_less_line).max() / max(np.ptp(y), resolution)),
    )


def fit_hinges(x: Floats, y: Floats, resolution: float) -> tuple[Floats, Floats, float]:
    """Fit a continuous line of one to four pieces.

    Parameters
    ----------
    x, y, resolution
        As of `fit_hinge`.

    Returns
    -------
    knots : ndarray, shape (0 to 3,)
    slopes : ndarray
        One more than knots.
    delta_bic : float
        0 without a knot.
    """
    knots = np.empty(0)
    rss = [_squares(x, y, knots, resolution)]
    while knots.size < MOST_KNOTS:
        more = _moved(x, y, _added(x, y, knots))
        if more.size == knots.size:
            break
        left = _squares(x, y, more, resolution)
        if _gain(x.size, rss[-1], left) < DELTA_BIC:
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
    """
    below = _least_squares(x[:split], y[:, :split])
    return below, _least_squares(x[split:], y[:, split:])


def _least_squares(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    from_mean = x - x.mean()
    slope = y @ from_mean / (from_mean @ from_mean)
    return slope, y.mean(axis=1) - slope * x.mean()


def _knot_grid(x: Floats) -> Floats:
    """Return a grid of knots from the second point to the last but one."""
    inner = x[1:-1]
    share = np.arange(_KNOTS_BETWEEN) / _KNOTS_BETWEEN
    between = inner[:-1, None] + np.diff(inner)[:, None] * share
    return np.append(between.ravel(), inner[-1])


def _gain(n: int, before: float, after: float) -> float:
    """Return by how much BIC falls with one knot more: it has two parameters."""
    return float(n * np.log(before / after) - 2 * np.log(n))


def _basis(x: Floats, knots: Floats) -> Floats:
    terms = np.maximum(0.0, x[:, np.newaxis] - knots)
    return np.column_stack([np.ones_like(x), x, terms])


def _beside_line(
    x: Floats, y: Floats, knots: Floats, grid: Floats
) -> tuple[Floats, Floats]:
    """Return what the line with these knots leaves of y, and of each hinge more.

    For given knots the fit is linear, so each knot of the grid costs one projection.
    """
    orthogonal, _ = np.linalg.qr(_basis(x, knots))
    left = y - orthogonal @ (orthogonal.T @ y)
    terms = np.maximum(0.0, x[:, np.newaxis] - grid)
    return left, terms - orthogonal @ (orthogonal.T @ terms)


def _squares(x: Floats, y: Floats, knots: Floats, resolution: float) -> float:
    basis = _basis(x, knots)
    left = y - basis @ np.linalg.lstsq(basis, y, rcond=None)[0]
    return float(left @ left) + x.size * resolution**2


def _added(x: Floats, y: Floats, knots: Floats) -> Floats:
    """Return the knots and the one more that leaves least; the same if none fits."""
    grid = _knot_grid(x)
    # Each piece has points enough to be believed.
    ends = np.append(np.searchsorted(x, knots, side="right"), [0, x.size])
    up_to = np.searchsorted(x, grid, side="right")
    grid = grid[(np.abs(up_to[:, np.newaxis] - ends) >= FEWEST_BESIDE).all(axis=1)]
    if grid.size == 0:
        return knots
    left, terms = _beside_line(x, y, knots, grid)
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
