"""The probes' histograms, one for each group and quantity, as they are in the kernel.

CPUs share histograms by shards (histogram.bpf.h). Their counts are 32 bits wide and
wrap, so what is read is added up here by differences. Of all groups at once: there may
be thousands, of which a few count in any one second.
"""

from __future__ import annotations

import mmap
import os
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from latprof_analysis.stats.kernel_histogram import BUCKETS
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.capture.spread import Spread
from latprof_agent.probes.layout import Layout

GROUPS, BLOCK_GROUPS = 8192, 64  # as in records.h
OTHER_GROUPS = range(1, 5)  # what has no room, by protocol and role
# CPUs beyond that share them, so that large hosts stay modest.
MOST_SHARDS = 8
FLOW_ENDS = 1 << 13  # as in message_ends.bpf.h
DATAGRAM_TURNS = 1 << 14
# What is shorter stands for no other time: its rate is known too badly.
LEAST_SECONDS = 0.025

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_HISTOGRAMS = "group_histograms"
_FREE = "free_groups"
_BUCKET_CHANGE = np.dtype([("histogram", "u4"), ("bucket", "u4"), ("count", "u4")])
_SUM_CHANGE = np.dtype([("histogram", "u8"), ("sum_ns", "u8")])


def shards_for(cpus: int) -> int:
    """How many shards: a power of two, one for each CPU up to the most."""
    return min(MOST_SHARDS, 1 << (cpus - 1).bit_length())


@dataclass(frozen=True)
class GroupState:
    """What one group has counted since the start.

    `scaled`, `measured` and `variance` have the fields of struct group_counts, and
    behind them how many values each quantity's histogram holds.
    """

    counts: dict[int, Ints]  # buckets of each quantity that has any
    sums_ns: list[int]  # of quantities
    scaled: list[int]  # with what stands for pauses
    measured: list[int]
    variance: list[float]  # of `scaled`


@dataclass(frozen=True)
class _Fresh:
    """What came in one stretch of time, of the groups in which anything came.

    A pair is group * quantities + quantity.
    """

    columns: Floats  # (groups, columns) as in GroupState
    sum_pairs: Ints  # (k,)
    sums_ns: Floats  # (k,)
    pairs: Ints  # (b,) of buckets that came to hold more
    buckets: Ints  # (b,)
    counts: Floats  # (b,)


class GroupTables:
    """What the kernel counts by group, from before the load until `close`.

    One thread may account while another one reads.
    """

    def __init__(self, drain: _drain.Drain, layout: Layout, cpus: int) -> None:
        """Size the maps of a drain that is not loaded yet."""
        self._drain = drain
        self._layout = layout
        self._lock = threading.Lock()
        self.shards = shards_for(cpus)
        self._quantities = quantities = layout.quantities["quantities"]
        drain.set_constant("histograms", 1)
        drain.set_entries(_HISTOGRAMS, self.shards * (GROUPS // BLOCK_GROUPS))
        drain.set_entries("group_totals", self.shards * GROUPS)
        for name in ("groups", _FREE, "group_limits", "group_segments"):
            drain.set_entries(name, GROUPS)
        drain.set_entries("flows_ends", FLOW_ENDS)
        drain.set_entries("datagram_turns", DATAGRAM_TURNS)
        self._totals = np.empty((0, GROUPS), layout.group_counts)
        self.segments = np.empty(0, layout.segments)  # as the kernel counts them
        self.counted: tuple[str, ...] = layout.group_counts.names or ()
        self.first = OTHER_GROUPS.stop  # number of a group of its own
        self._blocks = 0
        self.given = 0  # numbers, those that were taken back and given again, too
        fields = len(self.counted)
        self._last = np.zeros((GROUPS, fields), "u8")  # read last
        # since the start; memory comes when it is used
        self._scaled = np.zeros((GROUPS, fields + quantities))
        self._measured = np.zeros((GROUPS, fields + quantities))
        self._sums_ns = np.zeros(GROUPS * quantities)
        self._row = np.full(GROUPS * quantities, -1)  # of a pair in `_counts`
        self._rows = 0
        self._counts = np.zeros((256, BUCKETS))
        self._all_counts = np.zeros(BUCKETS)
        self._states: dict[int, GroupState] = {}
        self._is_stale = np.ones(GROUPS, bool)
        self._spread = Spread(GROUPS, fields + quantities)
        # what stands for the time after it, and its seconds
        self._stretch: tuple[_Fresh, float] | None = None

    def open(self) -> None:
        """Map them, once they are loaded."""
        self._totals = _mapped(
            self._drain,
            "group_totals",
            self._layout.group_counts,
            self.shards * GROUPS,
        ).reshape(self.shards, GROUPS)
        self.segments = _mapped(
            self._drain, "group_segments", self._layout.segments, GROUPS
        )

    @property
    def block_bytes(self) -> int:
        """Kernel memory that `grow` takes."""
        size = self._layout.histogram.itemsize
        return self.shards * BLOCK_GROUPS * self._quantities * size

    @property
    def room(self) -> int:
        """For how many groups there is room now, those of the others included."""
        return self._blocks * BLOCK_GROUPS

    def grow(self) -> None:
        """Make room for BLOCK_GROUPS more; OSError where there is no memory."""
        for shard in range(self.shards):
            block = shard * (GROUPS // BLOCK_GROUPS) + self._blocks
            self._drain.grow(_HISTOGRAMS, block)
        first = max(self.room, self.first)
        with self._lock:
            self._blocks += 1
        self.give(range(first, self.room))

    def give(self, numbers: range | list[int]) -> None:
        """Let new groups have these numbers."""
        for number in numbers:
            self._drain.put(_FREE, b"", number.to_bytes(4, "little"))
        self.given += len(numbers)

    def messages(self) -> int:
        """How many the kernel has counted, sent and received."""
        counted = ("sent_messages", "received_messages", "received_ranges")
        there = self._totals[:, : self.room]
        return sum(int(there[name].sum()) for name in counted)

    def account(self, seconds: float, pause: float = 0.0) -> None:
        """Add what was counted since the last time, in so many seconds.

        It stands for half of a `pause` before it, too, what came before the pause for
        the other half.
        """
        with self._lock:
            fresh = self._take()
            stands = seconds >= LEAST_SECONDS or not self._stretch
            before = pause / 2 if stands and self._stretch else pause
            if pause and stands:
                self._spread.learn(fresh.columns, seconds)
            self._stand_for(before)
            after = pause - before if self._stretch else pause
            if stands:
                self._stretch = fresh, seconds
                self._spread.begin(fresh.columns, seconds)
                self._stand_for(after)
            self._add(fresh, 1.0)
            self._measured[: self.room] += fresh.columns

    def stand_for(self, seconds: float) -> None:
        """Let what was accounted last stand for so much time after it."""
        with self._lock:
            self._stand_for(seconds)

    def _stand_for(self, seconds: float) -> None:
        if self._stretch and seconds > 0:
            fresh, measured = self._stretch
            self._add(fresh, seconds / measured)
            self._spread.stand_for(seconds, len(fresh.columns))

    def _take(self) -> _Fresh:
        """What the kernel has counted since the last time."""
        room = self.room
        counted = self._totals[:, :room].copy().view("u8")
        now = counted.reshape(self.shards, room, -1).sum(axis=0)
        more = now - self._last[:room]
        more[: OTHER_GROUPS.start] = 0
        self._last[:room] = now
        numbers = np.flatnonzero(more.any(axis=1))
        firsts = numbers + GROUPS * np.arange(self.shards)[:, None]
        changes = self._drain.changes(
            _HISTOGRAMS,
            (firsts * self._quantities).astype("u4").tobytes(),
            self._quantities,
        )
        buckets = np.frombuffer(changes[0], _BUCKET_CHANGE)
        sums = np.frombuffer(changes[1], _SUM_CHANGE)
        pairs = GROUPS * self._quantities
        return _Fresh(
            self._columns(more, buckets["histogram"] % pairs, buckets["count"]),
            (sums["histogram"] % pairs).astype("i8"),
            sums["sum_ns"].astype("f8"),
            (buckets["histogram"] % pairs).astype("i8"),
            buckets["bucket"].astype("i8"),
            buckets["count"].astype("f8"),
        )

    def _columns(self, counted: Ints, pairs: Ints, counts: Ints) -> Floats:
        values = np.bincount(pairs, counts, self.room * self._quantities)
        return np.hstack([counted, values.reshape(self.room, -1)])

    def _add(self, fresh: _Fresh, weight: float) -> None:
        there = slice(len(fresh.columns))
        self._scaled[there] += fresh.columns * weight
        self._is_stale[there] |= fresh.columns.any(axis=1)
        np.add.at(self._sums_ns, fresh.sum_pairs, fresh.sums_ns * weight)
        self._make_rows(np.unique(fresh.pairs))
        cells = self._row[fresh.pairs] * BUCKETS + fresh.buckets
        np.add.at(self._counts.reshape(-1), cells, fresh.counts * weight)
        np.add.at(self._all_counts, fresh.buckets, fresh.counts * weight)

    def _make_rows(self, pairs: Ints) -> None:
        new = pairs[self._row[pairs] < 0]
        needed = self._rows + len(new)
        if needed > len(self._counts):
            counts = np.zeros((max(needed, 2 * len(self._counts)), BUCKETS))
            counts[: self._rows] = self._counts[: self._rows]
            self._counts = counts
        self._row[new] = np.arange(self._rows, needed)
        self._rows = needed

    def move(self, moves: dict[int, int]) -> None:
        """Add all that groups have counted to others; they begin at nothing again."""
        with self._lock:
            for number, other in moves.items():
                self._move(number, other)
            if self._stretch:
                fresh, seconds = self._stretch
                self._stretch = self._moved(fresh, moves), seconds

    def _moved(self, fresh: _Fresh, moves: dict[int, int]) -> _Fresh:
        to = np.arange(GROUPS)
        to[list(moves)] = list(moves.values())
        columns = np.zeros_like(fresh.columns)
        np.add.at(columns, to[: len(columns)], fresh.columns)
        group, quantity = np.divmod(fresh.pairs, self._quantities)
        sum_group, sum_quantity = np.divmod(fresh.sum_pairs, self._quantities)
        return replace(
            fresh,
            columns=columns,
            pairs=to[group] * self._quantities + quantity,
            sum_pairs=to[sum_group] * self._quantities + sum_quantity,
        )

    def _move(self, number: int, to: int) -> None:
        for array in (self._scaled, self._measured):
            array[to] += array[number]
            array[number] = 0
        self._spread.move(number, to)
        self._is_stale[[number, to]] = True
        for quantity in range(self._quantities):
            mine, other = (n * self._quantities + quantity for n in (number, to))
            self._sums_ns[other] += self._sums_ns[mine]
            self._sums_ns[mine] = 0
            if self._row[mine] >= 0:
                self._make_rows(np.array([other]))
                row = self._counts[self._row[mine]]
                self._counts[self._row[other]] += row
                row[:] = 0

    def states(self) -> dict[int, GroupState]:
        """What every group that has any has counted, by number.

        The same object as the last time where it has counted nothing since.
        """
        with self._lock:
            there = np.flatnonzero(self._scaled.any(axis=1))
            stale = there[self._is_stale[there]]
            made = self._make_states(stale)
            known = self._states | made
            self._is_stale[stale] = False
            self._states = {number: known[number] for number in there.tolist()}
            return self._states.copy()

    def _make_states(self, numbers: Ints) -> dict[int, GroupState]:
        fields, quantities = len(self.counted), self._quantities
        of, quantity = np.nonzero(self._scaled[numbers, fields:])
        rows = self._row[numbers[of] * quantities + quantity]
        # one by one: fresh memory for all would cost more than the work
        copies = [_whole(self._counts[row]) for row in rows.tolist()]
        sums_ns = self._sums_ns.reshape(-1, quantities)[numbers]
        scaled, measured = self._scaled[numbers], self._measured[numbers]
        variance = self._spread.variance[numbers].tolist()
        counts: list[dict[int, Ints]] = [{} for _ in numbers]
        for copy, at, name in zip(copies, of.tolist(), quantity.tolist(), strict=True):
            counts[at][name] = copy
        whole = (_whole(each).tolist() for each in (sums_ns, scaled, measured))
        columns = zip(counts, *whole, variance, strict=True)
        return {
            number: GroupState(*each)
            for number, each in zip(numbers.tolist(), columns, strict=True)
        }

    def active(self) -> Ints:
        """What changes as soon as a group counts, of those there is room for."""
        room = self.room
        words = self._totals[:, :room].copy().view("u8").reshape(self.shards, room, -1)
        found: Ints = words.sum(axis=(0, 2)).astype("i8")
        return found

    def values(self, quantities: list[int]) -> Floats:
        """How many values groups have counted of each quantity: (room, quantities)."""
        with self._lock:
            columns = len(self.counted) + np.array(quantities)
            return self._scaled[: self.room, columns]

    def together(
        self, quantities: list[int], firsts: Ints, groups: Ints
    ) -> tuple[Ints, NDArray[np.float32]]:
        """Those of the groups that have any, and their counts.

        The shape is (groups, quantities, len(firsts)). Neighbouring buckets are one,
        each from one of `firsts` to the next.
        """
        wanted = np.array(quantities)
        with self._lock:
            chosen = self._scaled[groups[:, None], len(self.counted) + wanted]
            group, at = np.nonzero(chosen)
            group = groups[group]
            numbers, place = np.unique(group, return_inverse=True)
            found = np.zeros((len(numbers), len(quantities), len(firsts)), "f4")
            rows = self._row[group * self._quantities + wanted[at]]
            for to, of, row in zip(
                place.tolist(), at.tolist(), rows.tolist(), strict=True
            ):
                found[to, of] = np.add.reduceat(self._counts[row], firsts)
        return numbers, found

    def all_counts(self) -> Floats:
        """Copy the buckets of all groups and quantities together."""
        with self._lock:
            return self._all_counts.copy()

    def close(self) -> None:
        """Release the memory."""
        self._totals = np.empty((0, GROUPS), self._layout.group_counts)
        self.segments = np.empty(0, self._layout.segments)


def _whole(values: Floats) -> Ints:
    found: Ints = np.rint(values).astype("i8")
    return found


def _mapped(
    drain: _drain.Drain, name: str, dtype: np.dtype[Any], entries: int
) -> NDArray[Any]:
    descriptor = drain.descriptor(name)
    try:
        area = mmap.mmap(descriptor, dtype.itemsize * entries, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    return np.frombuffer(area, dtype)
