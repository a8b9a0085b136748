"""Hosts whose clocks are known, and packets between them through queues."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from latprof_analysis.clocks import Sightings

S_NS = 1_000_000_000
# All hosts' clocks are so far on when it begins, and ahead of that by their `Ahead`.
START_NS = 1_000 * S_NS
# ns after the begin -> ns ahead, both as doubles
Ahead = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Host:
    """A host whose clock is ahead of the first one's by a constant and by `wander`."""

    constant_ns: int = 0
    wander: Ahead = np.zeros_like

    def says(self, after_ns: np.ndarray) -> np.ndarray:
        whole = np.rint(after_ns).astype(np.int64)
        ahead = np.rint(self.wander(after_ns)).astype(np.int64)
        return START_NS + self.constant_ns + whole + ahead


# As two hosts in a rack, whose temperature changes: 5 us/s at most beside the skew.
WANDERING = Host(3 * S_NS, lambda t: 30e-6 * t + 20_000 * np.sin(2 * np.pi * t / 30e9))


@dataclass(frozen=True)
class Way:
    """One direction: packets at random times, and a queue that others fill."""

    per_second: float = 1000.0
    least_ns: float = 100_000.0
    # Of the others' packets, exponential, one after the other: an M/M/1 queue.
    service_ns: float = 0.0
    busy: float = 0.8

    def packets(self, rng: np.random.Generator, span_s: float) -> np.ndarray:
        """When each left and came, of a true clock, shape (2, n)."""
        n = rng.poisson(self.per_second * span_s)
        left = np.sort(rng.uniform(0, span_s * S_NS, n))
        return np.array([left, left + self.least_ns + self._waits(rng, left, span_s)])

    def _waits(self, rng, left, span_s):
        """Unfinished work that each finds in the queue."""
        if not self.service_ns:
            return np.zeros(left.size)
        n = rng.poisson(self.busy / self.service_ns * span_s * S_NS)
        came = np.sort(rng.uniform(0, span_s * S_NS, n))
        done = np.cumsum(rng.exponential(self.service_ns, n))
        before = np.concatenate([[0], done[:-1]])
        work = done - came + np.maximum.accumulate(came - before)
        last = np.searchsorted(came, left) - 1
        found = np.maximum(0, work[last] - (left - came[last]))
        return np.where(last >= 0, found, 0.0)


# 1 ms on average where it is 80% busy.
QUEUED = Way(service_ns=200_000)


def sightings(sender: Host, receiver: Host, packets: np.ndarray) -> Sightings:
    return Sightings(sender.says(packets[0]), receiver.says(packets[1]))


@dataclass(frozen=True)
class Pair:
    """Two hosts, and what went between them."""

    a: Host
    b: Host
    there: np.ndarray
    back: np.ndarray

    def sightings(self) -> tuple[Sightings, Sightings]:
        return (
            sightings(self.a, self.b, self.there),
            sightings(self.b, self.a, self.back),
        )

    def kept(self, wanted: Callable[[np.ndarray], np.ndarray]) -> Pair:
        """Those packets that left when it is true, in seconds."""
        there, back = (
            each[:, wanted(each[0] / S_NS)] for each in (self.there, self.back)
        )
        return Pair(self.a, self.b, there, back)


def pair(
    b: Host = WANDERING,
    there: Way = QUEUED,
    back: Way = Way(),
    span_s: float = 20.0,
    seed: int = 1,
    a: Host = Host(),
) -> Pair:
    rng = np.random.default_rng(seed)
    return Pair(a, b, there.packets(rng, span_s), back.packets(rng, span_s))


def errors(clock, made: Pair, after_ns: np.ndarray) -> np.ndarray:
    """How far the estimated offset is over the true one."""
    at = made.a.says(after_ns)
    return (clock.offset_at(at) - (made.b.says(after_ns) - at)).astype(float)


def moments(span_s: float, n: int = 3000, beyond_s: float = 0.5) -> np.ndarray:
    """Times at which estimates are held against the truth, also outside of it."""
    rng = np.random.default_rng(2)
    return np.sort(rng.uniform(-beyond_s * S_NS, (span_s + beyond_s) * S_NS, n))
