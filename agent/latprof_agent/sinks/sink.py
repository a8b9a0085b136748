"""What becomes of recorded messages: files, totals, stories, and whatever else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.message_rows import Messages
from numpy.typing import NDArray

from latprof_agent.errors import LatprofError
from latprof_agent.sinks.round_trip_rows import RoundTrips


class TakenBack(NamedTuple):
    """A conversation whose exchanges are none, as both ends talked at once.

    By the ends as in a row of exchanges.csv, and what was begun between the times.
    """

    protocol: str
    client_address: str
    client_port: int
    server_address: str
    server_port: int
    from_ns: int
    until_ns: int
    cause: str


@dataclass(frozen=True)
class Tally:
    """What was counted while recording, all by name."""

    records: int = 0  # that came through the rings
    counters: dict[str, int] = field(default_factory=dict)  # the probes'
    unmatched: dict[str, int] = field(default_factory=dict)  # halves, by cause
    # messages, and their bytes, by who sent to whom, and cause
    no_exchange: Counter[tuple[str, str]] = field(default_factory=Counter)
    no_exchange_bytes: Counter[tuple[str, str]] = field(default_factory=Counter)
    # nanoseconds that no response took less than, by the same
    least_responses_ns: dict[tuple[str, str], int] = field(default_factory=dict)
    # bytes on their way at a time, by cause; None: not known
    in_flight_bytes: dict[str, float | None] = field(default_factory=dict)
    taken_back: list[TakenBack] = field(default_factory=list)
    probe_cost: dict[str, Any] = field(default_factory=dict)
    # once the tables have taken some back: what is left of exchanges, to be summed up
    # anew; none where nothing was taken back
    exchanges_left: list[Callable[[], Iterable[ExchangeRows]]] = field(
        default_factory=list
    )


class Sink:
    """Takes what is recorded as it comes, and `end` once and last.

    A sink that cannot take any more says so in `failure`, which ends the recording;
    what was recorded until then is handed over all the same. One that wants only a
    part of it has only those methods.
    """

    @property
    def failure(self) -> LatprofError | None:
        """What keeps it from taking more."""
        return None

    def add_messages(self, rows: Messages) -> None:
        """Take finished rows; nothing in them will change."""

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Take exchanges; their messages came before."""

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Take round trips that a load generator measured."""

    def add_untraced(self, periods: NDArray[Any]) -> None:
        """Take periods of single CPUs without tracing, `from_ns` to `until_ns`.

        The records are valid during the call only.
        """

    def end(self, tally: Tally) -> None:
        """Nothing more will come; see `Tally.exchanges_left`."""
