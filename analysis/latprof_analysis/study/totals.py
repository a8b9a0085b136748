"""From rows of messages and of round trips to figures that merge.

Histograms per kind and stage, sums, the slowest message. Memory does not grow with
the run; totals of parts merge to those of the whole, whatever their order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.grouping import in_groups
from latprof_analysis.stages import (
    APART,
    BLANK,
    LOADED,
    LOADED_REPLY,
    PROBE_STATISTICS,
    STAGES,
    STAMPS,
    TRAIN,
    TRAIN_REPLY,
    merged_name,
    missing_code,
)
from latprof_analysis.stats.histogram import Histogram, record_parts
from latprof_analysis.stats.quantiles import rank, samples_needed
from latprof_analysis.study.grouped import (
    FEW,
    ByWay,
    Grouped,
    Histograms,
    coarser,
    distinct,
)
from latprof_analysis.study.time_warp import (
    ALL,
    EVERY,
    MEANING,
    NONE_RECORDED,
    TAKEN,
    Legs,
    unknown_latencies,
)
from latprof_analysis.text import NS_PER_SECOND

Ints = NDArray[np.int64]
Texts = Mapping[str, tuple[NDArray[np.int32], Sequence[str]]]


def slowest_row(
    numbers: Mapping[str, Ints], texts: Texts, measured: NDArray[np.bool_]
) -> int | None:
    """Return the measured row with the largest end_to_end; None if none is above 0.

    Of equal ones it is that which `first_row` chooses.
    """
    times = np.where(measured, numbers["end_to_end_ns"], BLANK)
    if times.max() <= 0:
        return None
    return first_row(numbers, texts, np.flatnonzero(times == times.max()))


def first_row(numbers: Mapping[str, Ints], texts: Texts, rows: NDArray[np.intp]) -> int:
    """Return which of rows has the columns that, in the order of names, come first.

    Blank comes before all.
    """
    for name in sorted([*numbers, *texts]):
        if len(rows) == 1:
            break
        values = _ranks(*texts[name])[rows] if name in texts else numbers[name][rows]
        rows = rows[values == values.min()]
    return int(rows[0])


def _ranks(codes: NDArray[np.int32], labels: Sequence[str]) -> NDArray[np.intp]:
    """Return the place of each row's label among all; -1 where it has none."""
    _, places = np.unique(np.array(["", *labels]), return_inverse=True)
    return np.where(codes >= 0, places[1:][codes] if labels else -1, -1)


def beats(row: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a row stands before another, as `slowest_row` chooses.

    Examples
    --------
    >>> beats({"end_to_end_ns": 5, "send_ns": 1}, {"end_to_end_ns": 4, "send_ns": 0})
    True
    >>> beats({"end_to_end_ns": 5, "send_ns": 1}, {"end_to_end_ns": 5, "send_ns": 0})
    False
    """
    return place(row, row["end_to_end_ns"]) < place(other, other["end_to_end_ns"])


def place(row: Mapping[str, Any], time_ns: int) -> tuple[Any, ...]:
    """Return what orders rows: the slowest first, then as `first_row`.

    Examples
    --------
    >>> place({"server_ns": 4, "client_pid": None}, 4) < place({"server_ns": 3}, 3)
    True
    """
    cells = (row[name] for name in sorted(row))
    return -time_ns, *((c is not None, c or 0) for c in cells)


_COUNTS = (
    *("messages", "complete", PROBE_STATISTICS),
    *("bytes", "packets", "retransmits", "resent"),
)
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


def percentiles(histogram: Histogram) -> dict[str, Any]:
    """Return percentiles in ns; None where there are too few samples for one.

    Examples
    --------
    >>> latencies = Histogram()
    >>> latencies.record([50] * 10)
    >>> percentiles(latencies)["p50_ns"], percentiles(latencies)["p90_ns"]
    (50, None)
    """
    found: dict[str, Any] = {"n": histogram.count}
    for name, p in PERCENTILES.items():
        value = histogram.quantile(p)
        found[f"{name}_ns"] = None if value is None else round(value)
    found["max_ns"] = histogram.max_ns
    return found


# Of fewer values percentiles can be exact; those of a histogram are within 0.4%.
MOST_EXACT = 1_000_000


def exact_percentiles(times_ns: NDArray[Any]) -> dict[str, Any]:
    """Return what `percentiles` does, of the values themselves, of which there is one.

    Examples
    --------
    >>> exact_percentiles(np.arange(1, 101))["p90_ns"]
    90
    """
    ascending = np.sort(times_ns)
    n = ascending.size
    found: dict[str, Any] = {"n": n}
    for name, p in PERCENTILES.items():
        known = n >= samples_needed(p)
        found[f"{name}_ns"] = round(ascending[rank(p, n) - 1].item()) if known else None
    return found | {"max_ns": round(ascending[-1].item())}


@dataclass
class KindTotals:
    """All messages of one kind.

    `by_size` has the stages of each size; `by_hops` and `by_packets` have
    end_to_end by the number of routers on the way, and by that of packets; `halves`
    has the stages of messages of which one end was seen, `hosts` by size what passed
    of datagrams outside the qdisc and transit; `legs` what of Time Warp's latencies is
    no stage.
    """

    by_size: Grouped
    by_hops: Grouped
    by_packets: Grouped
    halves: Grouped = field(default_factory=lambda: Grouped(0))
    hosts: Grouped = field(default_factory=Grouped)
    messages: int = 0
    complete: int = 0  # with both ends
    probe_statistics: int = 0  # sent while our own cost was measured
    bytes: int = 0
    packets: int = 0
    retransmits: int = 0
    resent: int = 0  # messages of which segments were sent again
    smallest_bytes: int | None = None
    smallest_transit: Histogram = field(default_factory=Histogram)
    legs: Legs = field(default_factory=Legs)

    @classmethod
    def empty(cls, most: int) -> KindTotals:
        """Begin with nothing; `most` as in `Grouped`."""
        return cls(Grouped(most), Grouped(most), Grouped(most))

    @property
    def stages(self) -> Histograms:
        """Stages of all sizes together."""
        return self.by_size.total()

    def count(self, numbers: Mapping[str, Ints], at: NDArray[np.intp]) -> None:
        """Add up what is counted of all rows, also of those that died."""
        self.messages += len(at)
        self.probe_statistics += _marked(numbers, at)
        self.bytes += _total(numbers["size_bytes"].take(at))
        self.packets += _total(numbers["packets"].take(at))
        again = numbers["retransmits"].take(at)
        self.retransmits += _total(again)
        self.resent += int((again > 0).sum())

    def record_smallest(self, sizes: Ints, transits: Ints) -> None:
        """Add the transits of those that are of the smallest size."""
        known = (sizes > 0) & (transits >= 0)
        if not known.any():
            return
        least = int(sizes[known].min())
        if self.smallest_bytes is None or least < self.smallest_bytes:
            self.smallest_bytes, self.smallest_transit = least, Histogram()
        self.smallest_transit.record(transits[known & (sizes == self.smallest_bytes)])

    def merge(self, other: KindTotals) -> None:
        """Add all that `other` has counted."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("by_size", "by_hops", "by_packets", "halves", "hosts"):
            getattr(self, name).merge(getattr(other, name))
        self.legs.merge(other.legs)
        if other.smallest_bytes is None:
            return
        if self.smallest_bytes is None or other.smallest_bytes < self.smallest_bytes:
            self.smallest_bytes, self.smallest_transit = (
                other.smallest_bytes,
                Histogram(),
            )
        if self.smallest_bytes == other.smallest_bytes:
            self.smallest_transit.merge(other.smallest_transit)

    def all_legs(self) -> Legs:
        """Return A, B, C and D, of halves, too."""
        found = Legs(ALL)
        found.merge(self.legs)
        for name, stage in (("A", "end_to_end"), ("B", "application")):
            for stages in (self.stages, self.halves.total()):
                if stage in stages:
                    found.histograms[name].merge(stages[stage])
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by stage and percentile, in ns."""
        found = {
            **{name: getattr(self, name) for name in _COUNTS},
            "smallest": self._smallest_dict(),
            "stages": _stages_dict(self.stages),
            "halves": {
                "messages": self.messages - self.complete,
                "stages": _stages_dict(self.halves.total()),
            },
        }
        if self.by_size.most:
            found["sizes"] = {
                label: _stages_dict(stages) for label, stages in self.by_size.in_order()
            }
            found["by_hops"] = _ends_dict(self.by_hops)
            found["by_packets"] = _ends_dict(self.by_packets)
        return found

    def _smallest_dict(self) -> dict[str, Any] | None:
        """One-way delay of the smallest messages, whose bytes take least of it."""
        transit = self.smallest_transit
        if not transit.count:
            return None
        low = transit.quantile(0.1)
        return {
            "size_bytes": self.smallest_bytes,
            "transit_min_ns": transit.min_ns,
            "transit_p10_ns": None if low is None else round(low),
            "n": transit.count,
        }


def _marked(numbers: Mapping[str, Ints], at: NDArray[np.intp]) -> int:
    return int((numbers[PROBE_STATISTICS].take(at) == 1).sum())


def _latencies_dict(legs: Legs) -> dict[str, Any]:
    return {
        name: percentiles(histogram) | {"mean_ns": histogram.mean_ns}
        for name, histogram in legs.histograms.items()
    }


def _ends_dict(grouped: Grouped) -> dict[str, Any]:
    return {
        label: percentiles(found.get("end_to_end", Histogram()))
        for label, found in grouped.in_order()
    }


def _total(values: Ints) -> int:
    return int(values[values != BLANK].sum())


@cache
def stages_present(missing: int) -> tuple[tuple[str, str], ...]:
    """Return the stages of messages that lack these stamps, and their columns.

    Examples
    --------
    >>> stages_present(0b0010001)[:2]  # without created and arrive
    (('send_queue', 'send_queue_ns'), ('qdisc', 'qdisc_ns'))
    >>> stages_present(0b0010001)[2]
    ('transit+receive_stack', 'receive_stack_ns')
    """
    present = {stamp: not missing >> bit & 1 for bit, stamp in enumerate(STAMPS)}
    # before created there is nothing that application could stand for
    since = present | {"created": True}
    found = [
        (merged_name(stage, since), f"{stage}_ns")
        for stage, stamp in zip(STAGES, STAMPS[1:], strict=True)
        if present[stamp] and (stage != "application" or present["created"])
    ]
    ends = [(name, f"{name}_ns") for name in ("wakeup", "end_to_end")]
    return (*found, *ends)


def _stages_dict(stages: Histograms) -> dict[str, Any]:
    whole = stages.get("end_to_end")
    found = {}
    for name in sorted(stages, key=_stage_order):
        histogram = stages[name]
        share = histogram.sum_ns / whole.sum_ns if whole and whole.sum_ns else None
        found[name] = percentiles(histogram) | {
            "mean_ns": histogram.mean_ns,
            "share_of_end_to_end": share,
        }
    return found


def _stage_order(name: str) -> tuple[int, str]:
    order = [*STAGES, "wakeup", "end_to_end"]
    return order.index(name.rsplit("+", maxsplit=1)[-1]), name


# What is neither request nor reply of a load generator: grouped by its ends.
MESSAGE = "message"
# Ours are six; a file with more than this is none of messages.
MOST_KINDS = 64
# Of these the hosts' time is kept apart: nothing of a datagram crosses meanwhile.
DATAGRAM_TURNS = ("udp request", "udp reply")
_CODES = 1 << len(STAMPS)  # of what stamps a message may lack

# Of rows that are ordered: number of the part, its group, and the stage's name.
_Parts = list[tuple[int, int, str]]


class Rows(Protocol):
    """Rows of messages.csv by column."""

    @property
    def numbers(self) -> Mapping[str, Ints]:
        """Columns of whole numbers, BLANK where there is no value."""

    @property
    def texts(self) -> Mapping[str, tuple[NDArray[np.int32], Sequence[str]]]:
        """Columns of text: which label each row has, -1 for none, and the labels."""

    def row(self, i: int) -> dict[str, Any]:
        """Return one row by column; None where blank."""

    def __len__(self) -> int: ...


class MessageTotals:
    """Figures of messages, by protocol and kind.

    Parameters
    ----------
    most : int
        Sizes (hops, packets) with a group each, as in `Grouped`; with 0 none has.

    Attributes
    ----------
    kinds : dict of str to KindTotals
        By protocol and kind: "tcp request"; or, of other programs' messages, by
        protocol and ends: "tcp curl -> nginx:80".
    warmup : int
        Messages of the warm-up, which are in no other figure.
    trains, loaded : int
        Messages of trains, and beside a load, which are in none either but `apart`.
    apart : dict of str to Legs
        Time Warp's latencies of those, by protocol and kind: "tcp train reply".
    missing : dict of str to int
        Stamps that complete messages lack.
    backwards : int
        Stages that are negative: left out.
    slowest : dict or None
        The row with the largest end_to_end in the percentiles. Of equal ones that
        which comes first by the values of its columns, so that the order of rows
        makes no difference.
    """

    def __init__(self, most: int = FEW) -> None:
        self.most = most
        self._kinds: dict[str, KindTotals] = {}
        self._ways: ByWay[KindTotals] = ByWay(partial(KindTotals.empty, most))
        self.warmup = self.trains = self.loaded = 0
        self.apart: dict[str, Legs] = {}
        self.missing = dict.fromkeys(STAMPS, 0)
        self.backwards = 0
        self.slowest: dict[str, Any] | None = None

    @property
    def level(self) -> int:
        """How coarsely ways are kept apart, as in `coarser`."""
        return self._ways.level

    @property
    def kinds(self) -> dict[str, KindTotals]:
        return self._kinds | self._ways.totals

    def add(self, rows: Rows) -> None:
        """Take in rows; those without protocol or kind are in no figure."""
        if not len(rows):
            return
        measured, trains = are_measured(rows), _are(rows, (TRAIN, TRAIN_REPLY))
        loaded = _are(rows, (LOADED, LOADED_REPLY))
        self.trains += int(trains.sum())
        self.loaded += int(loaded.sum())
        self.warmup += int((~measured & ~trains & ~loaded).sum())
        missing = missing_code({s: rows.numbers[f"{s}_ns"] for s in STAMPS})
        self._add_apart(rows, missing, trains | loaded)
        for name, at in _by_kind(rows, measured):
            if name.endswith(f" {MESSAGE}") and "way" in rows.texts:
                for way, of_way in self._by_way(rows, name, at):
                    self._add_kind(self._ways.of(way), rows.numbers, missing, of_way)
            else:
                whole = self._add_kind(self._kind(name), rows.numbers, missing, at)
                if name in DATAGRAM_TURNS:
                    _add_hosts(self._kind(name), rows.numbers, whole)
        ends = rows.numbers["end_to_end_ns"]
        i = slowest_row(rows.numbers, rows.texts, measured)
        if i is None:
            return
        # to ask for a row is to have all its columns
        if self.slowest and ends[i] < self.slowest["end_to_end_ns"]:
            return
        self._meet(rows.row(i))

    def merge(self, other: MessageTotals) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        for name, totals in other._kinds.items():
            self._kind(name).merge(totals)
        self._ways.merge(other._ways)
        for name, legs in other.apart.items():
            self._legs(name).merge(legs)
        self.warmup += other.warmup
        self.trains += other.trains
        self.loaded += other.loaded
        self.backwards += other.backwards
        for stamp, count in other.missing.items():
            self.missing[stamp] += count
        if other.slowest:
            self._meet(other.slowest)

    def datagrams(self, rows: Rows) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Split rows of datagrams by the names that `kinds` has them under."""
        _, protocols = rows.texts["protocol"]
        if "udp" not in protocols:
            return
        for name, at in _by_kind(rows, are_measured(rows)):
            if not name.startswith("udp "):
                continue
            if name.endswith(f" {MESSAGE}") and "way" in rows.texts:
                yield from self._by_way(rows, name, at)
            else:
                yield name, at

    def _kind(self, name: str) -> KindTotals:
        _check_room(self._kinds, name)
        return self._kinds.setdefault(name, KindTotals.empty(self.most))

    def _add_apart(
        self, rows: Rows, missing: NDArray[np.uint8], which: NDArray[np.bool_]
    ) -> None:
        for name, at in _by_kind(rows, which) if which.any() else ():
            self._legs(name).add(rows.numbers, missing, at)

    def _legs(self, name: str) -> Legs:
        _check_room(self.apart, name)
        return self.apart.setdefault(name, Legs(ALL))

    def _by_way(
        self, rows: Rows, name: str, at: NDArray[np.intp]
    ) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Split rows of one protocol's messages by who sent to whom."""
        codes, labels = rows.texts["way"]
        found, index = np.unique(codes.take(at), return_inverse=True)
        protocol = name.partition(" ")[0]
        ways = [labels[code] if code >= 0 else "" for code in found.tolist()]
        names = [
            coarser(f"{protocol} {way}", self._ways.level) if way else name
            for way in ways
        ]
        number = {way: i for i, way in enumerate(dict.fromkeys(names))}
        keys = np.array([number[way] for way in names])[index]
        order = np.argsort(keys, kind="stable")
        parts = np.split(at[order], np.flatnonzero(np.diff(keys[order])) + 1)
        yield from zip(number, parts, strict=True)

    def _meet(self, row: dict[str, Any]) -> None:
        if self.slowest is None or beats(row, self.slowest):
            self.slowest = row

    def _add_kind(
        self,
        totals: KindTotals,
        numbers: Mapping[str, Ints],
        missing: NDArray[np.uint8],
        at: NDArray[np.intp],
    ) -> NDArray[np.intp]:
        """Add messages; return those of them that have all stages in percentiles."""
        complete = numbers["end_to_end_ns"].take(at) != BLANK
        whole = at if complete.all() else at[complete]
        totals.count(numbers, at)
        if len(whole) < len(at):
            half = at[~complete]
            self._add_stages(totals.halves, numbers, missing, half)
            totals.legs.add(numbers, missing, half)
        totals.complete += len(whole)
        self._count_missing(missing.take(whole))
        self._add_stages(totals.by_size, numbers, missing, whole)
        totals.legs.add(numbers, missing, whole)
        if self.most:
            _add_paths(totals, numbers, whole)
        _add_smallest(totals, numbers, whole)
        return whole

    def _add_stages(
        self,
        grouped: Grouped,
        numbers: Mapping[str, Ints],
        missing: NDArray[np.uint8],
        rows: NDArray[np.intp],
    ) -> None:
        groups, index = grouped.admit(numbers["size_bytes"].take(rows))
        keys = index * _CODES + missing.take(rows)
        found, ordered, lengths = in_groups(keys, rows)
        stages: dict[str, _Parts] = {}
        for i, key in enumerate(found):
            group, code = int(groups[key // _CODES]), key % _CODES
            for name, column in stages_present(code):
                stages.setdefault(column, []).append((i, group, name))
        for column, parts in stages.items():
            self._record(grouped, parts, numbers[column].take(ordered), lengths)

    def _count_missing(self, codes: NDArray[np.uint8]) -> None:
        for code, count in enumerate(np.bincount(codes).tolist()):
            for bit, stamp in enumerate(STAMPS):
                self.missing[stamp] += count * (code >> bit & 1)

    def _record(
        self, grouped: Grouped, parts: _Parts, values: Ints, lengths: NDArray[np.intp]
    ) -> None:
        """Record a column that is ordered by parts; of some it may be no stage."""
        if len(parts) < len(lengths):
            chosen = np.zeros(len(lengths), bool)
            chosen[[i for i, _, _ in parts]] = True
            values, lengths = values[np.repeat(chosen, lengths)], lengths[chosen]
        if values.min() < 0:
            self.backwards += int(((values < 0) & (values != BLANK)).sum())
            values, lengths = _without_negative(values, lengths)
        there = lengths > 0
        if not there.any():
            return
        histograms = [
            grouped.of(group, name)
            for (_, group, name), some in zip(parts, there.tolist(), strict=True)
            if some
        ]
        record_parts(histograms, values, lengths[there])

    def as_dict(self) -> dict[str, Any]:
        """Return the figures by kind, stage and percentile, in ns."""
        return {kind: self.kinds[kind].as_dict() for kind in self.in_order()}

    def time_warp(self) -> dict[str, Any]:
        """Return A, B, C and D of each protocol's requests, replies and messages.

        And of trains, and beside a load. `stamped` says how many messages have each
        stamp, `unknown` why a latency is of none.
        """
        kinds = self._all_legs()
        latencies = {kind: _latencies_dict(legs) for kind, legs in kinds.items()}
        unknown = {
            kind: unknown_latencies(
                legs.messages,
                legs.stamped,
                [name for name, figures in latencies[kind].items() if figures["n"]],
            )
            for kind, legs in kinds.items()
        }
        if not kinds:
            unknown = {EVERY: dict.fromkeys(ALL, NONE_RECORDED)}
        return {
            "meaning": MEANING,
            "stamps": TAKEN,
            "kinds": latencies,
            "stamped": {
                kind: {"messages": legs.messages, **legs.stamped}
                for kind, legs in kinds.items()
            },
            "unknown": {kind: found for kind, found in unknown.items() if found},
        }

    def _all_legs(self) -> dict[str, Legs]:
        """Return all latencies by kind; of other programs' all ways are one."""
        found: dict[str, Legs] = {}
        for name in self.in_order():
            protocol = name.partition(" ")[0]
            of = name if name in self._kinds else f"{protocol} {MESSAGE}"
            found.setdefault(of, Legs(ALL)).merge(self.kinds[name].all_legs())
        return found | {name: self.apart[name] for name in sorted(self.apart)}

    def in_order(self) -> list[str]:
        """Return the kinds by protocol, requests before replies before others."""
        return sorted(self.kinds, key=_order)


def _check_room(kinds: Collection[str], name: str) -> None:
    if name not in kinds and len(kinds) == MOST_KINDS:
        raise ValueError(
            f"kinds of messages must be at most {MOST_KINDS}, got {name!r:.60} too"
        )


def _order(name: str) -> tuple[str, int, str]:
    protocol, _, kind = name.partition(" ")
    return protocol, ("request", "reply", kind).index(kind), kind


def are_measured(rows: Rows) -> NDArray[np.bool_]:
    """Return which rows are neither of the warm-up nor of trains."""
    return ~_are(rows, APART)


def _are(rows: Rows, names: Sequence[str]) -> NDArray[np.bool_]:
    """Say which rows are of these kinds."""
    kinds, labels = rows.texts["kind"]
    return np.isin(kinds, [i for i, label in enumerate(labels) if label in names])


def _by_kind(
    rows: Rows, measured: NDArray[np.bool_]
) -> Iterator[tuple[str, NDArray[np.intp]]]:
    """Split rows by protocol and kind."""
    kinds, kind_names = rows.texts["kind"]
    protocols, protocol_names = rows.texts["protocol"]
    known = measured & (kinds >= 0) & (protocols >= 0)
    both = np.where(known, kinds * np.int64(len(protocol_names)) + protocols, BLANK)
    found, index = distinct(both)
    for i, number in enumerate(found.tolist()):
        if number != BLANK:
            kind, protocol = divmod(number, len(protocol_names))
            name = f"{protocol_names[protocol]} {kind_names[kind]}"
            yield name, np.flatnonzero(index == i)


def _without_negative(
    values: Ints, lengths: NDArray[np.intp]
) -> tuple[Ints, NDArray[np.intp]]:
    """Leave negative values out of parts, and say how long the parts are then."""
    fit = values >= 0
    part = np.repeat(np.arange(len(lengths)), lengths)
    return values[fit], np.bincount(part[fit], minlength=len(lengths))


def _add_paths(
    totals: KindTotals, numbers: Mapping[str, Ints], whole: NDArray[np.intp]
) -> None:
    times = numbers["end_to_end_ns"]
    whole = whole[times.take(whole) >= 0]
    for grouped, column in (
        (totals.by_hops, "hops"),
        (totals.by_packets, "packets"),
    ):
        groups, index = grouped.admit(numbers[column].take(whole))
        found, ordered, lengths = in_groups(index, whole)
        histograms = [grouped.of(groups[key], "end_to_end") for key in found]
        record_parts(histograms, times.take(ordered), lengths)


def _add_hosts(
    totals: KindTotals, numbers: Mapping[str, Ints], whole: NDArray[np.intp]
) -> None:
    """Add the hosts' time of those whose time on the way is known."""
    stamps = ("queue_ns", "xmit_ns", "arrive_ns")
    lacking = [numbers[stamp].take(whole) == BLANK for stamp in stamps]
    rows = whole[~np.any(lacking, axis=0)]
    groups, index = totals.hosts.admit(numbers["size_bytes"].take(rows))
    found, ordered, lengths = in_groups(index, rows)
    times = numbers["end_to_end_ns"].take(ordered)
    for stage in ("qdisc_ns", "transit_ns"):
        times = times - numbers[stage].take(ordered)
    histograms = [totals.hosts.of(groups[key], "hosts") for key in found]
    record_parts(histograms, np.maximum(times, 0), lengths)


def _add_smallest(
    totals: KindTotals, numbers: Mapping[str, Ints], whole: NDArray[np.intp]
) -> None:
    """Add those of the smallest size whose transit is no other stage's, too."""
    sizes = numbers["size_bytes"]
    if totals.smallest_bytes is not None:
        whole = whole[sizes.take(whole) <= totals.smallest_bytes]
    known = (numbers["xmit_ns"][whole] > 0) & (numbers["arrive_ns"][whole] > 0)
    rows = whole[known]
    totals.record_smallest(sizes[rows], numbers["transit_ns"][rows])


class TripTotals:
    """Figures of one protocol's round trips.

    Parameters
    ----------
    most : int
        Sizes with a group each, as in `Grouped`.

    Attributes
    ----------
    sent, lost : int
    probe_statistics : int
        Of those answered: sent while our own cost was measured.
    first_ns, last_ns : int or None
        When the first and the last were sent.
    lateness : Histogram
        By how much they were sent after they should have been.
    """

    def __init__(self, most: int = FEW) -> None:
        self.sent = self.lost = self.probe_statistics = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.lateness = Histogram()
        self.by_size = Grouped(most)

    def add(
        self,
        size_bytes: Ints,
        rtt_ns: Ints,
        sent_ns: Ints,
        intended_ns: Ints,
        marked: NDArray[np.bool_] | bool = False,
    ) -> None:
        """Take in round trips.

        Parameters
        ----------
        size_bytes, rtt_ns, sent_ns, intended_ns : ndarray of int64, shape (n,)
            BLANK where not known; `rtt_ns` is BLANK of those that were lost.
        marked : ndarray of bool, shape (n,), optional
            They were sent while our own cost was measured.
        """
        answered = np.flatnonzero(rtt_ns != BLANK)
        self.sent += len(rtt_ns)
        self.lost += len(rtt_ns) - len(answered)
        sent = sent_ns[sent_ns != BLANK]
        if len(sent):
            self._widen(int(sent.min()), int(sent.max()))
        timed = (sent_ns != BLANK) & (intended_ns != BLANK)
        self.lateness.record(np.maximum(sent_ns[timed] - intended_ns[timed], 0))
        of_each = np.broadcast_to(marked, len(rtt_ns))
        self.probe_statistics += int(of_each[answered].sum())
        groups, index = self.by_size.admit(size_bytes[answered])
        found, ordered, lengths = in_groups(index, answered)
        histograms = [self.by_size.of(groups[key], "rtt") for key in found]
        record_parts(histograms, rtt_ns.take(ordered), lengths)

    def merge(self, other: TripTotals) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        self.sent += other.sent
        self.lost += other.lost
        self.probe_statistics += other.probe_statistics
        self.lateness.merge(other.lateness)
        self.by_size.merge(other.by_size)
        if other.first_ns is not None and other.last_ns is not None:
            self._widen(other.first_ns, other.last_ns)

    def _widen(self, first_ns: int, last_ns: int) -> None:
        low, high = self.first_ns, self.last_ns
        self.first_ns = first_ns if low is None else min(low, first_ns)
        self.last_ns = last_ns if high is None else max(high, last_ns)

    def as_dict(self, times: tuple[Ints, Ints] | None = None) -> dict[str, Any]:
        """Return the figures per size, in ns.

        `times` are sizes and round trip times of all that were counted, where they
        are still there: then percentiles are exact, unless there are too many.
        """
        found = self._counted()
        sizes, rtt_ns = times or (np.zeros(0, np.int64),) * 2
        if rtt_ns.size != found["rtt"]["n"] or not 0 < rtt_ns.size < MOST_EXACT:
            return found
        found["rtt"] = exact_percentiles(rtt_ns)
        groups, index = self.by_size.admit(sizes)
        for i, group in enumerate(groups.tolist()):
            figures = found["sizes"][self.by_size.label(group)]
            figures |= exact_percentiles(rtt_ns[index == i])
        return found

    def _counted(self) -> dict[str, Any]:
        """Return the figures, percentiles by histograms."""
        return {
            "sent": self.sent,
            "lost": self.lost,
            PROBE_STATISTICS: self.probe_statistics,
            "loss_ratio": self.lost / self.sent if self.sent else None,
            "achieved_per_second": self._per_second(),
            "rtt": percentiles(self.by_size.total().get("rtt", Histogram())),
            "lateness": percentiles(self.lateness),
            "sizes": {
                label: percentiles(found["rtt"])
                for label, found in self.by_size.in_order()
                if found
            },
        }

    def _per_second(self) -> float | None:
        if self.first_ns is None or self.last_ns is None:
            return None
        seconds = (self.last_ns - self.first_ns) / NS_PER_SECOND
        return (self.sent - 1) / seconds if seconds > 0 else None
