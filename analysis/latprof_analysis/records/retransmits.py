"""Segments that TCP sent again, as packets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.arrays import stacked
from latprof_analysis.records.flows import Flows
from latprof_analysis.records.stream_key import stream_key

Array = NDArray[Any]

RARE_LIMIT = 1 << 16


def newest(kept: Array, new: Array) -> Array:
    """Add records of a kind that is rare; the oldest go."""
    return stacked(kept, new)[-RARE_LIMIT:] if len(new) else kept


class Retransmits:
    """The packets that were sent again lately."""

    def __init__(self, flows: Flows, dtype: np.dtype[Any]) -> None:
        self._flows = flows
        self._packets = np.empty(0, dtype)

    def add(self, segments: Array) -> None:
        """Take in records of the ring."""
        self._packets = newest(self._packets, packets_of(segments))

    def overlapping(self, flow: Array, start: Array, end: Array) -> Array:
        """How many packets overlap each range [start, end) of a flow number."""
        if not len(self._packets):
            return np.zeros(len(end), "i8")
        index = self._flows.index(flow)
        again = self._flows.index(self._packets["flow"])
        first = np.sort(stream_key(again, self._packets["start"]))
        behind = np.sort(stream_key(again, self._packets["end"]))
        # those that begin before the range ends, less those that end before it
        begun = np.searchsorted(first, stream_key(index, end))
        over = np.searchsorted(behind, stream_key(index, start), "right")
        return np.asarray(begun - over)

    def ending_after(
        self, flow: Array, start: Array, end: Array, ready_ns: Array
    ) -> Array:
        """How many packets end in each range (start, end], and left after a time.

        0 where that time is 0. A packet ends in one of ranges that do not overlap.
        """
        if not len(self._packets):
            return np.zeros(len(end), "i8")
        index = self._flows.index(flow)
        again = self._flows.index(self._packets["flow"])
        key = stream_key(again, self._packets["end"])
        order = np.argsort(key, kind="stable")
        key, t_ns = key[order], self._packets["t_ns"][order].astype("i8")
        first = np.searchsorted(key, stream_key(index, start), "right")
        behind = np.searchsorted(key, stream_key(index, end), "right")
        counts = np.where(ready_ns > 0, np.maximum(behind - first, 0), 0)
        ranges = np.repeat(np.arange(len(end)), counts)
        within = np.arange(len(ranges)) - np.repeat(np.cumsum(counts) - counts, counts)
        late = t_ns[first[ranges] + within] > ready_ns[ranges]
        return np.bincount(ranges[late], minlength=len(end))

    def before(self, flow: int, end: int) -> Array:
        """Those packets of a flow that begin before an offset."""
        of_flow = self._packets["flow"] == np.uint64(flow)
        return np.asarray(self._packets[of_flow & (self._packets["start"] < end)])


def packets_of(segments: Array) -> Array:
    """Cut retransmitted segments as the device does, to one record per packet."""
    start, end = (segments[name].astype("i8") for name in ("start", "end"))
    size = segments["packet_bytes"].astype("i8")
    size = np.where(size > 0, size, np.maximum(end - start, 1))
    counts = np.maximum(-((start - end) // size), 1)
    packets = np.repeat(segments, counts)
    which = np.arange(len(packets)) - np.repeat(np.cumsum(counts) - counts, counts)
    size = np.repeat(size, counts)
    packets["start"] += (which * size).astype("u8")
    full_end = packets["start"] + size.astype("u8")
    packets["end"] = np.minimum(full_end, packets["end"])
    return packets
