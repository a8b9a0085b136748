"""From round trips to figures per size; totals of parts merge to the whole's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.histogram import Histogram, record_parts
from latprof_analysis.scans.grouped import FEW, Grouped, in_groups
from latprof_analysis.scans.kind_totals import percentiles
from latprof_analysis.stages import BLANK
from latprof_analysis.text import NS_PER_SECOND

Ints = NDArray[np.int64]


class TripTotals:
    """Figures of one protocol's round trips.

    Parameters
    ----------
    most : int
        Sizes that are told apart, as in `Grouped`.

    Attributes
    ----------
    sent, lost : int
    left_out : int
        Answered ones that are in no percentile.
    first_ns, last_ns : int or None
        When the first and the last were sent.
    lateness : Histogram
        By how much they were sent after they should have been.
    """

    def __init__(self, most: int = FEW) -> None:
        self.sent = self.lost = self.left_out = 0
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
        disturbed: NDArray[np.bool_] | bool = False,
    ) -> None:
        """Take in round trips.

        Parameters
        ----------
        size_bytes, rtt_ns, sent_ns, intended_ns : ndarray of int64, shape (n,)
            BLANK where not known; `rtt_ns` is BLANK of those that were lost.
        disturbed : ndarray of bool, shape (n,), optional
            They met the measuring of our own cost: in no percentile.
        """
        answered = np.flatnonzero(rtt_ns != BLANK)
        self.sent += len(rtt_ns)
        self.lost += len(rtt_ns) - len(answered)
        sent = sent_ns[sent_ns != BLANK]
        if len(sent):
            self._widen(int(sent.min()), int(sent.max()))
        timed = (sent_ns != BLANK) & (intended_ns != BLANK)
        self.lateness.record(np.maximum(sent_ns[timed] - intended_ns[timed], 0))
        left_out = np.broadcast_to(disturbed, len(rtt_ns))[answered]
        self.left_out += int(left_out.sum())
        answered = answered[~left_out]
        groups, index = self.by_size.admit(size_bytes[answered])
        found, ordered, lengths = in_groups(index, answered)
        histograms = [self.by_size.of(groups[key], "rtt") for key in found]
        record_parts(histograms, rtt_ns.take(ordered), lengths)

    def merge(self, other: TripTotals) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        self.sent += other.sent
        self.lost += other.lost
        self.left_out += other.left_out
        self.lateness.merge(other.lateness)
        self.by_size.merge(other.by_size)
        if other.first_ns is not None and other.last_ns is not None:
            self._widen(other.first_ns, other.last_ns)

    def _widen(self, first_ns: int, last_ns: int) -> None:
        low, high = self.first_ns, self.last_ns
        self.first_ns = first_ns if low is None else min(low, first_ns)
        self.last_ns = last_ns if high is None else max(high, last_ns)

    def as_dict(self) -> dict[str, Any]:
        """Return the figures per size, in ns."""
        return {
            "sent": self.sent,
            "lost": self.lost,
            "left_out": self.left_out,
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
