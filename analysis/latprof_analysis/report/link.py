"""The link as one range for each direction: of a table, and as sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.text import (
    duration,
    given_duration,
    given_rate,
    rate_span,
    span,
)

_WAYS = ("request", "reply")  # of latprof's own generator, over one link
_BY = {"one_way": "one-way delay", "transit": "transit"}
_MOST_REFUSED = 2
TITLE = "the link"


class LinkRow(NamedTuple):
    """What one estimate says: the ends of its rate, or `pace` where it has no rate."""

    of: str
    by: str
    rate_bps: tuple[float, float | None] | None
    delay_s: tuple[float, float] | None
    round_trip: bool = False
    pace: str = ""

    @property
    def width(self) -> float:
        """How far the ends of its rate lie from each other, as a share."""
        low, high = self.rate_bps or (0.0, None)
        return high / low - 1 if low and high else math.inf

    @property
    def rate(self) -> str:
        """From which rate to which."""
        return rate_span(*self.rate_bps) if self.rate_bps else self.pace

    @property
    def delay(self) -> str:
        """From which fixed delay to which."""
        if not self.delay_s:
            return ""
        low, high = (1e9 * end for end in self.delay_s)
        return span(low, high, duration, 4)


def link_rows(document: Mapping[str, Any]) -> tuple[list[LinkRow], dict[str, str]]:
    """Return what tells the link best, and why others do not tell it, by name.

    Each direction by itself where that is known, which needs no factor; else round
    trips, or the kinds of another tool's file.
    """
    refused: dict[str, str] = {}
    rows = _one_way(document, refused)
    if not rows:
        fits = {
            f"{protocol} round trips": figures.get("fit")
            for protocol, figures in (document.get("round_trips") or {}).items()
        }
        kinds = (document.get("samples") or {}).get("kinds") or {}
        fits |= {kind: _of_kind(f) for kind, f in kinds.items() if len(_sizes(f)) > 1}
        if any(fits.values()):
            refused = {}
        for name, fit in fits.items():
            rows += _of_fit(name, "", fit or {}, refused)
        if not fits and document.get("fit"):
            rows += _of_fit("round trips", "", document["fit"], refused)
    return rows, refused


def _sizes(figures: Mapping[str, Any]) -> set[Any]:
    """Return the sizes of a kind of samples: of one there is no line to speak of."""
    return {*figures["sizes"], *(row["size_bytes"] for row in figures["given"])}


def _of_kind(figures: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the line of a kind of samples; of means of five where they have none."""
    fit: Mapping[str, Any] | None = figures.get("fit")
    means: Mapping[str, Any] = figures.get("least_squares") or {}
    if not (fit or {}).get("bandwidth_bits_per_second") and "means" in means:
        return means
    return fit


def _one_way(document: Mapping[str, Any], refused: dict[str, str]) -> list[LinkRow]:
    """Return the best row of each direction; of other programs' ways each."""
    found: dict[str, list[LinkRow]] = {}
    trains = {
        kind: one["bandwidth_bits_per_second"]
        for kind, one in (document.get("dispersion") or {}).items()
        if one["bandwidth_bits_per_second"]
    }
    link = document.get("link") or {}
    for kind in [*link, *(kind for kind in trains if kind not in link)]:
        best = link.get(kind) or {}
        protocol, _, way = kind.partition(" ")
        name = way if way in _WAYS else kind
        if "fit" in best:
            by = _BY.get(best["quantity"], best["quantity"])
            rows = list(_of_fit(name, f"{protocol} {by}", best["fit"], refused))
        elif kind in trains:
            ends = trains[kind]["low"], trains[kind]["high"]
            rows = [LinkRow(name, f"{protocol} trains", ends, None)]
        else:
            rows = []
            if name in _WAYS:  # of other programs' messages nobody expects it
                refused[kind] = str(best.get("reason"))
        found.setdefault(name, []).extend(rows)
    best_of = attrgetter("width")
    return [
        row
        for name, rows in found.items()
        for row in ([min(rows, key=best_of)] if name in _WAYS and rows else rows)
    ]


def _of_fit(
    name: str, by: str, fit: Mapping[str, Any], refused: dict[str, str]
) -> Iterator[LinkRow]:
    """Yield a row of a line, two of a hinge; else say why there is none."""
    trip = not by
    fixed, hinge = fit.get("fixed_delay_seconds"), fit.get("hinge")
    delay = (fixed["low"], fixed["high"]) if fixed else None
    if hinge and fit.get("model") == "hinge":
        knot = f"{hinge['knot_bytes']['value']:,.0f} B"
        for side, place in (("below", f"up to {knot}"), ("above", "above")):
            one = hinge[side]["bandwidth_bits_per_second"]
            ends = (one["low"], one["high"]) if one else None
            pace = _pace(hinge[side]["slope_ns_per_byte"])
            at_zero = hinge[side].get("intercept_seconds") if side == "below" else None
            start = (at_zero["low"], at_zero["high"]) if at_zero else None
            yield LinkRow(f"{name}, {place}", by, ends, start, trip, pace)
        return
    found = fit.get("bandwidth_bits_per_second")
    if not found:
        if fit.get("reason"):
            refused[name] = str(fit["reason"])
        return
    within = fit.get("link_rate_range") or found
    yield LinkRow(name, by, (within["low"], within["high"]), delay, trip)


def _pace(slope: Mapping[str, float]) -> str:
    if slope["low"] <= 0:
        return "no measurable time for a byte"
    return f"{slope['low']:.3g} to {slope['high']:.3g} ns a byte"


def link_parts_of(document: Mapping[str, Any]) -> list[Part]:
    """Lay out the link in a table, with what is known of it in the last row."""
    rows, refused = link_rows(document)
    parts: list[Part] = []
    if rows:
        known = document.get("known") or {}
        cells = [[row.of, row.rate, row.delay, row.by] for row in rows]
        if known:
            trips = all(row.round_trip for row in rows)
            cells.append(["known", *_known(known, trips=trips), ""])
        heads = [TITLE, "rate [95%]", "fixed delay [95%]", "by"]
        if not any(row[3] for row in cells):
            heads, cells = heads[:3], [row[:3] for row in cells]
        parts.append(Table("", heads, cells, numeric=False))
    return parts + [Text(text) for text in _refusals(refused, document)]


def _known(known: Mapping[str, Any], *, trips: bool) -> list[str]:
    rate, delay = known.get("rate_bps"), known.get("delay_ns")
    told = given_duration(2 * delay if trips else delay) if delay else ""
    return [
        given_rate(rate) if rate else "not limited",
        f"{told} + hosts" if told and trips else told,
    ]


def _refusals(refused: Mapping[str, str], document: Mapping[str, Any]) -> Iterator[str]:
    """Say why no bandwidth is told, once for all that have the same reason."""
    warned = " ".join(document.get("warnings") or ())
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        if reason not in warned:
            reasons.setdefault(reason, []).append(name)
    told = list(reasons.items())
    for reason, names in told[:_MOST_REFUSED]:
        yield f"{', '.join(names)}: no bandwidth: {reason}"
    if len(told) > _MOST_REFUSED:
        yield f"and {len(told) - _MOST_REFUSED} more without a bandwidth: --all"


def link_sentences(document: Mapping[str, Any]) -> list[str]:
    """Say the same in a sentence for each row.

    Examples
    --------
    >>> fit = {"bandwidth_bits_per_second": {"low": 99e6, "high": 101e6},
    ...        "fixed_delay_seconds": {"low": 0.001, "high": 0.0011}}
    >>> link_sentences({"round_trips": {"tcp": {"fit": fit}}})
    ['tcp round trips: the link carries 99.00 to 101.0 Mbit/s, fixed delay 1.000 to \
1.100 ms']
    """
    rows, refused = link_rows(document)
    found = []
    for row in rows:
        delay = f", fixed delay {row.delay}" if row.delay else ""
        by = f", by {row.by}" if row.by else ""
        carries = row.rate or "what is not told"
        found.append(f"{row.of}: the link carries {carries}{delay}{by}")
    return found or list(_refusals(refused, document))
