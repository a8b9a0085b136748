"""The clock of one host by that of another, from what went both ways between them.

A packet that left at s by a's clock and came at r by b's says that the offset of b,
theta(t) = b's clock less a's when a's says t, is at most r - s at s; one that left at
s' by b's and came at r' by a's, that it is at least s' - r' at r' [1]_. Two clocks run
apart at a nearly constant rate [2]_ [3]_, so that each such bound holds at other times
too, the wider the further: the offset lies between the envelopes of both. Nothing more
is known of it, whatever the paths: half of the least round trip is their unknown
asymmetry. The middle of the envelopes is what most paths make likely.

References
----------
.. [1] Duda, Harrus, Haddad, Bernard (1987). Estimating global time in distributed
   systems. 7th Int. Conf. on Distributed Computing Systems, 299-306.
.. [2] Zhang, Liu, Xia (2002). Clock synchronization algorithms for network
   measurements. IEEE INFOCOM, 160-169.
.. [3] Poirier, Roy, Dagenais (2010). Accurate offline synchronization of distributed
   traces using kernel-level events. ACM SIGOPS Operating Systems Review 44(3), 75-87.
   Trace Compass does so, with straight lines for a whole trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.clocks.line_maps import at_knots, backward, onward
from latprof_analysis.stats import Floats, Ints, Result

PPB = 1e9


class State(IntEnum):
    """How well the offset between two clocks is known."""

    UNKNOWN = 0
    ONE_DIRECTION = 1
    APPROXIMATE = 2
    GOOD = 3
    BROKEN = 4

    @property
    def word(self) -> str:
        """Its name for people.

        >>> State.ONE_DIRECTION.word
        'one direction only'
        """
        return _WORDS[self]


_WORDS = {
    State.UNKNOWN: "unknown",
    State.ONE_DIRECTION: "one direction only",
    State.APPROXIMATE: "approximate",
    State.GOOD: "good",
    State.BROKEN: "broken",
}


@dataclass(frozen=True)
class PairClock(Result):
    """The clock of host b by that of host a.

    Arrays have a value for each of k knots, and are straight lines between them; `low`
    and `high` then bound the truth at each time, not at the knots only. The state of
    a knot holds up to the next one: where it is broken, nothing is known up to there.

    Attributes
    ----------
    at_ns : ndarray of int64, shape (k,)
        By a's clock, increasing.
    offset_ns : ndarray of int64, shape (k,)
        b's clock less a's.
    minus_ns, plus_ns : ndarray, shape (k,)
        How far the true offset may be below and above; inf where nothing bounds it.
    drift_ppb : ndarray, shape (k,)
        Rate of the offset as it is in the long run, 1000 ppb: 1 us/s.
    spread_ppb : ndarray, shape (k,)
        The true rate is within this of `drift_ppb`. So fast the interval grows before
        the first knot and behind the last.
    state : ndarray of int64, shape (k,)
        `State` of each.
    reasons : dict of State to str
        For people: why there are such states.
    base_round_trip_ns : float
        The least that the interval was, which is both ways' least delays together; inf
        without both directions.
    seen_ns, leftover_ns : ndarray, shape (w,)
        Times by a's clock in whose neighbourhood both directions were seen, and by how
        much the interval was over the base round trip there.
    """

    at_ns: Ints
    offset_ns: Ints
    minus_ns: Floats
    plus_ns: Floats
    drift_ppb: Floats
    spread_ppb: Floats
    state: Ints
    reasons: dict[State, str]
    base_round_trip_ns: float
    seen_ns: Ints
    leftover_ns: Floats

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; None for what is infinite."""
        reasons = {state.word: reason for state, reason in self.reasons.items()}
        return super().as_dict() | {"reasons": reasons}

    @property
    def low_ns(self) -> Floats:
        """Least that the offset may be; a double, so to 2 ns with offsets of 1e16."""
        found: Floats = self.offset_ns - self.minus_ns
        return found

    @property
    def high_ns(self) -> Floats:
        """Largest that the offset may be."""
        found: Floats = self.offset_ns + self.plus_ns
        return found

    def offset_at(self, t_ns: ArrayLike) -> Ints:
        """Give b's clock less a's at times by a's clock."""
        return at_knots(*self._lines(), np.asarray(t_ns, np.int64))

    def by_b(self, t_ns: ArrayLike) -> Ints:
        """Give by b's clock what a's said."""
        return onward(*self._lines(), np.asarray(t_ns, np.int64))

    def by_a(self, t_ns: ArrayLike) -> Ints:
        """Give by a's clock what b's said."""
        return backward(*self._lines(), np.asarray(t_ns, np.int64))

    def _lines(self) -> tuple[Ints, Ints, Floats]:
        rates = self.drift_ppb[[0, -1]] / PPB if self.at_ns.size else np.zeros(2)
        return self.at_ns, self.offset_ns, rates

    def interval_at(self, t_ns: ArrayLike) -> tuple[Floats, Floats]:
        """Say how far the true offset may be below and above `offset_at`."""
        t = np.asarray(t_ns, np.int64)
        if self.at_ns.size == 0:
            return np.full(t.shape, np.inf), np.full(t.shape, np.inf)
        at = (t - self.at_ns[0]).astype(float)
        knots = (self.at_ns - self.at_ns[0]).astype(float)
        early, late = np.maximum(0, -at), np.maximum(0, at - knots[-1])
        outside = (early * self.spread_ppb[0] + late * self.spread_ppb[-1]) / PPB
        place = np.maximum(np.searchsorted(knots, at, "right") - 1, 0)
        nothing = self.state[place] == State.BROKEN
        sides = []
        for side in (self.minus_ns, self.plus_ns):
            found = np.interp(at, knots, np.nan_to_num(side, posinf=0.0)) + outside
            found[nothing | np.isinf(side[place])] = np.inf
            sides.append(found)
        return sides[0], sides[1]

    def state_at(self, t_ns: ArrayLike) -> Ints:
        """Give the `State` at times by a's clock."""
        t = np.asarray(t_ns, np.int64)
        if self.at_ns.size == 0:
            return np.full(t.shape, State.UNKNOWN, np.int64)
        place = np.searchsorted(self.at_ns, t, "right") - 1
        found: Ints = self.state[np.maximum(place, 0)]
        return found

    def rates_at(self, t_ns: ArrayLike) -> tuple[Floats, Floats]:
        """Give drift and spread, ppb, at times by a's clock; there is a knot."""
        t = np.asarray(t_ns, np.int64)
        place = np.maximum(np.searchsorted(self.at_ns, t, "right") - 1, 0)
        return self.drift_ppb[place], self.spread_ppb[place]
