"""The flight recorder: what CPUs did, read out only around what was slow.

The kernel writes over it all the time (bpf/flight.bpf.c). A half of a message that
took long makes a copy of the last while; fast ones cost nothing beyond the writing.
"""

from __future__ import annotations

import heapq
import itertools
import platform
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

import numpy as np
from latprof_analysis.records.arrays import Batch
from latprof_analysis.story.sleeps import WAKES
from latprof_analysis.story.story import Flight
from latprof_analysis.story.system_calls import CALLS
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.capture.device_queues import Queues
from latprof_agent.capture.drop_names import DropNames
from latprof_agent.capture.reads import Answers, Reads, reads_of
from latprof_agent.probes.layout import Layout
from latprof_agent.symbols.symbols import Symbols
from latprof_agent.watched_thread import WatchedThread

# Of each CPU: 4.01 MB. 32,768 switches, 512 ends of long sleeps, 4,096 interrupts,
# 2,048 stacks, 2,048 spans of what held a socket, 4,096 packets that were queued, 32
# ends of waits within a group that has a CPU quota, 256 packets that waited for a link
# address.
RING_BYTES = {
    "switches": 5 << 19,
    "wakes": 9 << 14,
    "interrupts": 1 << 18,
    "samples": 1 << 20,
    "socket_states": 1 << 18,
    "queued_packets": 5 << 16,
    "quota_waits": 1 << 12,
    "address_waits": 7 << 11,
}
BEFORE_NS = 10_000_000  # who had the CPUs shortly before
PAUSE_SECONDS = 0.1  # between two copies, at least
COPYING_SHARE = 1 / 10  # of a CPU is spent on them at most
MOST_BYTES = 64 << 20  # of all copies
NEVER_NS = 1 << 62  # as a limit: copied is only what somebody wants
# A message spends a third of its time in one of its halves, or in transit, which no CPU
# of this host shows.
SHARES = 3
HELD_SHARE = 64  # of the limit: shorter holds of a socket are not reported
SLEPT_SHARE, MOST_SLEPT_NS = 64, 1_000_000  # so are shorter sleeps' ends, as each costs
WAKERS = 8  # processes of which it is noted where their functions are
# Where slow is what others are not: as long as is not known how long they take, and the
# least, since what CPUs do is not known more finely.
UNTIL_KNOWN_NS, RUNNING_LEAST_NS = 1_000_000, 100_000

_MONOTONIC_COARSE = 6  # linux/time.h: it goes on by jiffies

Times = NDArray[np.int64]
# Of each half the stamps between which it was here; the first that is there begins it.
TURNS = "turns"
SLOW_SPANS = {
    "sent_messages": (("send_ns",), "xmit_ns"),
    "received_ranges": (("arrive_ns", "ready_ns"), "read_ns"),
    TURNS: (("ready_ns",), "send_ns"),  # what a server answered, until it began to
}


def span_of(
    records: NDArray[Any], firsts: tuple[str, ...], last: str
) -> tuple[Times, Times]:
    """Return begin and end of what each record describes; 0: not known."""
    begin = np.zeros(len(records), "i8")
    for name in firsts:
        begin = np.where(begin > 0, begin, records[name].astype("i8"))
    return begin, records[last].astype("i8")


def wakers_of(wakes: NDArray[Any], pids: set[int]) -> set[int]:
    """Return which processes woke these ones most often."""
    of_theirs = np.isin(wakes["pid"], list(pids)) & (wakes["by_pid"] > 0)
    found = Counter(wakes["by_pid"][of_theirs].tolist())
    return {pid for pid, _ in found.most_common(WAKERS)}


class FlightRecorder:
    """Looks at what was drained for what took a third of a limit or more.

    The probes say that there was such a half; what is fast is not looked at. Its owner
    may set limits anew while messages come. Made with 0 it follows what is usual, to
    which the limit is so near that a half must take as long.

    A thread of its own makes the copies, so that nobody who drains waits for it. What
    was asked for meanwhile is in the next copy. Where copies take more room than there
    is, those of the slowest halves stay.

    Attributes
    ----------
    copies : int
        That were made.
    skipped : int
        Copies for which there was no room.
    reads : Reads or None
        Gets all that was read; None: only samples are reported, and no reads wanted.
    answers : Answers
        Threads of servers that answered after long.
    calls : dict of int to str
        Names of this machine's system calls by number.
    jiffy_ns : int
        Of this machine's kernel.
    """

    def __init__(self, drain: _drain.Drain, layout: Layout, limit_ns: int) -> None:
        self._limit_ns = self._turn_limit_ns = limit_ns or UNTIL_KNOWN_NS
        self._shares = SHARES if limit_ns else 1
        self._long_halves = b""
        self._may_come = False  # the record of one that was counted
        known = limit_ns not in (0, NEVER_NS)
        self._held_ns = (limit_ns if known else RUNNING_LEAST_NS) // HELD_SHARE
        slept_ns = limit_ns // SLEPT_SHARE or RUNNING_LEAST_NS
        self._slept_ns = min(slept_ns, MOST_SLEPT_NS)
        self.copies = self.skipped = 0
        self.reads: Reads | None = None
        self.answers = Answers()
        self.calls = CALLS.get(platform.machine(), {})
        self.jiffy_ns = round(time.clock_getres(_MONOTONIC_COARSE) * 1e9)
        self.symbols = Symbols()
        self.dropped = DropNames(self.symbols.kernel)
        self.queues = Queues()
        self._drain = drain
        self.layout = layout
        self._never_read = (
            layout.flags["RECORD_DROPPED"] | layout.flags["RECORD_UNREAD"]
        )
        self._flights: list[tuple[int, int, Flight]] = []  # a heap: how slow, which
        self._order = itertools.count()
        self._bytes = 0
        self._began_ns = 0
        self._asked = threading.Condition()
        self._due_ns = 0  # the earliest begin that is not copied yet
        self._slowest_ns = 0
        self._pids: set[int] = set()
        self._ending = False
        self._pause_seconds = PAUSE_SECONDS
        self._thread: WatchedThread | None = None

    def set_sizes(self) -> None:
        """Give the rings their room, before the load."""
        for ring in self.layout.flights:
            self._drain.set_ring_bytes(ring, RING_BYTES[ring])
        held_ns = min(max(self._held_ns, 1), 0xFFFFFFFF)
        self._drain.set_constant("held_ns", held_ns)
        self._drain.set_constant("slept_ns", self._slept_ns)
        self._drain.set_constant("has_recorder", 1)

    @property
    def limit_ns(self) -> int:
        """What takes as long is slow."""
        return self._limit_ns

    def set_limits(self, limit_ns: int, turn_limit_ns: int) -> None:
        """A message that takes as long is slow from now on, and an exchange."""
        if (limit_ns, turn_limit_ns) != (self._limit_ns, self._turn_limit_ns):
            self._limit_ns, self._turn_limit_ns = limit_ns, turn_limit_ns
            self._put_limits()

    def _long_ns(self, ring: str) -> int:
        """From when on a record of a ring is long."""
        limit_ns = self._turn_limit_ns if ring == TURNS else self._limit_ns
        return limit_ns // self._shares

    def _put_limits(self) -> None:
        for number, ring in enumerate(("sent_messages", TURNS)):
            key, value = struct.pack("=I", number), self._long_ns(ring)
            self._drain.put("long_half_ns", key, struct.pack("=Q", value))

    def begin(self) -> None:
        """Make copies from now on: all programs are attached."""
        self._put_limits()
        self.symbols.begin()
        self._began_ns = time.monotonic_ns()
        self._ending = False
        self._thread = WatchedThread("flight recorder", self._keep_copying)
        self._thread.start()

    def check(self) -> None:
        """Raise, once, the LatprofError for which a thread of it does no more."""
        if self._thread:
            self._thread.check()
        self.symbols.check()

    def look(self, records: Batch) -> None:
        """Ask for a copy if something in these records took long."""
        if not self._has_long():
            return
        for ring, (firsts, last) in SLOW_SPANS.items():
            half = records[ring]
            if len(half):
                least_ns = self._long_ns(ring)
                self._look_at(least_ns, *span_of(half, firsts, last), half["pid"])

    def _has_long(self) -> bool:
        """Whether the probes count longer halves, or did: their records come later."""
        at = self.layout.long_halves
        counted = self._drain.globals()[at : at + 8]
        before, self._may_come = self._may_come, counted != self._long_halves
        self._long_halves = counted
        return before or self._may_come

    def note_reads(self, ranges: NDArray[Any]) -> None:
        """Keep what was read, where somebody wants it."""
        if self.reads is not None:
            self.reads.add(reads_of(ranges, self._never_read))

    def note_answers(self, turns: NDArray[Any]) -> None:
        """Keep which threads answered after long."""
        self.answers.add(turns)

    def look_at(self, begin: Times, end: Times, pids: NDArray[Any]) -> None:
        """Ask for a copy if one of these spans is long; 0 or less: not known."""
        self._look_at(self._long_ns("sent_messages"), begin, end, pids)

    def _look_at(
        self, least_ns: int, begin: Times, end: Times, pids: NDArray[Any]
    ) -> None:
        took_ns = end - begin
        late = (begin > 0) & (end > 0) & (took_ns >= least_ns)
        if late.any():
            self.want(int(begin[late].min()), int(took_ns[late].max()), pids[late])

    def want(self, begin_ns: int, took_ns: int, pids: Iterable[int]) -> None:
        """Have what these processes did copied, of a wait that began at `begin_ns`.

        What was the longest, `took_ns`, is kept longest.
        """
        with self._asked:
            self._due_ns = min(self._due_ns or begin_ns, begin_ns)
            self._slowest_ns = max(self._slowest_ns, took_ns)
            self._pids.update(map(int, pids))
            self._asked.notify()

    @property
    def has_copies(self) -> bool:
        """Whether there is any."""
        return bool(self._flights)

    def forget_before(self, time_ns: int) -> None:
        """Nobody will ask for copies that end earlier."""
        self.keep((), time_ns)
        self.queues.forget_before(time_ns)
        self.symbols.forget_before(time_ns)

    def keep(self, spans: Iterable[tuple[int, int]], until_ns: int) -> None:
        """Of copies that end earlier only those will be asked for that have a span."""
        with self._asked:
            wanted = {self._covering(*span)[0] for span in spans}
            self._flights = [
                one
                for one in self._flights
                if one[2].end_ns >= until_ns or one[1] in wanted
            ]
            heapq.heapify(self._flights)
            self._bytes = sum(flight.nbytes for _, _, flight in self._flights)

    def finish(self) -> None:
        """Copy it for what is still due; nothing is written any more.

        Again, where more was asked for since.
        """
        with self._asked:
            self._ending = True
            self._asked.notify()
        if self._thread:
            self._thread.join()
        while self._take():
            pass
        self.symbols.finish()

    def lost(self, ring: str) -> int:
        """How many records of one of the probes' rings were lost until now."""
        counted = self.layout.count(self._drain.counters(), self._drain.globals())
        return counted[f"lost_{ring}"]

    def flight(self, begin_ns: int, end_ns: int) -> Flight | None:
        """Return the copy that has most of a span: the first that was made since."""
        with self._asked:
            return self._covering(begin_ns, end_ns)[1]

    def _covering(self, begin_ns: int, end_ns: int) -> tuple[int, Flight | None]:
        """Find the first copy of a span, and its number: -1 without any."""
        covering = [
            (number, flight)
            for _, number, flight in self._flights
            if flight.covers(begin_ns, end_ns)
        ]
        return min(covering, default=(-1, None), key=lambda one: one[0])

    def _keep_copying(self) -> None:
        while self._take():
            with self._asked:
                self._asked.wait_for(lambda: self._ending, self._pause_seconds)

    def _take(self) -> bool:
        """Wait until a copy is due, and make it; false: none will be any more."""
        with self._asked:
            self._asked.wait_for(lambda: self._due_ns or self._ending)
            begin_ns, self._due_ns = self._due_ns - BEFORE_NS, 0
            slowest_ns, self._slowest_ns = self._slowest_ns, 0
            pids, self._pids = self._pids, set()
        if begin_ns < 0:
            return False
        began = time.thread_time()
        try:
            flight = self._copy(begin_ns)
            packets = flight.rings["queued_packets"]
            self.queues.note(self._drain, self.layout, packets)
        except (MemoryError, OSError):
            self.skipped += 1
            return True
        took_seconds = time.thread_time() - began
        pause_seconds = took_seconds * (1 / COPYING_SHARE - 1)
        self._pause_seconds = max(PAUSE_SECONDS, pause_seconds)
        wakes = flight.rings[WAKES]
        self.symbols.note(wakes, pids)
        self.symbols.note(flight.rings["samples"], pids | wakers_of(wakes, pids))
        self.copies += 1
        with self._asked:
            self._bytes += flight.nbytes
            heapq.heappush(self._flights, (slowest_ns, next(self._order), flight))
            while self._bytes > MOST_BYTES and len(self._flights) > 1:
                self._bytes -= heapq.heappop(self._flights)[2].nbytes
                self.skipped += 1
        return True

    def _copy(self, begin_ns: int) -> Flight:
        now_ns = time.monotonic_ns()
        rings, since_ns = {}, {}
        for ring, dtype in self.layout.flights.items():
            copied, by_cpu = self._drain.snapshot(ring)
            rings[ring] = np.frombuffer(copied, dtype)
            # before the programs were attached nothing was written
            since_ns[ring] = {c: max(t, self._began_ns) for c, t in by_cpu.items()}
        return Flight.cut(rings, since_ns, begin_ns, now_ns)
