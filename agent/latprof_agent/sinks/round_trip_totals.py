"""Round trips of the generator's log as figures."""

from __future__ import annotations

from typing import Any

import numpy as np
from latprof_analysis.scans.grouped import FEW
from latprof_analysis.scans.trip_totals import TripTotals
from latprof_analysis.stages import BLANK
from numpy.typing import NDArray

from latprof_agent.join.message_rows import Ints
from latprof_agent.workload import generator_log


class RoundTripTotals:
    """Figures of one protocol's round trips; keeps 24 bytes of each."""

    def __init__(self, protocol: str, size_count: int, open_loop: bool) -> None:
        self.protocol = protocol
        self.open_loop = open_loop
        self.corrupt = 0
        self._figures = TripTotals(most=max(FEW, size_count))
        self._size_count = size_count
        self._first_sequence: int | None = None
        self._parts: list[tuple[Ints, Ints, Ints]] = []

    @property
    def sent(self) -> int:
        return self._figures.sent

    def add(self, records: NDArray[Any]) -> None:
        """Take in measured records of the generator's log, without warm-up."""
        if not len(records):
            return
        if self._first_sequence is None:
            self._first_sequence = int(records["sequence"].min())
        lost = (records["flags"] & generator_log.LOST_FLAG) != 0
        self.corrupt += int((records["flags"] & generator_log.CORRUPT_FLAG != 0).sum())
        rtt = generator_log.rtt_ns(records, self.open_loop)
        sizes, sent, intended = (
            records[name].astype("i8")
            for name in ("size_bytes", "sent_ns", "intended_ns")
        )
        self._figures.add(sizes, np.where(lost, BLANK, rtt), sent, intended)
        order = records["sequence"].astype("i8") - self._first_sequence
        self._parts.append((sizes[~lost], rtt[~lost], order[~lost] // self._size_count))

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Sizes, round trip times and rounds of all that were answered."""
        if not self._parts:
            empty = np.empty(0, "i8")
            return empty, empty, empty
        sizes, rtts, rounds = zip(*self._parts, strict=True)
        return np.concatenate(sizes), np.concatenate(rtts), np.concatenate(rounds)

    def as_dict(self) -> dict[str, Any]:
        """Figures per size, in ns."""
        return self._figures.as_dict() | {"corrupt": self.corrupt}
