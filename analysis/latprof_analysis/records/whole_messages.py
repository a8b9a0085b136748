"""Rows of send calls -> one row for what a program calls a message.

Who does not wait for room in a full socket gives a large message in several send
calls, and the probes see each of them. The program's own log has where its
messages begin and end; the calls of one are held until all of them are there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.message_rows import Ints, Messages, joined_rows
from latprof_analysis.stages import BLANK

# All other columns are those of the last call, whose last byte is the message's.
OF_FIRST_CALL = ("send_ns", "sender_pid")


class Spans(NamedTuple):
    """Which bytes of its stream make up the message that each row lies in."""

    start: Ints  # offset of the byte before its first; BLANK: in none that is known
    end: Ints  # offset of its last byte
    # When both ends were done with it: what is missing then does not come any more.
    # 0 of what is in no message; FOREVER where that is not known yet.
    over_ns: Ints

    @classmethod
    def none(cls, count: int) -> Spans:
        """Rows in no message."""
        blank = np.full(count, BLANK)
        return cls(blank, blank.copy(), np.zeros(count, "i8"))

    def put(self, at: NDArray[np.intp], found: Spans) -> None:
        """Put in what is known of some rows."""
        for mine, of_some in zip(self, found, strict=True):
            mine[at] = of_some


class WholeMessages:
    """Takes rows of send calls, gives rows of messages."""

    def __init__(self, spans_of: Callable[[Messages], Spans]) -> None:
        self._spans_of = spans_of
        self._rows: list[Messages] = []

    def add(self, rows: Messages) -> None:
        """Take in rows."""
        if len(rows):
            self._rows.append(rows)

    def take(self, until_ns: int) -> Messages | None:
        """Give what is whole, and what has been over since `until_ns` as it is."""
        if not self._rows:
            return None
        rows = joined_rows(self._rows)
        spans = self._spans_of(rows)
        calls = _Calls(rows, spans)
        ready = spans.over_ns <= until_ns
        ready |= calls.of_whole
        self._rows = [] if ready.all() else [rows.take(np.flatnonzero(~ready))]
        return calls.united(np.flatnonzero(ready & ~calls.inner))


class _Calls:
    """The send calls of each message that is whole, in the order of its bytes."""

    def __init__(self, rows: Messages, spans: Spans) -> None:
        self._rows, self._spans = rows, spans
        size = rows.numbers["size_bytes"]
        known = (spans.start != BLANK) & (size != BLANK)
        # of most messages one call gave all: there is nothing to put together
        alone = known & (size == spans.end - spans.start)
        at = np.flatnonzero(known & ~alone)
        keys = (rows.numbers["sequence"], spans.end, rows.retransmit_range[0])
        at = at[np.lexsort([key[at] for key in keys])]
        changes = [np.diff(key[at]) != 0 for key in keys[1:]]
        begins = np.flatnonzero(np.r_[len(at) > 0, changes[0] | changes[1]])
        lengths = np.diff(np.r_[begins, len(at)])
        # a call that lacks its record leaves a hole
        whole = np.zeros(len(begins), bool)
        if len(begins):
            span = (spans.end - spans.start)[at[begins]]
            whole = np.add.reduceat(size[at], begins) == span
        self._calls = at[np.repeat(whole, lengths)]
        self.of_whole = alone
        self.of_whole[self._calls] = True
        self._lengths = lengths[whole]
        self._first = at[begins[whole]]
        self._last = at[(begins + lengths - 1)[whole]]
        # all calls of a message but its last, which stands for it
        self.inner = np.zeros(len(rows), bool)
        self.inner[self._calls] = True
        self.inner[self._last] = False

    def united(self, at: NDArray[np.intp]) -> Messages:
        """Return rows, of which those of last calls stand for their messages."""
        rows, last = self._rows, self._last
        if not len(last):
            return rows if len(at) == len(rows) else rows.take(at)
        numbers = dict(rows.numbers)
        for name in OF_FIRST_CALL:
            numbers[name] = _put(numbers[name], last, numbers[name][self._first])
        # a packet with bytes of two calls is counted in both: where packets begin in
        # a segment is not known
        for name in ("size_bytes", "packets"):
            numbers[name] = _put(numbers[name], last, self._sum(numbers[name]))
        texts = dict(rows.texts)
        index, words = texts["sender_comm"]
        texts["sender_comm"] = _put(index, last, index[self._first]), words
        flow, start, end = rows.retransmit_range
        resent = flow, _put(start, last, self._spans.start[last]), end
        return Messages(numbers, texts, resent).take(at)

    def _sum(self, values: Ints) -> Ints:
        """Add up over the calls of each message; BLANK where one is not known."""
        begins = np.cumsum(self._lengths) - self._lengths
        of_calls = values[self._calls]
        blank = np.logical_or.reduceat(of_calls == BLANK, begins)
        sums = np.add.reduceat(np.maximum(of_calls, 0), begins)
        return np.where(blank, BLANK, sums)


def _put(values: NDArray[Any], at: NDArray[np.intp], new: Any) -> NDArray[Any]:
    changed = values.copy()
    changed[at] = new
    return changed
