"""The answer: where the time goes, what the fit and the link say, what was lost."""

from __future__ import annotations

import math
from typing import Any

from latprof_analysis.report.overview import answer_sentences
from latprof_analysis.report.parts import Cell, Items, Missing, Part, Table
from latprof_analysis.report.words import (
    bytes_text,
    duration_text,
    number,
    span,
)
from latprof_analysis.text import duration, rate, rate_span

_QUANTITIES = {"one_way": "one-way delays", "transit": "transit times"}


def answer(document: dict[str, Any]) -> list[str]:
    """Say in a few sentences what the figures say: as on a terminal, but for micro.

    Examples
    --------
    >>> answer({"round_trips": {"udp": {"sent": 8, "lost": 2}}})
    ['udp: 2 of 8 lost (25.0%).']
    """
    found = [f"{text}.".replace(" us", " µs") for text in answer_sentences(document)]
    return found or ["These files hold no latencies that a report could show."]


def best_fit(document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what tells the link best, and its fit: a direction, else round trips.

    A direction by itself needs no factor, and its transit no host's work. Of several
    it is the one whose range of the link's own rate is the narrowest.
    """
    directions = [
        (f"{_QUANTITIES.get(one['quantity'], one['quantity'])} of {kind} messages", fit)
        for kind, one in (document.get("link") or {}).items()
        if (fit := one.get("fit")) and one["direction"] != "round_trip"
    ]
    whole = ("the round trips", document.get("fit") or {})
    return min(directions, key=lambda one: _width(one[1]), default=whole)


def _width(fit: dict[str, Any]) -> float:
    """Return how wide the range of a link's rate is, as a share of it."""
    within = fit.get("link_rate_range") or fit.get("bandwidth_bits_per_second")
    return within["high"] / within["low"] - 1 if within and within["high"] else math.inf


def _bandwidth(fit: dict[str, Any]) -> tuple[str, str] | None:
    found = fit.get("bandwidth_bits_per_second")
    if not found:
        return None
    return rate(found["value"]), f"95%: {rate_span(found['low'], found['high'])}"


def fixed_delay(fit: dict[str, Any]) -> tuple[str, str]:
    """Write a fit's fixed delay, and its interval."""
    found = fit["fixed_delay_seconds"]
    interval = span(1e9 * found["low"], 1e9 * found["high"], 4)
    return duration_text(1e9 * found["value"], 4), f"95%: {interval}"


def fit_text(protocol: str, fit: dict[str, Any]) -> list[Part]:
    """Tell the figures of a fit, its verdict and its caveats."""
    mode = fit["reply_mode"]
    echo = "a full echo" if mode == "echo" else f"replies of {mode} B"
    times = "twice" if fit["factor"] == 2 else "once"
    found: list[Part] = []
    rows = [list(row) for row in _rows(fit)]
    if rows:
        found.append(
            Table(
                f"{protocol}: what the fit says",
                ["figure", "value", "95% interval", "round trips"],
                rows,
                f"Model: {fit['model']}; {fit['reason']}. With {echo} a byte of the "
                f"message crosses the link {times}, so bandwidth = {fit['factor']} / a."
                f" {fit['sizes']} sizes, {fit['rounds']} rounds.",
            )
        )
    else:
        found.append(Missing(f"{protocol}: figures of the fit", fit["reason"]))
    if fit.get("caveats"):
        found.append(Items([str(caveat) for caveat in fit["caveats"]]))
    return found


def _rows(fit: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Return the figures of a fit: name, value, interval, round trips behind it."""
    rows = []
    for key, name in (
        ("bandwidth_bits_per_second", "bandwidth, on the wire"),
        ("goodput_bits_per_second", "goodput, of long messages"),
    ):
        one = fit.get(key)
        if one:
            interval = f"{rate(one['low'])} to {rate(one['high'])}"
            rows.append((name, rate(one["value"]), interval, number(one["n"])))
    within = fit.get("link_rate_range")
    if within:
        told = rate_span(within["low"], within["high"])
        n = number(fit["bandwidth_bits_per_second"]["n"])
        rows.append(("the link's own rate", "within", told, n))
    if fit.get("fixed_delay_seconds"):
        one = fit["fixed_delay_seconds"]
        value, interval = fixed_delay(fit)
        told = interval.removeprefix("95%: ")
        rows.append(("fixed delay of a round trip", value, told, number(one["n"])))
    slope = fit.get("slope_ns_per_byte")
    if slope:
        value, low, high = (f"{slope[key]:.4g}" for key in ("value", "low", "high"))
        interval = f"{low} to {high} ns/B"
        name = "slope, for a byte of payload"
        rows.append((name, f"{value} ns/B", interval, number(slope["n"])))
    packet = (fit.get("packet_cost") or {}).get("per_packet_ns")
    if packet:
        value, low, high = (duration(packet[key]) for key in ("value", "low", "high"))
        name = "for a packet, beside its bytes"
        rows.append((name, value, f"{low} to {high}", number(packet["n"])))
    hinge = fit.get("hinge")
    if hinge:
        knot = hinge["knot_bytes"]
        interval = f"{bytes_text(knot['low'])} to {bytes_text(knot['high'])}"
        value = bytes_text(knot["value"])
        rows.append(("bend at messages of", value, interval, number(knot["n"])))
    return rows


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
        _trains_row(kind, found)
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
        _rate_cell(bandwidth),
        rate_span(within["low"], within["high"]),
        Cell(value, interval),
        number(bandwidth["n"]),
    ]


def _trains_row(kind: str, found: dict[str, Any]) -> list[str | Cell]:
    bandwidth = found["bandwidth_bits_per_second"]
    packets = number(found["packets"])
    trains = f"{number(found['trains'])} trains of {packets} messages"
    return [Cell(kind, "by dispersion"), _rate_cell(bandwidth), "-", "-", trains]


def _rate_cell(estimate: dict[str, Any]) -> Cell:
    return Cell(rate(estimate["value"]), rate_span(estimate["low"], estimate["high"]))
