"""What a run leaves: the tables of its folder, and totals of all that is in them."""

from __future__ import annotations

from typing import Any

from latprof_analysis.scans.exchange_totals import ExchangeTotals
from latprof_analysis.scans.totals import MessageTotals
from numpy.typing import NDArray

from latprof_agent.capture.untraced_time import UntracedTime
from latprof_agent.join.exchange_rows import ExchangeRows
from latprof_agent.join.message_rows import Messages
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.sink import Tally
from latprof_agent.sinks.stalls import Stalls


class RunSink:
    """A `Sink` that writes rows into a run folder and sums them up.

    `round_trips` has totals for each protocol whose round trips are to come;
    `written` counts messages.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self.messages = MessageTotals(most=0)
        self.exchanges = ExchangeTotals()
        self.stalls = Stalls()
        self.written = 0
        self.round_trips: dict[str, RoundTripTotals] = {}
        self.untraced = UntracedTime()
        self.tally = Tally()

    def add_messages(self, rows: Messages) -> None:
        """Write and sum up."""
        self.messages.add(rows)
        self.stalls.add(rows)
        self.folder.add_messages(rows)
        self.written += len(rows)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Write and sum up."""
        self.exchanges.add(rows)
        self.folder.add_exchanges(rows)

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Write and sum up."""
        self.round_trips[trips.protocol].add(trips)
        self.folder.add_round_trips(trips)

    def add_untraced(self, periods: NDArray[Any]) -> None:
        """Sum up."""
        self.untraced.add(periods)

    def end(self, tally: Tally) -> None:
        """Keep what was counted."""
        self.tally = tally
