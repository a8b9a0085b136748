"""From rows of exchanges to figures by way, of bounded memory.

A way is the two ends of exchanges: "redis-benchmark -> redis-server:7777". They are
distinguished as in `by_way`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.grouping import in_groups
from latprof_analysis.stages import (
    APART,
    BLANK,
    EXCHANGE_STAMPS,
    HANDSHAKE,
    SUMMANDS,
    UNANSWERED,
    UNTIL_PAUSE,
    WARMUP,
    part_order,
    parts_present,
)
from latprof_analysis.stats.histogram import Histogram, bucket_of, record_parts
from latprof_analysis.study.grouped import MOST_WAYS, ByWay, Histograms, distinct
from latprof_analysis.study.totals import Rows, first_row, percentiles, place

# tcp and udp; a file with more than this is none of exchanges
MOST_PROTOCOLS = 8
_SUMS = (
    "pipelined",
    "requests",
    "replies",
    "request_bytes",
    "reply_bytes",
    "retransmits",
)
_COUNTS = ("exchanges", "timed", "paused", "unsplit", *_SUMS)
_WHOLE = 1 << len(EXCHANGE_STAMPS)  # of a code: the response is there, and its parts
_CODES = 2 * _WHOLE
_SLOWEST = 0.01  # of responses: p99 is the shortest of them

Ints = NDArray[np.int64]
Index = NDArray[np.intp]


@dataclass
class ByResponse:
    """Sums of parts by the bucket of a histogram that their response is in.

    So it is known what made the slowest of them slow, whatever order they came in.
    """

    counts: Counter[int] = field(default_factory=Counter)
    sums_ns: dict[str, Counter[int]] = field(default_factory=dict)

    def add(self, response_ns: Ints, parts: Mapping[str, Ints]) -> None:
        """Take in responses and their parts, which may be blank."""
        buckets, at = np.unique(bucket_of(response_ns), return_inverse=True)
        numbers = buckets.tolist()
        self.counts.update(dict(zip(numbers, np.bincount(at).tolist(), strict=True)))
        for name, values in parts.items():
            sums = np.zeros(len(buckets), np.int64)
            np.add.at(sums, at, np.maximum(values, 0))
            of = self.sums_ns.setdefault(name, Counter())
            of.update(dict(zip(numbers, sums.tolist(), strict=True)))

    def merge(self, other: ByResponse) -> None:
        """Add all that `other` has."""
        self.counts.update(other.counts)
        for name, of in other.sums_ns.items():
            self.sums_ns.setdefault(name, Counter()).update(of)

    def slowest(self, count: int) -> dict[str, float]:
        """Return each part's share of the time of so many of the slowest responses.

        Of a bucket, 3% wide, that only some of them are in, its mean.
        """
        left, weights = float(count), {}
        for bucket in sorted(self.counts, reverse=True):
            weights[bucket] = min(left / self.counts[bucket], 1.0)
            left -= weights[bucket] * self.counts[bucket]
            if left <= 0:
                break
        times = {
            name: sum(weight * of[bucket] for bucket, weight in weights.items())
            for name, of in self.sums_ns.items()
        }
        whole = times.get("response", 0.0)
        return {name: took / whole for name, took in times.items()} if whole else {}


@dataclass
class WayTotals:
    """Figures of the exchanges between two ends.

    Attributes
    ----------
    counts : Counter of str
    whole : dict of str to Histogram
        Parts of exchanges of which all of the response is known.
    half : dict of str to Histogram
        Parts of the others: the client's end alone, the server's, or pipelined.
    by_response : ByResponse
        Of those that are whole.
    slowest : dict or None
        The row with the longest response (at the server alone: its time); of equal
        ones that which comes first by the values of its columns.
    """

    counts: Counter[str] = field(default_factory=Counter)
    whole: Histograms = field(default_factory=dict)
    half: Histograms = field(default_factory=dict)
    by_response: ByResponse = field(default_factory=ByResponse)
    slowest: dict[str, Any] | None = None

    def merge(self, other: WayTotals) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        self.counts.update(other.counts)
        for mine, more in ((self.whole, other.whole), (self.half, other.half)):
            for name, histogram in more.items():
                mine.setdefault(name, Histogram()).merge(histogram)
        self.by_response.merge(other.by_response)
        if other.slowest:
            self.meet(other.slowest)

    def meet(self, row: dict[str, Any]) -> None:
        """Keep a row if it is the slowest so far."""
        mine = self.slowest
        if mine is None or place(row, time_of(row)) < place(mine, time_of(mine)):
            self.slowest = row

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by part and percentile, in ns."""
        found: dict[str, Any] = {name: self.counts[name] for name in _COUNTS}
        count = self._slowest_count()
        shares = self.by_response.slowest(count)
        found["slowest_responses"] = count
        found["parts"] = {
            name: self._part(name) | {"share_of_slowest": shares.get(name)}
            for name in sorted({*self.whole, *self.half}, key=part_order)
            if name != UNTIL_PAUSE or self.counts["paused"]
        }
        return found | {"slowest": self.slowest}

    def _slowest_count(self) -> int:
        """How many responses are the slowest 1%; 0: there are too few for a p99."""
        response = self.whole.get("response", Histogram())
        if response.quantile(1 - _SLOWEST) is None:
            return 0
        return math.ceil(_SLOWEST * response.count)

    def _part(self, name: str) -> dict[str, Any]:
        together = Histogram()
        for histograms in (self.whole, self.half):
            if name in histograms:
                together.merge(histograms[name])
        response = self.whole.get("response", Histogram()).sum_ns
        part = self.whole.get(name, Histogram()).sum_ns
        share = part / response if response and name in self.whole else None
        return percentiles(together) | {
            "mean_ns": together.mean_ns,
            "share_of_response": share,
        }


@dataclass
class Unanswered:
    """Requests without an answer: what ended the waiting, and after how long."""

    outcomes: Counter[str] = field(default_factory=Counter)
    waited: Histogram = field(default_factory=Histogram)

    def merge(self, other: Unanswered) -> None:
        """Add all that `other` has counted."""
        self.outcomes.update(other.outcomes)
        self.waited.merge(other.waited)

    def figures(self) -> dict[str, Any]:
        """Return counts, and percentiles of the waits in ns."""
        return {
            "count": self.outcomes.total(),
            "outcomes": dict(self.outcomes.most_common()),
            "waited": percentiles(self.waited),
        }


class ExchangeTotals:
    """Figures of exchanges, by protocol and way.

    Attributes
    ----------
    ways : dict of str to WayTotals
        By protocol and way: "tcp curl -> nginx:80".
    warmup : int
        Exchanges of the warm-up, which are in no other figure.
    handshakes : dict of str to Histogram
        Of TLS, by protocol and way; in no other figure.
    unanswered : dict of str to Unanswered
        Requests without an answer, by protocol and way; in no other figure.
    backwards : int
        Parts that are negative: left out.

    Examples
    --------
    >>> from latprof_analysis.read.rows import Rows
    >>> from latprof_analysis.read.schema import EXCHANGES
    >>> import pyarrow as pa
    >>> texts = {"protocol": "tcp", "way": "a -> b:80", "kind": "exchange"}
    >>> columns = {k: pa.array([v]).dictionary_encode() for k, v in texts.items()}
    >>> table = pa.table(columns | {"response_ns": [5000]})
    >>> totals = ExchangeTotals()
    >>> totals.add(Rows(table, EXCHANGES.columns))
    >>> totals.as_dict()["tcp a -> b:80"]["parts"]["response"]["max_ns"]
    5000
    """

    def __init__(self) -> None:
        self._ways: ByWay[WayTotals] = ByWay(WayTotals)
        self._protocols: set[str] = set()
        self.handshakes: Histograms = {}
        self.unanswered: dict[str, Unanswered] = {}
        self.warmup = 0
        self.backwards = 0

    @property
    def level(self) -> int:
        """How coarsely ways are kept apart, as in `by_way.coarser`."""
        return self._ways.level

    @property
    def ways(self) -> dict[str, WayTotals]:
        return self._ways.totals

    def add(self, rows: Rows) -> None:
        """Take in rows; those without protocol, kind or way are in no figure."""
        if not len(rows):
            return
        kinds, labels = rows.texts["kind"]
        warm, apart = (
            np.isin(kinds, [i for i, label in enumerate(labels) if label in names])
            for names in ((WARMUP,), APART)
        )
        self.warmup += int(warm.sum())
        totals, which = self._ways_of(rows, ~apart & (kinds >= 0))
        at = np.flatnonzero(which >= 0)
        if len(at):
            self._count(totals, which, at, rows)
            self._time(totals, which, at, rows)
        for kind, take in ((HANDSHAKE, self._add_handshakes), (UNANSWERED, self._wait)):
            own = np.isin(kinds, [i for i, label in enumerate(labels) if label == kind])
            if own.any():
                take(rows, own)

    def _add_handshakes(self, rows: Rows, own: NDArray[np.bool_]) -> None:
        for name, at in _by_name(rows, own):
            took = rows.numbers["response_ns"].take(at)
            kept = _kept(name, self.handshakes)
            histogram = self.handshakes.setdefault(kept, Histogram())
            histogram.record(took[took >= 0])

    def _wait(self, rows: Rows, own: NDArray[np.bool_]) -> None:
        """Count requests without an answer, and how long they waited."""
        outcomes, words = rows.texts["outcome"]
        for name, at in _by_name(rows, own):
            kept = _kept(name, self.unanswered)
            mine = self.unanswered.setdefault(kept, Unanswered())
            for code in outcomes[at].tolist():
                mine.outcomes[words[code] if code >= 0 else "not known"] += 1
            waited = rows.numbers["waited_ns"].take(at)
            mine.waited.record(waited[waited >= 0])

    def merge(self, other: ExchangeTotals) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        self._admit(other._protocols)
        self._ways.merge(other._ways)
        for name, histogram in other.handshakes.items():
            self.handshakes.setdefault(name, Histogram()).merge(histogram)
        for name, waits in other.unanswered.items():
            self.unanswered.setdefault(name, Unanswered()).merge(waits)
        self.warmup += other.warmup
        self.backwards += other.backwards

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by protocol and way, those of most exchanges first."""
        found = {name: totals.as_dict() for name, totals in sorted(self.ways.items())}
        return dict(sorted(found.items(), key=lambda item: -item[1]["exchanges"]))

    def apart_as_dict(self) -> dict[str, Any]:
        """Return what is no exchange: handshakes and requests without an answer."""
        waits = {name: one.figures() for name, one in sorted(self.unanswered.items())}
        return {
            "handshakes": {
                name: percentiles(one) for name, one in sorted(self.handshakes.items())
            },
            "unanswered": dict(sorted(waits.items(), key=lambda w: -w[1]["count"])),
        }

    def _admit(self, protocols: set[str]) -> None:
        self._protocols |= protocols
        if len(self._protocols) > MOST_PROTOCOLS:
            listed = ", ".join(f"{name!r:.60}" for name in sorted(self._protocols))
            raise ValueError(
                f"protocols must be at most {MOST_PROTOCOLS}, got {listed}"
            )

    def _ways_of(
        self, rows: Rows, measured: NDArray[np.bool_]
    ) -> tuple[list[WayTotals], Index]:
        """Return the ways of rows, and which of them is each row's; -1 for none."""
        protocols, protocol_names = rows.texts["protocol"]
        ways, way_names = rows.texts["way"]
        known = measured & (protocols >= 0) & (ways >= 0)
        both = np.where(known, protocols * np.int64(len(way_names)) + ways, BLANK)
        found, index = distinct(both)
        ends = [
            (
                protocol_names[number // len(way_names)],
                way_names[number % len(way_names)],
            )
            for number in found[found != BLANK].tolist()
        ]
        self._admit({protocol for protocol, _ in ends})
        names = [f"{protocol} {way}" for protocol, way in ends]
        for name in names:  # which may make them coarser: several are one then
            self._ways.of(name)
        each = [self._ways.of(name) for name in names]
        totals = {id(one): one for one in each}
        numbers = {key: i for i, key in enumerate(totals)}
        which = [numbers[id(one)] for one in each]
        if len(which) < len(found):
            which.insert(int(np.flatnonzero(found == BLANK)[0]), -1)
        return list(totals.values()), np.array(which, np.intp)[index]

    def _count(
        self, totals: list[WayTotals], which: Index, at: Index, rows: Rows
    ) -> None:
        numbers = rows.numbers
        found, ordered, lengths = in_groups(which[at], at)
        begins = np.cumsum(lengths) - lengths
        counted = {
            "exchanges": np.ones(len(ordered), np.int64),
            "timed": numbers["response_ns"].take(ordered) != BLANK,
            "paused": _paused(numbers, ordered),
            "unsplit": _unsplit(numbers, ordered),
            **{name: _or_zero(numbers[name].take(ordered)) for name in _SUMS},
        }
        for name, values in counted.items():
            sums = np.add.reduceat(values, begins, dtype=np.int64).tolist()
            for i, total in zip(found, sums, strict=True):
                totals[i].counts[name] += total

    def _time(
        self, totals: list[WayTotals], which: Index, at: Index, rows: Rows
    ) -> None:
        """Record the parts of rows: nothing is left out, however long it took."""
        if not len(at):
            return
        keys = which[at] * _CODES + _codes(rows, at)
        found, ordered, lengths = in_groups(keys, at)
        columns: dict[str, list[tuple[Histograms, str]]] = {}
        numbers, ends = rows.numbers, np.cumsum(lengths)
        for key, end, length in zip(found, ends, lengths, strict=True):
            way, code = totals[key // _CODES], key % _CODES
            if code & _WHOLE:
                mine = ordered[end - length : end]
                parts = dict(parts_present(code % _WHOLE))
                way.by_response.add(
                    numbers["response_ns"].take(mine),
                    {name: numbers[of].take(mine) for name, of in parts.items()},
                )
            histograms = way.whole if code & _WHOLE else way.half
            for name, column in parts_present(code % _WHOLE):
                columns.setdefault(column, []).append((histograms, name))
        for column, of_column in columns.items():
            self._record(of_column, rows.numbers[column].take(ordered), lengths)
        self._meet_slowest(totals, which, at, rows)

    def _record(
        self, parts: list[tuple[Histograms, str]], values: Ints, lengths: Index
    ) -> None:
        fit = values >= 0
        if not fit.all():
            self.backwards += int((~fit & (values != BLANK)).sum())
            part = np.repeat(np.arange(len(lengths)), lengths)
            lengths = np.bincount(part[fit], minlength=len(lengths))
            values = values[fit]
        there = [
            histograms.setdefault(name, Histogram())
            for (histograms, name), length in zip(parts, lengths, strict=True)
            if length
        ]
        record_parts(there, values, lengths[lengths > 0])

    def _meet_slowest(
        self, totals: list[WayTotals], which: Index, at: Index, rows: Rows
    ) -> None:
        numbers = rows.numbers
        response, server = (
            numbers["response_ns"].take(at),
            numbers["server_ns"].take(at),
        )
        times = np.where(response == BLANK, server, response)
        found, ordered, lengths = in_groups(which[at], np.arange(len(at)))
        ends = np.cumsum(lengths)
        most = np.maximum.reduceat(times.take(ordered), ends - lengths).tolist()
        for i, end, length, longest in zip(found, ends, lengths, most, strict=True):
            slowest = totals[i].slowest
            # to ask for a row is to have all its columns
            if longest <= 0 or (slowest and longest < time_of(slowest)):
                continue
            mine = ordered[end - length : end]
            ties = at[mine[times[mine] == longest]]
            totals[i].meet(rows.row(first_row(numbers, rows.texts, ties)))


def time_of(row: dict[str, Any]) -> int:
    """Return the response of an exchange; where only the server was seen, its time.

    Examples
    --------
    >>> time_of({"response_ns": None, "server_ns": 15})
    15
    """
    response = row["response_ns"]
    return int(row["server_ns"] if response is None else response)


def _kept(name: str, known: Mapping[str, object]) -> str:
    """Return a name, or that of the rest where there are too many."""
    return name if name in known or len(known) < MOST_WAYS else "other"


def _by_name(rows: Rows, own: NDArray[np.bool_]) -> Iterator[tuple[str, Index]]:
    """Give the rows of each protocol and way, of the first `MOST_WAYS` of them."""
    names = rows.texts["protocol"], rows.texts["way"]
    at = np.flatnonzero(own & (names[0][0] >= 0) & (names[1][0] >= 0))
    both = np.stack([codes[at] for codes, _ in names])
    found, index = np.unique(both, axis=1, return_inverse=True)
    for i, (protocol, way) in enumerate(found.T.tolist()):
        yield f"{names[0][1][protocol]} {names[1][1][way]}", at[index.ravel() == i]


def _codes(rows: Rows, at: Index) -> Ints:
    """Return which stamps each row lacks, and whether it is whole."""
    numbers = rows.numbers
    code = np.zeros(len(at), np.int64)
    for bit, stamp in enumerate(EXCHANGE_STAMPS):
        code |= (numbers[f"{stamp}_ns"].take(at) <= 0).astype(np.int64) << bit
    whole = np.ones(len(at), bool)
    # a missing stamp merges parts into later ones: the last of them is always there
    for name in ("response", SUMMANDS[-1]):
        whole &= numbers[f"{name}_ns"].take(at) >= 0
    return np.where(whole, code | _WHOLE, code)


def _paused(numbers: Mapping[str, Ints], at: Index) -> NDArray[np.bool_]:
    until_ns = numbers["until_pause_ns"].take(at)
    response_ns = numbers["response_ns"].take(at)
    return np.asarray((until_ns != BLANK) & (until_ns < response_ns))


def _unsplit(numbers: Mapping[str, Ints], at: Index) -> NDArray[np.bool_]:
    """Whether of several replies to what a server here has read none is the first."""
    read = numbers["request_read_ns"].take(at) != BLANK
    begins = numbers["reply_sent_ns"].take(at) != BLANK
    several = numbers["replies"].take(at) > 1
    return np.asarray(read & ~begins & several)


def _or_zero(values: Ints) -> Ints:
    return np.where(values == BLANK, 0, values)
