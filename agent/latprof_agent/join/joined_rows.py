"""Rows of several hosts: with these, and with how sure what lies between them is.

What crosses from one host to another has an interval, as wide as what is known of both
clocks allows. Where nothing bounds it, or its stamps contradict what is known, there
is no time between the hosts, nor a stamp of the one that is not the reference: never
one that is guessed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from latprof_analysis.clocks import State
from latprof_analysis.csv_cells import cell_of
from latprof_analysis.read.schema import EXCHANGES, MESSAGES
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.host_records import host_of, own_pid
from latprof_analysis.records.message_rows import Ints, Messages, Text
from latprof_analysis.stages import BLANK, RECEIVER, SENDER, stages_at
from latprof_analysis.stats.histogram import Histogram
from numpy.typing import ArrayLike, NDArray

from latprof_agent.errors import LatprofError
from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.sinks.sink import Sink, Tally

Flags = NDArray[np.bool_]

# Behind the states of clocks: what by the estimate would have arrived before it left,
# where its interval allows that it did not, and where that does not.
TOO_SHORT, CONTRADICTED = len(State), len(State) + 1
_WORDS = [*(state.word for state in State), "below the error", "contradicted"]
_NONE = -1  # the word of what does not cross
_SURE = (State.GOOD, State.APPROXIMATE)
# Left out where nothing is known of the clocks, of the end that is not the reference.
_OF_SENDER = (
    *(f"{stamp}_ns" for stamp in ("created", "send", "queue", "xmit")),
    *(f"{stage}_ns" for stage in stages_at(SENDER)),
)
_OF_READER = (
    *(f"{stamp}_ns" for stamp in ("arrive", "ready", "read")),
    *(f"{stage}_ns" for stage in stages_at(RECEIVER)),
)
_BETWEEN = ("transit_ns", "end_to_end_ns")
_OF_SERVER = ("request_ready_ns", "request_read_ns", "reply_sent_ns")


class JoinedMessages(Messages):
    """Rows of messages.csv of several hosts."""

    COLUMNS = MESSAGES.names

    def with_own_numbers(self) -> JoinedMessages:
        """Return them with the numbers that processes have at their hosts."""
        numbers = _with_own(self.numbers, "sender_pid", "reader_pid", "reader_thread")
        return JoinedMessages(numbers, self.texts, self.retransmit_range)


class JoinedExchanges(ExchangeRows):
    """Rows of exchanges.csv of several hosts."""

    COLUMNS = EXCHANGES.names

    def with_own_numbers(self) -> JoinedExchanges:
        """Return them with the numbers that processes have at their hosts."""
        return JoinedExchanges(
            _with_own(self.numbers, "client_pid", "server_pid"), self.texts
        )


def _with_own(numbers: Mapping[str, Ints], *names: str) -> dict[str, Ints]:
    return dict(numbers) | {name: own_pid(numbers[name]) for name in names}


class _Interval(NamedTuple):
    """The least and the most that times may be, BLANK unknown, and places in _WORDS."""

    low_ns: Ints
    high_ns: Ints
    word: Ints

    @property
    def sure(self) -> Flags:
        return np.isin(self.word, _SURE)


class Clocks(Protocol):
    """What is known of all hosts' clocks, as of `HostClocks`."""

    @property
    def reference(self) -> int:
        """The host on whose clock all stamps are."""

    def bounds(
        self, a: int, b: int, t_ns: ArrayLike, apart_ns: ArrayLike = 0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Say how far a difference of stamps of two hosts may be wrong."""

    def state(self, a: int, b: int, t_ns: ArrayLike) -> Ints:
        """Give the `State` of two hosts' clocks."""


class Crossing:
    """Makes such rows of those that a single host would have.

    Parameters
    ----------
    names : sequence of str
        Of the hosts.
    clocks : Clocks
    least_ns : dict of (int, int) to int
        From one host to another the least transit, by the estimated clocks.

    Attributes
    ----------
    crossed : Counter of (int, int)
        Messages from one host to another.
    unknown : Counter of (int, int, str)
        Those without a known transit, by what is known of the clocks.
    transit, queueing : dict of (int, int) to Histogram
        Of messages from one host to another.
    """

    def __init__(
        self,
        names: Sequence[str],
        clocks: Clocks,
        least_ns: Mapping[tuple[int, int], int],
    ) -> None:
        self._names = [cell_of(name) for name in names]
        self._clocks = clocks
        self._least_ns = least_ns
        self.crossed: Counter[tuple[int, int]] = Counter()
        self.unknown: Counter[tuple[int, int, str]] = Counter()
        self.transit: defaultdict[tuple[int, int], Histogram] = defaultdict(Histogram)
        self.queueing: defaultdict[tuple[int, int], Histogram] = defaultdict(Histogram)

    def messages(self, rows: Messages) -> JoinedMessages:
        """Return rows with hosts and intervals; see `with_own_numbers`."""
        numbers = dict(rows.numbers)
        sender, reader = numbers["sender_at"], numbers["reader_at"]
        crosses = (sender != BLANK) & (reader != BLANK) & (sender != reader)
        xmit, arrive = numbers["xmit_ns"], numbers["arrive_ns"]
        both = crosses & (xmit > 0) & (arrive > 0)
        transit = np.where(both, arrive - xmit, 0)
        found = self._interval(sender, reader, rows.first_ns(), transit, crosses)
        queueing = np.maximum(transit - self._least(sender, reader, both), 0)
        for name, values in (
            ("low", found.low_ns),
            ("high", found.high_ns),
            ("queueing", queueing),
        ):
            numbers[f"transit_{name}_ns"] = np.where(both, values, BLANK)
        sure = found.sure
        for pair, at in _by_pair(sender, reader, both):
            self.transit[pair].record(transit[at][sure[at]])
            self.queueing[pair].record(queueing[at])
        self._leave_out(numbers, crosses & ~sure, reader)
        self._count(sender, reader, crosses, found)
        texts = rows.texts | {
            "sender_host": self._hosts(sender),
            "reader_host": self._hosts(reader),
            "clocks": _words(found.word),
        }
        return JoinedMessages(numbers, texts, rows.retransmit_range)

    def _interval(
        self, one: Ints, other: Ints, at_ns: Ints, took_ns: Ints, crosses: Flags
    ) -> _Interval:
        """Bound times from one host to another that began then."""
        low, high = np.full((2, len(one)), BLANK)
        word = np.full(len(one), _NONE)
        for pair, rows in _by_pair(one, other, crosses):
            took = took_ns[rows]
            minus, plus = self._clocks.bounds(*pair, at_ns[rows], took)
            state = self._clocks.state(*pair, at_ns[rows])
            sure = np.isin(state, _SURE)
            backwards, possible = sure & (took < 0), sure & (took + plus >= 0)
            word[rows] = np.where(backwards, CONTRADICTED, state)
            word[rows[backwards & possible]] = TOO_SHORT
            low[rows] = _rounded(np.maximum(took - minus, 0), possible)
            high[rows] = _rounded(took + plus, possible)
        return _Interval(low, high, word)

    def _least(self, sender: Ints, reader: Ints, which: Flags) -> Ints:
        least = np.zeros(len(sender), "i8")
        for pair, at in _by_pair(sender, reader, which):
            least[at] = self._least_ns.get(pair, 0)
        return least

    def _leave_out(self, numbers: dict[str, Ints], rows: Flags, reader: Ints) -> None:
        """Leave out what is of the host whose clock says nothing here."""
        if not rows.any():
            return
        of_sender = rows & (reader == self._clocks.reference)
        for at, names in (
            (of_sender, _OF_SENDER),
            (rows & ~of_sender, _OF_READER),
            (rows, _BETWEEN),
        ):
            for name in names:
                numbers[name] = np.where(at, BLANK, numbers[name])

    def _count(
        self, sender: Ints, reader: Ints, crosses: Flags, found: _Interval
    ) -> None:
        for pair, rows in _by_pair(sender, reader, crosses):
            self.crossed[pair] += len(rows)
            for word, n in Counter(found.word[rows].tolist()).items():
                if word not in _SURE:
                    self.unknown[*pair, _WORDS[word]] += n

    def _hosts(self, numbers: Ints) -> Text:
        return np.where(numbers == BLANK, -1, numbers).astype(np.int32), self._names

    def exchanges(self, rows: ExchangeRows) -> JoinedExchanges:
        """Return rows with hosts and intervals; see `with_own_numbers`."""
        numbers = dict(rows.numbers)
        client, server = (
            host_of(numbers[f"{end}_pid"]) for end in ("client", "server")
        )
        crosses = (client >= 0) & (server >= 0) & (client != server)
        ends = client, server
        request = self._way(numbers, "request_way", "request_sent_ns", ends, crosses)
        reply = self._way(numbers, "reply_way", "reply_sent_ns", ends[::-1], crosses)
        backwards = crosses & _backwards(numbers)
        server_times = [n for n in numbers if n[:7] == "server_" and n[-3:] == "_ns"]
        for name in (*_OF_SERVER, *server_times):
            numbers[name] = np.where(backwards, BLANK, numbers[name])
        # of both ways the one that is less sure
        word = np.where(reply.sure | (reply.word == _NONE), request.word, reply.word)
        word = np.where(word == _NONE, reply.word, word)
        texts = rows.texts | {
            "client_host": self._hosts(client),
            "server_host": self._hosts(server),
            "clocks": _words(word),
        }
        return JoinedExchanges(numbers, texts)

    def _way(
        self,
        numbers: dict[str, Ints],
        name: str,
        since: str,
        ends: tuple[Ints, Ints],
        crosses: Flags,
    ) -> _Interval:
        """Put a way's bounds in; it is blank where there are none."""
        took = numbers[f"{name}_ns"]
        there = crosses & (took != BLANK)
        found = self._interval(*ends, numbers[since], took, there)
        numbers[f"{name}_low_ns"] = found.low_ns
        numbers[f"{name}_high_ns"] = found.high_ns
        numbers[f"{name}_ns"] = np.where(there & ~found.sure, BLANK, took)
        return found


def _by_pair(
    one: Ints, other: Ints, which: Flags
) -> Iterator[tuple[tuple[int, int], NDArray[np.intp]]]:
    """Give pairs of hosts, and the rows of each."""
    at = np.flatnonzero(which)
    hosts = 1 + int(max(one[at].max(initial=0), other[at].max(initial=0)))
    pair = one[at] * hosts + other[at]
    counts = np.bincount(pair)
    kinds = np.flatnonzero(counts)
    rank = np.zeros(counts.size, "u2" if kinds.size < 1 << 16 else "i8")
    rank[kinds] = np.arange(kinds.size)
    at = at[np.argsort(rank[pair], kind="stable")]  # of 16 bits in linear time
    parts = np.split(at, np.cumsum(counts[kinds])[:-1]) if kinds.size else []
    for number, rows in zip(kinds.tolist(), parts, strict=True):
        yield divmod(number, hosts), rows


def _rounded(values: NDArray[np.float64], known: Flags) -> Ints:
    known = known & np.isfinite(values)
    return np.where(known, np.where(known, values, 0).round().astype("i8"), BLANK)


def _words(word: Ints) -> Text:
    return word.astype(np.int32), _WORDS


def _backwards(numbers: Mapping[str, Ints]) -> Flags:
    """Return which exchanges have stamps of which a later one is earlier."""
    latest = numbers["request_sent_ns"]
    found = np.zeros(len(latest), bool)
    for name in (*_OF_SERVER, "reply_read_ns"):
        stamp = numbers[name]
        found |= (stamp != BLANK) & (stamp < latest)
        latest = np.maximum(latest, stamp)
    return found


class JoinedSink(Sink):
    """Hands rows on as those of several hosts.

    `stories`, where there are some, get processes' numbers that no two hosts share.
    """

    def __init__(
        self, crossing: Crossing, sinks: Sequence[Sink], stories: Sink | None
    ) -> None:
        self._crossing = crossing
        self._sinks = sinks
        self._stories = stories

    @property
    def failure(self) -> LatprofError | None:
        """What keeps one of them from taking more."""
        return next((sink.failure for sink in self._sinks if sink.failure), None)

    def add_messages(self, rows: Messages) -> None:
        """Hand on."""
        joined = self._crossing.messages(rows)
        if self._stories:
            self._stories.add_messages(joined)
        joined = joined.with_own_numbers()
        for sink in self._sinks:
            sink.add_messages(joined)

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Hand on."""
        joined = self._crossing.exchanges(rows)
        if self._stories:
            self._stories.add_exchanges(joined)
        joined = joined.with_own_numbers()
        for sink in self._sinks:
            sink.add_exchanges(joined)

    def add_round_trips(self, trips: RoundTrips) -> None:
        """Hand on."""
        for sink in self._sinks:
            sink.add_round_trips(trips)

    def add_untraced(self, periods: NDArray[np.void]) -> None:
        """Hand on."""
        for sink in self._sinks:
            sink.add_untraced(periods)

    def end(self, tally: Tally) -> None:
        """Hand on."""
        for sink in self._sinks:
            sink.end(tally)
