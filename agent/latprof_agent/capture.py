"""From the probes' rings to arrays: load, attach, drain, count what was lost."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latprof_agent import _drain, probes
from latprof_agent.errors import CaptureError
from latprof_agent.layout import OBJECT, Layout, layout_of
from latprof_agent.trial import first_line

Records = np.ndarray[Any, np.dtype[Any]]
Batch = dict[str, Records]

# Both halves of every message pass through these two. A ring that fits into a
# CPU's cache costs a ping-pong 0.5 us less than one of 16 MB.
MAIN_RINGS = ("sent_messages", "received_ranges")
SMALL_RING_BYTES = 1 << 18
MAIN_RING_BYTES = 1 << 22
DRAIN_SECONDS = 0.005
ALL_RINGS_BYTES = 1 << 28  # for all CPUs together, so that large hosts stay modest
HEAP_RECORDS = 1 << 10
COST_SAMPLE_SECONDS = 0.05
COST_PERIOD_SECONDS = 1.0


@dataclass(frozen=True)
class Filter:
    """Which sockets are watched; empty means any."""

    netns: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    cgroup: int = 0
    protocols: tuple[str, ...] = ("tcp", "udp")

    def as_record(self, layout: Layout) -> bytes:
        """The probes' struct options."""
        record = np.zeros((), layout.options)
        record["netns"][: len(self.netns)] = self.netns
        record["ports"][: len(self.ports)] = self.ports
        record["cgroup"] = self.cgroup
        record["tcp"] = "tcp" in self.protocols
        record["udp"] = "udp" in self.protocols
        return record.tobytes()


def main_ring_bytes(cpus: int) -> int:
    """Bytes for each CPU's main ring: a power of two within the budget."""
    share = ALL_RINGS_BYTES // (len(MAIN_RINGS) * cpus)
    return max(SMALL_RING_BYTES, min(MAIN_RING_BYTES, 1 << share.bit_length() - 1))


class _Heap:
    """Records of one ring that were drained and not read yet, in room that stays.

    Fresh memory for every drain would cost more than the copy itself.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._room = np.empty(HEAP_RECORDS, dtype)
        self._spare = np.empty(HEAP_RECORDS, dtype)
        self._used = 0

    def room(self, records: int) -> Records:
        """Give so much room behind what is there, for `add`."""
        if self._used + records > len(self._room):
            room = np.empty(2 * (self._used + records), self._room.dtype)
            room[: self._used] = self._room[: self._used]
            self._room = room
        return self._room[self._used : self._used + records]

    def add(self, records: int) -> None:
        """So many records are in the room that was given last."""
        self._used += records

    def take(self) -> Records:
        """Give what is there, valid until the next time."""
        found = self._room[: self._used]
        self._room, self._spare, self._used = self._spare, self._room, 0
        return found


@dataclass
class Cost:
    """CPU time of the probes, from samples with the kernel's statistics on."""

    sampled_seconds: float = 0.0
    probe_seconds: float = 0.0
    runs: int = 0
    started: float = field(default_factory=time.monotonic)

    def cpu_share(self) -> float | None:
        """CPUs' worth of time that the probes took, None if never sampled."""
        if not self.sampled_seconds:
            return None
        return self.probe_seconds / self.sampled_seconds


class Capture:
    """The probes, attached from `start` to `stop`, and a thread that drains them.

    Raises CaptureError where they cannot be loaded; nothing stays behind. All that
    was recorded before `drained_ns` is in what `read` gave so far.
    """

    def __init__(
        self,
        watched: Filter,
        capabilities: list[probes.Capability],
        ring_bytes: int | None = None,
    ) -> None:
        self.layout = layout_of()
        self.programs = sorted({p for c in capabilities for p in c.programs})
        self.cost = Cost()
        self._statistics: int | None = None
        self._sample_started = 0.0
        self._sample_base = (0, 0)
        self.drained_ns = self._drained_ns = 0
        self._heaps = {ring: _Heap(d) for ring, d in self.layout.rings.items()}
        self._heaps_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        try:
            self._drain = _drain.Drain(str(OBJECT))
        except OSError as error:
            raise _cannot_load(error) from error
        with self._closed_on_error():
            self._load(watched, ring_bytes or main_ring_bytes(os.cpu_count() or 1))

    def _load(self, watched: Filter, ring_bytes: int) -> None:
        try:
            self._drain.write_constants(
                self.layout.options_offset, watched.as_record(self.layout)
            )
            for ring in self.layout.rings:
                size = ring_bytes if ring in MAIN_RINGS else SMALL_RING_BYTES
                self._drain.set_ring_bytes(ring, size)
            for program in self.programs:
                self._drain.enable(program)
            self._drain.load()
        except OSError as error:
            raise _cannot_load(error) from error

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def start(self, *, draining: bool = True) -> None:
        """Attach all programs, and drain them from now on."""
        self._ending.clear()
        if draining:
            self._thread = threading.Thread(target=self._keep_draining, daemon=True)
            self._thread.start()
        with self._closed_on_error():
            for program in self.programs:
                try:
                    self._drain.attach(program)
                except OSError as error:
                    raise CaptureError(
                        f"cannot attach probe {program}: {first_line(error)}; "
                        "run `latprof probes` to see what this kernel offers"
                    ) from error

    def _keep_draining(self) -> None:
        while not self._ending.wait(DRAIN_SECONDS):
            self.drain()
            self._sample_cost()

    def drain(self) -> None:
        """Copy what the rings hold now; bounded by their sizes, never blocks."""
        begun_ns = time.monotonic_ns()
        with self._heaps_lock:
            for ring, heap in self._heaps.items():
                size = self.layout.rings[ring].itemsize
                room = heap.room(self._drain.waiting(ring) // size)
                heap.add(self._drain.read(ring, room) // size)
            self._drained_ns = begun_ns

    def read(self) -> Batch:
        """Give what was drained since the last time; valid until the next time."""
        with self._heaps_lock:
            self.drained_ns = self._drained_ns
            return {ring: heap.take() for ring, heap in self._heaps.items()}

    def counters(self) -> dict[str, int]:
        """What was counted instead of recorded, by name."""
        return self.layout.count(self._drain.counters())

    def _sample_cost(self) -> None:
        """Statistics cost 20 to 40 ns a run, so they are on 5% of the time."""
        now = time.monotonic()
        since = now - self._sample_started
        if self._statistics is None:
            if since >= COST_PERIOD_SECONDS and self._sample_started >= 0:
                self._sample_started = now
                self._sample_base = self._total_cost()
                try:
                    self._statistics = _drain.statistics()
                except OSError:
                    self._sample_started = float("-inf")  # refused: stays unknown
        elif since >= COST_SAMPLE_SECONDS:
            os.close(self._statistics)
            self._statistics = None
            runs, nanoseconds = self._total_cost()
            self.cost.runs += runs - self._sample_base[0]
            self.cost.probe_seconds += (nanoseconds - self._sample_base[1]) / 1e9
            self.cost.sampled_seconds += since

    def _total_cost(self) -> tuple[int, int]:
        costs = [self._drain.cost(program) for program in self.programs]
        return sum(c[0] for c in costs), sum(c[1] for c in costs)

    def stop(self) -> None:
        """Detach, and drain what was recorded until then."""
        self._drain.detach()
        self._end_thread()
        self.drain()
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None

    def _end_thread(self) -> None:
        self._ending.set()
        if self._thread:
            self._thread.join()
        self._thread = None

    def close(self) -> None:
        """Detach and unload everything."""
        self._end_thread()
        self._drain.close()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _cannot_load(error: OSError) -> CaptureError:
    why = first_line(error)
    if error.errno == 1:
        return CaptureError(
            f"cannot load the probes: {why}; run as root, and see that the kernel "
            "is not locked down to confidentiality"
        )
    if error.errno in (11, 12):
        return CaptureError(
            f"cannot load the probes: no memory for them ({why}); "
            "use a smaller --ring-bytes"
        )
    return CaptureError(
        f"cannot load the probes: {why}; run `latprof probes` to see what this "
        "kernel offers"
    )
