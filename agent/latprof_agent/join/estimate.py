"""The first reading of all hosts' recordings: what it says of their clocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
from latprof_analysis.clocks import (
    HostClocks,
    PairClock,
    Sightings,
    pair_clock,
    relate_hosts,
    resolution_of,
)
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.host_records import HostRecords
from latprof_analysis.records.recording import CLOCKS, RecordLayout
from latprof_analysis.records.seen_packets import RINGS, SeenPackets
from numpy.typing import ArrayLike, NDArray

from latprof_agent.errors import LatprofError
from latprof_agent.join.batches import ENOUGH, together
from latprof_agent.join.host_recordings import (
    JoinedHost,
    reference_of,
    said_of_wall_clocks,
)
from latprof_agent.join.said_of_walls import WallWord, held_together
from latprof_agent.rebuild.rebuilt import damage_in_one_line
from latprof_agent.workload.workload import Progress

_MOST_STAMPS = 4096  # by which a coarse clock is noticed


@dataclass(frozen=True)
class Assumed:
    """What the user knows of the ways between hosts, and of their wall clocks."""

    symmetric: bool = False
    # what the way from an earlier host to a later one takes longer than that back
    asymmetry_ns: int | None = None
    wall_error_ns: int | None = None  # how far two wall clocks are apart at most

    def of(self, one: int, other: int) -> int | None:
        """Return it for the way from one host to another, by their numbers."""
        if self.asymmetry_ns is None or one < other:
            return self.asymmetry_ns
        return -self.asymmetry_ns


NOTHING_ASSUMED = Assumed()


@dataclass(frozen=True)
class Estimate:
    """Clocks of hosts, by pairs that had packets in common and all together.

    `least_ns` is the least transit from one host to another, by these clocks; `words`
    what is said of pairs' wall clocks, where something is.
    """

    clocks: HostClocks
    pairs: dict[tuple[int, int], PairClock]
    packets: dict[tuple[int, int], tuple[int, int]]  # there and back
    flows: dict[tuple[int, int], int]  # of which both ends were seen
    least_ns: dict[tuple[int, int], int]
    words: dict[tuple[int, int], WallWord]


def estimate(
    hosts: Sequence[JoinedHost],
    layout: RecordLayout,
    reference: str | None,
    assumed: Assumed,
    progress: Progress,
) -> Estimate:
    """Read all recordings, and relate their hosts' clocks.

    Raises LatprofError where no two hosts have anything in common.
    """
    seen = SeenPackets(layout.rings["flows"], len(hosts))
    for host in hosts:
        _read(host, layout, seen, progress)
    for first, second in combinations(hosts, 2):
        if seen.have_same_ends(first.number, second.number):
            raise LatprofError(
                f"cannot join: {first.path} and {second.path} have the same ends of "
                "connections, so that both are of one host; give one of them"
            )
    pairs, packets, sightings, words = {}, {}, {}, {}
    for one, other, there, back in _in_order(hosts, seen):
        resolution = resolutions(there, back)
        try:
            clock = pair_clock(
                there,
                back,
                resolution_ns=resolution,
                symmetric=assumed.symmetric,
                asymmetry_ns=assumed.of(one, other),
            )
        except ValueError as error:
            names = f"{hosts[one].name} and {hosts[other].name}"
            raise LatprofError(f"--asymmetry: between {names}: {error}") from error
        ends, both = (hosts[one], hosts[other]), (there, back)
        clock, word = held_together(clock, both, ends, assumed.wall_error_ns)
        pairs[one, other] = clock
        if word:
            words[one, other] = word
        packets[one, other] = len(there.sent_ns), len(back.sent_ns)
        sightings[one, other], sightings[other, one] = there, back
    if not pairs:
        raise LatprofError(_nothing_shared(hosts, seen))
    clocks = relate_hosts(len(hosts), pairs, reference_of(hosts, reference))
    flows = {
        (one.number, other.number): seen.flows_between(one.number, other.number)
        for one in hosts
        for other in hosts
        if one is not other
    }
    least_ns = least_transits(clocks, sightings)
    return Estimate(clocks, pairs, packets, flows, least_ns, words)


def _in_order(
    hosts: Sequence[JoinedHost], seen: SeenPackets
) -> Iterator[tuple[int, int, Sightings, Sightings]]:
    """Give pairs of hosts, which come the same way round however they were given."""
    for one, other, there, back in seen.between():
        if hosts[one].identity <= hosts[other].identity:
            yield one, other, there, back
        else:
            yield other, one, back, there


def _read(
    host: JoinedHost, layout: RecordLayout, seen: SeenPackets, progress: Progress
) -> None:
    moves = HostRecords(host.number, lambda times: times)
    rings = {ring: layout.rings[ring] for ring in RINGS}
    waiting: list[Batch] = []
    count = 0

    def take() -> None:
        if waiting:
            seen.add(host.number, moves.moved(together(waiting), rings))
        waiting.clear()

    with damage_in_one_line(host):
        for step, share in host.steps(RINGS):
            if len(step.beside[CLOCKS]):
                host.clocks.append(step.beside[CLOCKS])
            for note in step.notes:
                host.note(note)
            if step.drained_ns is not None:
                waiting.append(step.rings)
                fresh = sum(map(len, step.rings.values()))
                count, host.records = count + fresh, host.records + fresh
            if count >= ENOUGH:
                take()
                count = 0
            progress(f"clocks of {host.name}", host.records, share, 1)
        take()


def resolutions(there: Sightings, back: Sightings) -> tuple[int, int]:
    """Return the ticks of both hosts' clocks, in ns."""
    one = np.concatenate([_some(there.sent_ns), _some(back.arrived_ns)])
    other = np.concatenate([_some(there.arrived_ns), _some(back.sent_ns)])
    return resolution_of(one), resolution_of(other)


def _some(stamps: NDArray[np.int64]) -> NDArray[np.int64]:
    return stamps[:: len(stamps) // _MOST_STAMPS + 1]


class Maps(Protocol):
    """Puts what hosts' clocks said on one clock, as `HostClocks` does."""

    def to_reference(self, host: int, t_ns: ArrayLike) -> NDArray[np.int64]:
        """Give by the common clock what one host's clock said."""


def least_transits(
    clocks: Maps, sightings: Mapping[tuple[int, int], Sightings]
) -> dict[tuple[int, int], int]:
    """Return the least time from one host to another, by these clocks."""
    found = {}
    for (one, other), seen in sightings.items():
        if len(seen.sent_ns):
            sent = clocks.to_reference(one, seen.sent_ns)
            arrived = clocks.to_reference(other, seen.arrived_ns)
            found[one, other] = int((arrived - sent).min())
    return found


def _nothing_shared(hosts: Sequence[JoinedHost], seen: SeenPackets) -> str:
    """Say that no packet was seen at two hosts, and what is known of why."""
    names = ", ".join(f"{host.name} ({host.path})" for host in hosts)
    text = "cannot join: no message that one of these hosts sent was seen at another: "
    text += names
    shared = any(
        seen.flows_between(one.number, other.number)
        for one in hosts
        for other in hosts
        if one is not other
    )
    if apart := said_of_wall_clocks(hosts):
        return f"{text}; {apart}, record them at the same time"
    if shared:
        return (
            f"{text}; they have connections in common, so the times at which these "
            "were used do not overlap, or records were lost"
        )
    return (
        f"{text}; they have no connection in common: look whether each recording's "
        "filter has the port that the hosts talk on"
    )
