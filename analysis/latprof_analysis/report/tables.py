"""Tables of a document, one for each subject, as parts: nothing is computed.

The document is that of `latprof run` or of `latprof analyze`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.report.sentences import (
    ends_of,
    exchange_notes,
    exchanges_text,
    ways_of,
)
from latprof_analysis.stages import part_label
from latprof_analysis.text import (
    NOT_ENOUGH,
    Write,
    duration,
    fixed,
    given_duration,
    given_rate,
    percent,
    plural,
    rate,
    rate_span,
    span,
    with_interval,
)

COLUMNS = ("p50", "p90", "p99", "p99.9", "max")
FEW = "-: too few for that percentile (p90 needs 100, p99 1000, p99.9 10000)"
MOST_WAYS = 3
_OF_HISTOGRAMS = ("p50", "p90", "p99", "p99.9", "mean")
_PART_OF = {"wakeup": "  of which wakeup"}


def durations(figures: Mapping[str, Any], names: Sequence[str] = COLUMNS) -> list[str]:
    """Write the figures that have these names, each in ns."""
    return [duration(figures[f"{name}_ns"]) for name in names]


def stage_parts(kind: str, figures: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out the stages of one kind of message."""
    n, whole = figures["messages"], figures["complete"]
    seen = "all" if whole == n else f"{whole} of {n}"
    title = f"{kind}: {plural(n, 'message')}, {seen} seen from end to end"
    if figures["stages"]:
        rows = [
            [*row, percent(values["share_of_end_to_end"]), str(values["n"])]
            for row, values in _stage_rows(figures["stages"])
        ]
        head = ["stage", *COLUMNS, "share", "n"]
        yield Table(title, head, rows, whole="end_to_end")
    else:
        yield Text(title, tone="answer")
    halves = figures.get("halves")
    if halves and halves["stages"]:
        title = f"of {plural(halves['messages'], 'message')} seen at one end only"
        rows = [
            [*row, str(values["n"])] for row, values in _stage_rows(halves["stages"])
        ]
        yield Table(title, ["stage", *COLUMNS, "n"], rows)
    again = figures["retransmits"]
    packets = f"packets: {figures['packets']}"
    if kind.startswith("tcp"):
        packets += f", segments sent again: {again}"
        packets += f" (in {plural(figures['resent'], 'message')})" if again else ""
    yield Text(f" {packets}", quiet=True)
    yield from _left_out(figures, "message")


def _stage_rows(
    stages: Mapping[str, Mapping[str, Any]],
) -> Iterator[tuple[list[str], Mapping[str, Any]]]:
    for stage, values in stages.items():
        yield [_PART_OF.get(stage, stage), *durations(values)], values


def size_parts(kind: str, figures: Mapping[str, Any]) -> list[Part]:
    """Lay out end to end by size, by packets and by hops, where there are several."""
    ends = {s: stages.get("end_to_end") for s, stages in figures["sizes"].items()}
    groups: dict[str, Mapping[str, Any]] = {
        "{} B": {size: values for size, values in ends.items() if values},
        "{} packets": figures["by_packets"],
        "{} hops": figures["by_hops"],
    }
    rows = [
        [named.format(part), *durations(values), str(values["n"])]
        for named, found in groups.items()
        for part, values in (found.items() if len(found) > 1 else ())
    ]
    title = f"{kind}: end to end by size, packets, hops"
    return [Table(title, ["of", *COLUMNS, "n"], rows)] if rows else []


def trip_parts(protocol: str, figures: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out one protocol's round trips by size, their load and loss."""
    start = "intended time" if figures["open_loop"] else "request sent"
    title = f"{protocol} round trips: response time, {start} to reply read"
    rtt = figures["rtt"]
    rows = [
        [f"{size} B", *durations(values), str(values["n"])]
        for size, values in figures["sizes"].items()
    ]
    rows.append(["all sizes", *durations(rtt), str(rtt["n"])])
    yield Table(title, ["size", *COLUMNS, "n"], rows, whole="all sizes")
    yield Text(f" {_load(figures)}", quiet=True)
    text = f" lost: {figures['lost']} of {figures['sent']} "
    text += f"({percent(figures['loss_ratio'])})"
    corrupt = figures.get("corrupt")  # the generator's own, not in the rows
    text += "" if corrupt is None else f", corrupt: {corrupt}"
    yield Text(text, quiet=True)
    yield from _left_out(figures, "round trip")


def _left_out(figures: Mapping[str, Any], what: str) -> Iterator[Part]:
    if figures["left_out"]:
        text = f" {plural(figures['left_out'], what)} met the measuring of our own cost"
        yield Text(f"{text}: in no percentile", quiet=True)


def _load(figures: Mapping[str, Any]) -> str:
    achieved, offered = figures["achieved_per_second"], figures["offered_per_second"]
    text = f"load: {achieved:.4g}/s" if achieved else "load: too few to tell"
    if not offered:
        return f"{text}, each after the reply to the one before (closed loop)"
    late = figures["lateness"]
    return (
        f"{text} of {offered:.4g}/s offered; sender late by "
        f"{duration(late['p50_ns'])} p50, {duration(late['p99_ns'])} p99, "
        f"{duration(late['max_ns'])} max"
    )


def fit_parts(document: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out what round trips say of the link, beside what is known of it."""
    known = document.get("known") or {}
    trips = document.get("round_trips") or {}
    fits = {p: r["fit"] for p, r in trips.items() if r["fit"]}
    rows = [row for p, fit in fits.items() for row in _fit_rows(p, fit, known)]
    one_way = document.get("one_way") or {}
    for name, smallest in one_way.items():
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


def _why(fit: Mapping[str, Any]) -> list[str]:
    """Say why a fit tells no bandwidth, and what else stands against it."""
    reason = fit.get("reason")
    caveats = [str(caveat) for caveat in fit["caveats"]]
    if fit["bandwidth_bits_per_second"] or not reason:
        return caveats
    why = "two slopes" if fit["model"] == "hinge" else "refused"
    return [f"{why}: {reason}", *caveats]


def _fit_rows(
    protocol: str, fit: Mapping[str, Any], known: Mapping[str, Any]
) -> Iterator[list[str]]:
    bandwidth, hinge = fit["bandwidth_bits_per_second"], fit.get("hinge")
    beside = given_rate(known.get("rate_bps")) if known.get("rate_bps") else ""
    if hinge and fit["model"] == "hinge":
        knot = f"{hinge['knot_bytes']['value']:,.0f} B"
        for side, place in (("below", f"up to {knot}"), ("above", f"above {knot}")):
            told = with_interval(hinge[side]["bandwidth_bits_per_second"], rate)
            yield [f"bandwidth, {protocol}, {place}", told, beside]
    else:
        told = with_interval(bandwidth, rate) if bandwidth else "refused, see below"
        yield [f"bandwidth, {protocol}", told, beside]
    if fit["fixed_delay_seconds"]:
        delay = known.get("delay_ns")
        yield [
            f"fixed delay of a round trip, {protocol}",
            with_interval(fit["fixed_delay_seconds"], duration, 1e9),
            f"{given_duration(2 * delay)} + hosts" if delay else "",
        ]


def direction_parts(document: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out what each direction says of the link: these need no factor."""
    trains = {
        kind: found["bandwidth_bits_per_second"]
        for kind, found in (document.get("dispersion") or {}).items()
        if found["bandwidth_bits_per_second"]
    }
    rows: list[list[str]] = []
    notes: list[Part] = []
    for kind, best in (document.get("link") or {}).items():
        if "fit" in best:
            rows += _direction_rows(f"{kind} by {best['quantity']}", best["fit"])
        else:
            notes.append(Text(f" {kind}: refused: {best['reason']}", quiet=True))
    rows += [
        [f"bandwidth, {kind} by dispersion", with_interval(told, rate)]
        for kind, told in trains.items()
    ]
    if rows:
        title = "each way by itself: D = aS + b without a factor, and trains"
        yield Table(title, ["figure", "measured [95%]"], rows, numeric=False)
    yield from notes


def _direction_rows(name: str, fit: Mapping[str, Any]) -> Iterator[list[str]]:
    within, fixed_delay = fit.get("link_rate_range"), fit["fixed_delay_seconds"]
    bandwidth = with_interval(fit["bandwidth_bits_per_second"], rate)
    yield [f"bandwidth, {name}", bandwidth]
    if within:
        yield [f"link's own rate, {name}", rate_span(within["low"], within["high"])]
    if fixed_delay:
        told = with_interval(fixed_delay, duration, 1e9)
        yield [f"fixed delay, {name}", told]


def stage_line_parts(document: Mapping[str, Any]) -> list[Part]:
    """Lay out what a byte adds to each stage, and what a packet adds besides."""
    rows = [
        [
            f"{one['protocol']} {_stage_of(one)}",
            _ends(one["fit"]["slope_ns_per_byte"], _nanoseconds).removesuffix(" ns"),
            _ends(one["fit"]["fixed_delay_seconds"], duration, 1e9),
            _ends(one["fit"]["packet_cost"]["per_packet_ns"], duration),
        ]
        for one in document.get("stage_fits") or ()
        if one["fit"]["slope_ns_per_byte"]
    ]
    title = "what a byte adds to each stage, what is left, what a packet adds [95%]"
    head = ["stage", "ns a byte", "fixed", "a packet"]
    return [Table(title, head, rows, numeric=False)] if rows else []


def _stage_of(one: Mapping[str, Any]) -> str:
    if one["direction"] == "round_trip":  # which has one quantity only
        return "response time"
    return f"{one['direction']} {one['quantity']}"


def _ends(estimate: Mapping[str, Any] | None, write: Write, scale: float = 1.0) -> str:
    """Write from where to where an estimate may be."""
    if not estimate:
        return ""
    return span(scale * estimate["low"], scale * estimate["high"], write, 3)


def _nanoseconds(slope: float, digits: int) -> str:
    return f"{fixed(slope, digits)} ns"


def estimator_parts(document: Mapping[str, Any]) -> list[Part]:
    """Lay out rival estimates of the same line: where they differ, look closer."""
    rows = [
        [
            f"{protocol} {line['name']}",
            with_interval(line["bandwidth_bits_per_second"], rate),
            _ends(line["fixed_delay_seconds"], duration, 1e9),
        ]
        for protocol, figures in (document.get("round_trips") or {}).items()
        if isinstance(figures.get("estimators"), list)
        for line in figures["estimators"]
    ]
    title = "the same line by other estimators (where they differ, look closer)"
    head = ["estimator", "bandwidth", "fixed delay"]
    return [Table(title, head, rows, numeric=False)] if rows else []


def exchange_parts(
    document: Mapping[str, Any], most: int = MOST_WAYS
) -> Iterator[Part]:
    """Lay out the parts of the response, a table for each of the first ways."""
    ways = ways_of(dict(document))
    for name, figures in ways[:most]:
        yield from _parts_of_response(name, figures)
    if len(ways) > most == MOST_WAYS:
        left = len(ways) - most
        yield Text(f" {left} more ways: --json has their parts, too", quiet=True)
    causes: Counter[str] = Counter()
    for found in (document.get("no_exchange") or {}).values():
        causes.update(found)
    if told := ", ".join(f"{n:,} {cause}" for cause, n in causes.items() if n):
        yield Text(f" messages of no exchange: {told}", quiet=True)


def _parts_of_response(name: str, figures: dict[str, Any]) -> Iterator[Part]:
    parts = figures["parts"]
    if not parts:
        return
    columns = _columns(parts)
    rows = [
        [
            part_label(part),
            *durations(values, columns),
            percent(values["share_of_response"]),
            str(values["n"]),
        ]
        for part, values in parts.items()
    ]
    title = f"{ends_of(name)}: {exchanges_text(figures['exchanges'])}"
    yield Table(title, ["part", *columns, "share", "n"], rows, whole="response")
    for note in exchange_notes(figures):
        yield Text(f" {note}", quiet=True)


def _columns(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Choose the percentiles that any of the parts has."""
    high = "p95" if all("p95_ns" in values for values in parts.values()) else "p90"
    told = [
        name
        for name in ("p50", high, "p99")
        if any(values[f"{name}_ns"] is not None for values in parts.values())
    ]
    return [*told, "max"]


def histogram_parts(
    document: Mapping[str, Any], most: int | None = None
) -> Iterator[Part]:
    """Lay out what was counted in histograms, busiest groups first."""
    groups = list((document.get("histograms") or {}).items())
    for group, quantities in groups[:most]:
        names = [
            name
            for name in _OF_HISTOGRAMS
            if any(one[f"{name}_ns"] is not None for one in quantities.values())
        ]
        rows = [
            [quantity, *durations(figures, names), str(figures["n"])]
            for quantity, figures in quantities.items()
        ]
        title = f"{group}: all traffic, counted in histograms"
        yield Table(title, ["quantity", *names, "n"], rows)
    if rest := len(groups[most:] if most else ()):
        yield Text(f"and {plural(rest, 'more group')}: --all", quiet=True)


def transfer_parts(document: Mapping[str, Any]) -> list[Part]:
    """Lay out what was transferred each way, as iperf3 tells it."""
    rows = [
        [
            f"{transfer['protocol']} {transfer['direction']}",
            rate(transfer["sent_bits_per_second"]),
            rate(transfer["received_bits_per_second"]),
            _lost_of(transfer["lost_packets"], transfer["packets"]),
            duration(transfer["jitter_ns"]),
            NOT_ENOUGH if (n := transfer["retransmits"]) is None else f"{n:.0f}",
        ]
        for transfer in document.get("transfers") or ()
    ]
    title = "what was transferred, as the file tells it"
    head = ["direction", "sent", "received", "lost", "jitter", "resent"]
    note = "Jitter is the receiver's, smoothed as in RFC 3550."
    return [Table(title, head, rows, note)] if rows else []


def _lost_of(lost: float | None, packets: float | None) -> str:
    if lost is None or not packets:
        return NOT_ENOUGH
    return f"{lost:.0f} of {packets:.0f} ({percent(lost / packets)})"


def given_parts(kinds: Mapping[str, Mapping[str, Any]], most: int) -> list[Part]:
    """Lay out the statistics that a file gives, where it has no single latencies."""
    rows = [
        [kind, *_given_row(row)]
        for kind, figures in kinds.items()
        for row in figures["given"]
    ]
    if not rows:
        return []
    rest = len(rows) - most
    return [
        Table(
            "as the file gives it: the median of its rows, and their range",
            ["kind", "size", "statistic", "median", "min", "max", "rows", "messages"],
            rows[:most],
            f"and {plural(rest, 'more row')}: --all" if rest > 0 else "",
        )
    ]


def _given_row(row: Mapping[str, Any]) -> list[str]:
    size, messages = row["size_bytes"], row["messages"]
    return [
        "" if size is None else f"{size} B",
        row["statistic"],
        *(duration(row[f"{name}_ns"]) for name in ("median", "min", "max")),
        str(row["rows"]),
        "" if messages is None else str(messages),
    ]
