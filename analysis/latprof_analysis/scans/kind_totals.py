"""The figures of one kind of messages: sums, and histograms of its stages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.histogram import Histogram
from latprof_analysis.scans.grouped import Grouped, Histograms
from latprof_analysis.stages import BLANK, STAGES, STAMPS, merged_name

_COUNTS = (
    *("messages", "complete", "left_out", "bytes", "packets", "retransmits", "resent"),
)
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}

Ints = NDArray[np.int64]


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


@dataclass
class KindTotals:
    """All messages of one kind.

    `by_size` has the stages of each size; `by_hops` and `by_packets` have
    end_to_end by the number of routers on the way, and by that of packets; `halves`
    has the stages of messages of which one end was seen, `hosts` by size what passed
    of datagrams outside the qdisc and transit.
    """

    by_size: Grouped
    by_hops: Grouped
    by_packets: Grouped
    halves: Grouped = field(default_factory=lambda: Grouped(0))
    hosts: Grouped = field(default_factory=Grouped)
    messages: int = 0
    complete: int = 0  # with both ends
    left_out: int = 0  # of them: met the measuring of our own cost
    bytes: int = 0
    packets: int = 0
    retransmits: int = 0
    resent: int = 0  # messages of which segments were sent again
    smallest_bytes: int | None = None
    smallest_transit: Histogram = field(default_factory=Histogram)

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
        if other.smallest_bytes is None:
            return
        if self.smallest_bytes is None or other.smallest_bytes < self.smallest_bytes:
            self.smallest_bytes, self.smallest_transit = (
                other.smallest_bytes,
                Histogram(),
            )
        if self.smallest_bytes == other.smallest_bytes:
            self.smallest_transit.merge(other.smallest_transit)

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
