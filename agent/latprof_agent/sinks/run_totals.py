"""The sink that sums up: totals of all that is in a run folder's tables."""

from __future__ import annotations

from typing import Any

from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.message_rows import Messages
from latprof_analysis.stages import LOADED
from latprof_analysis.study.exchange_totals import ExchangeTotals
from latprof_analysis.study.totals import MessageTotals, are_measured
from numpy.typing import NDArray

from latprof_agent.capture.untraced_time import UntracedTime
from latprof_agent.sinks.entry_queues import EntryQueues
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.sink import Sink, Tally
from latprof_agent.sinks.stalls import Stalls
from latprof_agent.sinks.train_messages import TrainMessages


class RunTotals(Sink):
    """Sums up what comes.

    `round_trips` has totals for each protocol whose round trips are to come, and
    `loaded` for those beside a load; `written` counts messages.
    """

    def __init__(self) -> None:
        self.messages = MessageTotals(most=0)
        self.trains = TrainMessages()
        self.exchanges = ExchangeTotals()
        self.stalls = Stalls()
        self.entry_queues = EntryQueues()
        self.needless_retransmits = 0
        self.written = 0
        self.round_trips: dict[str, RoundTripTotals] = {}
        self.loaded: dict[str, RoundTripTotals] = {}
        self.untraced = UntracedTime()
        self.tally = Tally()

    def expect(self, totals: RoundTripTotals, *, loaded: bool) -> None:
        """Round trips of a protocol will come."""
        found = self.loaded if loaded else self.round_trips
        found[totals.protocol] = totals

    def add_messages(self, rows: Messages) -> None:
        """Sum up."""
        self.messages.add(rows)
        self.trains.add(rows)
        self.stalls.add(rows)
        self.entry_queues.add(rows)
        # of those that the counts beside it are of
        needless = rows.numbers["needless"][are_measured(rows)]
        self.needless_retransmits += int(needless.sum())
        self.written += len(rows)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Sum up."""
        self.exchanges.add(rows)

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Sum up."""
        totals = self.loaded if trips.phase == LOADED else self.round_trips
        totals[trips.protocol].add(trips)

    def add_untraced(self, periods: NDArray[Any]) -> None:
        """Sum up."""
        self.untraced.add(periods)

    def end(self, tally: Tally) -> None:
        """Keep what was counted, and sum up what is left where some was taken back."""
        self.tally = tally
        for exchanges_left in tally.exchanges_left:
            self.exchanges = ExchangeTotals()
            for rows in exchanges_left():
                self.exchanges.add(rows)
