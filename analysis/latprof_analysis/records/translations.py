"""Flows of datagrams that a translator (NAT) made two of, found by fingerprint.

It leaves a datagram's fingerprint as it is. Only flows are looked at of which one end
is here, and of each that comes in a few datagrams: most come from other hosts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.flows import Flows

Array = NDArray[Any]

# Looks at datagrams of one incoming flow: in all, and of those that came with one
# drain; and at those of all flows in one drain, which may hold a second of a busy host.
LOOKS, LOOKS_OF_EACH = 64, 16
LOOKS_AT_ONCE = 4096
LONGEST_NS = 10_000_000_000  # on its way, where only the fingerprint identifies it


def translated_pairs(sent: Array, ranges: Array) -> list[tuple[int, int]]:
    """Return pairs of flow numbers, a sender's and a receiver's, that are one flow.

    A key that several flows have on one side says nothing. In all others that are on
    both sides each flow must be like one other only.
    """
    keys = np.intersect1d(sent["key"], ranges["key"])
    sent = _span_of(sent[np.isin(sent["key"], keys)], "xmit_ns")
    ranges = _span_of(ranges[np.isin(ranges["key"], keys)], "arrive_ns")
    sent_alone, ranges_alone = (
        np.bincount(np.searchsorted(keys, side["key"]), minlength=len(keys)) == 1
        for side in (sent, ranges)
    )
    plain = keys[sent_alone & ranges_alone]
    # both are ordered by key, with each key once
    sent, ranges = (side[np.isin(side["key"], plain)] for side in (sent, ranges))
    due = (sent["first_ns"] <= ranges["last_ns"]) & (
        sent["last_ns"] + LONGEST_NS >= ranges["first_ns"]
    )
    pairs = np.unique(
        np.stack([sent["flow"][due], ranges["flow"][due]], axis=1), axis=0
    )
    good = np.ones(len(pairs), bool)
    for column in pairs.T:
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        good &= counts[place] == 1
    return [(int(sender), int(receiver)) for sender, receiver in pairs[good]]


_SPAN = np.dtype([("key", "u8"), ("flow", "u8"), ("first_ns", "i8"), ("last_ns", "i8")])


def _span_of(halves: Array, stamp: str) -> Array:
    """One row for each key and flow, in their order: when the first and last went."""
    order = np.lexsort((halves[stamp], halves["flow"], halves["key"]))
    halves = halves[order]
    new = (halves["key"][1:] != halves["key"][:-1]) | (
        halves["flow"][1:] != halves["flow"][:-1]
    )
    first = np.flatnonzero(np.r_[np.ones(min(len(halves), 1), bool), new])
    last = np.r_[first[1:], len(halves)][: len(first)] - 1
    found = np.empty(len(first), _SPAN)
    found["key"], found["flow"] = halves["key"][first], halves["flow"][first]
    found["first_ns"] = halves[stamp][first]
    found["last_ns"] = halves[stamp][last]
    return found


class Translations:
    """Unites such flows; knows at how many datagrams of each it has looked."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._looked = np.empty(0, "i8")  # by flow

    def release(self, stay: Array) -> None:
        """Only these flows are left, in this order."""
        self._looked = self._looked[stay[stay < len(self._looked)]]

    def unite(
        self, sent: Array, sent_flow: Array, ranges: Array, range_flow: Array
    ) -> list[tuple[int, int]]:
        """Unite the flows of halves; return the places as `Flows.unite` does."""
        flows = self._flows
        fresh = np.zeros(len(flows) - len(self._looked), "i8")
        self._looked = np.r_[self._looked, fresh]
        wanted = flows.receiver_here & ~flows.sender_here & (self._looked < LOOKS)
        # a translator that has forgotten a flow may give it another port: then there
        # is a further number for its receiver
        sender_alone = flows.sender_here & (~flows.receiver_here | flows.translated)
        sender_alone = np.r_[sender_alone, False]
        if not wanted.any() or not sender_alone.any():
            return []
        alone = np.r_[wanted, False][range_flow] & (ranges["key"] != 0)
        look = _some_of_each(np.flatnonzero(alone), range_flow)
        if not len(look):
            return []
        np.add.at(self._looked, range_flow[look], 1)
        keys = np.unique(ranges["key"][look])
        mine = _is_one_of(sent["key"], keys) & sender_alone[sent_flow]
        mine &= sent["xmit_ns"] != 0
        if not mine.any():
            return []
        alike = _is_one_of(ranges["key"], keys)
        alike &= np.r_[flows.receiver_here & ~flows.sender_here, False][range_flow]
        pairs = self._pairs(
            sent[mine], sent_flow[mine], ranges[alike], range_flow[alike]
        )
        return [flows.unite(receiver, sender) for sender, receiver in pairs]

    def _pairs(
        self, sent: Array, sent_flow: Array, ranges: Array, range_flow: Array
    ) -> list[tuple[int, int]]:
        """Pair flows; a receiver that knows its sender's namespace with one of it."""
        where = self._flows.table["sender_netns"]
        of_sent, of_range = where[sent_flow], where[range_flow]
        pairs = translated_pairs(
            _in_namespace(sent, of_sent), _in_namespace(ranges, of_range)
        )
        united = {number for pair in pairs for number in pair}
        rest = [~np.isin(side["flow"], list(united)) for side in (sent, ranges)]
        rest[1] &= of_range == 0
        return pairs + translated_pairs(sent[rest[0]], ranges[rest[1]])


def _in_namespace(halves: Array, netns: Array) -> Array:
    """Mix the namespace that sends into the keys; without those that have none."""
    known = netns != 0
    halves = halves.compress(known)
    halves["key"] ^= netns[known] * np.uint64(0x9E3779B97F4A7C15)
    return halves


def _some_of_each(places: Array, flow: Array) -> Array:
    """The last few of each flow: a flood in one must not hide the answer to it."""
    places = places[np.argsort(flow[places], kind="stable")]
    of = flow[places]
    from_last = np.searchsorted(of, of, "right") - 1 - np.arange(len(of))
    few = np.flatnonzero(from_last < LOOKS_OF_EACH)
    return places[few[np.argsort(from_last[few], kind="stable")[:LOOKS_AT_ONCE]]]


def _is_one_of(values: Array, keys: Array) -> Array:
    """Like np.isin for a few keys in their order; sorts none of the values."""
    at = np.searchsorted(keys, values)
    at[at == len(keys)] = 0
    return np.asarray(keys[at] == values)
