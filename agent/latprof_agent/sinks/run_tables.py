"""The sink that fills the tables of a run folder."""

from __future__ import annotations

import time
from collections import deque

from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.joiner import FOREVER
from latprof_analysis.records.message_rows import Messages

from latprof_agent.errors import LatprofError
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.sink import Sink, Tally

# Round trips wait for their messages to be finished, so that on a full disk both
# tables end at about the same one; but no longer than that.
HOLD_NS = 5_000_000_000


class RunTables(Sink):
    """Writes rows as they come; comes before what sums them up, see `end`."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._held: deque[tuple[int, RoundTrips]] = deque()

    @property
    def failure(self) -> LatprofError | None:
        """Why the folder takes no more."""
        return self._folder.failure

    def add_messages(self, rows: Messages) -> None:
        """Write messages, and the round trips that waited for them."""
        self._folder.add_messages(rows)
        self._write_round_trips(int(rows.numbers["send_ns"].max(initial=0)))

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Write."""
        self._folder.add_exchanges(rows)

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Write later."""
        self._held.append((time.monotonic_ns(), trips))
        self._write_round_trips()

    def _write_round_trips(self, sent_ns: int = 0) -> None:
        """Write those that were sent until then, and what waits for nothing."""
        old_ns = time.monotonic_ns() - HOLD_NS
        while self._held:
            taken_ns, trips = self._held[0]
            if taken_ns > old_ns and trips.numbers["sent_ns"].max() > sent_ns:
                break
            self._folder.add_round_trips(self._held.popleft()[1])

    def end(self, tally: Tally) -> None:
        """Write the rest, and remove exchanges of conversations that have none."""
        self._write_round_trips(FOREVER)
        removed = self._folder.take_back(tally.taken_back) if tally.taken_back else []
        for one in removed:
            tally.no_exchange[one.way, one.cause] += one.messages
            tally.no_exchange_bytes[one.way, one.cause] += one.size
        if removed:
            tally.exchanges_left.append(self._folder.read_exchanges)
