"""Lines from knot to knot between stamps, to the nanosecond at any size of stamps."""

from __future__ import annotations

import numpy as np

from latprof_analysis.stats import Floats, Ints


def at_knots(x: Ints, y: Ints, slopes: Floats, asked: Ints) -> Ints:
    """Interpolate between knots, in whole numbers but for what lies between two.

    Parameters
    ----------
    x : ndarray of int64, shape (k,)
        Increasing; where it is not, what is there twice is looked up the first time.
    y : ndarray of int64, shape (k,)
    slopes : ndarray, shape (2,)
        Before the first knot and behind the last.
    asked : ndarray of int64, any shape

    Returns
    -------
    ndarray of int64, shape of `asked`
        Zeros without any knot.
    """
    if x.size == 0:
        return np.zeros(asked.shape, np.int64)
    inner = np.diff(y) / np.maximum(np.diff(x), 1)
    slope = np.r_[slopes[0], inner, slopes[1]]
    place = np.searchsorted(np.maximum.accumulate(x), asked, "right")
    knot = np.maximum(place - 1, 0)
    found: Ints = y[knot] + np.rint((asked - x[knot]) * slope[place]).astype(np.int64)
    return found


def onward(at: Ints, offset: Ints, rates: Floats, t: Ints) -> Ints:
    """Add to times of one clock the offset of another, given at knots."""
    return t + at_knots(at, offset, rates, t)


def backward(at: Ints, offset: Ints, rates: Floats, t: Ints) -> Ints:
    """Undo `onward`, but for its rounding.

    What a clock that was set back said twice is taken for the first time.
    """
    said = at + offset
    return t - at_knots(said, offset, rates / (1 + rates), t)
