"""When what a server says and hears is measured: all else of it is warm-up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_agent.join.message_rows import MESSAGE, WARMUP, Ints, Messages
from latprof_agent.join.whole_messages import Spans
from latprof_agent.sinks.round_trip_rows import RoundTrips

_NO_END = np.iinfo(np.int64).max


class MeasuredTime:
    """A `Source` that tells messages of a server's port outside a time: warm-up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._from_ns, self._until_ns = _NO_END, _NO_END

    def begin(self, ns: int) -> None:
        """What is sent from now on is measured."""
        self._from_ns = ns

    def end(self, ns: int) -> None:
        """... until now."""
        self._until_ns = ns

    def read(self) -> RoundTrips | None:
        """Have no round trips."""
        return None

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name them as any other program's."""
        return np.full(len(flows), MESSAGE)

    def created_of(self, rows: Messages) -> tuple[Ints, Ints, NDArray[np.int32]]:
        """Tell kinds of the messages of this port; when they were made nobody knows."""
        ports = rows.numbers
        mine = np.flatnonzero(
            (ports["source_port"] == self._port)
            | (ports["destination_port"] == self._port)
        )
        first_ns = rows.first_ns()[mine]
        outside = (first_ns < self._from_ns) | (first_ns >= self._until_ns)
        kinds = np.where(outside, WARMUP, MESSAGE).astype(np.int32)
        return mine, np.zeros(len(mine), "i8"), kinds

    def spans_of(self, rows: Messages) -> tuple[NDArray[np.intp], Spans]:
        """Know nothing of what was sent in pieces."""
        return np.empty(0, np.intp), Spans.none(0)

    def forget_before(self, time_ns: int) -> None:
        """Keep two numbers."""
