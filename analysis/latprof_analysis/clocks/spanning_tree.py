"""One way of pairs from each host to the reference: the one that is known best."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

import numpy as np

from latprof_analysis.clocks.pairs import PairClock
from latprof_analysis.stats import Floats, Ints

# Of a pair that has no interval.
_UNBOUNDED_NS = 1e15


class SpanningTree:
    """Shortest ways from a host, where a pair is as long as its interval is wide."""

    def __init__(
        self, pairs: Mapping[tuple[int, int], PairClock], reference: int
    ) -> None:
        self.reference = reference
        # Of each host that can be reached, behind that one, the next on its way, the
        # clock of the two, and whether it is b there.
        self._next: dict[int, tuple[int, PairClock, bool]] = {}
        ahead: dict[int, list[tuple[float, int, PairClock, bool]]] = {}
        for (a, b), clock in pairs.items():
            length = _length(clock)
            ahead.setdefault(a, []).append((length, b, clock, True))
            ahead.setdefault(b, []).append((length, a, clock, False))
        self.hosts: set[int] = set()
        waiting: list[tuple[float, int, int]] = [(0.0, reference, reference)]
        links: dict[tuple[int, int], tuple[PairClock, bool]] = {}
        while waiting:
            upto, host, before = heapq.heappop(waiting)
            if host in self.hosts:
                continue
            self.hosts.add(host)
            if host != reference:
                self._next[host] = before, *links[before, host]
            for length, other, clock, is_b in ahead.get(host, ()):
                links[host, other] = clock, is_b
                heapq.heappush(waiting, (upto + length, other, host))

    def to_reference(self, times: Sequence[tuple[int, Ints]]) -> list[Ints]:
        """Put times of hosts' clocks to the reference's: (host, its times) each."""
        found = [t_ns for _, t_ns in times]
        here: dict[int, list[int]] = {}
        for place, (host, _) in enumerate(times):
            here.setdefault(host, []).append(place)
        for host in reversed(self._next):
            places = here.pop(host, None)
            if not places:
                continue
            before, clock, is_b = self._next[host]
            said = np.concatenate([found[place] for place in places])
            moved = clock.by_a(said) if is_b else clock.by_b(said)
            ends = np.cumsum([found[place].size for place in places])[:-1]
            for place, part in zip(places, np.split(moved, ends), strict=True):
                found[place] = part
            here.setdefault(before, []).extend(places)
        return found

    def from_reference(self, count: int, t_ns: Ints) -> Ints:
        """Give what the clocks of `count` hosts say at times of the reference's.

        Shape (h, k); as they are, if unrelated.
        """
        found = np.tile(t_ns, (count, 1))
        for host, (before, clock, is_b) in self._next.items():
            said = found[before]
            found[host] = clock.by_b(said) if is_b else clock.by_a(said)
        return found

    def drift_ppb(self, said: Ints) -> Floats:
        """Rates of hosts' clocks against the reference's when they say so, (h, k)."""
        found = np.zeros(said.shape)
        for host, (before, clock, is_b) in self._next.items():
            drift, _ = clock.rates_at(said[before if is_b else host])
            found[host] = found[before] + (drift if is_b else -drift)
        return found


def _length(clock: PairClock) -> float:
    width = np.nan_to_num(clock.minus_ns + clock.plus_ns, posinf=_UNBOUNDED_NS)
    return float(np.median(width)) + 1.0
