"""The link on a terminal: one range for each direction, and the fits behind it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.report.tables import samples_of
from latprof_analysis.text import (
    Write,
    duration,
    fixed,
    given_duration,
    given_rate,
    plural,
    rate,
    rate_span,
    span,
    with_interval,
)

Figures = Mapping[str, Any]

_WAYS = ("request", "reply")  # of latprof's own generator, over one link
_OF_TRAINS = {"train": "request", "train reply": "reply"}
_BY = {"one_way": "one-way delay", "transit": "transit"}
_MOST_REFUSED = 2
TITLE = "the link"
_BANDWIDTH, _DELAY = "bandwidth_bits_per_second", "fixed_delay_seconds"
_GOODPUT = "goodput_bits_per_second"


class LinkRow(NamedTuple):
    """What one estimate says: from which rate and fixed delay to which.

    `by` is empty where it is of round trips, or of another tool's file; `width` is
    that of the rate.
    """

    of: str
    rate: str
    delay: str
    by: str
    width: float


def _row(
    of: str, by: str, rate: Figures | None, delay: Figures | None, pace: str = ""
) -> LinkRow:
    """Write what an estimate says; `pace` stands where it has no rate."""
    text = rate_span(rate["low"], rate["high"]) if rate else pace
    return LinkRow(of, text, _ends(delay, duration, 1e9, 4), by, width(rate))


def width(ends: Figures | None) -> float:
    """Return how far the ends of a rate lie from each other, as a share."""
    if not (ends and ends["low"] and ends["high"]):
        return math.inf
    return float(ends["high"] / ends["low"] - 1)


def rate_of(fit: Figures) -> Figures | None:
    """Return the range of the link's own rate, or that of the bandwidth."""
    return fit.get("link_rate_range") or fit.get(_BANDWIDTH)


def trains_of(document: Figures) -> dict[str, Figures]:
    """Return the bandwidths by trains of messages, by kind."""
    return {
        kind: found[_BANDWIDTH]
        for kind, found in (document.get("dispersion") or {}).items()
        if found[_BANDWIDTH]
    }


def link_rows(document: Figures) -> tuple[list[LinkRow], dict[str, str]]:
    """Return what shows the link best, and why others do not show it, by name.

    Each direction by itself where that is known, which needs no factor; else round
    trips, or the kinds of another tool's file.
    """
    refused: dict[str, str] = {}
    rows = _one_way(document, refused)
    if not document.get("link"):
        fits = {
            f"{protocol} round trips": figures.get("fit")
            for protocol, figures in (document.get("round_trips") or {}).items()
        }
        kinds = samples_of(document)
        fits |= {kind: _of_kind(f) for kind, f in kinds.items() if len(_sizes(f)) > 1}
        if any(fits.values()):
            refused = {}
        if not fits and document.get("fit"):
            fits = {"round trips": document["fit"]}
        trips: list[LinkRow] = []
        for name, fit in fits.items():
            trips += _of_fit(name, "", fit or {}, refused)
        rows = trips + rows
    return rows, refused


def _sizes(figures: Figures) -> set[Any]:
    """Return the sizes of a kind of samples: of one there is no line to speak of."""
    return {*figures["sizes"], *(row["size_bytes"] for row in figures["given"])}


def _of_kind(figures: Figures) -> Figures | None:
    """Return the line of a kind of samples; of means of five where they have none."""
    fit: Figures | None = figures.get("fit")
    means: Figures = figures.get("least_squares") or {}
    return means if not (fit or {}).get(_BANDWIDTH) and "means" in means else fit


def _one_way(document: Figures, refused: dict[str, str]) -> list[LinkRow]:
    """Return the best row of each direction; of other programs' ways each."""
    found: dict[str, list[LinkRow]] = {}
    trains, link = trains_of(document), document.get("link") or {}
    for kind in {**link, **trains}:
        best = link.get(kind) or {}
        protocol, _, way = kind.partition(" ")
        name = way if way in (*_WAYS, *_OF_TRAINS) else kind
        rows = found.setdefault(name, [])
        if "fit" in best:
            by = _BY.get(best["quantity"], best["quantity"])
            rows += _of_fit(name, f"{protocol} {by}", best["fit"], refused)
        elif kind in trains:
            of = _OF_TRAINS.get(name, name)
            rows.append(_row(of, f"{protocol} trains", trains[kind], None))
        elif name in _WAYS:  # of other programs' messages nobody expects it
            refused[kind] = str(best.get("reason"))
    for name in (*_WAYS, *_OF_TRAINS):  # over one link: the surest estimate counts
        found[name] = sorted(found.get(name, ()), key=attrgetter("width"))[:1]
    return [row for rows in found.values() for row in rows]


def _of_fit(
    name: str, by: str, fit: Figures, refused: dict[str, str]
) -> Iterator[LinkRow]:
    """Yield a row of a line, two of a hinge; else say why there is none."""
    if hinge := _hinge(fit):
        knot, below, above = hinge
        start = below.get("intercept_seconds")
        yield _row(f"{name}, up to {knot}", by, below[_BANDWIDTH], start, _pace(below))
        yield _row(f"{name}, above", by, above[_BANDWIDTH], None, _pace(above))
    elif fit.get(_BANDWIDTH):
        yield _row(name, by, rate_of(fit), fit.get(_DELAY))
    elif fit.get("reason"):
        refused[name] = str(fit["reason"])


def _hinge(fit: Figures) -> tuple[str, Figures, Figures] | None:
    """Return where a line bends, and its slopes on both sides, if that is the model."""
    hinge = fit.get("hinge")
    if not hinge or fit.get("model") != "hinge":
        return None
    knot = f"{hinge['knot_bytes']['value']:,.0f} B"
    return knot, hinge["below"], hinge["above"]


def _pace(side: Figures) -> str:
    slope = side["slope_ns_per_byte"]
    if slope["low"] <= 0:
        return "no measurable time for a byte"
    return f"{slope['low']:.3g} to {slope['high']:.3g} ns a byte"


def _ends(
    estimate: Figures | None, write: Write, scale: float = 1.0, least: int = 3
) -> str:
    """Write from where to where an estimate may be."""
    if not estimate:
        return ""
    return span(scale * estimate["low"], scale * estimate["high"], write, least)


def link_parts_of(document: Figures) -> list[Part]:
    """Lay out the link in a table, with what is known of it in the last row."""
    rows, refused = link_rows(document)
    parts: list[Part] = []
    if rows:
        cells = [[row.of, row.rate, row.delay, row.by] for row in rows]
        if known := document.get("known") or {}:
            trips = not any(row.by for row in rows)
            cells.append(["known", *_known(known, trips=trips), ""])
        heads = [TITLE, "rate [95%]", "fixed delay [95%]", "by"]
        if not any(row[3] for row in cells):
            heads, cells = heads[:3], [row[:3] for row in cells]
        parts.append(Table("", heads, cells, numeric=False))
    parts += [Text(text) for text in _refusals(refused, document)]
    return parts + [Text(text) for text in loggp_lines(document)]


def _per_byte(ns: float, digits: int = 4) -> str:
    return f"{fixed(ns, digits)} ns/B"


# Of each letter the parameter, how it is written, and what it stands for.
_LETTERS: tuple[tuple[str, str, Write, str], ...] = (
    (
        "L",
        "latency_ns",
        duration,
        "one way of the smallest message without its payload's time, but with its "
        "headers': half of a round trip less o, so the mean of both ways, with the "
        "wake-up of who waits for it",
    ),
    (
        "o_s",
        "send_overhead_ns",
        duration,
        "a send call of the smallest message; what the kernel does within it for the "
        "other end of a veth is in it",
    ),
    (
        "o_r",
        "receive_overhead_ns",
        duration,
        "a receive call of the smallest message that is there",
    ),
    (
        "g",
        "gap_ns",
        duration,
        "from one message to the next beyond their bytes' time, where that is longest: "
        "sender, link, responder or the way back; on one CPU both ends' work adds up",
    ),
    (
        "G",
        "gap_per_byte_ns",
        _per_byte,
        "a byte of payload of a long message, headers with it, on the slowest part of "
        "the way there and back",
    ),
)


def said_by_trains(document: Figures) -> dict[str, Figures]:
    """Return what trains say, by protocol."""
    trips = document.get("round_trips") or {}
    return {p: f["loggp"] for p, f in trips.items() if f.get("loggp")}


def loggp_lines(document: Figures) -> Iterator[str]:
    """Say L, o, g and G in a line for each protocol."""
    for protocol, found in said_by_trains(document).items():
        texts = [
            f"{letter} {write(found[name]['value'], 4 if letter in 'LG' else 3)}"
            for letter, name, write, _ in _LETTERS
            if found[name]
        ]
        if goodput := found["goodput_bits_per_second"]:
            texts[-1] += f" ({rate(goodput['value'])} of payload)"
        trains = f"{protocol}, trains of {found['messages']}"
        if not texts or found["model"] != "line":
            texts.append(found["reason"])
        yield f"{trains}: {', '.join(texts)}"


def loggp_tables(document: Figures) -> Iterator[Part]:
    """Lay out what trains say, what each letter means, and what each size took."""
    for protocol, found in said_by_trains(document).items():
        yield letters_table(protocol, found)
        yield from _left_out(protocol, found)
        if found["sizes"]:
            yield prtt_table(protocol, found)


def letters_table(protocol: str, found: Figures) -> Table:
    """Lay out the parameters, each with what it can and cannot mean."""
    # what holds for all stands below
    missing = {k: why for k, why in found["missing"].items() if why != found["reason"]}
    rows = [
        [
            letter,
            with_interval(found[name], write) if found[name] else "not told",
            "; but ".join(filter(None, [means, missing.get(name, "")])),
        ]
        for letter, name, write, means in _LETTERS
    ]
    for name, of in ((_BANDWIDTH, "headers counted"), (_GOODPUT, "of payload")):
        if found[name]:
            rows.append(["1 / G", with_interval(found[name], rate), of])
    if bucket := found["bucket_bytes"]:
        let_by = (
            f"{bucket['value']:,.0f} B [{bucket['low']:,.0f}, {bucket['high']:,.0f}]"
        )
        rows.append(
            ["bucket", let_by, "what of a train a token bucket lets by at once"]
        )
    title = f"{protocol}: LogGP, by trains of {found['messages']} [95%]"
    heads = ["", "measured", "what it is"]
    return Table(
        title, heads, rows, f"{found['model']}: {found['reason']}", numeric=False
    )


def _left_out(protocol: str, found: Figures) -> Iterator[Text]:
    for why, n in found["left_out"].items():
        yield Text(f" {protocol}: {plural(n, 'train')} left out: {why}", quiet=True)


def prtt_table(protocol: str, found: Figures) -> Table:
    """Lay out what single messages and trains of each size took."""
    n, spacing_ns = found["messages"], found["spacing_ns"]
    heads = ["size", "PRTT(1,0,s)", f"PRTT({n},0,s)", "gap", "send call"]
    names = ["single_ns", "train_ns", "gap_ns", "send_ns"]
    if spacing_ns:
        heads.insert(
            3, f"PRTT({n},{given_duration(spacing_ns)},s)".replace(" us", "us")
        )
        names.insert(3, "spaced_ns")
    rows = [
        [f"{one['size_bytes']} B", *(_said(one[name]) for name in names)]
        for one in found["sizes"]
    ]
    note = (
        "10th percentiles over the rounds; gap: (PRTT(n,0,s) - PRTT(1,0,s)) / (n - 1)"
    )
    return Table(f"{protocol}: messages and trains by size", heads, rows, note)


def _said(estimate: Figures | None) -> str:
    return duration(estimate["value"], 4) if estimate else ""


def _known(known: Figures, *, trips: bool) -> list[str]:
    rate, delay = known.get("rate_bps"), known.get("delay_ns")
    text = given_duration(2 * delay if trips else delay) if delay else ""
    return [
        given_rate(rate) if rate else "not limited",
        f"{text} + hosts" if text and trips else text,
    ]


def _refusals(refused: Mapping[str, str], document: Figures) -> Iterator[str]:
    """Say why no bandwidth is given, once for all that have the same reason."""
    warned = " ".join(document.get("warnings") or ())
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        if reason not in warned:
            reasons.setdefault(reason, []).append(name)
    listed = list(reasons.items())
    for reason, names in listed[:_MOST_REFUSED]:
        yield f"{', '.join(names)}: no bandwidth: {reason}"
    if len(listed) > _MOST_REFUSED:
        yield f"and {len(listed) - _MOST_REFUSED} more without a bandwidth: --all"


def link_sentences(document: Figures) -> list[str]:
    """Say the same in a sentence for each row."""
    rows, refused = link_rows(document)
    found = []
    for row in rows:
        delay = f", fixed delay {row.delay}" if row.delay else ""
        by = f", by {row.by}" if row.by else ""
        carries = row.rate or "what is not told"
        found.append(f"{row.of}: the link carries {carries}{delay}{by}")
    return found or list(_refusals(refused, document))


def fit_parts(document: Figures) -> Iterator[Part]:
    """Lay out what round trips say of the link, beside what is known of it."""
    known = document.get("known") or {}
    trips = document.get("round_trips") or {}
    fits = {p: r["fit"] for p, r in trips.items() if r["fit"]}
    rows = [row for p, fit in fits.items() for row in _fit_rows(p, fit, known)]
    for name, smallest in (document.get("one_way") or {}).items():
        if smallest["known_ns"]:
            low = smallest["transit_p10_ns"]
            measured = f"{duration(smallest['transit_min_ns'], 4)} min"
            measured += f", {duration(low, 4)} p10" if low else ""
            figure = f"transit of {smallest['size_bytes']} B, {name}"
            rows.append([figure, measured, duration(smallest["known_ns"], 4)])
    if not rows:
        return
    title = "the link: measured [95% interval] beside known"
    yield Table(title, ["figure", "measured", "known"], rows, numeric=False)
    for protocol, fit in fits.items():
        reply = fit["reply_mode"]
        mode = "full echo" if reply == "echo" else f"replies of {reply} bytes"
        text = f" {protocol}: D = aS + b over {fit['sizes']} sizes, {fit['rounds']} "
        text += f"rounds; {mode}, so bandwidth = {fit['factor']} / a"
        yield Text(text, quiet=True)
        for caveat in _why(fit):
            yield Text(f" {protocol}: {caveat}", quiet=True)


def _why(fit: Figures) -> list[str]:
    """Say why a fit gives no bandwidth, and what else stands against it."""
    reason, caveats = fit.get("reason"), [str(caveat) for caveat in fit["caveats"]]
    if fit[_BANDWIDTH] or not reason:
        return caveats
    why = "two slopes" if fit["model"] == "hinge" else "refused"
    return [f"{why}: {reason}", *caveats]


def _fit_rows(protocol: str, fit: Figures, known: Figures) -> Iterator[list[str]]:
    beside = given_rate(known.get("rate_bps")) if known.get("rate_bps") else ""
    if hinge := _hinge(fit):
        knot, *sides = hinge
        for side, place in zip(sides, ("up to", "above"), strict=True):
            text = with_interval(side[_BANDWIDTH], rate)
            yield [f"bandwidth, {protocol}, {place} {knot}", text, beside]
    else:
        bandwidth = fit[_BANDWIDTH]
        text = with_interval(bandwidth, rate) if bandwidth else "refused, see below"
        yield [f"bandwidth, {protocol}", text, beside]
    if fit[_DELAY]:
        delay = known.get("delay_ns")
        yield [
            f"fixed delay of a round trip, {protocol}",
            with_interval(fit[_DELAY], duration, 1e9),
            f"{given_duration(2 * delay)} + hosts" if delay else "",
        ]


def direction_parts(document: Figures) -> Iterator[Part]:
    """Lay out what each direction says of the link: these need no factor."""
    rows: list[list[str]] = []
    notes: list[Part] = []
    for kind, best in (document.get("link") or {}).items():
        if "fit" not in best:
            notes.append(Text(f" {kind}: refused: {best['reason']}", quiet=True))
            continue
        name, fit = f"{kind} by {best['quantity']}", best["fit"]
        rows.append([f"bandwidth, {name}", with_interval(fit[_BANDWIDTH], rate)])
        if within := fit.get("link_rate_range"):
            own = rate_span(within["low"], within["high"])
            rows.append([f"link's own rate, {name}", own])
        if fit[_DELAY]:
            delay = with_interval(fit[_DELAY], duration, 1e9)
            rows.append([f"fixed delay, {name}", delay])
    rows += [
        [f"bandwidth, {kind} by dispersion", with_interval(one, rate)]
        for kind, one in trains_of(document).items()
    ]
    if rows:
        title = "each way by itself: D = aS + b without a factor, and trains"
        yield Table(title, ["figure", "measured [95%]"], rows, numeric=False)
    yield from notes


def stage_line_parts(document: Figures) -> list[Part]:
    """Lay out what a byte adds to each stage, and what a packet adds besides."""
    rows = [
        [
            f"{one['protocol']} {_stage_of(one)}",
            _ends(one["fit"]["slope_ns_per_byte"], _nanoseconds).removesuffix(" ns"),
            _ends(one["fit"][_DELAY], duration, 1e9),
            _ends(one["fit"]["packet_cost"]["per_packet_ns"], duration),
        ]
        for one in document.get("stage_fits") or ()
        if one["fit"]["slope_ns_per_byte"]
    ]
    title = "what a byte adds to each stage, what is left, what a packet adds [95%]"
    head = ["stage", "ns a byte", "fixed", "a packet"]
    return [Table(title, head, rows, numeric=False)] if rows else []


def _stage_of(one: Figures) -> str:
    if one["direction"] == "round_trip":  # which has one quantity only
        return "response time"
    return f"{one['direction']} {one['quantity']}"


def _nanoseconds(slope: float, digits: int) -> str:
    return f"{fixed(slope, digits)} ns"


def estimator_parts(document: Figures) -> list[Part]:
    """Lay out rival estimates of the same line: where they differ, look closer."""
    rows = [
        [
            f"{protocol} {line['name']}",
            with_interval(line[_BANDWIDTH], rate),
            _ends(line[_DELAY], duration, 1e9),
        ]
        for protocol, figures in (document.get("round_trips") or {}).items()
        if isinstance(figures.get("estimators"), list)
        for line in figures["estimators"]
    ]
    title = "the same line by other estimators (where they differ, look closer)"
    head = ["estimator", "bandwidth", "fixed delay"]
    return [Table(title, head, rows, numeric=False)] if rows else []


def sample_fit_parts(kind: str, figures: Figures) -> Iterator[Part]:
    """Show the line of another tool's file, and that of means of five if it is there.

    Means of five are the procedure that such files are made for.
    """
    fit, means = figures["fit"], figures.get("least_squares")
    if "model" not in fit:
        yield Text(f" {kind}: no fit: {fit['reason']}", quiet=True)
    else:
        line = _line(fit)
        text = f"{line} ({fit['model']}: {fit['reason']})"
        yield Text(f" {kind}: {text if line else 'no bandwidth: ' + fit['reason']}")
        for caveat in fit["caveats"]:
            yield Text(f" {kind}: {caveat}", quiet=True)
    if means and "reason" in means:
        yield Text(f" {kind}: no means of five: {means['reason']}", quiet=True)
    elif means:
        how = f"least squares on {means['means']} means of five, "
        how += f"{plural(means['removed'], 'outlier')} removed"
        yield Text(f" {kind}: {_line(means)} ({how})", quiet=True)


def _line(fit: Figures) -> str:
    """Write what a line says; nothing where it gives no bandwidth."""
    if hinge := _hinge(fit):
        knot, *sides = hinge
        below, above = (with_interval(side[_BANDWIDTH], rate) for side in sides)
        return f"bandwidth {below} up to {knot}, {above} above"
    if not fit[_BANDWIDTH]:
        return ""
    bandwidth = with_interval(fit[_BANDWIDTH], rate)
    delay = with_interval(fit[_DELAY], duration, 1e9)
    return f"bandwidth {bandwidth}, fixed delay {delay}"
