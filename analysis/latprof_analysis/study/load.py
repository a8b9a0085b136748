"""Latency under load: round trips and stages without and beside bulk flows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from latprof_analysis.stages import STAGES
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.study.totals import KindTotals, percentiles

_NS_PER_MINUTE = 60e9
# Of the curve that is drawn: every 2%, and the tail.
_SHARES = (*np.round(np.arange(0.02, 0.99, 0.02), 2).tolist(), 0.99, 0.995, 0.999)
_WAYS = ("request", "reply")


def phase_figures(rtt: Histogram, sent: int, lost: int) -> dict[str, Any]:
    """Return the figures of one phase's round trips.

    ``round_trips_per_minute`` is a minute over the mean; ``curve`` has shares of the
    round trips, and within how many ns so many were over.

    Examples
    --------
    >>> rtt = Histogram()
    >>> rtt.record([20_000_000] * 100)
    >>> round(phase_figures(rtt, 100, 0)["round_trips_per_minute"])
    3000
    """
    mean = rtt.mean_ns
    curve = [(share, rtt.quantile(share)) for share in _SHARES]
    return {
        "sent": sent,
        "lost": lost,
        "rtt": _said(rtt),
        "round_trips_per_minute": _NS_PER_MINUTE / mean if mean else None,
        "curve": [[share, round(ns)] for share, ns in curve if ns is not None],
    }


def _said(histogram: Histogram) -> dict[str, Any]:
    return percentiles(histogram) | {"mean_ns": histogram.mean_ns}


def stage_rows(
    protocol: str, idle: Mapping[str, KindTotals], loaded: Mapping[str, KindTotals]
) -> list[dict[str, Any]]:
    """Return each stage of requests and of replies, both phases side by side."""
    return [
        {"way": way, "stage": stage, "idle": _said(before), "loaded": _said(beside)}
        | {"more_mean_ns": _more(before.mean_ns, beside.mean_ns)}
        for way in _WAYS
        for stage, before, beside in _both(f"{protocol} {way}", idle, loaded)
    ]


def _both(
    kind: str, idle: Mapping[str, KindTotals], loaded: Mapping[str, KindTotals]
) -> Iterator[tuple[str, Histogram, Histogram]]:
    sides = [of[kind].stages if kind in of else {} for of in (idle, loaded)]
    for stage in STAGES:
        if any(stage in stages for stages in sides):
            before, beside = (stages.get(stage, Histogram()) for stages in sides)
            yield stage, before, beside


def _more(before: float | None, beside: float | None) -> float | None:
    return None if before is None or beside is None else beside - before


def load_figures(
    idle: Mapping[str, Any],
    loaded: Mapping[str, Any] | None,
    stages: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Put both phases side by side; the share of a stage is of what the mean rose by.

    Examples
    --------
    >>> sides = [{"rtt": {"mean_ns": ns}} for ns in (1e6, 5e6)]
    >>> row = {"way": "request", "stage": "qdisc", "more_mean_ns": 3e6}
    >>> found = load_figures(*sides, [row])
    >>> found["more_mean_ns"], found["stages"][0]["share"]
    (4000000.0, 0.75)
    """
    beside = loaded["rtt"]["mean_ns"] if loaded else None
    more = _more(idle["rtt"]["mean_ns"], beside)
    return {
        "idle": idle,
        "loaded": loaded,
        "more_mean_ns": more,
        "stages": [dict(row) | {"share": _share(row, more)} for row in stages],
    }


def _share(row: Mapping[str, Any], more: float | None) -> float | None:
    grown = row["more_mean_ns"]
    return grown / more if more and more > 0 and grown is not None else None
