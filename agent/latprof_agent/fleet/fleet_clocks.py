"""Clocks of the hosts of a fleet, estimated again and again from a sliding window.

Not all hosts are related to each other: those that are have one reference, the first of
them, and between others nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from latprof_analysis.clocks import (
    HostClocks,
    PairClock,
    Sightings,
    State,
    pair_clock,
    relate_hosts,
)
from numpy.typing import ArrayLike, NDArray

from latprof_agent.join.estimate import least_transits, resolutions

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Pair = tuple[int, int]
Sighted = tuple[int, int, Sightings, Sightings]  # one, other, there, back
WINDOW_NS = 60_000_000_000
# Of what is older than this the least of each piece of time is kept: TCP has sent again
# by then what it has to, so that it is not taken for the first time.
_NEW_NS = 5_000_000_000
_PIECE_NS = 250_000_000
_FOREVER_NS = 1 << 62
_NOTHING = Sightings([], [])


@dataclass(frozen=True)
class FleetClocks:
    """Clocks of hosts by number, each by that of its own reference; see `HostClocks`.

    Attributes
    ----------
    pairs : dict of (int, int) to PairClock
        Of which packets were seen at both hosts: the second's clock by the first's.
    packets : dict of (int, int) to (int, int)
        How many, there and back.
    least_ns : dict of (int, int) to int
        From one host to another the least transit in the window, by these clocks.
    """

    related: tuple[HostClocks, ...]
    places: Mapping[int, Pair]  # of hosts: in which of these, as which
    pairs: Mapping[Pair, PairClock]
    packets: Mapping[Pair, Pair]
    least_ns: Mapping[Pair, int]
    reference: int = -1  # no host's: both ends of what crosses are left out alike

    def to_reference(self, host: int, t_ns: ArrayLike) -> Ints:
        """Give by the clock of its reference what one host's clock said."""
        if host not in self.places:
            return np.asarray(t_ns, np.int64)
        of, place = self.places[host]
        return self.related[of].to_reference(place, t_ns)

    def from_reference(self, host: int, t_ns: ArrayLike) -> Ints:
        """Give by one host's clock what the clock of its reference said."""
        if host not in self.places:
            return np.asarray(t_ns, np.int64)
        of, place = self.places[host]
        return self.related[of].from_reference(place, t_ns)

    def bounds(
        self, a: int, b: int, t_ns: ArrayLike, apart_ns: ArrayLike = 0
    ) -> tuple[Floats, Floats]:
        """Say how far a difference of stamps of two hosts may be wrong."""
        both = self._both(a, b)
        if both:
            clocks, one, other = both
            return clocks.bounds(one, other, t_ns, apart_ns)
        unknown = np.full(np.shape(t_ns), np.inf)
        return unknown, unknown

    def state(self, a: int, b: int, t_ns: ArrayLike) -> Ints:
        """Give the `State` of two hosts' clocks."""
        both = self._both(a, b)
        if both:
            clocks, one, other = both
            return clocks.state(one, other, t_ns)
        return np.full(np.shape(t_ns), State.UNKNOWN, np.int64)

    def _both(self, a: int, b: int) -> tuple[HostClocks, int, int] | None:
        one, other = self.places.get(a, (-1, 0)), self.places.get(b, (-2, 0))
        return (self.related[one[0]], one[1], other[1]) if one[0] == other[0] else None

    def reference_of(self, host: int) -> int:
        """Return the host on whose clock this one's stamps are put; itself if alone."""
        if host not in self.places:
            return host
        of = self.places[host][0]
        return next(h for h, p in self.places.items() if p == (of, 0))

    def offset_ns(self, host: int) -> int:
        """Return what a host's clock was ahead of its reference's last."""
        if host not in self.places:
            return 0
        of, place = self.places[host]
        found = self.related[of].offset_ns[place]
        return int(found[-1]) if len(found) else 0


NO_CLOCKS = FleetClocks((), {}, {}, {}, {})


class PastSightings:
    """What pairs of hosts saw: all of lately, and of what is older little.

    That is the least of each piece of time, which is nearly all that older packets say
    of a clock.
    """

    def __init__(self) -> None:
        self._by_way: dict[Pair, Sightings] = {}

    def between(
        self, seen: Iterable[Sighted], drained_ns: Mapping[int, int]
    ) -> Iterator[Sighted]:
        """Give pairs of hosts with all that is known of them, and keep it.

        Parameters
        ----------
        seen : iterable of (one, other, there, back)
            Of lately, as of `SeenPackets`; the same may come again.
        drained_ns : dict of int to int
            Until when it is known what hosts saw, by their clocks.
        """
        fresh = {
            way: sightings
            for one, other, there, back in seen
            for way, sightings in (((one, other), there), ((other, one), back))
        }
        ways = fresh.keys() | self._by_way.keys()
        whole: dict[Pair, Sightings] = {}
        for way in ways:
            until_ns = drained_ns.get(way[0], 0)
            whole[way] = self._with_past(way, fresh.get(way, _NOTHING), until_ns)
            self._keep(way, whole[way], until_ns)
        for one, other in sorted({(min(way), max(way)) for way in ways}):
            there, back = (
                whole.get(way, _NOTHING) for way in ((one, other), (other, one))
            )
            if len(there) or len(back):
                yield one, other, there, back

    def _with_past(self, way: Pair, fresh: Sightings, until_ns: int) -> Sightings:
        past = self._by_way.get(way, _NOTHING)
        before = past.sent_ns < fresh.sent_ns.min(initial=_FOREVER_NS)
        before &= until_ns - past.sent_ns < WINDOW_NS
        return Sightings(
            np.concatenate([past.sent_ns[before], fresh.sent_ns]),
            np.concatenate([past.arrived_ns[before], fresh.arrived_ns]),
        )

    def _keep(self, way: Pair, of: Sightings, until_ns: int) -> None:
        """Keep of what is not new the least of each piece of time."""
        kept = np.flatnonzero(until_ns - of.sent_ns >= _NEW_NS)
        sent, arrived = of.sent_ns[kept], of.arrived_ns[kept]
        piece = sent // _PIECE_NS
        order = np.lexsort((arrived - sent, piece))
        first = order[np.diff(piece[order], prepend=-1) > 0]
        self._by_way[way] = Sightings(sent[first], arrived[first])
        if not len(first):
            del self._by_way[way]

    def forget(self, host: int) -> None:
        """Drop all of a host, whose clock is another one from now on."""
        for way in [way for way in self._by_way if host in way]:
            del self._by_way[way]


def estimate_clocks(
    seen: Iterable[Sighted], order: Mapping[int, tuple[str, ...]]
) -> FleetClocks:
    """Relate the clocks of hosts by what pairs of them saw.

    `order` has a key by which each host comes before others, so that a pair is the same
    way round each time.
    """
    pairs, packets, sightings = {}, {}, {}
    for found in seen:
        one, other, there, back = found
        if order[other] < order[one]:
            one, other, there, back = other, one, back, there
        with suppress(ValueError, ArithmeticError):  # stamps that are of no clock
            pairs[one, other] = pair_clock(
                there, back, resolution_ns=resolutions(there, back)
            )
        if (one, other) not in pairs:
            continue
        packets[one, other] = len(there), len(back)
        sightings[one, other], sightings[other, one] = there, back
    related, places = list[HostClocks](), dict[int, Pair]()
    for hosts in _components(pairs, order):
        number = len(related)
        place = {host: at for at, host in enumerate(hosts)}
        within = {
            (place[a], place[b]): clock for (a, b), clock in pairs.items() if a in place
        }
        # what crosses is between two that saw packets of each other
        with suppress(ValueError, ArithmeticError):
            related.append(relate_hosts(len(hosts), within, asked=within.keys()))
            places |= {host: (number, at) for host, at in place.items()}
    made = FleetClocks(tuple(related), places, pairs, packets, {})
    least = least_transits(made, sightings)
    return FleetClocks(tuple(related), places, pairs, packets, least)


def _components(
    pairs: Mapping[Pair, PairClock], order: Mapping[int, tuple[str, ...]]
) -> list[list[int]]:
    """Return hosts that are related, the first of each by `order` at the front."""
    of: dict[int, set[int]] = {}
    for one, other in pairs:
        both = of.get(one, {one}) | of.get(other, {other})
        of |= dict.fromkeys(both, both)
    found = {id(hosts): hosts for hosts in of.values()}
    return [sorted(hosts, key=order.__getitem__) for hosts in found.values()]


def state_of(clock: PairClock) -> State:
    """Return what holds in most of the window; broken where a clock was set in it."""
    states = clock.state.astype(np.intp)
    if (states == State.BROKEN).any():
        return State.BROKEN
    return State(int(np.bincount(states).argmax())) if len(states) else State.UNKNOWN
