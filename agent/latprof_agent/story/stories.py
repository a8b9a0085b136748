"""Stories: the slowest messages, and what the flight recorder kept of their time."""

from __future__ import annotations

import heapq
import itertools
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.read.stories import FORMAT
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.joiner import FOREVER, Joiner
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stages import APART, STAGES
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.story.device_queue import Ends, wait_of
from latprof_analysis.story.story import NO_FLIGHT, QUEUED, thread_at, time_of

from latprof_agent.capture.flight import (
    RUNNING_LEAST_NS,
    UNTIL_KNOWN_NS,
)
from latprof_agent.capture.recorded_flights import Flights
from latprof_agent.sinks.sink import Sink
from latprof_agent.story.read_before import ReadBefore
from latprof_agent.story.socket_stories import TcpHistory

MOST = 100  # that are told of
RUNNING = 0.999  # of messages are not slow, where nobody said from when on
# Of a stage whose end a thread of this host brings about: the column of its process, of
# itself where it is known, and the two stamps.
_OF_THREADS = {
    "application": ("sender_pid", "sender_thread", "created_ns", "send_ns"),
    "receive_queue": ("reader_pid", "reader_thread", "ready_ns", "read_ns"),
}
# A datagram is in its send call until it is queued.
_OF_CALL = ("sender_pid", "sender_thread", "send_ns", "queue_ns")
# What was read before a message is finished within that time of it: what has no other
# half waits for 0.3 s.
NEIGHBOURS_NS = 1_000_000_000


@dataclass(order=True)
class _Slow:
    """A slow message; `queue`: what is known of its wait for its reader, once asked."""

    took_ns: int
    number: int
    row: dict[str, Any] = field(compare=False)
    way: TcpHistory = field(compare=False)
    accepted: bool = field(compare=False)  # when it was readable
    queue: dict[str, Any] | None = field(default=None, compare=False)


class Stories(Sink):
    """Follows finished messages; keeps the slowest of those that took long.

    Parameters
    ----------
    limit_ns : int
        That long, or 0: longer than 99.9% of all until then, and than 100 us; before
        that is known, 1 ms.
    recorder : Flights
        Learns from when on a message may be kept.
    joiner : Joiner
        Knows what was sent again, and what threads read.
    """

    def __init__(self, limit_ns: int, recorder: Flights, joiner: Joiner) -> None:
        self._limit_ns = limit_ns or UNTIL_KNOWN_NS
        self._all = None if limit_ns else Histogram()
        self._known_ns = 0  # when it was that others take less
        self._recorder = recorder
        self._joiner = joiner
        self._before = ReadBefore(joiner, recorder)
        self._slow: list[_Slow] = []  # a heap
        self._order = itertools.count()
        self.seen = 0

    def add_messages(self, rows: Messages) -> None:
        """Keep the slowest."""
        self._before.add_messages(rows)
        took_ns = rows.numbers["end_to_end_ns"]
        kinds, words = rows.texts["kind"]
        apart = np.isin(kinds, [words.index(k) for k in APART if k in words])
        if self._all:
            self._all.record(took_ns[~apart & (took_ns > 0)])
            self._follow(self._all)
        # the recorder made no copies for what was shorter before that
        early = rows.numbers["read_ns"] < self._known_ns
        least_ns = np.where(early, max(self._limit_ns, UNTIL_KNOWN_NS), self._limit_ns)
        slow = np.flatnonzero((took_ns >= least_ns) & ~apart)
        self.seen += len(slow)
        for i in slow.tolist():
            if len(self._slow) == MOST and took_ns[i] <= self._slow[0].took_ns:
                continue
            row = rows.row(i)
            row["entry_queued"] = int(rows.numbers["entry_queued"][i])
            way = TcpHistory.of(row, *rows.flow_and_end(i), self._joiner)
            accepted = not rows.numbers["not_accepted"][i]
            one = _Slow(int(took_ns[i]), next(self._order), row, way, accepted)
            heapq.heappush(self._slow, one)
            if len(self._slow) > MOST:
                heapq.heappop(self._slow)
        # a copy for what would not be told of only takes time from what is measured
        kept_ns = self._slow[0].took_ns if len(self._slow) == MOST else 0
        self._recorder.limit_ns = max(self._limit_ns, kept_ns)
        self._ask(self._before.newest_ns - NEIGHBOURS_NS)

    def _follow(self, everything: Histogram) -> None:
        p999_ns = everything.quantile(RUNNING)
        if p999_ns is not None:
            self._limit_ns = max(round(p999_ns), RUNNING_LEAST_NS)
            self._known_ns = self._known_ns or self._joiner.drained_ns

    def _ask(self, until_ns: int) -> None:
        """Find what was read before those that were read by then: it is forgotten."""
        before = self._before
        for one in self._slow:
            if one.queue is None and (one.row["read_ns"] or 0) <= until_ns:
                reads = before.told(one.row, one.way.flow, one.way.end)
                one.queue = {} if reads is None else {"reads": reads}
                if not one.accepted:
                    one.queue["accept"] = before.accept(one.row, one.way.flow)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Of exchanges nothing is taken: their messages are told of."""

    def told(self) -> dict[str, Any]:
        """The document that `latprof story` reads, the slowest message first."""
        recorder = self._recorder
        self._ask(FOREVER)
        slowest = sorted(self._slow, key=lambda one: -one.took_ns)
        return {
            "format": FORMAT,
            "limit_ns": self._limit_ns,
            **({"quantile": RUNNING} if self._known_ns else {}),
            "slow_messages": self.seen,
            "recorder": {
                "copies": recorder.copies,
                "skipped": recorder.skipped,
                "symbols": recorder.symbols.source,
            },
            "stories": [
                {"message": one.row, "stages": _stages(one, recorder)}
                for one in slowest
            ],
        }


def _stages(one: _Slow, recorder: Flights) -> dict[str, Any]:
    """Return its stages, and what it met in the queue of its reader."""
    stages = stages_in_words(one.row, recorder, one.way)
    if "receive_queue" in stages:
        stages["receive_queue"] |= one.queue or {}
    return stages


def stages_in_words(
    row: dict[str, Any], recorder: Flights, way: TcpHistory | None = None
) -> dict[str, Any]:
    """By stage its time, and where a thread or a socket here had it, its parts."""
    found: dict[str, Any] = {}
    row = row | {"sender_thread": _sender_thread(row, recorder)}
    for stage in STAGES:
        time_ns = row[f"{stage}_ns"]
        if time_ns is None:
            continue
        found[stage] = {"time_ns": time_ns, "parts": None}
        columns = _OF_THREADS.get(stage, ("",) * 4)
        if (stage, row["protocol"]) == ("send_queue", "udp"):
            columns = _OF_CALL
        pid, thread, begin_ns, end_ns = (row.get(column) for column in columns)
        if pid and begin_ns and end_ns and end_ns - begin_ns == time_ns:
            found[stage] |= thread_in_words(recorder, pid, thread, begin_ns, end_ns)
        elif way:
            found[stage] |= way.told(stage, time_ns, row, recorder)
    if found.get("qdisc", {}).get("time_ns"):
        found["qdisc"] |= _queue_wait(row, recorder)
    return found


def _sender_thread(row: dict[str, Any], recorder: Flights) -> int | None:
    """Who sent a datagram, if that is sure: its thread had a CPU at both ends of it."""
    pid, _, begin_ns, end_ns = (row.get(column) for column in _OF_CALL)
    if row["protocol"] != "udp" or not (pid and begin_ns and end_ns):
        return None
    flight = recorder.flight(begin_ns, end_ns)
    return thread_at(flight, pid, begin_ns, end_ns) if flight else None


def _queue_wait(row: dict[str, Any], recorder: Flights) -> dict[str, Any]:
    """Whose bytes a message waited for in its device's queue."""
    begin_ns, end_ns = row["queue_ns"], row["xmit_ns"]
    if not begin_ns or not end_ns:
        return {}
    flight = recorder.flight(begin_ns, end_ns)
    if not flight:
        return {}
    wait = wait_of(
        flight.rings[QUEUED],
        Ends.of_message(row),
        begin_ns,
        end_ns,
        queue_at=recorder.queues.at(),
        owner_of=recorder.queues.owner,
        since_ns=flight.since(QUEUED),
    )
    return {"parts": [asdict(part) for part in wait.parts], "queue": wait.queue}


def thread_in_words(
    recorder: Flights,
    pid: int,
    thread: int | None,
    begin_ns: int,
    end_ns: int,
) -> dict[str, Any]:
    """What a thread did, by what the recorder kept of this time."""
    flight = recorder.flight(begin_ns, end_ns) or NO_FLIGHT
    parts, timeline = time_of(
        flight,
        pid,
        begin_ns,
        end_ns,
        thread=thread,
        name=recorder.symbols.stack,
        calls=recorder.calls,
    )
    return {"parts": [asdict(part) for part in parts], "timeline": timeline}
