"""From rows of messages to figures: histograms per kind and stage, sums, the
slowest message. Memory does not grow with the run, and totals of parts merge to
those of the whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.histogram import record_parts
from latprof_analysis.scans.by_way import ByWay, coarser
from latprof_analysis.scans.grouped import FEW, Grouped, distinct, in_groups
from latprof_analysis.scans.kind_totals import KindTotals, stages_present
from latprof_analysis.scans.slowest import beats, slowest_row
from latprof_analysis.stages import BLANK, PROBE_STATISTICS, STAMPS, missing_code

WARMUP = "warmup"
# What is neither request nor reply of a load generator: told apart by its ends.
MESSAGE = "message"
# Ours are six; a file with more than this is none of messages.
MOST_KINDS = 64
# Of these the hosts' time is told apart: nothing of a datagram crosses meanwhile.
DATAGRAM_TURNS = ("udp request", "udp reply")
_CODES = 1 << len(STAMPS)  # of what stamps a message may lack

Ints = NDArray[np.int64]
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
        Sizes (hops, packets) that are told apart, as in `Grouped`; with 0 none are.

    Attributes
    ----------
    kinds : dict of str to KindTotals
        By protocol and kind: "tcp request"; or, of other programs' messages, by
        protocol and ends: "tcp curl -> nginx:80".
    warmup : int
        Messages of the warm-up, which are in no other figure.
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
        self.warmup = 0
        self.missing = dict.fromkeys(STAMPS, 0)
        self.backwards = 0
        self.slowest: dict[str, Any] | None = None

    @property
    def level(self) -> int:
        """How coarsely ways are told apart, as in `coarser`."""
        return self._ways.level

    @property
    def kinds(self) -> dict[str, KindTotals]:
        return self._kinds | self._ways.totals

    def add(self, rows: Rows) -> None:
        """Take in rows; those without protocol or kind are in no figure."""
        if not len(rows):
            return
        kinds, labels = rows.texts["kind"]
        warm = [i for i, label in enumerate(labels) if label == WARMUP]
        measured = ~np.isin(kinds, warm)
        self.warmup += int((~measured).sum())
        missing = missing_code({s: rows.numbers[f"{s}_ns"] for s in STAMPS})
        for name, at in _by_kind(rows, measured):
            if name.endswith(f" {MESSAGE}") and "way" in rows.texts:
                for way, of_way in self._by_way(rows, name, at):
                    self._add_kind(self._ways.of(way), rows.numbers, missing, of_way)
            else:
                whole = self._add_kind(self._kind(name), rows.numbers, missing, at)
                if name in DATAGRAM_TURNS:
                    _add_hosts(self._kind(name), rows.numbers, whole)
        ends = rows.numbers["end_to_end_ns"]
        undisturbed = rows.numbers[PROBE_STATISTICS] != 1
        i = slowest_row(rows.numbers, rows.texts, measured & undisturbed)
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
        self.warmup += other.warmup
        self.backwards += other.backwards
        for stamp, count in other.missing.items():
            self.missing[stamp] += count
        if other.slowest:
            self._meet(other.slowest)

    def _kind(self, name: str) -> KindTotals:
        if name not in self._kinds and len(self._kinds) == MOST_KINDS:
            raise ValueError(
                f"kinds of messages must be at most {MOST_KINDS}, got {name!r:.60} too"
            )
        return self._kinds.setdefault(name, KindTotals.empty(self.most))

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
            half = half[numbers[PROBE_STATISTICS].take(half) != 1]
            self._add_stages(totals.halves, numbers, missing, half)
        totals.complete += len(whole)
        self._count_missing(missing.take(whole))
        undisturbed = numbers[PROBE_STATISTICS].take(whole) != 1
        totals.left_out += len(whole) - int(undisturbed.sum())
        whole = np.compress(undisturbed, whole)
        self._add_stages(totals.by_size, numbers, missing, whole)
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

    def in_order(self) -> list[str]:
        """Return the kinds by protocol, requests before replies before others."""
        return sorted(self.kinds, key=_order)


def _order(name: str) -> tuple[str, int, str]:
    protocol, _, kind = name.partition(" ")
    return protocol, ("request", "reply", kind).index(kind), kind


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
    """Leave negative values out of parts, and tell how long the parts are then."""
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
