"""Intervals beside the percentiles of each size, hop count and number of packets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from latprof_analysis.histogram import Histogram
from latprof_analysis.percentile import histogram_percentiles
from latprof_analysis.scans.grouped import Grouped
from latprof_analysis.scans.kind_totals import PERCENTILES
from latprof_analysis.scans.totals import MessageTotals
from latprof_analysis.scans.trip_totals import TripTotals


def kinds_with_intervals(totals: MessageTotals) -> dict[str, Any]:
    """Return the figures by kind, with intervals of end_to_end by group.

    Beside each percentile that is told, such as ``p50_ns``, stand ``p50_low_ns`` and
    ``p50_high_ns``: 95%, distribution-free, for messages that do not depend on each
    other; None where n does not bound that side.
    """
    found = totals.as_dict()
    for name, kind in totals.kinds.items():
        told = found[name]
        for grouped, key in (
            (kind.by_hops, "by_hops"),
            (kind.by_packets, "by_packets"),
        ):
            _add(told.get(key, {}), grouped, "end_to_end")
        sizes = told.get("sizes", {})
        ends = {size: stages.get("end_to_end", {}) for size, stages in sizes.items()}
        _add(ends, kind.by_size, "end_to_end")
    return found


def trips_with_intervals(totals: TripTotals) -> dict[str, Any]:
    """Return the figures of round trips, with intervals by size, as of kinds."""
    found = totals.as_dict()
    _add(found["sizes"], totals.by_size, "rtt")
    return found


def with_intervals(told: Mapping[str, Any], histogram: Histogram) -> dict[str, Any]:
    """Return percentiles, as `kind_totals.percentiles` has them, with intervals.

    Examples
    --------
    >>> from latprof_analysis.scans.kind_totals import percentiles
    >>> counted = Histogram()
    >>> counted.record(range(1, 101))
    >>> found = with_intervals(percentiles(counted), counted)
    >>> found["p50_ns"], found["p50_low_ns"], found["p50_high_ns"]
    (50, 40, 61)
    """
    names = [name for name in PERCENTILES if told[f"{name}_ns"] is not None]
    if not names:
        return dict(told)
    found = histogram_percentiles(histogram, [PERCENTILES[name] for name in names])
    ends = {
        f"{name}_{end}_ns": round(value) if math.isfinite(value) else None
        for name, quantile in zip(names, found, strict=True)
        for end, value in (("low", quantile.low), ("high", quantile.high))
    }
    return {**told, **ends}


def _add(told: Mapping[str, dict[str, Any]], grouped: Grouped, name: str) -> None:
    for label, histograms in grouped.in_order():
        if told.get(label) and name in histograms:
            told[label].update(with_intervals(told[label], histograms[name]))
