"""Packets that two hosts saw, each by its own clock: what clocks are estimated from.

Nothing is known of the clocks yet, so that halves meet by what they are of alone: a
stream's bytes by flow and offset, datagrams by flow and fingerprint, and of those that
are alike in their order where both hosts saw as many. No packet may have left later
than its stamp says, nor have come earlier, so that bytes that were sent again are left
out: the stamp of their first packet may be missing.

In memory is what `MOST` allows: beyond that a hash of what they are of chooses the
same halves at all hosts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.clocks import Sightings
from latprof_analysis.records.arrays import Batch, Records
from latprof_analysis.records.flows import (
    IPPROTO_TCP,
    SIDE_RECEIVER,
    SIDE_SENDER,
    Flows,
)
from latprof_analysis.records.host_records import FlowNumbers
from latprof_analysis.records.stream_key import stream_key

Array = NDArray[np.int64]
Keys = NDArray[np.uint64]

# Halves of one host that are kept, of each kind.
MOST = 2_000_000
RINGS = ("flows", "sent_messages", "received_ranges", "retransmits", "acknowledgements")
_MOST_AGAIN = 1000  # batches of what was sent again
_ODD = np.uint64(0x9E3779B97F4A7C15)


class _Kept:
    """Halves of one kind at one host: flow's number, offset or fingerprint, stamp."""

    def __init__(self) -> None:
        self._parts: list[tuple[Keys, Keys, Array]] = []
        self._count = 0
        self._bits = 0  # one of so many powers of two is kept

    def add(self, flow: Keys, what: Keys, stamp: Array) -> None:
        """Take in halves; one without its stamp is none."""
        self._parts.append(self._chosen(flow, what, stamp, stamp > 0))
        self._count += len(self._parts[-1][0])
        while self._count > MOST:
            self._bits += 1
            whole = self.columns()
            self._parts = [self._chosen(*whole, np.ones(len(whole[0]), bool))]
            self._count = len(self._parts[0][0])

    def _chosen(
        self, flow: Keys, what: Keys, stamp: Array, known: NDArray[np.bool_]
    ) -> tuple[Keys, Keys, Array]:
        # of a flow the numbers at both ends may differ
        drawn = (what * _ODD) >> np.uint64(64 - self._bits) if self._bits else 0
        known &= drawn == np.uint64(0)
        return flow[known], what[known], stamp[known]

    def forget(self, before_ns: int) -> None:
        """Drop halves from before; a part that has one since stays whole."""
        stay = [part for part in self._parts if part[2].max(initial=0) >= before_ns]
        self._parts, self._count = stay, sum(len(part[0]) for part in stay)

    def columns(self) -> tuple[Keys, Keys, Array]:
        """Return all of them, as three columns."""
        if not self._parts:
            return np.empty(0, "u8"), np.empty(0, "u8"), np.empty(0, "i8")
        flow, what, stamp = zip(*self._parts, strict=True)
        return np.concatenate(flow), np.concatenate(what), np.concatenate(stamp)


@dataclass
class _OfHost:
    numbers: FlowNumbers
    sent: _Kept
    received: _Kept
    acknowledged: _Kept
    again: list[tuple[Keys, Array, Array]]  # flow, and bytes of what was sent again


class SeenPackets:
    """Takes the records of hosts in any order, and gives what pairs of hosts saw."""

    def __init__(self, flows: np.dtype[np.void], hosts: int) -> None:
        """`flows` lays out announcements of flows."""
        self.flows = Flows(flows)
        self._hosts = [
            _OfHost(FlowNumbers(host), _Kept(), _Kept(), _Kept(), [])
            for host in range(hosts)
        ]
        # flows' numbers that each host announced as their sender's, or receiver's: all,
        # and those of streams
        self._ends, self._streams = (
            [{SIDE_SENDER: set[int](), SIDE_RECEIVER: set[int]()} for _ in range(hosts)]
            for _ in range(2)
        )

    def add(self, host: int, batch: Batch) -> None:
        """Take in one host's records of RINGS, as `HostRecords` gives them."""
        mine = self._hosts[host]
        announced = batch["flows"]
        sides = announced["side"]
        announced = announced[(sides == SIDE_SENDER) | (sides == SIDE_RECEIVER)]
        if len(announced):
            self.flows.add(announced)
            for side, numbers in self._ends[host].items():
                of_side = announced[announced["side"] == side]
                numbers.update(of_side["flow"].tolist())
                streams = of_side["flow"][of_side["protocol"] == IPPROTO_TCP]
                self._streams[host][side].update(streams.tolist())
        mine.sent.add(*_sent(batch["sent_messages"]))
        mine.received.add(*_received(batch["received_ranges"]))
        acks = batch["acknowledgements"]
        arrive_ns = acks["arrive_ns"].astype("i8")
        mine.acknowledged.add(acks["flow"], acks["end"], arrive_ns)
        again = batch["retransmits"]
        if len(again):
            start, end = again["start"].astype("i8"), again["end"].astype("i8")
            mine.again.append((again["flow"].copy(), start, end))

    def forget(self, host: int, before_ns: int) -> None:
        """Drop what one host saw before a time of its clock, so that memory is bounded.

        A part of what was added at once goes or stays as a whole.
        """
        mine = self._hosts[host]
        for kept in (mine.sent, mine.received, mine.acknowledged):
            kept.forget(before_ns)
        del mine.again[:-_MOST_AGAIN]

    def release(self, flows: int) -> None:
        """Forget flows but so many: first those of which nothing is kept."""
        if len(self.flows) <= flows:
            return
        for of in self._hosts:
            for kept in (of.sent, of.received, of.acknowledged):
                self.flows.touch(self.flows.index(kept.columns()[0]))
        self.flows.release(flows // 2)
        for ends in (*self._ends, *self._streams):
            for side, numbers in ends.items():
                known = np.fromiter(numbers, "u8", len(numbers))
                ends[side] = set(known[self.flows.index(known) >= 0].tolist())

    def _pairs(self) -> Iterator[tuple[int, int]]:
        """Give pairs of hosts that have a flow in common."""
        hosts: dict[int, set[int]] = {}
        for host, ends in enumerate(self._ends):
            for numbers in ends.values():
                known = np.fromiter(numbers, "u8", len(numbers))
                for place in self.flows.index(known).tolist():
                    hosts.setdefault(place, set()).add(host)
        yield from sorted({pair for of in hosts.values() for pair in _pairs_of(of)})

    def between(
        self, is_wanted: Callable[[int, int], bool] = lambda _one, _other: True
    ) -> Iterator[tuple[int, int, Sightings, Sightings]]:
        """Give pairs of hosts of which packets were seen at both, with these.

        Those from the first to the second, and back. Others than wanted are left out.
        """
        pairs = [pair for pair in self._pairs() if is_wanted(*pair)]
        hosts = {host for pair in pairs for host in pair}
        seen = {host: _Placed(self.flows, self._hosts[host]) for host in hosts}
        for first, second in pairs:
            there = _crossing(seen[first], seen[second])
            back = _crossing(seen[second], seen[first])
            if len(there.sent_ns) or len(back.sent_ns):
                yield first, second, there, back

    def have_same_ends(self, one: int, other: int) -> bool:
        """Whether two hosts announced the same end of a connection: then they are one.

        Of datagrams equal ports at both ends may be of two connections.
        """
        return any(
            mine & theirs
            for mine, theirs in zip(
                self._streams[one].values(), self._streams[other].values(), strict=True
            )
        )

    def flows_between(self, first: int, second: int) -> int:
        """Count flows from one host to another of which both ends were seen."""
        sent = np.fromiter(self._ends[first][SIDE_SENDER], "u8")
        received = np.fromiter(self._ends[second][SIDE_RECEIVER], "u8")
        places = np.intersect1d(self.flows.index(sent), self.flows.index(received))
        return int((places >= 0).sum())


def _pairs_of(hosts: set[int]) -> Iterator[tuple[int, int]]:
    return combinations(sorted(hosts), 2)


def _sent(records: Records) -> tuple[Keys, Keys, Array]:
    what = np.where(records["key"] != 0, records["key"], records["end"])
    return records["flow"], what, records["xmit_ns"].astype("i8")


def _received(records: Records) -> tuple[Keys, Keys, Array]:
    what = np.where(records["key"] != 0, records["key"], records["end"])
    return records["flow"], what, records["arrive_ns"].astype("i8")


class _Placed:
    """One host's halves by the places of flows, in the order of their keys."""

    def __init__(self, flows: Flows, of: _OfHost) -> None:
        flow, what, stamp = of.sent.columns()
        place = flows.index(flow)
        whole = ~_sent_again(flows, of.again, place, what)
        self.sent = _hashed(place[whole], what[whole], stamp[whole])
        flow, what, stamp = of.received.columns()
        place = flows.index(flow)
        self.received = _hashed(place, what, stamp)
        self.ranges = _in_order(place, what, stamp)
        flow, what, stamp = of.acknowledged.columns()
        self.acknowledged = _in_order(flows.index(flow), what, stamp)


def _hashed(place: Array, what: Keys, stamp: Array) -> tuple[Keys, Array]:
    """Return what was announced, by a hash of what it is of, and then by time."""
    keys = (place.astype("u8") + np.uint64(1)) * _ODD
    keys ^= keys >> np.uint64(31)
    keys = (keys ^ what) * np.uint64(0xBF58476D1CE4E5B9)
    known = place >= 0
    keys, stamp = keys[known], stamp[known]
    order = np.lexsort((stamp, keys))
    return keys[order], stamp[order]


def _met(keys: Keys, others: Keys) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return which of ordered keys are the same; alike ones in their order.

    None of a key that is not as often on both sides: one of them was lost, and which
    is not known. Of as many, the n-th to arrive is no earlier than the n-th that was
    sent would have been.
    """
    unique, first, count = np.unique(keys, return_index=True, return_counts=True)
    found, at, of_count = np.unique(others, return_index=True, return_counts=True)
    _, one, other = np.intersect1d(
        unique, found, assume_unique=True, return_indices=True
    )
    same = count[one] == of_count[other]
    one, other = one[same], other[same]
    repeats = count[one]
    within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    return (
        np.repeat(first[one], repeats) + within,
        np.repeat(at[other], repeats) + within,
    )


def _in_order(place: Array, what: Keys, stamp: Array) -> tuple[Array, Array]:
    """Return streams' bytes by flow and offset."""
    known = (place >= 0) & (what < np.uint64(1 << 44))
    keys, stamp = stream_key(place[known], what[known]), stamp[known]
    order = np.argsort(keys, kind="stable")
    return keys[order], stamp[order]


def _sent_again(
    flows: Flows, again: list[tuple[Keys, Array, Array]], place: Array, what: Keys
) -> NDArray[np.bool_]:
    """Return which halves end in bytes that were sent again."""
    if not again:
        return np.zeros(len(place), bool)
    flow, start, end = map(np.concatenate, zip(*again, strict=True))
    places = flows.index(flow)
    known = places >= 0
    starts = stream_key(places[known], start[known])
    ends = stream_key(places[known], end[known])
    order = np.argsort(ends)
    ends = ends[order]
    # of all that end at or behind a byte, the first that one begins before
    least = np.minimum.accumulate(starts[order][::-1])[::-1]
    wanted = stream_key(place, np.minimum(what, np.uint64((1 << 44) - 1)))
    at = np.searchsorted(ends, wanted)
    inside = (at < len(ends)) & (place >= 0)
    at[~inside] = 0
    return np.asarray(inside & (least[at] < wanted) if len(ends) else inside)


def _crossing(sender: _Placed, receiver: _Placed) -> Sightings:
    """Packets from one host that the other one got."""
    keys, stamps = sender.sent
    others, arrivals = receiver.received
    at, of = _met(keys, others)
    sent, arrived = [stamps[at]], [arrivals[of]]
    # who acknowledges bytes had got them before: as if that had been the sending
    ranges, got = sender.ranges
    acknowledged, came = receiver.acknowledged
    if len(ranges) and len(acknowledged):
        last = np.searchsorted(ranges, acknowledged, side="right") - 1
        same = (last >= 0) & (ranges[last] >> 44 == acknowledged >> 44)
        sent.append(got[last[same]])
        arrived.append(came[same])
    return Sightings(np.concatenate(sent), np.concatenate(arrived))
