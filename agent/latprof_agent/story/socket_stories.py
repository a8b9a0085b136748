"""What TCP knew of a slow message's bytes: what held them, and what was sent again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from latprof_analysis.records.joiner import Joiner
from latprof_analysis.stages import MODEL
from latprof_analysis.story.answers import NO_ANSWERS, Answers
from latprof_analysis.story.next_hops import waits_of
from latprof_analysis.story.sleeps import together
from latprof_analysis.story.sockets import (
    ZERO_WINDOW,
    DroppedSegment,
    Span,
    behind_parts,
    filler_of,
    held_time,
    lost_parts,
    unresolved_spans,
)
from latprof_analysis.story.story import Flight, Part, doings_of
from numpy.typing import NDArray

from latprof_agent.capture.recorded_flights import Flights

# Stages that TCP's states explain: the two stamps that each is between.
_STAMPS = {
    stage.name: (f"{stage.since}_ns", f"{stage.until}_ns")
    for stage in MODEL
    if stage.name in ("send_queue", "transit", "receive_stack")
}
# Of all time without room: what is shorter is not asked for.
_LONG_SHARE = 20
# Without an arrival the time of both is in the second, see stages_of().
_BOTH_WAYS = ("xmit_ns", "ready_ns")


@dataclass(frozen=True)
class TcpHistory:
    """The bytes of one message on their way.

    `resent` holds the packets of its flow up to its `end` that were sent again,
    `early` says whether it came before its turn. Of what the kernel freed, `freed` has
    the segments with its last byte, and `missing` those for which an early one waited.
    """

    flow: int
    end: int
    resent: NDArray[Any] | None = None
    early: bool = False
    freed: NDArray[Any] | None = None
    missing: NDArray[Any] | None = None

    @classmethod
    def of(
        cls, row: dict[str, Any], flow: int, end: int, joiner: Joiner | None
    ) -> TcpHistory:
        """Take what a joiner knows now: it forgets the oldest."""
        if joiner is None or row["protocol"] != "tcp":
            return cls(flow, end)
        resent = joiner.resent_before(flow, end)
        early = joiner.arrived_early(flow, row["arrive_ns"] or 0)
        freed = joiner.freed_with(flow, end) if len(resent) else None
        times = row["xmit_ns"] or 0, row["ready_ns"] or 0
        filler = filler_of(resent, end, *times) if early else None
        if filler is None:
            return cls(flow, end, resent, early, freed)
        missing = joiner.freed_with(flow, int(filler["end"]))
        return cls(flow, end, resent, early, freed, missing)

    def split(
        self,
        stage: str,
        time_ns: int,
        row: dict[str, Any],
        recorder: Flights,
        answers: Answers = NO_ANSWERS,
    ) -> dict[str, Any]:
        """Split a stage of the message's row; empty: nothing is known of it."""
        of_both = stage == "receive_stack" and not row["arrive_ns"]
        names = _BOTH_WAYS if of_both else _STAMPS.get(stage, ())
        stamps = [row[stamp] for stamp in names]
        if stage == "transit" and not row["xmit_ns"]:
            # dropped by the queue of its device, so that it never left for the driver
            stamps[0] = row["queue_ns"]
        if self.resent is None or not all(stamps) or len(stamps) < 2:
            return {}
        begin_ns, end_ns = stamps
        found: list[Part] | None = None
        if end_ns - begin_ns != time_ns:
            return {}  # part of the next stage, for want of a stamp
        if stage == "send_queue":
            return self._held(begin_ns, end_ns, row, recorder, answers)
        of_bytes = self.resent, self.end
        causes = recorder.layout.resent
        if stage == "transit" or of_both:
            dropped = _dropped(self.freed, recorder)
            found = lost_parts(*of_bytes, begin_ns, end_ns, causes, dropped)
        elif self.early:
            dropped = _dropped(self.missing, recorder)
            times = row["xmit_ns"] or 0, begin_ns, end_ns
            found = behind_parts(*of_bytes, *times, causes, dropped)
        return {} if found is None else {"parts": [asdict(part) for part in found]}

    def _held(
        self,
        begin_ns: int,
        end_ns: int,
        row: dict[str, Any],
        recorder: Flights,
        answers: Answers,
    ) -> dict[str, Any]:
        flight = recorder.flight(begin_ns, end_ns)
        if not flight:
            return {"parts": [asdict(Part("not recorded", end_ns - begin_ns))]}
        waits = waits_of(flight, self.flow, begin_ns, end_ns)
        unresolved: list[Span] = []
        if waits and self.resent is not None:
            causes, dropped = recorder.layout.resent, _dropped(self.freed, recorder)
            unresolved = unresolved_spans(waits, self.resent, end_ns, causes, dropped)
        parts, timeline = held_time(
            *(flight.rings["socket_states"], self.flow, begin_ns, end_ns),
            *(recorder.layout.held, recorder.jiffy_ns, unresolved),
        )
        zero = [
            (begin_ns + span["from_ns"], begin_ns + span["from_ns"] + span["time_ns"])
            for span in timeline
            if span["what"] == ZERO_WINDOW
        ]
        who = together(_reader_in(zero, row, flight, recorder, answers))
        parts = [
            replace(part, who=who) if part.what == ZERO_WINDOW else part
            for part in parts
        ]
        return {"parts": [asdict(part) for part in parts], "timeline": timeline}


def _reader_in(
    spans: list[tuple[int, int]],
    row: dict[str, Any],
    flight: Flight,
    recorder: Flights,
    answers: Answers,
) -> Iterator[dict[str, Any]]:
    """What the thread did that reads a message, in spans for which it had no room."""
    pid, thread = row["reader_pid"], row["reader_thread"]
    least_ns = sum(end_ns - begin_ns for begin_ns, end_ns in spans) // _LONG_SHARE
    for begin_ns, end_ns in spans if pid and thread else ():
        did: list[dict[str, Any]] = []
        if end_ns - begin_ns >= least_ns:
            did = doings_of(
                *(flight, pid, thread, begin_ns, end_ns),
                name=recorder.symbols.stack,
                calls=recorder.calls,
                answers=answers,
                asker=row["sender_pid"] or 0,
            )
        who = {"pid": pid, "comm": row["reader_comm"], "thread": thread}
        yield who | {"time_ns": end_ns - begin_ns, "did": did}


def _dropped(freed: NDArray[Any] | None, recorder: Flights) -> list[DroppedSegment]:
    return [] if freed is None else recorder.dropped.of(freed)
