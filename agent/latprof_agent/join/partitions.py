"""Which flows are joined apart from which: no row is made of two partitions.

Both directions of a connection belong together, and so do the flows that a translator
(NAT) made of one, which have their first sequence numbers in common. Of datagrams it
may have changed every number, and only fingerprints find them again: all are of the
first partition, as are records whose flow nobody announced. What is of all flows goes
to every partition: names, the announcements of flows, and what devices below passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from latprof_analysis.records.arrays import Batch, Records
from latprof_analysis.records.flows import IPPROTO_TCP, SIDE_RECEIVER, SIDE_SENDER
from numpy.typing import NDArray

# Rings with flows that every partition has.
OF_ALL = frozenset({"flows", "lower_transmits"})
# Those of which the first one alone counts something.
OF_FIRST = frozenset({"path_devices", "untraced_periods"})


class Partitions(NamedTuple):
    """Streams' numbers in their order, and the partition of each."""

    numbers: NDArray[np.uint64]
    partition: NDArray[np.uint16]

    def of(self, flow: NDArray[np.uint64]) -> NDArray[np.uint16]:
        """Return the partitions of flows by their numbers."""
        if not len(self.numbers):
            return np.zeros(len(flow), "u2")
        at = np.searchsorted(self.numbers, flow)
        at[at == len(self.numbers)] = 0
        known = self.numbers[at] == flow
        return np.where(known, self.partition[at], 0).astype("u2")

    def records_of(self, number: int, batch: Batch) -> Batch:
        """Return the records of one partition."""
        return {ring: self._of_ring(number, ring, batch[ring]) for ring in batch}

    def _of_ring(self, number: int, ring: str, records: Records) -> Records:
        if ring in OF_FIRST:
            return records if number == 0 else records[:0]
        if ring in OF_ALL or "flow" not in (records.dtype.names or ()):
            return records
        return records.compress(self.of(records["flow"]) == number)


def ends_announced(records: Records) -> Records:
    """Return those of announcements that are of an end which sends or receives."""
    return records[np.isin(records["side"], (SIDE_SENDER, SIDE_RECEIVER))]


def partitions_of(announced: Records, count: int) -> Partitions:
    """Share flows out to so many partitions.

    Parameters
    ----------
    announced : structured array, shape (n,)
        Records of the ring `flows`, of all hosts, in any order.
    count : int
        At least 1, at most 65,536.

    Examples
    --------
    >>> flows = np.zeros(2, [("flow", "u8"), ("side", "u1"), ("protocol", "u1"),
    ...     ("source", "u1", 16), ("destination", "u1", 16), ("source_port", "u2"),
    ...     ("destination_port", "u2"), ("first_sequence", "u4"),
    ...     ("first_answer", "u4")])
    >>> flows["flow"], flows["side"], flows["protocol"] = (7, 9), 1, 6
    >>> flows["source_port"], flows["destination_port"] = (80, 5000), (5000, 80)
    >>> partitions_of(flows, 4).of(np.array([7, 9], "u8")).tolist()
    [0, 0]
    """
    streams = ends_announced(announced)
    streams = streams[streams["protocol"] == IPPROTO_TCP]
    numbers, flow = np.unique(streams["flow"], return_inverse=True)
    keys = [flow, _inverse(_ends(streams)), _inverse(_sequences(streams))]
    first = np.zeros(len(numbers), np.intp)
    first[flow] = _united(keys)
    return Partitions(numbers, (_inverse(first) % count).astype("u2"))


def _inverse(values: NDArray[Any]) -> NDArray[np.intp]:
    """Number values in their order."""
    return np.unique(values, return_inverse=True)[1]


def _ends(streams: Records) -> NDArray[Any]:
    """Return addresses and ports of both ends, whichever of them sends."""
    ends = np.zeros((len(streams), 2, 18), "u1")
    for place, end in enumerate(("source", "destination")):
        ends[:, place, :16] = streams[end]
        port = np.ascontiguousarray(streams[f"{end}_port"].astype("<u2"))
        ends[:, place, 16:] = port.view("u1").reshape(-1, 2)
    ordered = np.sort(ends.view("S18")[..., 0], axis=1)
    return ordered.view("S36").ravel()


def _sequences(streams: Records) -> NDArray[np.uint64]:
    """Return both first sequence numbers; where one is unknown the flow's number."""
    first = streams["first_sequence"].astype("u8")
    answer = streams["first_answer"].astype("u8")
    both = np.minimum(first, answer) << np.uint64(32) | np.maximum(first, answer)
    return np.where(answer > 0, both, streams["flow"])


def _united(keys: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
    """Return of each row the least first key of all that keys connect it with."""
    found = keys[0]
    while True:
        before = found
        for key in keys:
            least = np.full(len(key), len(key))
            np.minimum.at(least, key, found)
            found = least[key]
        if (found == before).all():
            return found
