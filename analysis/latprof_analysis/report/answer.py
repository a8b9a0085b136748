"""The answer: where the time goes, what the fit and the link say, what was lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from latprof_analysis.report.clock_words import clock_sentences
from latprof_analysis.report.link import link_sentences, rate_of, trains_of, width
from latprof_analysis.report.mesh_text import meshes_of
from latprof_analysis.report.overview import answers
from latprof_analysis.report.parts import Cell, Items, Missing, Part, Table
from latprof_analysis.report.words import (
    bytes_text,
    duration_text,
    number,
    span,
)
from latprof_analysis.study.incomplete import incomplete_text
from latprof_analysis.text import duration, rate, rate_span

_QUANTITIES = {"one_way": "one-way delays", "transit": "transit times"}


def answer(document: dict[str, Any]) -> list[str]:
    """Say in a few sentences what the figures say: as on a terminal, but for micro."""
    sentences = [*clock_sentences(document), *answers(document)]
    sentences += link_sentences(document)
    sentences.append(incomplete_text(document))
    found = [f"{text}.".replace(" us", " µs") for text in sentences if text]
    if meshes_of(document):  # its own section has what is left
        return found
    return found or ["These files hold no latencies that a report could show."]


def best_fit(document: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what shows the link best, and its fit: a direction, else round trips.

    A direction by itself needs no factor, and its transit no host's work. Of several
    it is the one whose range of the link's own rate is the narrowest.
    """
    directions = [
        (f"{_QUANTITIES.get(one['quantity'], one['quantity'])} of {kind} messages", fit)
        for kind, one in (document.get("link") or {}).items()
        if (fit := one.get("fit")) and one["direction"] != "round_trip"
    ]
    whole = ("the round trips", document.get("fit") or {})
    return min(directions, key=lambda one: width(rate_of(one[1])), default=whole)


def fixed_delay(fit: dict[str, Any]) -> tuple[str, str]:
    """Write a fit's fixed delay, and its interval."""
    found = fit["fixed_delay_seconds"]
    interval = span(1e9 * found["low"], 1e9 * found["high"], 4)
    return duration_text(1e9 * found["value"], 4), f"95%: {interval}"


def fit_text(protocol: str, fit: dict[str, Any]) -> list[Part]:
    """Show the figures of a fit, its verdict and its caveats."""
    mode = fit["reply_mode"]
    echo = "a full echo" if mode == "echo" else f"replies of {mode} B"
    times = "twice" if fit["factor"] == 2 else "once"
    found: list[Part] = [Missing(f"{protocol}: figures of the fit", fit["reason"])]
    if rows := list(_rows(fit)):
        found = [
            Table(
                f"{protocol}: what the fit says",
                ["figure", "value", "95% interval", "round trips"],
                rows,
                f"Model: {fit['model']}; {fit['reason']}. With {echo} a byte of the "
                f"message crosses the link {times}, so bandwidth = {fit['factor']} / a."
                f" {fit['sizes']} sizes, {fit['rounds']} rounds.",
            )
        ]
    if fit.get("caveats"):
        found.append(Items([str(caveat) for caveat in fit["caveats"]]))
    return found


def _rows(fit: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the figures of a fit: name, value, interval, round trips behind it."""
    bandwidth, within = fit.get("bandwidth_bits_per_second"), fit.get("link_rate_range")
    slope, fixed = fit.get("slope_ns_per_byte"), fit.get("fixed_delay_seconds")
    packet = (fit.get("packet_cost") or {}).get("per_packet_ns")
    knot = (fit.get("hinge") or {}).get("knot_bytes")
    yield from _of_estimate("bandwidth, on the wire", bandwidth, rate)
    goodput = fit.get("goodput_bits_per_second")
    yield from _of_estimate("goodput, of long messages", goodput, rate)
    if within and bandwidth:
        text = rate_span(within["low"], within["high"])
        yield ["the link's own rate", "within", text, number(bandwidth["n"])]
    if fixed:
        value, interval = fixed_delay(fit)
        text = interval.removeprefix("95%: ")
        yield ["fixed delay of a round trip", value, text, number(fixed["n"])]
    yield from _of_estimate(
        "slope, for a byte of payload", slope, "{:.4g}".format, " ns/B"
    )
    yield from _of_estimate("for a packet, beside its bytes", packet, duration)
    yield from _of_estimate("bend at messages of", knot, bytes_text)


def _of_estimate(
    name: str,
    estimate: dict[str, Any] | None,
    write: Callable[[float], str],
    unit: str = "",
) -> Iterator[list[str]]:
    """Yield the row of an estimate, of each end; its unit stands once."""
    if estimate:
        value, low, high = (write(estimate[key]) for key in ("value", "low", "high"))
        cells = [value + unit, f"{low} to {high}{unit}"]
        yield [name, *cells, number(estimate["n"])]


def link_parts(document: dict[str, Any]) -> list[Part]:
    """Show each direction's rate by the fit that shows it best, and by trains."""
    link = document.get("link") or {}
    fitted = {kind: best for kind, best in link.items() if "fit" in best}
    refused = [
        f"{kind}: refused: {best['reason']}"
        for kind, best in link.items()
        if kind not in fitted
    ]
    rows = [_row(kind, best) for kind, best in fitted.items()]
    trains = document.get("dispersion") or {}
    rows += [_trains_row(kind, trains[kind]) for kind in trains_of(document)]
    if not rows:
        return [Missing("The link each way", "; ".join(refused))] if refused else []
    caveats = [
        f"{kind}: {text}"
        for kind, best in fitted.items()
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
