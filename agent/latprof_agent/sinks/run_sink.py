"""What a run leaves: the tables of its folder, and totals of all that is in them."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Protocol

from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.joiner import FOREVER
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stages import LOADED
from latprof_analysis.study.exchange_totals import ExchangeTotals
from latprof_analysis.study.totals import MessageTotals
from numpy.typing import NDArray

from latprof_agent.capture.untraced_time import UntracedTime
from latprof_agent.errors import LatprofError
from latprof_agent.sinks.entry_queues import EntryQueues
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.sink import Tally
from latprof_agent.sinks.stalls import Stalls
from latprof_agent.sinks.train_messages import TrainMessages

# Round trips wait for their messages to be finished, so that on a full disk both
# tables end at about the same one; but no longer than that.
HOLD_NS = 5_000_000_000


class Follower(Protocol):
    """Somebody who looks at rows that are finished, beside tables and totals."""

    def add_messages(self, rows: Messages) -> None:
        """See messages."""

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """See exchanges."""


class RunSink:
    """A `Sink` that writes rows into a run folder and sums them up.

    `round_trips` has totals for each protocol whose round trips are to come, and
    `loaded` for those beside a load;
    `written` counts messages. `followers` are shown all messages and exchanges.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.messages = MessageTotals(most=0)
        self.trains = TrainMessages()
        self.exchanges = ExchangeTotals()
        self.stalls = Stalls()
        self.entry_queues = EntryQueues()
        self.written = 0
        self.round_trips: dict[str, RoundTripTotals] = {}
        self.loaded: dict[str, RoundTripTotals] = {}
        self.followers: list[Follower] = []
        self.untraced = UntracedTime()
        self.tally = Tally()
        self._held: deque[tuple[int, RoundTrips]] = deque()

    @property
    def failure(self) -> LatprofError | None:
        """Why the folder takes no more."""
        return self.folder.failure

    def add_messages(self, rows: Messages) -> None:
        """Write and sum up."""
        self.messages.add(rows)
        self.trains.add(rows)
        self.stalls.add(rows)
        self.entry_queues.add(rows)
        self.folder.add_messages(rows)
        for follower in self.followers:
            follower.add_messages(rows)
        self.written += len(rows)
        self._write_round_trips(int(rows.numbers["send_ns"].max(initial=0)))

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Write and sum up."""
        self.exchanges.add(rows)
        self.folder.add_exchanges(rows)
        for follower in self.followers:
            follower.add_exchanges(rows)

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Sum up, and write later."""
        totals = self.loaded if trips.phase == LOADED else self.round_trips
        totals[trips.protocol].add(trips)
        self._held.append((time.monotonic_ns(), trips))
        self._write_round_trips()

    def _write_round_trips(self, sent_ns: int = 0) -> None:
        """Write those that were sent until then, and what waits for nothing."""
        old_ns = time.monotonic_ns() - HOLD_NS
        while self._held:
            told_ns, trips = self._held[0]
            if told_ns > old_ns and trips.numbers["sent_ns"].max() > sent_ns:
                break
            self.folder.add_round_trips(self._held.popleft()[1])

    def add_untraced(self, periods: NDArray[Any]) -> None:
        """Sum up."""
        self.untraced.add(periods)

    def end(self, tally: Tally) -> None:
        """Keep what was counted."""
        self._write_round_trips(FOREVER)
        self.tally = tally
        if tally.taken_back:
            self._take_back(tally)

    def _take_back(self, tally: Tally) -> None:
        """Remove exchanges of conversations that have none, and sum up again."""
        removed = self.folder.take_back(tally.taken_back)
        for one in removed:
            tally.no_exchange[one.way, one.cause] += one.messages
            tally.no_exchange_bytes[one.way, one.cause] += one.size
        if removed:
            self.exchanges = ExchangeTotals()
            for rows in self.folder.read_exchanges():
                self.exchanges.add(rows)
