"""From the probes' rings to sinks: the loop of all that follows messages.

    drain -> join -> hold -> messages of sources, retransmits -> sinks

Rows are held for a while before they are finished, since late retransmissions and
the log of a load generator add to them: so which send calls gave one message.
Finished messages are paired to exchanges.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.exchange_rows import exchange_rows
from latprof_analysis.records.exchanges import Exchanges, Overlap
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.in_flight import InFlight
from latprof_analysis.records.joiner import FOREVER, Joiner, Pairs
from latprof_analysis.records.message_rows import MESSAGE, Ints, Messages, messages_of
from latprof_analysis.records.recording import Log, RecordLayout
from latprof_analysis.records.whole_messages import Spans, WholeMessages
from numpy.typing import NDArray

from latprof_agent.capture.cost import beside_statistics
from latprof_agent.capture.recorded_flights import Watched
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.sink import Sink, TakenBack, Tally

if TYPE_CHECKING:
    from latprof_agent.capture.recording_writer import RecordingWriter

STEP_SECONDS = 0.05
# To join often makes nothing more exact, and each time costs 4 ms, however little came.
JOIN_NS = 500_000_000
HOLD_NS = 1_500_000_000


class Cost(Protocol):
    """What the probes cost, measured in samples."""

    def periods(self) -> NDArray[np.int64]:
        """When samples were, until now: shape (n, 2), ns of CLOCK_MONOTONIC."""

    def as_dict(self) -> dict[str, Any]:
        """Figures of it."""


class Captured(Protocol):
    """Where records come from: the probes, or a recording.

    All from before `drained_ns` are in what `read` gave so far.
    """

    drained_ns: int

    @property
    def flight(self) -> Watched | None:
        """What CPUs did meanwhile; None: nobody asks why."""

    @property
    def layout(self) -> RecordLayout:
        """Of the records."""

    @property
    def ephemeral_ports(self) -> range:
        """Ports that the host hands out: whoever has one is a client."""

    @property
    def cost(self) -> Cost:
        """Of the probes."""

    def read(self) -> Batch:
        """Give what is new, valid until the next time."""

    def counters(self) -> dict[str, int]:
        """What was counted instead of recorded, by name."""

    def check(self) -> None:
        """Raise, once, the LatprofError for which there will be no more."""


class LogTail(Protocol):
    """What a source reads."""

    taken: bytes  # by the last reading


class Source(Protocol):
    """A program's own log: it knows of its messages what no probe can see."""

    calls: list[list[Any]]  # methods called since the last step, with arguments

    @property
    def tails(self) -> Sequence[LogTail]:
        """Of each of its logs."""

    def described(self) -> dict[str, Any]:
        """What makes one like it of a recording."""

    def read(self) -> RoundTrips | None:
        """Take in what is new of the log; return the round trips in it, if any."""

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name the messages of a table of flows; MESSAGE: not of this program."""

    def created_of(self, rows: Messages) -> tuple[Ints, Ints, NDArray[np.int32]]:
        """Say which rows are its own, when each was made (0 unknown), their kinds."""

    def spans_of(self, rows: Messages) -> tuple[NDArray[np.intp], Spans]:
        """Say which rows may be parts of its messages, and of which."""

    def forget_before(self, time_ns: int) -> None:
        """Nobody will ask for messages that were over before."""


@dataclass
class Recorder:
    """Takes in what the probes and the sources say until `finish`.

    With `pieces` each send call is a row, also where a source's message took several.
    """

    capture: Captured
    sinks: list[Sink]
    pieces: bool = False
    recording: RecordingWriter | None = None
    slack_ns: int = 0  # by which stamps of several hosts may be wrong
    joiner: Joiner = field(init=False)
    records: int = 0
    _sources: list[Source] = field(default_factory=list)
    _joined_ns: int = 0
    _held: deque[tuple[int, Messages]] = field(default_factory=deque)
    _periods: NDArray[np.int64] = field(init=False)  # as of this step
    _counted: dict[str, int] = field(default_factory=dict)  # in the recording
    _whole: WholeMessages = field(init=False)
    _exchanges: Exchanges = field(init=False)

    def __post_init__(self) -> None:
        """Make the joiner for the layout that was captured."""
        self.joiner = Joiner(
            self.capture.layout,
            ephemeral=self.capture.ephemeral_ports,
            slack_ns=self.slack_ns,
        )
        self._periods = self.capture.cost.periods()
        self._whole = WholeMessages(self._spans)
        joiner = self.joiner
        self._exchanges = Exchanges(
            joiner.flows, joiner.conversations, joiner.endings, joiner.heads
        )

    def add_source(self, source: Source) -> None:
        """Ask this one, too, from now on."""
        self._sources.append(source)
        self.note(source=source.described())

    def note(self, **what: Any) -> None:
        """Have the recording say what happened before the next step."""
        if self.recording:
            self.recording.note(**what)

    def step_for(self, seconds: float) -> None:
        """Let time pass, and take in what comes meanwhile.

        Raises what a sink says for itself where it cannot take any more.
        """
        until = time.monotonic() + seconds
        while True:
            time.sleep(STEP_SECONDS)
            self.step()
            for sink in self.sinks:
                if sink.failure:
                    raise sink.failure
            if time.monotonic() >= until:
                return

    def step(self) -> None:
        """Join what was drained and give out what is ready, if it is time."""
        if time.monotonic_ns() - self._joined_ns >= JOIN_NS:
            self.capture.check()
            self._joined_ns = time.monotonic_ns()
            self.join()

    def finish(self) -> None:
        """Give out everything, halves too; the capture must have stopped.

        Raises LatprofError, once that is done, where it had failed before.
        """
        try:
            self.join()
            if self.capture.flight:
                self.capture.flight.finish()  # with what the last rows ask for
            self.end()
            self.capture.check()
        finally:
            self.end_sinks()

    def end_sinks(self) -> None:
        """Say what was counted, and that nothing more will come."""
        tally = self.tally()
        for sink in self.sinks:
            sink.end(tally)

    def end(self) -> None:
        """Give out what is left when nothing more will come."""
        self._note_counters()
        self._hold(self.joiner.finish(), self.capture.drained_ns + 1)
        self._begin_step()
        logs = self._read_sources()
        # one by one, or all of it would be in memory several times
        for held_ns in [held_ns for held_ns, _ in self._held]:
            self._give_out(held_ns + 1)
        self._give_out(FOREVER)
        self.note(end=True)  # behind the copies that were asked for meanwhile
        self._record(logs, {})

    def end_recording(self, **what: Any) -> None:
        """Add what else the run reported to the recording, and end it."""
        if self.recording:
            self.recording.end(run=what | {"probe_cost": self.capture.cost.as_dict()})

    def tally(self) -> Tally:
        """What was counted until now."""
        return Tally(
            self.records,
            self.capture.counters(),
            dict(self.joiner.unmatched),
            Counter(self._exchanges.no_exchange),
            Counter(self._exchanges.no_exchange_bytes),
            dict(self._exchanges.least_responses_ns),
            {c: of.mean_bytes for c, of in self.in_flight.items()},
            [self._taken_back(one) for one in self._exchanges.taken_back],
            self.capture.cost.as_dict(),
        )

    @property
    def in_flight(self) -> dict[str, InFlight]:
        """Bytes on their way of connections whose ends talk at once, by cause."""
        return self._exchanges.in_flight

    def _taken_back(self, one: Overlap) -> TakenBack:
        flows, to_server = self.joiner.flows, self.joiner.conversations.to_server
        row = flows.table[one.place]
        ends = (
            (flows.source_addresses[one.place], int(row["source_port"])),
            (flows.destination_addresses[one.place], int(row["destination_port"])),
        )
        client, server = ends if to_server[one.place] else reversed(ends)
        protocol = "tcp" if row["protocol"] == IPPROTO_TCP else "udp"
        return TakenBack(
            protocol, *client, *server, one.from_ns, one.until_ns, one.cause
        )

    def join(self) -> None:
        """Take one step: join what was drained, and give out what was held so long."""
        self._begin_step()
        self._note_counters()
        batch = self.capture.read()
        drained_ns = self.capture.drained_ns
        if len(batch["untraced_periods"]):
            for sink in self.sinks:
                sink.add_untraced(batch["untraced_periods"])
        if self.capture.flight:
            self.capture.flight.note_reads(batch["received_ranges"])
            self.capture.flight.note_answers(batch["turns"])
        count = sum(map(len, batch.values()))
        self.records += count
        if count or self.joiner.waiting():
            self._hold(self.joiner.feed(batch, drained_ns), drained_ns)
        logs = self._read_sources()
        if self.capture.flight and self._held and self._held[-1][0] == drained_ns:
            self._ask_for_stories(self.capture.flight, self._held[-1][1])
        self._give_out(drained_ns - HOLD_NS)
        self._record(logs, batch, drained_ns)

    def _record(
        self, logs: list[Log], batch: Batch, drained_ns: int | None = None
    ) -> None:
        """Keep what a step took in, once it is done: what it asked for comes first."""
        if self.recording:
            self.recording.step(drained_ns, batch, periods=self._periods, logs=logs)

    def _hold(self, pairs: Pairs, drained_ns: int) -> None:
        if len(pairs.sent_index):
            rows = messages_of(self.joiner, pairs, self._kinds)
            self._held.append((drained_ns, rows))

    def _ask_for_stories(self, flight: Watched, rows: Messages) -> None:
        """Have what no half shows copied: before send calls, and of whole messages."""
        sent_ns, pids = rows.numbers["send_ns"], rows.numbers["sender_pid"]
        for source in self._sources:
            mine, created_ns, _ = source.created_of(rows)
            flight.look_at(created_ns, sent_ns[mine], pids[mine])
        # some are slow by the sum of their halves; no CPU shows the time between
        of, read_ns = rows.numbers, rows.numbers["read_ns"]
        between = (of["xmit_ns"] > 0) & (of["arrive_ns"] > 0)
        transit_ns = np.where(between, of["arrive_ns"] - of["xmit_ns"], 0)
        slow = read_ns - sent_ns - transit_ns >= flight.limit_ns
        flight.look_at(sent_ns[slow], read_ns[slow], of["reader_pid"][slow])

    def _kinds(self, flows: NDArray[Any]) -> Ints:
        kinds = np.full(len(flows), MESSAGE)
        for source in self._sources:
            kinds = np.maximum(kinds, source.kinds_of(flows))
        return kinds

    def read_sources(self) -> None:
        """Take in what sources have to say, which they do at each joining anyway."""
        self._begin_step()
        self._record(self._read_sources(), {})

    def _begin_step(self) -> None:
        # all rows of a step see the same ones, whatever begins meanwhile
        self._periods = self.capture.cost.periods()
        for number, source in enumerate(self._sources):
            for call in source.calls:
                self.note(of_source=number, call=call)
            source.calls.clear()

    def _note_counters(self) -> None:
        """Have the recording hold what was counted, of a run that is killed, too."""
        if self.recording:
            now = self.capture.counters()
            if changed := dict(now.items() - self._counted.items()):
                self.note(counters={name: now[name] for name in now if name in changed})
            self._counted = now

    def _read_sources(self) -> list[Log]:
        """Return what was new in the logs."""
        logs = []
        for number, source in enumerate(self._sources):
            trips = source.read()
            if trips is not None and len(trips):
                trips.mark_statistics(
                    beside_statistics(self._periods, trips.numbers["sent_ns"])
                )
                for sink in self.sinks:
                    sink.add_round_trips(trips)
            logs += [(number, n, tail.taken) for n, tail in enumerate(source.tails)]
        return [log for log in logs if log[2]]

    def _give_out(self, until_ns: int) -> None:
        while self._held and self._held[0][0] < until_ns:
            self._whole.add(self._held.popleft()[1])
        # what is read of a message is joined, and then held, before another such time
        over_ns = until_ns if until_ns == FOREVER else until_ns - HOLD_NS
        rows = self._whole.take(over_ns)
        if rows is not None and len(rows):
            self._complete(rows)
            for sink in self.sinks:
                sink.add_messages(rows)
        self._pair(rows, over_ns if self._sources else until_ns)
        for source in self._sources:
            source.forget_before(until_ns)

    def _pair(self, rows: Messages | None, until_ns: int) -> None:
        for found in self._exchanges.add(rows, until_ns, self.capture.drained_ns):
            if found.request.shape[1]:
                exchanges = exchange_rows(self.joiner, found)
                for sink in self.sinks:
                    sink.add_exchanges(exchanges)

    def _spans(self, rows: Messages) -> Spans:
        spans = Spans.none(len(rows))
        for source in [] if self.pieces else self._sources:
            spans.put(*source.spans_of(rows))
        return spans

    def _complete(self, rows: Messages) -> None:
        """Put in what became known while the rows were held."""
        ranges = rows.retransmit_range
        rows.set_retransmits(self.joiner.retransmits_of(*ranges))
        if (rows.numbers["retransmits"] > 0).any():
            ready_ns = rows.numbers["ready_ns"]
            rows.set_needless(self.joiner.needless_of(*ranges, ready_ns))
        created = np.zeros(len(rows), "i8")
        kinds, words = rows.texts["kind"]
        for source in self._sources:
            mine, found, named = source.created_of(rows)
            created[mine], kinds[mine] = found, named
        # made before it was sent, or it is not the same message
        send_ns = np.maximum(rows.numbers["send_ns"], 0)
        rows.set_created(np.where(created <= send_ns, created, 0))
        rows.texts["kind"] = kinds, words
        rows.mark_statistics(beside_statistics(self._periods, rows.first_ns()))
