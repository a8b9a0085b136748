"""One way of pairs from each host to the reference: the one that is known best."""

from __future__ import annotations

import heapq
from collections.abc import Mapping

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
        # Of each host that can be reached the next one on the way, the clock of the
        # two, and whether it is b there.
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

    def to_reference(self, host: int, t_ns: Ints) -> Ints:
        """Put times of a host's clock to the reference's."""
        while host in self._next:
            host, clock, is_b = self._next[host]
            t_ns = clock.by_a(t_ns) if is_b else clock.by_b(t_ns)
        return t_ns

    def from_reference(self, host: int, t_ns: Ints) -> Ints:
        """Put times of the reference's clock to a host's, as they are if unrelated."""
        if host not in self._next:
            return t_ns
        before, clock, is_b = self._next[host]
        t_ns = self.from_reference(before, t_ns)
        return clock.by_b(t_ns) if is_b else clock.by_a(t_ns)

    def drift_ppb(self, host: int, t_ns: Ints) -> Floats:
        """Rate of a host's clock against the reference's at times of the latter."""
        if host not in self._next:
            return np.zeros(t_ns.size)
        before, clock, is_b = self._next[host]
        drift, _ = clock.rates_at(self.from_reference(before if is_b else host, t_ns))
        return self.drift_ppb(before, t_ns) + (drift if is_b else -drift)


def _length(clock: PairClock) -> float:
    width = np.nan_to_num(clock.minus_ns + clock.plus_ns, posinf=_UNBOUNDED_NS)
    return float(np.median(width)) + 1.0
