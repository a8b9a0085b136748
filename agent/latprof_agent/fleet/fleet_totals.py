"""Sums of a fleet: histograms by the hosts that messages and exchanges crossed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
from latprof_analysis.clocks import State
from latprof_analysis.records.arrays import by_value
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.message_rows import Ints, Rows
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Kept = TypeVar("Kept")

# Of an exchange, by the columns of exchanges.csv.
PARTS = {
    "request_way": "request_way_ns",
    "server": "server_ns",
    "reply_way": "reply_way_ns",
}
MOST_WAYS = 10_000  # of messages, and of exchanges; beyond these services are `other`
OTHER = "other"
# Why a segment was sent again: it had not arrived by then as far as is known, or had.
LOST, ARRIVED = "lost", "arrived before"
_UNRELATED = ("", State.UNKNOWN.word, State.BROKEN.word)


class Way(NamedTuple):
    """From which host to which; of exchanges the client's and the server's."""

    source: int
    destination: int
    protocol: str
    service: str  # the port of the server's end


@dataclass
class OfMessages:
    """Messages that went one way."""

    transit: CoarseHistogram = field(default_factory=CoarseHistogram)
    queueing: CoarseHistogram = field(default_factory=CoarseHistogram)
    # by what was known of both clocks
    clocks: Counter[str] = field(default_factory=Counter)
    error_ns: int = 0  # half of the widest interval that a transit had lately
    # segments of TCP that were sent again, by why: what of these was lost, and was not
    resent: Counter[str] = field(default_factory=Counter)

    def add(self, later: OfMessages) -> None:
        """Take in what came later."""
        self.transit += later.transit
        self.queueing += later.queueing
        self.clocks += later.clocks
        self.resent += later.resent
        self.error_ns = later.error_ns or self.error_ns


@dataclass
class OfExchanges:
    """Exchanges of a client's host with a server's."""

    response: CoarseHistogram = field(default_factory=CoarseHistogram)
    parts: dict[str, CoarseHistogram] = field(
        default_factory=lambda: {part: CoarseHistogram() for part in PARTS}
    )

    def add(self, later: OfExchanges) -> None:
        """Take in what came later."""
        self.response += later.response
        for part, histogram in later.parts.items():
            self.parts[part] += histogram


@dataclass
class FleetTotals:
    """What was summed up in some time."""

    messages: dict[Way, OfMessages] = field(default_factory=dict)
    exchanges: dict[Way, OfExchanges] = field(default_factory=dict)

    def add_messages(
        self, rows: Rows, service: Ints, resent: Mapping[str, Ints]
    ) -> None:
        """Take in rows with hosts and intervals, of JoinedMessages.

        `resent` has how many segments of each were sent again, by LOST or ARRIVED.
        """
        numbers = rows.numbers
        ends = numbers["sender_at"], numbers["reader_at"]
        crossing = (ends[0] != BLANK) & (ends[1] != BLANK) & (ends[0] != ends[1])
        index, words = rows.texts["clocks"]
        for way, at in _ways(rows, *ends, service, crossing):
            found = _of(self.messages, way, OfMessages)
            transit, queueing = (
                numbers[name][at] for name in ("transit_ns", "transit_queueing_ns")
            )
            _record(found.transit, transit)
            said = [words[i] if i >= 0 else "" for i in index[at].tolist()]
            found.clocks.update(filter(None, said))
            for why, segments in resent.items():
                if count := int(segments[at].sum()):
                    found.resent[why] += count
            # what queues needs the rates of clocks alone
            related = np.array([word not in _UNRELATED for word in said], bool)
            _record(found.queueing, queueing[related])
            wide = numbers["transit_high_ns"][at] - numbers["transit_low_ns"][at]
            bounded = (transit != BLANK) & (numbers["transit_high_ns"][at] != BLANK)
            found.error_ns = int(wide[bounded].max(initial=0)) // 2 or found.error_ns

    def add_exchanges(self, rows: ExchangeRows, client: Ints, server: Ints) -> None:
        """Take in exchanges of JoinedExchanges, with the hosts of both ends."""
        numbers = rows.numbers
        crossing = (client >= 0) & (server >= 0) & (client != server)
        for way, at in _ways(rows, client, server, numbers["server_port"], crossing):
            found = _of(self.exchanges, way, OfExchanges)
            _record(found.response, numbers["response_ns"][at])
            for part, name in PARTS.items():
                _record(found.parts[part], numbers[name][at])


def add_totals(totals: FleetTotals, later: FleetTotals) -> None:
    """Add what came later to what there is."""
    for way, messages in later.messages.items():
        _of(totals.messages, way, OfMessages).add(messages)
    for way, exchanges in later.exchanges.items():
        _of(totals.exchanges, way, OfExchanges).add(exchanges)


def _of(kept: dict[Way, Kept], way: Way, make: Callable[[], Kept]) -> Kept:
    """Return what is of a way; of too many, what is of all other services."""
    if way not in kept and len(kept) >= MOST_WAYS:
        way = way._replace(service=OTHER)
    return kept.setdefault(way, make())


def _ways(
    rows: Rows, source: Ints, destination: Ints, service: Ints, which: Flags
) -> Iterator[tuple[Way, NDArray[np.intp]]]:
    """Give the ways that rows went, with the rows of each."""
    protocol, words = rows.texts["protocol"]
    at = np.flatnonzero(which & (protocol >= 0))
    ends = source[at], destination[at]
    for (a, b, word, port), of in by_value(*ends, protocol[at], service[at]):
        yield Way(a, b, words[word], str(port) if port != BLANK else ""), at[of]


def _record(histogram: CoarseHistogram, values: Ints) -> None:
    """Count durations, BLANK left out."""
    known = values[(values != BLANK) & (values >= 0)]
    np.add.at(histogram.counts, bucket_of(known), 1)
    histogram.sum_ns += int(known.sum())
