"""What the reader of a slow message read while it waited: other messages, and whose;
and what any thread read that had waited for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.joiner import FOREVER, Joiner
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stages import STAMPS
from latprof_analysis.story.answers import Answers, Peer, after_pauses, answers_of
from latprof_analysis.story.reads import (
    MESSAGE,
    READ,
    Ints,
    Sender,
    Share,
    Waits,
    shares_of,
    waits_of,
    words_of_reads,
)

from latprof_agent.capture.flight import MOST_SLEPT_NS, SLEPT_SHARE
from latprof_agent.capture.reads import Reads, Records
from latprof_agent.capture.recorded_flights import Flights

ANSWERS = 64  # chunks: 10 MB


class ReadBefore:
    """Knows all messages that were read lately, and the bytes that threads read.

    Rows are finished seconds after their bytes were read: those of bytes come from the
    flight recorder at once, also of messages that are read in part.
    """

    def __init__(self, joiner: Joiner, recorder: Flights) -> None:
        self._joiner = joiner
        self._recorder = recorder
        self._messages = Reads(dtype=MESSAGE)
        self._answers = Reads(chunks=ANSWERS)
        self._reads = recorder.reads = Reads()

    @property
    def newest_ns(self) -> int:
        """When the last of the messages was read."""
        return self._messages.newest_ns

    def add_messages(self, rows: Messages) -> None:
        """Take in finished rows."""
        found = np.zeros(len(rows), MESSAGE)
        flow, start, end = rows.retransmit_range
        found["flow"] = flow
        protocols, names = rows.texts["protocol"]
        stream = protocols == names.index("tcp")
        found["start"], found["end"] = np.where(stream, (start, end), 0)
        for stamp in STAMPS[1:]:
            found[f"{stamp}_ns"] = np.maximum(rows.numbers[f"{stamp}_ns"], 0)
        found["thread"] = np.maximum(rows.numbers["reader_thread"], 0)
        found["sender_pid"] = np.maximum(rows.numbers["sender_pid"], 0)
        self._messages.add(found[found["thread"] > 0])
        # of those that sent: who, when, and on which connection
        sent = np.zeros(len(rows), READ)
        sent["flow"], sent["read_ns"] = flow, found["send_ns"]
        sent["thread"] = found["sender_pid"]
        self._answers.add(sent[(sent["thread"] > 0) & (sent["read_ns"] > 0)])

    def while_waiting(
        self, row: dict[str, Any], flow: int, end: int
    ) -> dict[str, Any] | None:
        """Say what was read while the message of a row waited; None: nothing known."""
        thread, ready_ns, read_ns = (
            row[name] for name in ("reader_thread", "ready_ns", "read_ns")
        )
        if not thread or not ready_ns or not read_ns:
            return None
        reads, messages = (
            self._placed(kept.of_thread(thread, ready_ns, read_ns))
            for kept in (self._reads, self._messages)
        )
        start = end - (row["size_bytes"] or 0)
        if row["protocol"] != "tcp":
            start = FOREVER  # each datagram is read as a whole
        place = int(self._joiner.flows.index(np.array([flow], "u8"))[0])
        # what was lost may be what it read last
        since_ns = FOREVER if self._lost() else self._reads.since_ns
        shares = shares_of(
            reads,
            messages,
            (place, start),
            ready_ns,
            read_ns,
            self._waits(thread, ready_ns, read_ns, since_ns),
            self._answers_of(row["reader_pid"], reads, ready_ns),
        )
        return words_of_reads(
            [(share, self._sender(share)) for share in shares],
            complete=max(since_ns, self._messages.since_ns) <= ready_ns,
        )

    def answers(self, begin_ns: int, end_ns: int) -> Answers:
        """Find what threads read in a span that had waited for it."""
        least_ns = min((end_ns - begin_ns) // SLEPT_SHARE, MOST_SLEPT_NS)
        reads = after_pauses(self._reads.within(begin_ns, end_ns), least_ns)
        # a question may be older, and of what was read in part the end comes later
        span_ns = end_ns - begin_ns
        messages = self._messages.within(begin_ns - span_ns, end_ns + span_ns)
        reads, messages = self._of_known(reads), self._of_known(messages)
        return Answers([*answers_of(reads, messages, self._asked, self._peer)])

    def _asked(self, place: int) -> int:
        """Return the flow of questions to what one brings, -1: a client asks itself."""
        conversations = self._joiner.conversations
        if conversations.to_server[place]:
            return -1
        return conversations.turned(place)

    def _of_known(self, records: Records) -> Records:
        """By the places of flows, those whose flow is known."""
        placed = self._placed(records)
        return np.asarray(placed[placed["flow"] >= 0])

    def _peer(self, place: int, pid: int) -> Peer:
        """Who sends on a flow, as its reader sees it."""
        flows = self._joiner.flows
        row = flows.table[place]
        return Peer(
            *(flows.source_addresses[place], int(row["source_port"])),
            *(pid, self._joiner.names.newest(pid)),
            *(flows.destination_addresses[place], int(row["destination_port"])),
            "tcp" if row["protocol"] == IPPROTO_TCP else "udp",
        )

    def _answers_of(
        self, pid: int, reads: Records, ready_ns: int
    ) -> Callable[[int], Ints]:
        """When a process sent something on the connection that a flow is a way of."""
        since_ns = int(reads["read_ns"].min(initial=ready_ns))
        sent = self._placed(self._answers.of_thread(pid, since_ns, ready_ns))
        identity = np.r_[self._joiner.conversations.identity, 0]

        def answers_ns(flow: int) -> Ints:
            same = identity[sent["flow"]] == identity[flow]
            return np.asarray(sent["read_ns"][same & (sent["flow"] != flow)])

        return answers_ns

    def accept(self, row: dict[str, Any], flow: int) -> dict[str, Any]:
        """Say how long a message that was readable waited for its connection's accept.

        `waited_ns` is None where the accept was not seen.
        """
        at_ns = self._joiner.accepted_ns(flow)
        known = row["ready_ns"] and row["ready_ns"] <= at_ns <= (row["read_ns"] or 0)
        return {"waited_ns": at_ns - row["ready_ns"] if known else None}

    def _placed(self, records: Records) -> Records:
        """By the places of flows: two numbers of one that was translated have one."""
        found = records.copy()
        found["flow"] = self._joiner.flows.index(records["flow"].astype("u8"))
        return found

    def _waits(
        self, thread: int, ready_ns: int, read_ns: int, since_ns: int
    ) -> Waits | None:
        flight = self._recorder.flight(ready_ns, read_ns)
        if not flight or flight.since("switches") > ready_ns:
            return None
        waits = waits_of(flight, thread, self._recorder.calls)
        return waits._replace(since_ns=max(waits.since_ns, since_ns))

    def _sender(self, share: Share) -> Sender:
        way = self._joiner.conversations.label(share.flow)
        return Sender(way, share.pid, self._joiner.names.newest(share.pid))

    def _lost(self) -> bool:
        """Whether records of what was read were lost, of whichever thread."""
        return self._recorder.lost("received_ranges") > 0
