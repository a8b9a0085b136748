"""Clocks of the hosts of a fleet, estimated again and again from a sliding window.

Not all hosts are related to each other: those that are have one reference, the first of
them, and between others nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from latprof_analysis.clocks import (
    HostClocks,
    PairClock,
    State,
    pair_clock,
    relate_hosts,
)
from latprof_analysis.records.seen_packets import SeenPackets
from numpy.typing import ArrayLike, NDArray

from latprof_agent.join.estimate import least_transits, resolutions

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Pair = tuple[int, int]


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


def estimate_clocks(
    seen: SeenPackets,
    order: Mapping[int, tuple[str, ...]],
    is_wanted: Callable[[int, int], bool],
) -> FleetClocks:
    """Relate the clocks of hosts by what pairs of them saw.

    `order` has a key by which each host comes before others, so that a pair is the same
    way round each time; others than `is_wanted` are left out.
    """
    pairs, packets, sightings = {}, {}, {}
    for found in seen.between():
        one, other, there, back = found
        if not is_wanted(one, other):
            continue
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
        with suppress(ValueError, ArithmeticError):
            related.append(relate_hosts(len(hosts), within))
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
