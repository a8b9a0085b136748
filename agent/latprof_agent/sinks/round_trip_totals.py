"""Round trips as figures."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from latprof_analysis.records.message_rows import Ints
from latprof_analysis.stages import BLANK, PROBE_STATISTICS
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.study.grouped import FEW
from latprof_analysis.study.totals import TripTotals
from latprof_analysis.study.train_rows import TrainRows
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.sinks.round_trip_rows import RoundTrips


class RoundTripTotals:
    """Figures of one protocol's round trips; keeps 24 bytes of each.

    Those of trains are in none but `trains`, which has 80 bytes more of each round
    trip of a run with trains.
    """

    def __init__(
        self, protocol: str, size_count: int, per_round: int, open_loop: bool
    ) -> None:
        self.protocol = protocol
        self.open_loop = open_loop
        self.corrupt = 0
        self.sent = 0
        self.trains = TrainRows()
        self._figures = TripTotals(most=max(FEW, size_count))
        self._size_count = size_count
        self._per_round = per_round
        self._first_sequence: int | None = None
        self._parts: list[tuple[Ints, Ints, Ints]] = []

    def described(self) -> dict[str, Any]:
        """What makes one like it of a recording."""
        return {
            "protocol": self.protocol,
            "size_count": self._size_count,
            "per_round": self._per_round,
            "open_loop": self.open_loop,
        }

    def add(self, trips: RoundTrips) -> None:
        """Take in measured round trips, without warm-up."""
        if not len(trips):
            return
        self.sent += len(trips)
        if self._first_sequence is None:
            self._first_sequence = int(trips.numbers["sequence"].min())
        self.corrupt += trips.corrupt
        if "train" in trips.numbers:
            self.trains.add(trips.numbers, np.arange(len(trips)))
            trips = trips.take(np.flatnonzero(trips.numbers["train"] == BLANK))
        sequence, size_bytes, rtt_ns, sent_ns, intended_ns, lost = (
            trips.numbers[name]
            for name in (
                *("sequence", "size_bytes", "rtt_ns"),
                *("sent_ns", "intended_ns", "lost"),
            )
        )
        marked = trips.numbers[PROBE_STATISTICS] == 1
        self._figures.add(size_bytes, rtt_ns, sent_ns, intended_ns, marked)
        answered = lost == 0
        order = (sequence - self._first_sequence)[answered] // self._per_round
        self._parts.append((size_bytes[answered], rtt_ns[answered], order))

    @property
    def rtt(self) -> Histogram:
        """Round trip times of all sizes, in ns, of what was answered."""
        return self._figures.by_size.total().get("rtt", Histogram())

    @property
    def counts(self) -> dict[str, int]:
        """How many were sent, those of trains not counted, and lost."""
        return {"sent": self._figures.sent, "lost": self._figures.lost}

    def seconds_since_first(self) -> float:
        """How long ago the first was sent; 0 before."""
        first_ns = self._figures.first_ns
        return (time.monotonic_ns() - first_ns) / NS_PER_SECOND if first_ns else 0.0

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Sizes, round trip times and rounds of what was answered."""
        if not self._parts:
            empty = np.empty(0, "i8")
            return empty, empty, empty
        sizes, rtts, rounds = zip(*self._parts, strict=True)
        return np.concatenate(sizes), np.concatenate(rtts), np.concatenate(rounds)

    def as_dict(self) -> dict[str, Any]:
        """Figures per size, in ns."""
        sizes, rtt_ns, _ = self.arrays()
        return self._figures.as_dict((sizes, rtt_ns)) | {"corrupt": self.corrupt}
