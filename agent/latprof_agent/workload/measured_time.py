"""When what a server says and hears is measured: all else of it is warm-up."""

from __future__ import annotations

from typing import Any

import numpy as np
from latprof_analysis.records.message_rows import MESSAGE, WARMUP, Ints, Messages
from latprof_analysis.records.whole_messages import Spans
from numpy.typing import NDArray

from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.workload.generator_log import LogTail


class MeasuredTime:
    """A `Source` that marks a server's messages outside measured times as warm-up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.tails: list[LogTail] = []  # it has no log
        self.calls: list[list[Any]] = []  # what was said to it, for a recording
        self._begins_ns: list[int] = []
        self._ends_ns: list[int] = []

    def described(self) -> dict[str, Any]:
        """What makes one like it of a recording."""
        return {"kind": "measured time", "port": self._port}

    def begin(self, ns: int) -> None:
        """Measure what is sent from then on; a call before an end replaces the last."""
        self.calls.append(["begin", ns])
        if len(self._begins_ns) > len(self._ends_ns):
            self._begins_ns.pop()
        self._begins_ns.append(ns)

    def end(self, ns: int) -> None:
        """... until now, if it has begun."""
        self.calls.append(["end", ns])
        if len(self._begins_ns) > len(self._ends_ns):
            self._ends_ns.append(ns)

    def read(self) -> RoundTrips | None:
        """Have no round trips."""
        return None

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name them as any other program's."""
        return np.full(len(flows), MESSAGE)

    def created_of(self, rows: Messages) -> tuple[Ints, Ints, NDArray[np.int32]]:
        """Return the kinds of this port's messages; when made is not known."""
        ports = rows.numbers
        mine = np.flatnonzero(
            (ports["source_port"] == self._port)
            | (ports["destination_port"] == self._port)
        )
        first_ns = rows.first_ns()[mine]
        begun = np.searchsorted(self._begins_ns, first_ns, "right")
        outside = begun == np.searchsorted(self._ends_ns, first_ns, "right")
        kinds = np.where(outside, WARMUP, MESSAGE).astype(np.int32)
        return mine, np.zeros(len(mine), "i8"), kinds

    def spans_of(self, rows: Messages) -> tuple[NDArray[np.intp], Spans]:
        """Know nothing of what was sent in pieces."""
        return np.empty(0, np.intp), Spans.none(0)

    def forget_before(self, time_ns: int) -> None:
        """Keep two numbers of each time."""
