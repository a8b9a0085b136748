"""From rows to figures: histograms per kind of message and stage, sums, the
slowest message. Memory does not grow with the run, but for round trips."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.histogram import Histogram
from numpy.typing import NDArray

from latprof_agent import round_trips
from latprof_agent.messages import KINDS, WARMUP, Ints, Messages
from latprof_agent.stages import BLANK, STAGES, STAMPS, merged_name, missing_code

PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


def percentiles(histogram: Histogram) -> dict[str, Any]:
    """Percentiles in ns; None where there are too few samples for one."""
    found: dict[str, Any] = {"n": histogram.count}
    for name, p in PERCENTILES.items():
        value = histogram.quantile(p)
        found[f"{name}_ns"] = None if value is None else round(value)
    found["max_ns"] = histogram.max_ns
    return found


@dataclass
class KindTotals:
    """All messages of one kind."""

    messages: int = 0
    complete: int = 0  # with both ends
    bytes: int = 0
    packets: int = 0
    retransmits: int = 0
    stages: dict[str, Histogram] = field(default_factory=dict)
    smallest_bytes: int | None = None
    smallest_transit: Histogram = field(default_factory=Histogram)

    def record(self, stage: str, values: Ints) -> None:
        """Add the values of one stage."""
        if len(values):
            self.stages.setdefault(stage, Histogram()).record(values)

    def record_smallest(self, sizes: Ints, transits: Ints) -> None:
        """Add the transits of those that are of the smallest size."""
        known = (sizes > 0) & (transits >= 0)
        if not known.any():
            return
        least = int(sizes[known].min())
        if self.smallest_bytes is None or least < self.smallest_bytes:
            self.smallest_bytes, self.smallest_transit = least, Histogram()
        alike = known & (sizes == self.smallest_bytes)
        if alike.any():
            self.smallest_transit.record(transits[alike])


def _total(values: Ints) -> int:
    return int(values[values != BLANK].sum())


class MessageTotals:
    """Figures of messages.csv, by protocol and kind."""

    def __init__(self) -> None:
        self.kinds: dict[str, KindTotals] = {}
        self.warmup = 0
        self.missing = dict.fromkeys(STAMPS, 0)
        self.slowest: dict[str, Any] | None = None
        self.backwards = 0

    def add(self, rows: Messages) -> None:
        """Take in rows that are ready for the file."""
        kinds = rows.texts["kind"][0]
        self.warmup += int((kinds == WARMUP).sum())
        index, protocols = rows.texts["protocol"]
        for kind in np.unique(kinds):
            for i, protocol in enumerate(protocols):
                at = np.flatnonzero((kinds == kind) & (index == i))
                if len(at) and kind not in (WARMUP, -1):
                    self._add_kind(rows, f"{protocol} {KINDS[kind]}", at)
        self._find_slowest(rows, kinds)

    def _add_kind(self, rows: Messages, kind: str, at: NDArray[np.intp]) -> None:
        totals = self.kinds.setdefault(kind, KindTotals())
        complete = rows.numbers["end_to_end_ns"][at] != BLANK
        whole = at if complete.all() else at[complete]
        totals.messages += len(at)
        totals.complete += len(whole)
        totals.bytes += _total(rows.numbers["size_bytes"][at])
        totals.packets += _total(rows.numbers["packets"][at])
        totals.retransmits += _total(rows.numbers["retransmits"][at])
        for name in (*STAGES, "wakeup", "end_to_end"):
            values = rows.numbers[f"{name}_ns"][whole]
            self.backwards += int(((values < 0) & (values != BLANK)).sum())
        self._add_stages(totals, rows, whole)
        numbers = rows.numbers
        totals.record_smallest(
            numbers["size_bytes"][whole],
            np.where(
                (numbers["xmit_ns"][whole] > 0) & (numbers["arrive_ns"][whole] > 0),
                numbers["transit_ns"][whole],
                BLANK,
            ),
        )

    def _add_stages(
        self, totals: KindTotals, rows: Messages, whole: NDArray[np.intp]
    ) -> None:
        stamps = {s: np.maximum(rows.numbers[f"{s}_ns"][whole], 0) for s in STAMPS}
        for stamp, values in stamps.items():
            self.missing[stamp] += int((values == 0).sum())
        codes = missing_code(stamps)
        for code in np.unique(codes):
            same = codes == code
            alike = whole if same.all() else whole[same]
            present = {s: not code >> bit & 1 for bit, s in enumerate(STAMPS)}
            for stage, stamp in zip(STAGES, STAMPS[1:], strict=True):
                if present[stamp] and (stage != "application" or present["created"]):
                    name = merged_name(stage, present | {"created": True})
                    values = rows.numbers[f"{stage}_ns"][alike]
                    totals.record(name, values[values >= 0])
        for name in ("wakeup", "end_to_end"):
            values = rows.numbers[f"{name}_ns"][whole]
            totals.record(name, values[values >= 0])

    def _find_slowest(self, rows: Messages, kinds: NDArray[np.int32]) -> None:
        if not len(rows):
            return
        times = np.where(kinds == WARMUP, BLANK, rows.numbers["end_to_end_ns"])
        i = int(times.argmax())
        worst = self.slowest["end_to_end_ns"] if self.slowest else 0
        if times[i] > worst:
            self.slowest = rows.row(i)

    def as_dict(self) -> dict[str, Any]:
        """The figures by kind, stage and percentile, in ns."""
        return {kind: _kind_dict(totals) for kind, totals in self.kinds.items()}


def _kind_dict(totals: KindTotals) -> dict[str, Any]:
    whole = totals.stages.get("end_to_end")
    stages = {}
    order = sorted(totals.stages, key=_stage_order)
    for name in order:
        histogram = totals.stages[name]
        share = histogram.sum_ns / whole.sum_ns if whole and whole.sum_ns else None
        stages[name] = percentiles(histogram) | {
            "mean_ns": histogram.mean_ns,
            "share_of_end_to_end": share,
        }
    return {
        "messages": totals.messages,
        "complete": totals.complete,
        "bytes": totals.bytes,
        "packets": totals.packets,
        "retransmits": totals.retransmits,
        "smallest": _smallest_dict(totals),
        "stages": stages,
    }


def _smallest_dict(totals: KindTotals) -> dict[str, Any] | None:
    """One-way delay of the smallest messages, whose bytes take least of it."""
    transit = totals.smallest_transit
    if not transit.count:
        return None
    low = transit.quantile(0.1)
    return {
        "size_bytes": totals.smallest_bytes,
        "transit_min_ns": transit.min_ns,
        "transit_p10_ns": None if low is None else round(low),
        "n": transit.count,
    }


def _stage_order(name: str) -> tuple[int, str]:
    order = [*STAGES, "wakeup", "end_to_end"]
    return order.index(name.rsplit("+", maxsplit=1)[-1]), name


class RoundTripTotals:
    """Figures of one protocol's round trips; keeps 24 bytes of each."""

    def __init__(self, protocol: str, size_count: int, open_loop: bool) -> None:
        self.protocol = protocol
        self.open_loop = open_loop
        self.sent = self.lost = self.corrupt = 0
        self.lateness = Histogram()
        self.first_ns = self.last_ns = 0
        self._size_count = size_count
        self._first_sequence: int | None = None
        self._parts: list[tuple[Ints, Ints, Ints]] = []

    def add(self, records: NDArray[Any]) -> None:
        """Take in measured records of the generator's log, without warm-up."""
        if not len(records):
            return
        if self._first_sequence is None:
            self._first_sequence = int(records["sequence"].min())
            self.first_ns = int(records["sent_ns"].min())
        self.last_ns = max(self.last_ns, int(records["sent_ns"].max()))
        lost = (records["flags"] & round_trips.LOST_FLAG) != 0
        self.sent += len(records)
        self.lost += int(lost.sum())
        self.corrupt += int((records["flags"] & round_trips.CORRUPT_FLAG != 0).sum())
        sent, intended = records["sent_ns"], records["intended_ns"]
        self.lateness.record(np.maximum(sent.astype("i8") - intended.astype("i8"), 0))
        answered = records[~lost]
        order = answered["sequence"].astype("i8") - self._first_sequence
        self._parts.append(
            (
                answered["size_bytes"].astype("i8"),
                round_trips.rtt_ns(answered, self.open_loop),
                order // self._size_count,
            )
        )

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Sizes, round trip times and rounds of all that were answered."""
        if not self._parts:
            empty = np.empty(0, "i8")
            return empty, empty, empty
        sizes, rtts, rounds = zip(*self._parts, strict=True)
        return np.concatenate(sizes), np.concatenate(rtts), np.concatenate(rounds)

    def as_dict(self) -> dict[str, Any]:
        """Figures per size, in ns."""
        sizes, rtts, _ = self.arrays()
        everything = Histogram()
        everything.record(rtts)
        seconds = (self.last_ns - self.first_ns) / 1e9
        return {
            "sent": self.sent,
            "lost": self.lost,
            "corrupt": self.corrupt,
            "loss_ratio": self.lost / self.sent if self.sent else None,
            "achieved_per_second": (self.sent - 1) / seconds if seconds > 0 else None,
            "rtt": percentiles(everything),
            "lateness": percentiles(self.lateness),
            "sizes": {
                str(size): _percentiles_of(rtts[sizes == size])
                for size in np.unique(sizes)
            },
        }


def _percentiles_of(values: Ints) -> dict[str, Any]:
    histogram = Histogram()
    histogram.record(values)
    return percentiles(histogram)
