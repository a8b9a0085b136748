"""The flight recorder: what CPUs did, read out only around what was slow.

The kernel writes over it all the time (bpf/flight.bpf.c). A half of a message that
took long makes a copy of the last while; fast ones cost nothing beyond the writing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
from latprof_analysis.study.story import Flight

from latprof_agent import _drain
from latprof_agent.capture.rings import Batch
from latprof_agent.probes.layout import Layout
from latprof_agent.story.symbols import Symbols

# Of each CPU: 3.4 MB. 32,768 switches, 4,096 interrupts, 2,048 stacks.
RING_BYTES = {"switches": 5 << 19, "interrupts": 1 << 18, "samples": 1 << 20}
BEFORE_NS = 10_000_000  # who had the CPUs shortly before
PAUSE_NS = 100_000_000  # between two copies, which take some ms
MOST_BYTES = 64 << 20  # of all copies


@dataclass
class FlightRecorder:
    """Looks at what was drained for what took over half of `limit_ns`.

    A message that was slow in all has half of its time in one of its halves, or on
    its way, of which no CPU here tells. `flights` are the copies that were made;
    `skipped` counts times when there was no room for another.
    """

    drain: _drain.Drain
    layout: Layout
    limit_ns: int
    flights: list[Flight] = field(default_factory=list)
    skipped: int = 0
    symbols: Symbols = field(default_factory=Symbols)
    _due_ns: int = 0  # the earliest begin that is not copied yet
    _pids: set[int] = field(default_factory=set)
    _taken_ns: int = 0
    _bytes: int = 0

    def set_sizes(self) -> None:
        """Give the rings their room, before the load."""
        for ring in self.layout.flights:
            self.drain.set_ring_bytes(ring, RING_BYTES[ring])

    def look(self, records: Batch) -> None:
        """Copy the recorder if something in these records took long."""
        for ring, begin, end in (
            ("received_ranges", "ready_ns", "read_ns"),
            ("sent_messages", "send_ns", "xmit_ns"),
        ):
            self._look(records[ring], begin, end)
        now_ns = time.monotonic_ns()
        if self._due_ns and now_ns - self._taken_ns >= PAUSE_NS:
            self._take(now_ns)

    def finish(self) -> None:
        """Copy it for what is still due; nothing is written any more."""
        if self._due_ns:
            self._take(time.monotonic_ns())
        self.symbols.finish()

    def _look(self, records: np.ndarray, begin: str, end: str) -> None:
        took_ns = (records[end] - records[begin]).astype("i8")
        late = (records[begin] > 0) & (records[end] > 0)
        late &= took_ns >= self.limit_ns // 2
        if late.any():
            first_ns = int(records[begin][late].min())
            self._due_ns = min(self._due_ns or first_ns, first_ns)
            self._pids |= set(records["pid"][late].tolist())

    def _take(self, now_ns: int) -> None:
        begin_ns, self._due_ns = self._due_ns - BEFORE_NS, 0
        pids, self._pids = self._pids, set()
        self._taken_ns = now_ns
        if self._bytes > MOST_BYTES:
            self.skipped += 1
            return
        rings = {
            ring: np.frombuffer(self.drain.snapshot(ring), dtype)
            for ring, dtype in self.layout.flights.items()
        }
        flight = Flight.cut(**rings, begin_ns=begin_ns, end_ns=now_ns)
        self._bytes += flight.nbytes
        self.flights.append(flight)
        self.symbols.note(flight.samples, pids)
