"""Segments that the kernel freed, and nobody had read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.flows import Flows
from latprof_analysis.records.retransmits import newest

Array = NDArray[Any]


class FreedSegments:
    """Those of any connection lately, found by ports and sequence numbers."""

    def __init__(self, flows: Flows, dtype: np.dtype[Any]) -> None:
        self._flows = flows
        self._segments = np.empty(0, dtype)

    def add(self, segments: Array) -> None:
        """Take in records of the ring."""
        self._segments = newest(self._segments, segments)

    def with_byte(self, flow: int, end: int) -> Array:
        """Those that held the byte of a flow before an offset, in the order of time.

        A translator (NAT) leaves sequence numbers, and of the ports one.
        """
        found = self._segments
        place = self._flows.index(np.array([flow], "u8"))[0]
        announced = self._flows.table[place] if place >= 0 else None
        if announced is None or not announced["first_sequence"]:
            return found[:0]
        ports = found["source_port"] == announced["source_port"]
        ports |= found["destination_port"] == announced["destination_port"]
        behind = np.uint32((int(announced["first_sequence"]) + end) & 0xFFFFFFFF)
        # unsigned differences of 32 bits hold across the wrap
        from_start = behind - found["start"]
        length = found["end"] - found["start"]
        found = found[ports & (from_start > 0) & (from_start <= length)]
        return np.asarray(found[np.argsort(found["t_ns"], kind="stable")])
