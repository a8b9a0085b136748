"""Rows of one step, in one order, whoever made them and in how many parts.

A table's rows are in the order of their own values, and texts in that of the alphabet,
so that nothing says which rows were made together: a run that is joined in partitions
is equal, byte for byte, to one that is joined as a whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.message_rows import (
    Messages,
    Rows,
    Text,
    joined_rows,
    joined_texts,
)
from numpy.typing import NDArray

from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.sink import Sink, Tally

# Texts whose places in their lists mean something, and are the same everywhere.
_NUMBERED = frozenset({"protocol", "kind", "outcome"})
Places = NDArray[np.intp]


@dataclass
class StepRows:
    """What one step of joining gave, or one partition of it."""

    messages: list[Messages] = field(default_factory=list)
    exchanges: list[ExchangeRows] = field(default_factory=list)
    other_turns: list[ExchangeRows] = field(default_factory=list)
    round_trips: list[RoundTrips] = field(default_factory=list)
    untraced: list[NDArray[Any]] = field(default_factory=list)
    # of which round trips will come; and whether beside a load
    expected: list[tuple[RoundTripTotals, bool]] = field(default_factory=list)

    def add(self, other: StepRows) -> None:
        """Take in those of another partition."""
        for name, values in vars(other).items():
            getattr(self, name).extend(values)


class StepSink(Sink):
    """Keeps what comes, with the words that it has now, until `take`."""

    def __init__(self) -> None:
        self._rows = StepRows()
        self.tally = Tally()

    def take(self) -> StepRows:
        """Give what came since the last time, labels as they are now."""
        rows, self._rows = self._rows, StepRows()
        for of in (rows.messages, rows.exchanges, rows.other_turns):
            for one in of:
                one.texts = _in_alphabet(one.texts)
        return rows

    def expect(self, totals: RoundTripTotals, *, loaded: bool) -> None:
        """Round trips of a protocol will come."""
        self._rows.expected.append((totals, loaded))

    def add_messages(self, rows: Messages) -> None:
        """Keep."""
        self._rows.messages.append(rows)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Keep."""
        of = self._rows.exchanges if rows.are_exchanges else self._rows.other_turns
        of.append(rows)

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Keep."""
        self._rows.round_trips.append(trips)

    def add_untraced(self, periods: NDArray[Any]) -> None:
        """Keep a copy."""
        self._rows.untraced.append(periods.copy())

    def end(self, tally: Tally) -> None:
        """Keep."""
        self.tally = tally


class Expecting(Protocol):
    """Sums up round trips."""

    def expect(self, totals: RoundTripTotals, *, loaded: bool) -> None:
        """Round trips of a protocol will come."""


def hand_on(rows: StepRows, sink: Sink, totals: Expecting) -> None:
    """Give one step's rows to a sink in their order, and `totals` what to expect."""
    for expected, loaded in rows.expected:
        totals.expect(expected, loaded=loaded)
    for periods in rows.untraced:
        sink.add_untraced(periods)
    for trips in rows.round_trips:
        sink.add_round_trips(trips)
    if rows.messages:
        messages = joined_rows(rows.messages)
        messages.texts = _in_alphabet(messages.texts)
        ranges = messages.retransmit_range
        sink.add_messages(messages.take(_order(messages, messages.first_ns(), ranges)))
    for parts in filter(None, (rows.exchanges, rows.other_turns)):
        turns = _all_turns(parts)
        turns.texts = _in_alphabet(turns.texts)
        sent_ns = turns.numbers["request_sent_ns"]
        sink.add_exchanges(_turns_at(turns, _order(turns, sent_ns, ())))


def in_order(tally: Tally) -> Tally:
    """Return it with its counts in the order of their names."""
    return replace(
        tally,
        unmatched=dict(sorted(tally.unmatched.items())),
        no_exchange=Counter(dict(sorted(tally.no_exchange.items()))),
        no_exchange_bytes=Counter(dict(sorted(tally.no_exchange_bytes.items()))),
        least_responses_ns=dict(sorted(tally.least_responses_ns.items())),
        in_flight_bytes=dict(sorted(tally.in_flight_bytes.items())),
        taken_back=sorted(tally.taken_back),
    )


def _all_turns(parts: Sequence[ExchangeRows]) -> ExchangeRows:
    """Rows of several parts, one after the other."""
    first = parts[0]
    return ExchangeRows(
        {
            name: np.concatenate([part.numbers[name] for part in parts])
            for name in first.numbers
        },
        {
            name: joined_texts([part.texts[name] for part in parts])
            for name in first.texts
        },
    )


def _turns_at(rows: ExchangeRows, at: Places) -> ExchangeRows:
    return ExchangeRows(
        {name: values[at] for name, values in rows.numbers.items()},
        {name: (index[at], words) for name, (index, words) in rows.texts.items()},
    )


def _order(rows: Rows, t_ns: NDArray[Any], more: Sequence[NDArray[Any]]) -> Places:
    """Order rows by a time, and those of the same one by all that is in them."""
    order = np.argsort(t_ns, kind="stable")
    same = np.diff(t_ns[order]) == 0
    tied = np.flatnonzero(np.r_[False, same] | np.r_[same, False])
    if len(tied):
        at = order[tied]
        # in each table columns are in the same order; words are in the alphabet's
        keys = [
            *more,
            *rows.numbers.values(),
            *(index for index, _ in rows.texts.values()),
        ]
        order[tied] = at[np.lexsort([*(key[at] for key in keys), t_ns[at]])]
    return order


def _in_alphabet(texts: dict[str, Text]) -> dict[str, Text]:
    return {
        name: text if name in _NUMBERED else _sorted_words(text)
        for name, text in texts.items()
    }


def _sorted_words(text: Text) -> Text:
    """Return a column with the words alone that it has, each once, in their order."""
    index, words = text
    used = np.flatnonzero(np.bincount(index + 1, minlength=1)[1:])
    found = sorted({words[i] for i in used.tolist()})
    place = {word: i for i, word in enumerate(found)}
    table = np.full(len(words) + 1, -1, np.int32)  # the last: of what is blank
    table[used] = [place[words[i]] for i in used.tolist()]
    return table[index], found
