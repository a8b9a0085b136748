"""Tables of a document, one for each subject, as parts: nothing is computed.

The document is that of `latprof run` or of `latprof analyze`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from latprof_analysis.report.parts import Part, Table, Text
from latprof_analysis.report.response_parts import parts_shown
from latprof_analysis.report.sentences import (
    ends_of,
    exchange_notes,
    other_turns_sentences,
    ways_of,
)
from latprof_analysis.stages import PROBE_STATISTICS, part_label
from latprof_analysis.text import (
    NOT_ENOUGH,
    counted,
    duration,
    duration_band,
    percent,
    plural,
    rate,
)

COLUMNS = ("p50", "p90", "p99", "p99.9", "max")
FEW = "-: too few for that percentile (p90 needs 100, p99 1000, p99.9 10000)"
MOST_WAYS = 3
_OF_HISTOGRAMS = ("p50", "p90", "p99", "p99.9", "mean")
_PART_OF = {"wakeup": "  of which wakeup"}
_LATENESS = ("p50", "p99", "max")


def times_table(
    title: str,
    first: str,
    groups: Mapping[str, Mapping[str, Any]],
    names: Sequence[str] = COLUMNS,
    *,
    share: str = "",
    whole: str = "",
) -> Table:
    """Lay out figures in ns by group: those of these names, the share, and n."""
    shares = ["share"] if share else []
    rows = [
        [
            group,
            *(duration(figures[f"{name}_ns"]) for name in names),
            *(percent(figures[share]) for _ in shares),
            str(figures["n"]),
        ]
        for group, figures in groups.items()
    ]
    return Table(title, [first, *names, *shares, "n"], rows, whole=whole)


def samples_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what another tool's file holds, by kind."""
    return (document.get("samples") or {}).get("kinds") or {}


def stage_parts(kind: str, figures: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out the stages of one kind of message."""
    n, complete = figures["messages"], figures["complete"]
    seen = "all" if complete == n else f"{complete} of {n}"
    title = f"{kind}: {plural(n, 'message')}, {seen} seen from end to end"
    if stages := _named(figures["stages"]):
        share, whole = "share_of_end_to_end", "end_to_end"
        yield times_table(title, "stage", stages, share=share, whole=whole)
    else:
        yield Text(title, tone="answer")
    halves = figures.get("halves")
    if halves and halves["stages"]:
        title = f"of {plural(halves['messages'], 'message')} seen at one end only"
        yield times_table(title, "stage", _named(halves["stages"]))
    again = figures["retransmits"]
    packets = f"packets: {figures['packets']}"
    if kind.startswith("tcp"):
        packets += f", retransmitted segments: {again}"
        packets += f" (in {plural(figures['resent'], 'message')})" if again else ""
    yield Text(f" {packets}", quiet=True)
    yield from _beside_cost(figures, "message")


def _named(stages: Mapping[str, Any]) -> dict[str, Any]:
    return {_PART_OF.get(stage, stage): figures for stage, figures in stages.items()}


def size_parts(kind: str, figures: Mapping[str, Any]) -> list[Part]:
    """Lay out end to end by size, by packets and by hops, where there are several."""
    ends = {s: stages.get("end_to_end") for s, stages in figures["sizes"].items()}
    rows = {
        f"{of} {what}": one
        for what, groups in (
            ("B", {size: one for size, one in ends.items() if one}),
            ("packets", figures["by_packets"]),
            ("hops", figures["by_hops"]),
        )
        for of, one in (groups.items() if len(groups) > 1 else ())
    }
    title = f"{kind}: end to end by size, packets, hops"
    return [times_table(title, "of", rows)] if rows else []


def trip_parts(protocol: str, figures: Mapping[str, Any]) -> Iterator[Part]:
    """Lay out one protocol's round trips by size, their load and loss."""
    start = "intended time" if figures["open_loop"] else "request sent"
    title = f"{protocol} round trips: response time, {start} to reply read"
    rows = {f"{size} B": one for size, one in figures["sizes"].items()}
    every = "all sizes"
    yield times_table(title, "size", rows | {every: figures["rtt"]}, whole=every)
    yield Text(f" {_load(figures)}", quiet=True)
    text = f" lost: {figures['lost']} of {figures['sent']} "
    text += f"({percent(figures['loss_ratio'])})"
    corrupt = figures.get("corrupt")  # the generator's own, not in the rows
    text += "" if corrupt is None else f", corrupt: {corrupt}"
    yield Text(text, quiet=True)
    yield from _beside_cost(figures, "round trip")


def _beside_cost(figures: Mapping[str, Any], what: str) -> Iterator[Part]:
    if n := figures.get(PROBE_STATISTICS):
        text = f" sent while our own cost was measured, which slows: {plural(n, what)}"
        yield Text(f"{text} (in all figures)", quiet=True)


def _load(figures: Mapping[str, Any]) -> str:
    achieved, offered = figures["achieved_per_second"], figures["offered_per_second"]
    text = f"load: {achieved:.4g}/s" if achieved else "load: too few to tell"
    if not offered:
        if figures["open_loop"]:
            return text
        return f"{text}, each after the reply to the one before (closed loop)"
    late = figures["lateness"]
    late_by = ", ".join(f"{duration(late[f'{name}_ns'])} {name}" for name in _LATENESS)
    return f"{text} of {offered:.4g}/s offered; sender late by {late_by}"


def exchange_parts(
    document: Mapping[str, Any], most: int = MOST_WAYS
) -> Iterator[Part]:
    """Lay out the parts of the response, a table for each of the first ways."""
    ways = ways_of(document)
    for name, figures in ways[:most]:
        yield from _parts_of_response(name, figures)
    if len(ways) > most == MOST_WAYS:
        left = len(ways) - most
        yield Text(f" {left} more ways: --json has their parts, too", quiet=True)
    for sentence in other_turns_sentences(document):
        yield Text(f" {sentence}", quiet=True)


def _parts_of_response(name: str, figures: Mapping[str, Any]) -> Iterator[Part]:
    shown = parts_shown(figures["parts"])
    parts = {part_label(part): one for part, one in shown.items()}
    if not parts:
        return
    title = f"{ends_of(name)}: {counted(figures['exchanges'], 'exchange')}"
    high = "p95" if all("p95_ns" in one for one in parts.values()) else "p90"
    columns = [*_any_of(parts, ("p50", high, "p99")), "max"]
    share, whole = "share_of_response", "response"
    yield times_table(title, "part", parts, columns, share=share, whole=whole)
    for note in exchange_notes(figures):
        yield Text(f" {note}", quiet=True)


def _any_of(groups: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    """Return the percentiles that any of the groups has."""
    every = groups.values()
    return [name for name in names if any(g[f"{name}_ns"] is not None for g in every)]


def histogram_parts(
    document: Mapping[str, Any], most: int | None = None
) -> Iterator[Part]:
    """Lay out what was counted in histograms, busiest groups first."""
    groups = list((document.get("histograms") or {}).items())
    for group, quantities in groups[:most]:
        title = f"{group}: all traffic, counted in histograms"
        names = _any_of(quantities, _OF_HISTOGRAMS)
        yield times_table(title, "quantity", quantities, names)
    if rest := len(groups[most:] if most else ()):
        yield Text(f"and {plural(rest, 'more group')}: --all", quiet=True)


def transfer_parts(document: Mapping[str, Any]) -> list[Part]:
    """Lay out what was transferred each way, by iperf3's counts."""
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


_POOLED = "of all"  # messages behind the means that a file gives


def bucket_parts(kinds: Mapping[str, Mapping[str, Any]]) -> list[Part]:
    """Lay out between what the percentiles of histograms in files lie."""
    rows = [
        [
            *(kind, name, duration_band(band["low_ns"], band["high_ns"])),
            duration_band(band["low_95_ns"], band["high_95_ns"]),
            str(figures["histogram"]["n"]),
        ]
        for kind, figures in kinds.items()
        if figures["histogram"]
        for name, band in figures["histogram"]["percentiles"].items()
    ]
    columns = ["kind", "percentile", "in the bucket", "95%", "n"]
    note = (
        "A file of buckets has no order: nothing is said of modes, time or dependence."
    )
    title = "a histogram, as the file has it"
    return [Table(title, columns, rows, note)] if rows else []


def given_parts(kinds: Mapping[str, Mapping[str, Any]], most: int) -> list[Part]:
    """Lay out the statistics that a file gives, where it has no single latencies."""
    every = [row for figures in kinds.values() for row in figures["given"]]
    pooled = [_POOLED] if any(row["mean_ns"] is not None for row in every) else []
    rows = [
        [
            kind,
            "" if row["size_bytes"] is None else f"{row['size_bytes']} B",
            row["statistic"],
            *(duration(row["mean_ns"]) for _ in pooled),
            *(duration(row[f"{name}_ns"]) for name in ("median", "min", "max")),
            str(row["rows"]),
            "" if row["messages"] is None else str(row["messages"]),
        ]
        for kind, figures in kinds.items()
        for row in figures["given"]
    ]
    if not rows:
        return []
    rest = len(rows) - most
    return [
        Table(
            "as the file gives it: the median of its rows, and their range",
            [
                *("kind", "size", "statistic", *pooled),
                *("median", "min", "max", "rows", "messages"),
            ],
            rows[:most],
            f"and {plural(rest, 'more row')}: --all" if rest > 0 else "",
        )
    ]
