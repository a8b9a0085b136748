"""Moments at which a clock was set: bounds before and behind contradict each other.

An offset below `above` at one time and over `below` at another must have changed
between the two; where it had to change faster than clocks run apart, one was set, or a
stamp is false. Which of the two cannot be known, so that both sides are estimated by
themselves, as Zhang, Liu and Xia do [1]_.

References
----------
.. [1] Zhang, Liu, Xia (2002). Clock synchronization algorithms for network
   measurements. IEEE INFOCOM, 160-169.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latprof_analysis.clocks.envelopes import Bounds
from latprof_analysis.stats import Floats


@dataclass(frozen=True)
class Stretch:
    """What was seen between two breaks."""

    above: Bounds  # of the offset
    below: Bounds  # of the offset negated

    def times(self) -> Floats:
        """All times, increasing, each once."""
        return np.union1d(self.above.at, self.below.at)

    def between(self, begin: float, end: float) -> Stretch:
        """What was seen from a time to another, both in it."""
        return Stretch(self.above.between(begin, end), self.below.between(begin, end))


def stretches(
    stretch: Stretch, rate: float, least_gap: float, most: int
) -> list[Stretch] | None:
    """Cut where bounds contradict each other, or give None: more than `most` times.

    What was seen while the clock was set, after the last that contradicts and before
    the first that is contradicted, belongs to neither side and is left out.

    Parameters
    ----------
    stretch : Stretch
    rate : float
        The fastest that the offset may change, ns per ns.
    least_gap : float
        How far a bound above is over one below at least, ns.
    most : int
    """
    found: list[Stretch] = []
    above, below = stretch.above, stretch.below
    while True:
        cut = _first_cut(above, below, rate, least_gap)
        if cut is None:
            found.append(Stretch(above, below))
            return [each for each in found if len(each.above) + len(each.below)]
        if len(found) == most:
            return None
        (a_end, a_begin), (b_end, b_begin) = cut
        found.append(Stretch(above.part(0, a_end), below.part(0, b_end)))
        above = above.part(a_begin, len(above))
        below = below.part(b_begin, len(below))


Cut = tuple[int, int]


def _first_cut(
    above: Bounds, below: Bounds, rate: float, least_gap: float
) -> tuple[Cut, Cut] | None:
    """Places, in each direction, of the end before and of the begin behind a break."""
    in_above = _first_contradicted(below, above, rate, least_gap)
    in_below = _first_contradicted(above, below, rate, least_gap)
    places = in_above[0] if in_above else None, in_below[0] if in_below else None
    if places == (None, None):
        return None
    above_ns = np.inf if places[0] is None else above.at[places[0]]
    below_ns = np.inf if places[1] is None else below.at[places[1]]
    if in_above and above_ns <= below_ns:
        mine, other = _around(above, below, *in_above)
        return mine, other
    assert in_below
    mine, other = _around(below, above, *in_below)
    return other, mine


def _first_contradicted(
    earlier: Bounds, later: Bounds, rate: float, least_gap: float
) -> tuple[int, int] | None:
    """The first of `later` that one of `earlier` contradicts, and the last such one."""
    if len(earlier) == 0 or len(later) == 0:
        return None
    least = np.minimum.accumulate(earlier.value - rate * earlier.at)
    place = np.searchsorted(earlier.at, later.at, "right")
    wrong = place > 0
    sums = least[place[wrong] - 1] + rate * later.at[wrong] + later.value[wrong]
    contradicted = np.flatnonzero(wrong)[sums < least_gap]
    if contradicted.size == 0:
        return None
    first = int(contradicted[0])
    before = slice(0, place[first])
    sums = earlier.value[before] + rate * (later.at[first] - earlier.at[before])
    return first, int(np.flatnonzero(sums + later.value[first] < least_gap)[-1])


def _around(later: Bounds, earlier: Bounds, first: int, last: int) -> tuple[Cut, Cut]:
    """Ends and begins beside a break between two samples that contradict each other."""
    end_ns, begin_ns = earlier.at[last], later.at[first]
    mine = int(np.searchsorted(later.at, end_ns, "right"))
    begin = int(np.searchsorted(earlier.at, begin_ns, "left"))
    # At one and the same time neither can be on its side of a break.
    end = last + (end_ns < begin_ns)
    return (min(mine, first), first), (end, max(begin, last + 1))
