"""The clocks of several hosts by that of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.clocks.line_maps import backward, onward
from latprof_analysis.clocks.pairs import PPB, State
from latprof_analysis.stats import Floats, Ints, Result


@dataclass(frozen=True)
class HostClock(Result):
    """The clock of one host by the reference's, as a table: k rows in order of time.

    Attributes
    ----------
    at_ns : ndarray of int64, shape (k,)
        By the reference's clock.
    offset_ns : ndarray of int64, shape (k,)
        This host's clock less the reference's.
    low_ns, high_ns : ndarray, shape (k,)
        Between which the true offset lies; inf where nothing bounds it.
    drift_ppb : ndarray, shape (k,)
        Rate of the offset, 1000 ppb: 1 us/s.
    state : ndarray of int64, shape (k,)
        `State` from each row up to the next.
    """

    at_ns: Ints
    offset_ns: Ints
    low_ns: Floats
    high_ns: Floats
    drift_ppb: Floats
    state: Ints


@dataclass(frozen=True)
class Loop(Result):
    """How far the offsets around three hosts fail to add up to nothing.

    Attributes
    ----------
    hosts : tuple of int
    rms_ns, max_ns : float
        Over the time in which all three pairs are known; of what pairs say before it
        is made to fit.
    contradicts : bool
        Their intervals do not allow it to be nothing, at some time.
    """

    hosts: tuple[int, int, int]
    rms_ns: float
    max_ns: float
    contradicts: bool


@dataclass(frozen=True)
class Between(Result):
    """How sure it is what one host's clock is ahead of another's, at k knots.

    Attributes
    ----------
    over_ns : ndarray, shape (k, 2)
        How far the true offset from a to b may be over what the estimates say, at the
        begin and at the end of what lies between a knot and the next.
    states : ndarray of int8, shape (k,)
        `State` of what lies between a knot and the next.
    growth_ppb : float
        How fast that grows before the first knot and behind the last, and how far two
        rates may be from what is estimated anywhere.
    """

    over_ns: Floats
    states: NDArray[np.int8]
    growth_ppb: float


@dataclass(frozen=True)
class HostClocks(Result):
    """Clocks of h hosts, by that of one, at k knots.

    Attributes
    ----------
    reference : int
        Whose clock is the common one.
    at_ns : ndarray of int64, shape (k,)
        Knots by the reference's clock, increasing.
    offset_ns : ndarray of int64, shape (h, k)
        Each host's clock less the reference's.
    drift_ppb : ndarray, shape (h, k)
        Rates of these.
    between : dict of (a, b) to Between
        Of each two hosts both ways, or of those that were asked for.
    loops : tuple of Loop
    """

    reference: int
    at_ns: Ints
    offset_ns: Ints
    drift_ppb: Floats
    between: Mapping[tuple[int, int], Between]
    loops: tuple[Loop, ...]

    @property
    def hosts(self) -> tuple[HostClock, ...]:
        """A table for each host."""
        return tuple(self._table(host) for host in range(len(self.offset_ns)))

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; None for what is infinite."""
        between = [
            {"hosts": list(hosts), **each.as_dict()}
            for hosts, each in self.between.items()
        ]
        return super().as_dict() | {"between": between}

    def _table(self, host: int) -> HostClock:
        offset, other = self.offset_ns[host], self.reference
        there, back = (self._between(*way) for way in ((other, host), (host, other)))
        return HostClock(
            at_ns=self.at_ns,
            offset_ns=offset,
            low_ns=offset - back.over_ns[:, 0],
            high_ns=offset + there.over_ns[:, 0],
            drift_ppb=self.drift_ppb[host],
            state=there.states.astype(np.int64),
        )

    def _between(self, a: int, b: int) -> Between:
        """What is known of two hosts: nothing, where it was not asked for."""
        if a == b:
            zero = np.zeros((self.at_ns.size, 2))
            return Between(zero, np.full(self.at_ns.size, State.GOOD, np.int8), 0.0)
        if (a, b) in self.between:
            return self.between[a, b]
        nothing = np.full((self.at_ns.size, 2), np.inf)
        return Between(nothing, np.zeros(self.at_ns.size, np.int8), 0.0)

    def to_reference(self, host: int, t_ns: ArrayLike) -> Ints:
        """Give by the reference's clock what one host's clock said.

        Later stays later, or becomes the same nanosecond, but where the state is
        broken: what a clock that was set back said twice is taken for the first time.
        """
        return backward(*self._lines(host), np.asarray(t_ns, np.int64))

    def from_reference(self, host: int, t_ns: ArrayLike) -> Ints:
        """Give by one host's clock what the reference's said."""
        return onward(*self._lines(host), np.asarray(t_ns, np.int64))

    def _lines(self, host: int) -> tuple[Ints, Ints, Floats]:
        rates = self.drift_ppb[host][[0, -1]] / PPB if self.at_ns.size else np.zeros(2)
        return self.at_ns, self.offset_ns[host], rates

    def bounds(
        self, a: int, b: int, t_ns: ArrayLike, apart_ns: ArrayLike = 0
    ) -> tuple[Floats, Floats]:
        """Say how far a difference of stamps of two hosts may be wrong.

        Of a stamp of host a and one of host b, both put to the reference's clock, the
        true difference, b's less a's, lies in [difference - minus, difference + plus].

        Parameters
        ----------
        a, b : int
        t_ns : array_like of int, shape (n,)
            When, by the reference's clock: that of either stamp.
        apart_ns : array_like, shape (n,)
            The difference, where it is long: rates may differ meanwhile.

        Returns
        -------
        minus, plus : ndarray, shape (n,)
            inf where nothing bounds it.
        """
        t = np.asarray(t_ns, np.int64)
        if a == b:
            return np.zeros(t.shape), np.zeros(t.shape)
        if self.at_ns.size == 0:
            return np.full(t.shape, np.inf), np.full(t.shape, np.inf)
        place, share, outside = self._place(t)
        apart = np.abs(np.asarray(apart_ns, float))
        sides = []
        for each in (self._between(a, b), self._between(b, a)):
            begin, end = each.over_ns[place].T
            found = np.full(t.shape, np.inf)
            known = np.isfinite(begin) & np.isfinite(end)
            part = share[known]
            found[known] = (1 - part) * begin[known] + part * end[known]
            found += (outside + apart) * each.growth_ppb / PPB
            sides.append(found)
        return sides[0], sides[1]

    def state(self, a: int, b: int, t_ns: ArrayLike) -> Ints:
        """Give the `State` of two hosts' clocks at times by the reference's clock."""
        t = np.asarray(t_ns, np.int64)
        if a == b:
            return np.full(t.shape, State.GOOD, np.int64)
        if self.at_ns.size == 0:
            return np.full(t.shape, State.UNKNOWN, np.int64)
        found: Ints = self._between(a, b).states[self._place(t)[0]].astype(np.int64)
        return found

    def _place(self, t: Ints) -> tuple[Ints, Floats, Floats]:
        """Knot before each time, how far it is to the next, and how far outside."""
        last = max(self.at_ns.size - 2, 0)
        place = np.clip(np.searchsorted(self.at_ns, t, "right") - 1, 0, last)
        apart = np.diff(self.at_ns, append=self.at_ns[-1] + 1)[place]
        since = (t - self.at_ns[place]).astype(float)
        early = np.maximum(0.0, -since)
        late = np.maximum(0.0, (t - self.at_ns[-1]).astype(float))
        return place, np.clip(since / apart, 0.0, 1.0), early + late
