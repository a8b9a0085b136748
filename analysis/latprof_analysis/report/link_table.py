"""The link each way by itself: rates that need no factor, and why some are refused."""

from __future__ import annotations

from typing import Any

from latprof_analysis.report.answer import fixed_delay
from latprof_analysis.report.parts import Cell, Items, Missing, Part, Table
from latprof_analysis.report.words import number
from latprof_analysis.text import rate, rate_span


def link_parts(document: dict[str, Any]) -> list[Part]:
    """Tell each direction's rate by the fit that tells it best, and by trains."""
    link = document.get("link") or {}
    told = {kind: best for kind, best in link.items() if "fit" in best}
    refused = [
        f"{kind}: refused: {best['reason']}"
        for kind, best in link.items()
        if kind not in told
    ]
    rows = [_row(kind, best) for kind, best in told.items()]
    rows += [
        _trains(kind, found)
        for kind, found in (document.get("dispersion") or {}).items()
        if found["bandwidth_bits_per_second"]
    ]
    if not rows:
        return [Missing("The link each way", "; ".join(refused))] if refused else []
    caveats = [
        f"{kind}: {text}"
        for kind, best in told.items()
        for text in best["fit"]["caveats"]
    ]
    table = Table(
        "The link each way by itself",
        ["direction", "bandwidth", "the link's own rate", "fixed delay", "messages"],
        rows,
        "By D = aS + b of transit where messages were handed over whole, else of the "
        "one-way delay, or by the dispersion of trains; no factor is needed. Below: "
        "95% intervals. The link's own rate lies in its range, by what else may be in "
        "the slope or missing of it.",
    )
    notes = [*caveats, *refused]
    return [table, Items(notes)] if notes else [table]


def _row(kind: str, best: dict[str, Any]) -> list[str | Cell]:
    fit = best["fit"]
    bandwidth, within = fit["bandwidth_bits_per_second"], fit["link_rate_range"]
    value, interval = fixed_delay(fit)
    return [
        Cell(kind, f"by {best['quantity']}"),
        _bandwidth(bandwidth),
        rate_span(within["low"], within["high"]),
        Cell(value, interval),
        number(bandwidth["n"]),
    ]


def _trains(kind: str, found: dict[str, Any]) -> list[str | Cell]:
    bandwidth = found["bandwidth_bits_per_second"]
    packets = number(found["packets"])
    trains = f"{number(found['trains'])} trains of {packets} messages"
    return [Cell(kind, "by dispersion"), _bandwidth(bandwidth), "-", "-", trains]


def _bandwidth(estimate: dict[str, Any]) -> Cell:
    return Cell(rate(estimate["value"]), rate_span(estimate["low"], estimate["high"]))
