"""How fast two clocks run apart: between which rates, and along which smooth course.

Rates are numbers without a unit (ns per ns): 1e-6 is 1 us/s. What is said here of a
rate holds for every function between the bounds: its mean rate between two times is
known as well as the gaps between the bounds at both are small against the time between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from latprof_analysis.clocks.envelopes import Bounds, envelope
from latprof_analysis.stats import Floats

# Two hosts' kernels may each be adjusted by 500 us/s; what differs by more was set.
FASTEST = 1e-3
# Where too little was seen: crystals are within 50 us/s of what they should be.
UNSEEN = 1e-4
# Beyond all that was seen: rates of two servers differ by 5 to 30 us/s and change with
# their temperature, over minutes.
WANDER = 1e-5
_WINDOW_NS = 1e9
_FEWEST_WINDOWS = 8
_PAUSE_NS = 3e9
_MOST_WINDOWS = 20_000
# How the offset may leave the smooth course, and at most between two windows in which
# both directions were seen: without it each pause would bend the course.
SUPPLE = 3e-6
MOST_BETWEEN_NS = 3_000.0
# Of the smooth course, in windows: changes slower than 15 s stay to more than half.
_STIFFNESS = 30.0


@dataclass(frozen=True)
class Course:
    """What is known of how one clock runs against another.

    Of the true rate: it is `mean` +- a spread, which differs by time. Beside that a
    smooth course of the offset through what was seen, and how far the offset may be
    from it by chance.

    Attributes
    ----------
    mean : float
        Middle of the rates that the clock may have.
    edges : ndarray, shape (w,)
        Times, increasing; before the first and behind the last all is as there.
    spread : ndarray, shape (w,)
        Largest difference of the rate from the mean, from each edge to the next.
    smooth : ndarray, shape (w,)
        The smooth course at the edges.
    drift : float
        Its rate in the long run.
    supple : ndarray, shape (w,)
        How the offset may leave the smooth course, from each edge to the next.
    """

    mean: float
    edges: Floats
    spread: Floats
    smooth: Floats
    drift: float
    supple: Floats

    def reach_at(self, at: Floats) -> Floats:
        """Integral of the spread up to some times."""
        return _integral(self.edges, self.spread, at)

    def supple_at(self, at: Floats) -> Floats:
        """The same of how the offset may leave the smooth course."""
        return _integral(self.edges, self.supple, at)

    def smooth_at(self, at: Floats) -> Floats:
        """Smooth course of the offset at some times."""
        straight = self.smooth - self.drift * self.edges
        found: Floats = self.drift * at + np.interp(at, self.edges, straight)
        return found

    def drift_at(self, at: Floats) -> Floats:
        """Rate of the smooth course at some times, outside that of the long run."""
        if self.edges.size < 2:
            return np.full(at.size, self.drift)
        rates = np.r_[self.drift, np.diff(self.smooth) / np.diff(self.edges)]
        rates = np.r_[rates, self.drift]
        found: Floats = rates[np.searchsorted(self.edges, at, "right")]
        return found

    def spread_of_drift_at(self, at: Floats) -> Floats:
        """How far the true rate may be from `drift_at`."""
        place = np.maximum(np.searchsorted(self.edges, at, "right") - 1, 0)
        found: Floats = self.spread[place] + np.abs(self.drift_at(at) - self.mean)
        return found


def _integral(edges: Floats, rate: Floats, at: Floats) -> Floats:
    """Integrate a rate that is constant from edge to edge."""
    if edges.size == 1:
        same: Floats = rate[0] * (at - edges[0])
        return same
    upto = np.r_[0.0, np.cumsum(rate[:-1] * np.diff(edges))]
    place = np.clip(np.searchsorted(edges, at, "right") - 1, 0, edges.size - 1)
    found: Floats = upto[place] + rate[place] * (at - edges[place])
    return found


def interval(
    above: Bounds, below: Bounds, course: Course, at: Floats
) -> tuple[Floats, Floats]:
    """Give the least and the largest offset that the bounds allow at some times."""
    reach = course.reach_at(at)
    high = envelope(
        above.value - course.mean * above.at, course.reach_at(above.at), reach
    )
    low = envelope(
        below.value + course.mean * below.at, course.reach_at(below.at), reach
    )
    trend = course.mean * at
    return trend - low, trend + high


def middle(above: Bounds, below: Bounds, course: Course, at: Floats) -> Floats:
    """Give the offset in the middle between the bounds, near to the smooth course."""
    reach = course.supple_at(at)
    high = envelope(
        above.value - course.smooth_at(above.at), course.supple_at(above.at), reach
    )
    low = envelope(
        below.value + course.smooth_at(below.at), course.supple_at(below.at), reach
    )
    found: Floats = course.smooth_at(at) + (high - low) / 2
    return found


def unseen() -> Course:
    """A course of which nothing is known but between which rates it is."""
    zero = np.zeros(1)
    return Course(0.0, zero, np.full(1, UNSEEN), zero, 0.0, np.full(1, SUPPLE))


class Narrowest(NamedTuple):
    """Of each window the time at which the offset is known best, if it was seen there.

    Attributes
    ----------
    at, middle, gap : ndarray, shape (w,)
        The time, what the offset is between its bounds, and how far these are apart.
    """

    at: Floats
    middle: Floats
    gap: Floats


def course_of(above: Bounds, below: Bounds) -> tuple[Course, Narrowest]:
    """Find what both directions say of the rate, and the best of what is left then."""
    times = np.union1d(above.at, below.at)
    wide, low, high = _consistent(above, below, unseen(), times)
    best = _narrowest(times, low, high, wide)
    at, middle, gap = best
    if at.size < 2:
        return wide, best
    drift = _drift(at, middle, gap, wide.spread[0])
    smooth = drift * at + _smoothed(at, middle - drift * at, gap)
    mean, error = _mean_rate(at, middle, gap)
    apart = np.diff(at, append=np.inf)
    supple = np.minimum(SUPPLE, MOST_BETWEEN_NS / apart)
    if error > UNSEEN:
        spread = np.full(at.size, wide.spread[0])
        course = Course(0.0, at, spread, smooth, drift, supple)
        return course, narrowest(above, below, course)
    spread = WANDER + error + _differing(at, middle - mean * at)
    course = Course(mean, at, spread, smooth, drift, supple)
    course, low, high = _consistent(above, below, course, times)
    return course, _narrowest(times, low, high, course)


def _differing(at: Floats, offset: Floats) -> Floats:
    """How far the rate was from the mean, from each time to the next.

    Rates are seen as their mean between two times, so that they may be taken for half
    of what they were; neighbours count, too. In pauses what is usual counts.
    """
    apart = np.diff(at)
    seen = 2 * np.abs(np.diff(offset) / apart)
    seen = np.r_[seen[0], seen, seen[-1]]
    beside = np.maximum(np.maximum(seen[:-2], seen[1:-1]), seen[2:])
    paused = apart > _PAUSE_NS
    beside[paused] = np.maximum(seen[1:-1][paused] / 2, np.median(seen))
    found: Floats = np.r_[beside, beside[-1]]
    return found


def course_of_one(bounds: Bounds, sign: float) -> Course:
    """Find a course from one direction: the bound whose least is the largest amidst.

    That is the edge of the convex hull over the middle of the time [1]_. Queues that
    grow look like a clock that does, so that it says nothing of the true rate.

    Parameters
    ----------
    bounds : Bounds
        Of the offset from above, or of the offset negated.
    sign : float
        1 or -1 accordingly.

    References
    ----------
    .. [1] Zhang, Liu, Xia (2002). Clock synchronization algorithms for network
       measurements. IEEE INFOCOM, 160-169.
    """
    from_middle = bounds.at - (bounds.at[0] + bounds.at[-1]) / 2
    low, high = -UNSEEN, UNSEEN
    while high - low > UNSEEN / 10_000:
        third = (high - low) / 3
        rates = low + third, high - third
        over, under = ((bounds.value - rate * from_middle).min() for rate in rates)
        low, high = (rates[0], high) if over < under else (low, rates[1])
    return replace(unseen(), drift=sign * (low + high) / 2)


def _consistent(
    above: Bounds, below: Bounds, course: Course, at: Floats
) -> tuple[Course, Floats, Floats]:
    """Widen the spread until the bounds do not contradict each other; with these."""
    while True:
        low, high = interval(above, below, course, at)
        if (low <= high).all():
            return course, low, high
        course = replace(course, spread=course.spread * 2)


def narrowest(above: Bounds, below: Bounds, course: Course) -> Narrowest:
    """Find where bounds of both directions are near to each other."""
    at = np.union1d(above.at, below.at)
    low, high = interval(above, below, course, at)
    return _narrowest(at, low, high, course)


def _narrowest(at: Floats, low: Floats, high: Floats, course: Course) -> Narrowest:
    """Find it among increasing times.

    Where one direction sent nothing the bounds grow apart as the spread lets them,
    and their middle says nothing: such times are left out, which another one's
    bounds, growing at half of that rate, reach.
    """
    gap = high - low
    width = _window(at)
    place = (at - at[0]) // width
    begins = np.flatnonzero(np.diff(place, prepend=-1.0) > 0)
    least = np.repeat(np.minimum.reduceat(gap, begins), np.diff(begins, append=at.size))
    kept = np.flatnonzero(gap == least)
    kept = kept[np.diff(place[kept], prepend=-1.0) > 0]  # the first of equal ones
    reach = at[kept] * course.spread[0] / 2
    seen = gap[kept] <= envelope(gap[kept], reach, reach) + 1e-3
    kept = kept[seen]
    apart = np.diff(at[kept], append=np.inf) >= width / 2
    kept = kept[apart]
    return Narrowest(at[kept], (low[kept] + high[kept]) / 2, gap[kept])


def _window(at: Floats) -> float:
    span = at[-1] - at[0]
    return float(max(min(_WINDOW_NS, span / _FEWEST_WINDOWS), span / _MOST_WINDOWS, 1))


def _mean_rate(at: Floats, middle: Floats, gap: Floats) -> tuple[float, float]:
    """Mean rate between the best of the first and last quarter, and its error."""
    quarter = (at[-1] - at[0]) / 4
    early = np.flatnonzero(at <= at[0] + quarter)
    late = np.flatnonzero(at >= at[-1] - quarter)
    i, j = early[np.argmin(gap[early])], late[np.argmin(gap[late])]
    apart = at[j] - at[i]
    return float((middle[j] - middle[i]) / apart), float((gap[i] + gap[j]) / apart / 2)


def _weights(gap: Floats) -> Floats:
    excess = gap - gap.min()
    found: Floats = 1 / (1 + (excess / (np.median(excess) + 1)) ** 2)
    return found


def _drift(at: Floats, middle: Floats, gap: Floats, most: float) -> float:
    """Rate of a straight line through the middles."""
    weight = _weights(gap)
    from_mean = at - np.average(at, weights=weight)
    slope = (weight * from_mean) @ middle / ((weight * from_mean) @ from_mean)
    return float(np.clip(slope, -most, most))


def _smoothed(at: Floats, value: Floats, gap: Floats) -> Floats:
    """Draw a smooth curve through values, known the better the smaller their gap [1]_.

    .. [1] Eilers (2003). A perfect smoother. Analytical Chemistry 75, 3631-3636.
    """
    from scipy.linalg import solveh_banded  # what runs as root loads it for this alone

    width = _window(at)
    place = ((at - at[0]) // width).astype(int)
    k = int(place[-1]) + 1
    if k < 3:
        return np.zeros(at.size)
    weight, aim = np.zeros(k), np.zeros(k)
    np.add.at(weight, place, _weights(gap))
    np.add.at(aim, place, _weights(gap) * value)
    second = np.array([1.0, -2.0, 1.0])
    bands = np.zeros((3, k))
    for i in range(3):
        for j in range(i, 3):
            bands[2 + i - j, j : k - 2 + j] += _STIFFNESS * second[i] * second[j]
    bands[2] += weight
    course = solveh_banded(bands, aim)
    found: Floats = np.interp((at - at[0]) / width, np.arange(k) + 0.5, course)
    return found
