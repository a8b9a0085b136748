"""From the probes' rings to arrays: load, attach, drain, count what was lost."""

from __future__ import annotations

import errno
import os
import threading
import time

from latprof_agent import _drain
from latprof_agent.capture.attachment import Attachment
from latprof_agent.capture.cost import ProbeCost
from latprof_agent.capture.rings import (
    Batch,
    Heap,
    bytes_of_ring,
    large_ring_bytes,
)
from latprof_agent.errors import CaptureError, LatprofError, refusals_told, remedy
from latprof_agent.probes.catalogue import (
    PROBES,
    UDP_SENDS,
    Capability,
    Probe,
    proven_capabilities,
    require_both_halves,
)
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.layout import OBJECT, layout_of
from latprof_agent.probes.trial import SEE_OFFER, first_line

DRAIN_SECONDS = 0.005


class Capture:
    """The probes, attached from `start` to `stop`, and a thread that drains them.

    Raises CaptureError where they cannot be loaded; nothing stays behind. All that
    was recorded before `drained_ns` is in what `read` gave so far.
    """

    def __init__(
        self,
        watched: Filter,
        capabilities: list[Capability],
        ring_bytes: int | None = None,
    ) -> None:
        self.layout = layout_of()
        self.capabilities = capabilities
        self.drained_ns = self._drained_ns = 0
        self._heaps = {ring: Heap(d) for ring, d in self.layout.rings.items()}
        self._heaps_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: LatprofError | None = None  # the thread's
        self._ending = threading.Event()
        self._generation = 0
        self._pids = watched.pids
        self.open_sockets: set[int] = set()  # where the filter asks for them
        try:
            self._drain = _drain.Drain(str(OBJECT))
        except OSError as error:
            raise _cannot_load(error) from error
        self._attachment = Attachment(self._drain, capabilities)
        self.cost = ProbeCost(self._drain, self._attachment.programs)
        try:
            self._load(watched, ring_bytes or large_ring_bytes(os.cpu_count() or 1))
        except BaseException:
            self.close()
            raise

    def _load(self, watched: Filter, ring_bytes: int) -> None:
        try:
            self._drain.set_options(watched.as_record(self.layout))
            for ring in self.layout.rings:
                self._drain.set_ring_bytes(ring, bytes_of_ring(ring, ring_bytes))
            for program in self._attachment.programs:
                self._drain.enable(program)
            self._drain.load()
        except OSError as error:
            raise _cannot_load(error) from error

    def start(self, *, draining: bool = True) -> None:
        """Attach all programs, and drain them from now on, or raise CaptureError.

        Also then `stop` gives what was recorded.
        """
        self._ending.clear()
        if draining:
            thread = threading.Thread(target=self._keep_draining, daemon=True)
            thread.start()
            self._thread = thread
        self.open_sockets = self._attachment.attach_all(self._pids)
        self.cost.begin()

    def watch(self, watched: Filter) -> None:
        """Watch other sockets from now on; the protocols stay those of the start."""
        self._generation += 1
        self._drain.set_options(watched.as_record(self.layout, self._generation))

    def expect_udp(self) -> None:
        """Watched sockets will send datagrams: see their first one, too."""
        self._attachment.expect(UDP_SENDS)

    def _keep_draining(self) -> None:
        try:
            with refusals_told("cannot drain the probes"):
                while not self._ending.wait(DRAIN_SECONDS):
                    self._attachment.follow(self.drain())
                    self.cost.sample()
        except LatprofError as failure:
            self._failure = failure

    def drain(self) -> Batch:
        """Copy what the rings hold now; bounded by their sizes, never blocks.

        Gives the same records, valid until the next `read`.
        """
        begun_ns = time.monotonic_ns()
        found = {}
        with self._heaps_lock:
            for ring, heap in self._heaps.items():
                size = self.layout.rings[ring].itemsize
                room = heap.room(self._drain.waiting(ring) // size)
                count = self._drain.read(ring, room) // size
                heap.add(count)
                found[ring] = room[:count]
            self._drained_ns = begun_ns
        return found

    def read(self) -> Batch:
        """Give what was drained since the last time; valid until the next time.

        Raises LatprofError once where nothing is drained any more.
        """
        failure, self._failure = self._failure, None
        if failure:
            raise failure
        with self._heaps_lock:
            self.drained_ns = self._drained_ns
            return {ring: heap.take() for ring, heap in self._heaps.items()}

    def counters(self) -> dict[str, int]:
        """What was counted instead of recorded, by name."""
        return self.layout.count(self._drain.counters(), self._drain.globals())

    def stop(self) -> None:
        """Detach, and drain what was recorded until then."""
        self._end_thread()
        self._attachment.detach_all()
        self.drain()
        self.cost.stop()

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


def open_capture(
    watched: Filter,
    capabilities: list[Capability],
    table: tuple[Probe, ...] = PROBES,
    ring_bytes: int | None = None,
) -> Capture:
    """Load the probes, or those of them that the kernel does not refuse."""
    try:
        return Capture(watched, capabilities, ring_bytes)
    except CaptureError:
        proven = proven_capabilities(watched.protocols, table, watched.needs)
        if proven == capabilities or not any(c.programs for c in proven):
            raise
    require_both_halves(proven)
    return Capture(watched, proven, ring_bytes)


def _cannot_load(error: OSError) -> CaptureError:
    why = first_line(error)
    if error.errno in (errno.EAGAIN, errno.ENOMEM):
        return CaptureError(
            f"cannot load the probes: no memory for them ({why}); "
            "use a smaller --ring-bytes"
        )
    todo = remedy(error.errno, SEE_OFFER)
    if error.errno == errno.EPERM:
        todo += (
            ", and see that neither a lock-down to confidentiality nor a filter of "
            "system calls forbids it"
        )
    return CaptureError(f"cannot load the probes: {why}; {todo}")
