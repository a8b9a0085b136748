"""The figures of a fit, its verdict and its caveats."""

from __future__ import annotations

from typing import Any

from latprof_analysis.report.answer import fixed_delay
from latprof_analysis.report.parts import Items, Missing, Part, Table
from latprof_analysis.report.words import bytes_text, number
from latprof_analysis.text import duration, rate, rate_span


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
