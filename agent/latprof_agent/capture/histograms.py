"""The probes' histograms, one for each group and quantity, as they are in the kernel.

CPUs share histograms by shards (histogram.bpf.h). Their counts are 32 bits wide and
wrap, so what is read is added up here by differences.
"""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.probes.layout import Layout

GROUPS = 261  # as in histogram.bpf.h
OTHER_GROUPS = range(1, 5)  # what has no room, by protocol and role
# 12 MB each: CPUs beyond that share them, so that large hosts stay modest.
MOST_SHARDS = 8
FLOW_ENDS = 1 << 13  # as in message_ends.bpf.h
DATAGRAM_TURNS = 1 << 14

Ints = NDArray[np.int64]


def shards_for(cpus: int) -> int:
    """How many shards: a power of two, one for each CPU up to the most."""
    return min(MOST_SHARDS, 1 << (cpus - 1).bit_length())


@dataclass(frozen=True)
class GroupState:
    """What one group has counted since the start; not whole where weighted.

    Never changed: another takes its place, as one thread adds and another reads.
    """

    counts: dict[int, NDArray[np.float64]]  # buckets of each quantity that has any
    sums_ns: NDArray[np.float64]  # shape (quantities,)
    unmeasured: NDArray[np.float64]  # of the counts, by weights alone
    counted: NDArray[np.float64]  # by the fields of struct group_counts


@dataclass
class _Last:
    """What the kernel had counted when it was read last."""

    counts: dict[int, NDArray[np.uint32]]  # of all shards, where there are any
    sums_ns: NDArray[np.uint64]
    counted: NDArray[np.uint64]  # of each shard


class GroupTables:
    """What the kernel counts by group, from before the load until `close`."""

    def __init__(self, drain: _drain.Drain, layout: Layout, cpus: int) -> None:
        """Size the maps of a drain that is not loaded yet."""
        self._drain = drain
        self._layout = layout
        self.shards = shards_for(cpus)
        self._quantities = layout.quantities["quantities"]
        drain.set_constant("histograms", 1)
        drain.set_entries("group_histograms", self.shards * GROUPS * self._quantities)
        drain.set_entries("group_totals", self.shards * GROUPS)
        drain.set_entries("flows_ends", FLOW_ENDS)
        drain.set_entries("datagram_turns", DATAGRAM_TURNS)
        self._totals = np.empty((0, GROUPS), layout.group_counts)
        self.counted: tuple[str, ...] = layout.group_counts.names or ()
        self._states: dict[int, GroupState] = {}
        self._last: dict[int, _Last] = {}

    def open(self) -> None:
        """Map them, once they are loaded."""
        self._totals = _mapped(
            self._drain,
            "group_totals",
            self._layout.group_counts,
            self.shards * GROUPS,
        ).reshape(self.shards, GROUPS)

    @property
    def states(self) -> dict[int, GroupState]:
        """All of now, by number; `account` in another thread changes nothing of it."""
        return self._states.copy()

    def messages(self) -> int:
        """How many the kernel has counted, sent and received."""
        counted = ("sent_messages", "received_messages", "received_ranges")
        return sum(int(self._totals[name].sum()) for name in counted)

    def account(self, last_group: int, weight: float = 1.0) -> None:
        """Add what groups up to this number counted since the last time, so often."""
        for number in range(OTHER_GROUPS.start, last_group + 1):
            now = self._totals[:, number].copy().view("u8").reshape(self.shards, -1)
            last = self._last.get(number) or self._begin(number, now.shape[1])
            if (now != last.counted).any():
                self._add(number, last, now, weight)

    def _begin(self, number: int, fields: int) -> _Last:
        self._last[number] = _Last(
            {}, np.zeros(self._quantities, "u8"), np.zeros((self.shards, fields), "u8")
        )
        self._states[number] = GroupState(
            {},
            np.zeros(self._quantities),
            np.zeros(self._quantities),
            np.zeros(fields),
        )
        return self._last[number]

    def _add(
        self, number: int, last: _Last, counted: NDArray[np.uint64], weight: float
    ) -> None:
        state, histograms = self._states[number], self._read(number)
        # sums that wrap have differences that are right, too
        now = histograms["counts"].sum(axis=0, dtype="u4")
        sums_ns = histograms["sum_ns"].sum(axis=0, dtype="u8")
        counts, unmeasured = state.counts.copy(), state.unmeasured.copy()
        for quantity in np.flatnonzero(now.any(axis=1)).tolist():
            fresh = now[quantity] - last.counts.get(quantity, np.uint32(0))
            if fresh.any():
                counts[quantity] = counts.get(quantity, 0.0) + fresh * weight
                unmeasured[quantity] += fresh.sum() * (weight - 1)
                last.counts[quantity] = now[quantity].copy()
        self._states[number] = GroupState(
            counts,
            state.sums_ns + (sums_ns - last.sums_ns) * weight,
            unmeasured,
            state.counted + (counted - last.counted).sum(axis=0) * weight,
        )
        last.sums_ns, last.counted = sums_ns, counted

    def _read(self, number: int) -> NDArray[Any]:
        """The histograms of a group, of shape (shards, quantities)."""
        areas = (
            self._drain.values(
                "group_histograms",
                (shard * GROUPS + number) * self._quantities,
                self._quantities,
            )
            for shard in range(self.shards)
        )
        found = np.frombuffer(b"".join(areas), self._layout.histogram)
        return found.reshape(self.shards, self._quantities)

    def close(self) -> None:
        """Let go of the memory."""
        self._totals = np.empty((0, GROUPS), self._layout.group_counts)


def _mapped(
    drain: _drain.Drain, name: str, dtype: np.dtype[Any], entries: int
) -> NDArray[Any]:
    descriptor = drain.descriptor(name)
    try:
        area = mmap.mmap(descriptor, dtype.itemsize * entries, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return np.frombuffer(area, dtype)
