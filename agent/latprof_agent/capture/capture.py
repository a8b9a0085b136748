"""From the probes' rings to arrays: load, attach, drain, count what was lost."""

from __future__ import annotations

import errno
import os
import threading
import time
from typing import Any

import numpy as np
from latprof_analysis.records.arrays import Batch
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.capture.attachment import Attachment
from latprof_agent.capture.cost import ProbeCost
from latprof_agent.capture.flight import FlightRecorder
from latprof_agent.capture.histograms import GroupTables
from latprof_agent.capture.rings import (
    STORY_RINGS,
    Heap,
    bytes_of_ring,
    large_ring_bytes,
)
from latprof_agent.errors import CaptureError, refusals_in_one_line, remedy
from latprof_agent.probes.catalogue import (
    ON_DEMAND,
    PROBES,
    UDP_SENDS,
    Capability,
    Probe,
    proven_capabilities,
    require_both_halves,
)
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.grouping import Grouping, ephemeral_ports
from latprof_agent.probes.layout import layout_of
from latprof_agent.probes.trial import (
    ANOTHER_CLANG,
    SEE_OFFER,
    kernel_object,
    refusal_in,
)
from latprof_agent.watched_thread import WatchedThread

# Each waking costs 60 us; a ring of 4 MB has room for 6 million records a second.
DRAIN_SECONDS = 0.01
SMALLER_RINGS = "use a smaller --ring-bytes"
MORE_MEMORY = "free some memory, or raise the memory limit of the control group"

Entries = tuple[NDArray[Any], NDArray[Any]]


class Capture:
    """The probes, attached from `start` to `stop`, and a thread that drains them.

    With a grouping they count in `tables`, and record samples only.

    Raises CaptureError where they cannot be loaded; nothing stays behind. All that
    was recorded before `drained_ns` is in what `read` gave so far.
    """

    def __init__(
        self,
        watched: Filter,
        capabilities: list[Capability],
        ring_bytes: int | None = None,
        grouping: Grouping | None = None,
        story_ns: int | None = None,
    ) -> None:
        self.layout = layout_of(kernel_object())
        self.ephemeral_ports = ephemeral_ports()
        self.capabilities = capabilities
        self.drained_ns = self._drained_ns = 0
        self._heaps = {ring: Heap(d) for ring, d in self.layout.rings.items()}
        self._heaps_lock = threading.Lock()
        self._thread: WatchedThread | None = None
        self._ending = threading.Event()
        self._watched = watched
        self._generation = self._notes = 1
        self._grouping = grouping
        self._since_ns = 0
        self._window = 0
        self._closing = False
        self._idle_ns = 0
        self._sample_bits = (0, 0)
        self._options_lock = threading.Lock()
        self.open_sockets: set[int] = set()  # where the filter asks for them
        try:
            self._drain = _drain.Drain(str(kernel_object()))
        except OSError as error:
            raise self._cannot_load(error) from error
        self.tables = (
            GroupTables(self._drain, self.layout, os.cpu_count() or 1)
            if grouping
            else None
        )
        self._attachment = Attachment(
            self._drain, capabilities, self.layout, live=grouping is not None
        )
        self.cost = ProbeCost(self._drain, self._attachment.programs)
        # of messages that take as long; None: nobody asks why
        self.flight = (
            None
            if story_ns is None
            else FlightRecorder(self._drain, self.layout, story_ns)
        )
        try:
            self._load(ring_bytes or large_ring_bytes(os.cpu_count() or 1))
        except BaseException:
            self.close()
            raise

    def _load(self, ring_bytes: int) -> None:
        try:
            self._set_options()
            unused = () if self.flight else STORY_RINGS
            for ring in self.layout.rings:
                size = 0 if ring in unused else bytes_of_ring(ring, ring_bytes)
                self._drain.set_ring_bytes(ring, size)
            for ring in self.layout.flights:
                self._drain.set_ring_bytes(ring, 0)
            if self.flight:
                self.flight.set_sizes()
            for program in self._attachment.programs:
                self._drain.enable(program)
            self._drain.load()
            if self.tables:
                self.tables.open()
        except OSError as error:
            raise self._cannot_load(error) from error

    def _cannot_load(self, error: OSError) -> CaptureError:
        found = refusal_in(error)
        if found.verifier_log:
            return CaptureError(
                "cannot load the probes: the kernel's verifier refuses "
                f"{found.program}: {found.why}; {ANOTHER_CLANG}"
            )
        why = found.why
        if error.errno in (errno.EAGAIN, errno.ENOMEM):
            todo = MORE_MEMORY if self._grouping else SMALLER_RINGS
            return CaptureError(
                f"cannot load the probes: no memory for them ({why}); {todo}"
            )
        todo = found.remedy or remedy(error.errno, SEE_OFFER)
        return CaptureError(f"cannot load the probes: {why}; {todo}")

    def _options(self) -> bytes:
        record = np.frombuffer(
            self._watched.as_record(self.layout, self._generation, self._notes),
            self.layout.options,
        ).copy()
        if self._grouping and self.tables:
            self._grouping.put(record, self.layout)
            record["shard_mask"] = self.tables.shards - 1
            record["window"] = self._window
            record["since_ns"] = self._since_ns
            record["closing"] = self._closing
            record["idle_ns"] = self._idle_ns
            record["sample_block_bits"] = self._sample_bits[0]
            record["sample_period_bits"] = self._sample_bits[1]
        return record.tobytes()

    def start(self, *, draining: bool = True) -> None:
        """Attach all programs, and drain them from now on, or raise CaptureError.

        Also then `stop` gives what was recorded.
        """
        self._ending.clear()
        if draining:
            self._thread = WatchedThread("drain of the probes", self._keep_draining)
            self._thread.start()
        self.open_sockets = self._attachment.attach_all(self._watched, self._notes)
        if self.flight:
            self.flight.begin()
        self.cost.begin()

    def watch(self, watched: Filter) -> None:
        """Watch other sockets from now on, of protocols that are recorded.

        What it needs must have been among the capabilities of the start: CaptureError
        says what the kernel lacks. Old verdicts hold until all that new ones need is
        known of the sockets that are open.
        """
        require_both_halves(self.capabilities, watched.needs)
        if left_out := watched.needs - {c.need for c in self.capabilities}:
            raise ValueError(f"capabilities must have {left_out} from the start")
        before, self._watched = self._watched, watched
        if watched.noted != before.noted:
            self._notes = self._generation + 1
            self._set_options()
            self.open_sockets = self._attachment.choose(watched, self._notes)
        else:
            self._set_options()
        self._attachment.watch_protocols(watched)
        self._generation += 1
        self._set_options()
        if self.tables:
            self._drain.clear("watched_ends")

    def expect_udp(self) -> None:
        """Watched sockets will send datagrams: see their first one, too."""
        self._attachment.expect(UDP_SENDS)

    def _keep_draining(self) -> None:
        with refusals_in_one_line("cannot drain the probes"):
            while not self._ending.wait(DRAIN_SECONDS):
                self.follow()
                self.cost.sample()

    def drain(self) -> Batch:
        """Copy what the rings hold now; bounded by their sizes, never blocks.

        Gives the same records, valid until the next `read`.
        """
        begun_ns = time.monotonic_ns()
        found = {}
        with self._heaps_lock:
            for ring, heap in self._heaps.items():
                waiting = self._drain.waiting(ring)
                if not waiting:  # most are, five times a second
                    found[ring] = heap.none
                    continue
                size = self.layout.rings[ring].itemsize
                room = heap.room(waiting // size)
                count = self._drain.read(ring, room) // size
                heap.add(count)
                found[ring] = room[:count]
            self._drained_ns = begun_ns
        return found

    def read(self) -> Batch:
        """Give what was drained since the last time; valid until the next time."""
        with self._heaps_lock:
            self.drained_ns = self._drained_ns
            return {ring: heap.take() for ring, heap in self._heaps.items()}

    def check(self) -> None:
        """Raise, once, the LatprofError for which a thread does no more."""
        if self._thread:
            self._thread.check()
        if self.flight:
            self.flight.check()

    def follow(self) -> Batch:
        """Drain once, and attach what is needed from now on."""
        records = self.drain()
        self._attachment.follow(records)
        if self.flight:
            self.flight.look(records)
        return records

    def pause(self) -> None:
        """Detach what is in the way of packets. Nothing is left of what had begun."""
        self._attachment.pause()
        self._drain.clear("chunks")

    def steady_programs(self) -> set[str]:
        """Those that `pause` leaves attached."""
        return self._attachment.steady_programs()

    def resume(self) -> None:
        """Attach it again; what begins when all is attached is counted."""
        self._window += 1
        self._since_ns = time.monotonic_ns()
        self.close_window()
        self._attachment.resume()
        self._closing = False
        self._set_options()

    def sample(self, block_bits: int, period_bits: int) -> None:
        """Record messages in one block of each period; see sample.bpf.h."""
        self._sample_bits = block_bits, period_bits
        self._set_options()

    def end_idle_exchanges(self, idle_ns: int) -> NDArray[Any]:
        """Count those whose client has read a reply, and nothing for so long.

        Return a record for each request that waits for its reply now.
        """
        if idle_ns != self._idle_ns:
            self._idle_ns = idle_ns
            self._set_options()
        found = self._attachment.end_idle_exchanges()
        return np.frombuffer(found, self.layout.waiting_request)

    def missed(self) -> dict[str, int]:
        """How often the kernel skipped a probe that ran already on that CPU."""
        return self._attachment.missed()

    @property
    def helper_cpu_seconds(self) -> float:
        """What reading others' files for stories took of CPUs."""
        return self.flight.symbols.cpu_seconds if self.flight else 0.0

    def look_at_listeners(self) -> None:
        """Count the connections that they have refused since the last time."""
        self._attachment.look_at_listeners()

    def close_window(self) -> None:
        """Count nothing that begins from now on, but follow what has begun."""
        self._closing = True
        self._set_options()

    def _set_options(self) -> None:
        with self._options_lock:
            self._drain.set_options(self._options())

    def look_again(self) -> None:
        """Let each watched socket decide again which group it is of."""
        self._generation += 1
        self._set_options()

    def take(self, name: str, key: bytes) -> bytes | None:
        """Remove an entry of a hash map and give its value; None: there is none."""
        try:
            return self._drain.take(name, key)
        except FileNotFoundError:
            return None

    def taken_groups(self) -> tuple[int, int]:
        """How many numbers of groups were taken, and how often there was none."""
        taken, refused = self.layout.taken_groups(self._drain.globals())
        return taken, refused

    def put(self, name: str, key: bytes, value: bytes) -> None:
        """Put an entry into a map of the probes."""
        self._drain.put(name, key, value)

    def entries(self, name: str, key: np.dtype[Any], value: np.dtype[Any]) -> Entries:
        """Keys and values of a hash map of the probes."""
        keys, values = self._drain.entries(name)
        return np.frombuffer(keys, key), np.frombuffer(values, value)

    def counters(self) -> dict[str, int]:
        """What was counted instead of recorded, by name."""
        return self.layout.count(self._drain.counters(), self._drain.globals())

    def stop(self) -> None:
        """Detach, and drain what was recorded until then."""
        self._end_thread()
        self._attachment.detach_all()
        records = self.drain()
        if self.flight:
            self.flight.look(records)
            self.flight.finish()
        self.cost.stop()

    def _end_thread(self) -> None:
        self._ending.set()
        if self._thread:
            self._thread.join()

    def close(self) -> None:
        """Detach and unload everything."""
        self._end_thread()
        if self.flight:
            self.flight.finish()
        if self.tables:
            self.tables.close()
        self._drain.close()

    def __enter__(self) -> Capture:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_capture(
    watched: Filter,
    capabilities: list[Capability],
    table: tuple[Probe, ...] = PROBES,
    ring_bytes: int | None = None,
    grouping: Grouping | None = None,
    story_ns: int | None = None,
) -> Capture:
    """Load the probes, or those of them that the kernel does not refuse."""
    try:
        return Capture(watched, capabilities, ring_bytes, grouping, story_ns)
    except CaptureError:
        needs = frozenset(c.need for c in capabilities) & ON_DEMAND
        proven = proven_capabilities(watched.protocols, table, needs)
        if proven == capabilities or not any(c.programs for c in proven):
            raise
    require_both_halves(proven, watched.needs)
    return Capture(watched, proven, ring_bytes, grouping, story_ns)
