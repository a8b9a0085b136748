"""Stories of what was slow, made while the measuring goes on.

    records of slow ones -> a copy of the flight recorder is asked for, at once
                         -> rows, when the flows are known -> stories, when names are

A story is of what one end saw: a message's half, or an exchange at its server.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.records.arrays import Batch, Records
from latprof_analysis.records.joiner import Joiner, Pairs
from latprof_analysis.records.message_rows import (
    MESSAGE,
    blank_zeros,
    flow_columns,
    messages_of,
    number_at,
    text_at,
)
from latprof_analysis.records.newest import drop_oldest
from latprof_analysis.records.process_names import as_cells
from latprof_analysis.text import NS_PER_SECOND
from numpy.typing import NDArray

from latprof_agent.capture.flight import SLOW_SPANS, TURNS, FlightRecorder, span_of
from latprof_agent.probes.layout import Layout
from latprof_agent.story.socket_stories import TcpHistory
from latprof_agent.story.stories import stages_in_words, thread_in_words
from latprof_agent.story.story_folder import story_id

Story = dict[str, Any]
Event = tuple[int, int]  # a flow, and where its request ends
TakesStory = Callable[[Story, dict[str, Any]], None]  # and its document
# A running p99.9 below explains nothing: hardly a stack is taken in that time.
SHORTEST_NS = 1_000_000
# Stories kept to be shown; slow ones that may wait for theirs.
KEPT, WAITING = 256, 256
# For a copy of the recorder, and for names of functions.
PATIENCE_NS = 3_000_000_000
JOINED_NS = 2_000_000_000  # what is noticed is joined by then
EXCHANGE = "exchange"
_NOT_OF_EXCHANGES = (
    *("size_bytes", "sender_pid", "sender_comm", "end_to_end_ns", "retransmits"),
)


@dataclass(frozen=True, eq=False)
class _Waiting:
    """A message or exchange that waits for its story."""

    begin_ns: int
    end_ns: int
    pid: int
    message: dict[str, Any]
    way: TcpHistory | None  # None: it is an exchange
    event: Event | None  # None: nothing else is of it

    @property
    def took_ns(self) -> int:
        return self.end_ns - self.begin_ns


@dataclass
class LiveStories:
    """Makes them one after the other; `takes` gets each, with its document.

    `above_ns`: the user's limit; 0: the running p99.9 of each group, from 1 ms on.
    `without_story` counts slow ones without a story, by why.
    """

    recorder: FlightRecorder
    layout: Layout
    above_ns: int
    takes: list[TakesStory] = field(default_factory=list)
    kept: deque[Story] = field(default_factory=lambda: deque(maxlen=KEPT))
    count: int = 0
    without_story: Counter[str] = field(default_factory=Counter)
    noticed: bool = False  # something that was not joined yet
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _read_ns: dict[Event, int] = field(default_factory=dict)  # of slow requests lately

    def notice(self, batch: Batch) -> None:
        """Have the recorder copied for what is slow among records just drained."""
        for ring in SLOW_SPANS:
            if not len(batch[ring]):
                continue
            slow, begin, end = self._slow(ring, batch[ring])
            if len(slow):
                self.noticed = True
                longest_ns = int((end - begin).max())
                self.recorder.want(int(begin.min()), longest_ns, slow["pid"])

    def _slow(
        self, ring: str, records: Records
    ) -> tuple[Records, NDArray[np.int64], NDArray[np.int64]]:
        """Records that get a story, and when each began and ended."""
        begin, end = span_of(records, *SLOW_SPANS[ring])
        least_ns = max(self.above_ns, SHORTEST_NS)
        chosen = (records["flags"] & self.layout.flags["RECORD_SLOW"]) != 0
        chosen &= (begin > 0) & (end - begin >= least_ns)
        if ring == TURNS:
            chosen &= records["role"] == self.layout.roles["server"]
        return records[chosen], begin[chosen], end[chosen]

    def add(self, batch: Batch, joiner: Joiner) -> None:
        """Take in what is slow of records whose flows `joiner` knows."""
        self.noticed = False
        found = {ring: self._slow(ring, batch[ring]) for ring in SLOW_SPANS}
        if not any(len(slow) for slow, _, _ in found.values()):
            return
        sent, received, turns = (found[ring][0] for ring in SLOW_SPANS)
        messages = [*_halves(joiner, sent, received), *_exchanges(joiner, turns)]
        begin, end, pid = (
            np.concatenate(columns).tolist()
            for columns in zip(
                *((b, e, slow["pid"]) for slow, b, e in found.values()), strict=True
            )
        )
        events = [*[None] * len(sent), *_events(received), *_events(turns)]
        for begin_ns, end_ns, of_pid, message, event in zip(
            begin, end, pid, messages, events, strict=True
        ):
            one = _Waiting(begin_ns, end_ns, of_pid, *message, event)
            if self._has_story(one):
                self.without_story["same_event"] += 1
            elif len(self._waiting) < WAITING:
                self._waiting.append(one)
            else:
                self.without_story["too_many"] += 1

    def _has_story(self, one: _Waiting) -> bool:
        """Whether a request that was read late is the larger part of its exchange.

        Both are one event. Where the server's work is larger, its request, which is
        older, has no story of its own if it still waits for one.
        """
        if not one.event:
            return False
        if one.way:
            self._read_ns[one.event] = one.took_ns
            drop_oldest(self._read_ns, KEPT)
            return False
        read_ns = self._read_ns.get(one.event, 0)
        if 2 * read_ns >= one.took_ns:
            return True
        request = next((w for w in self._waiting if w.event == one.event), None)
        if request:
            self._waiting.remove(request)
            self.without_story["same_event"] += 1
        return False

    def step(self, now_ns: int) -> None:
        """Make stories of what is complete; `now_ns` is CLOCK_MONOTONIC."""
        if not self._waiting and not self.recorder.has_copies:
            return
        for _ in range(len(self._waiting)):
            one = self._waiting.popleft()
            copied = self.recorder.flight(one.begin_ns, one.end_ns)
            late = now_ns - one.end_ns > JOINED_NS + PATIENCE_NS
            if copied and (self.recorder.symbols.settled or late):
                self._make(one)
            elif late:
                self.without_story["no_copy"] += 1
            else:
                self._waiting.append(one)
        oldest_ns = min((one.end_ns for one in self._waiting), default=now_ns)
        self.recorder.forget_before(min(oldest_ns, now_ns - JOINED_NS))

    def _make(self, one: _Waiting) -> None:
        unix_ns = time.time_ns() - (time.monotonic_ns() - one.end_ns)
        message, recorder = one.message, self.recorder
        if message["kind"] == EXCHANGE:
            thread = message["reader_thread"]
            thread_words = thread_in_words(
                recorder, one.pid, thread, one.begin_ns, one.end_ns
            )
            whole_ns = one.end_ns - one.begin_ns
            stages = {"server": {"time_ns": whole_ns, **thread_words}}
        else:
            stages = stages_in_words(message, recorder, one.way)
        story = {
            "id": story_id(unix_ns // 1000, (one.end_ns - one.begin_ns) // 1000),
            "unix_seconds": unix_ns / NS_PER_SECOND,
            "t_ns": one.end_ns,
            "pid": one.pid,
            "message": message,
            "stages": stages,
        }
        self.kept.append(story)
        self.count += 1
        for takes in self.takes:
            takes(story, self.document([story]))

    def totals(self) -> dict[str, Any]:
        """What `Totals` has of stories."""
        return {
            "stories": {(one["pid"], one["t_ns"]): one for one in self.kept},
            "story_counts": {"told": self.count, **self.without_story},
        }

    def document(self, stories: list[Story]) -> dict[str, Any]:
        """Return stories as `latprof story` reads them."""
        return {
            "limit_ns": self.above_ns or None,
            "slow_messages": len(stories),
            "recorder": {
                "copies": 1,
                "skipped": 0,
                "symbols": self.recorder.symbols.source,
            },
            "stories": stories,
        }


def _events(records: Records) -> list[Event | None]:
    """Of TCP the flow and the request's last byte, which its exchange has, too."""
    pairs = zip(records["flow"].tolist(), records["end"].tolist(), strict=True)
    return [pair if pair[1] else None for pair in pairs]


def _halves(
    joiner: Joiner, sent: Records, received: Records
) -> list[tuple[dict[str, Any], TcpHistory]]:
    """Rows as in messages.csv, first of those sent; the other half is blank."""
    none = np.full(len(sent), -1), np.full(len(received), -1)
    pairs = Pairs(
        sent,
        received,
        np.r_[np.arange(len(sent)), none[1]],
        np.r_[none[0], np.arange(len(received))],
    )
    rows = messages_of(joiner, pairs, lambda flows: np.full(len(flows), MESSAGE))
    rows.set_retransmits(joiner.retransmits_of(*rows.retransmit_range))
    rows.set_created(np.zeros(len(rows), "i8"))
    found = [rows.row(i) for i in range(len(rows))]
    # of a UDP flow that was not sampled yet only the datagram is known
    marks = rows.numbers["low_water_bytes"].tolist()
    keys = [*sent["key"], *received["key"]]
    for row, key, mark in zip(found, keys, marks, strict=True):
        row["protocol"] = "udp" if key else "tcp"
        row["low_water_bytes"] = mark
    ends = map(rows.flow_and_end, range(len(rows)))
    return [
        (row, TcpHistory.of(row, *end, joiner))
        for row, end in zip(found, ends, strict=True)
    ]


def _exchanges(joiner: Joiner, turns: Records) -> list[tuple[dict[str, Any], None]]:
    """Rows of exchanges at their servers, with the same names as far as they have."""
    flow = joiner.flows.index(turns["flow"])
    numbers, texts = flow_columns(joiner.flows, flow)
    pids = turns["pid"].astype("i8")
    began_ns = turns["ready_ns"].astype("i8")
    texts["reader_comm"] = as_cells(joiner.names.of(pids, began_ns))
    threads = blank_zeros(turns["thread"].astype("i8"))
    texts["reader_thread_comm"] = as_cells(joiner.names.of(threads, began_ns))
    numbers |= {"reader_pid": pids, "reader_thread": threads}
    numbers["sequence"] = turns["end"].astype("i8")
    found: list[dict[str, Any]] = [
        dict.fromkeys(_NOT_OF_EXCHANGES)
        | {"kind": EXCHANGE}
        | {name: number_at(values, i) for name, values in numbers.items()}
        | {name: text_at(column, i) for name, column in texts.items()}
        # of a flow that was not announced, as where its ring was full
        | ({"protocol": ""} if flow[i] < 0 else {})
        for i in range(len(turns))
    ]
    return [(row, None) for row in found]
