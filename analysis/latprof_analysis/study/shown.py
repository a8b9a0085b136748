"""A study for people: the answer first, then what it rests on."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from latprof_analysis.show import (
    COLUMNS,
    FEW,
    durations,
    plain_table,
    run_name,
    setup_sentence,
    show_line,
    show_link,
    show_round_trips,
    show_stages,
    shown,
    slowest_sentence,
)
from latprof_analysis.show_exchanges import exchange_sentences, show_exchange_tables
from latprof_analysis.study.histograms import show_histograms
from latprof_analysis.study.shown_groups import show_order, show_tails
from latprof_analysis.study.shown_samples import show_samples
from latprof_analysis.text import (
    NOT_ENOUGH,
    duration,
    percent,
    plural,
    rate,
    rate_span,
    with_interval,
)
from latprof_analysis.ways import unseen_ends

_LATENCIES = ("histograms", "kinds", "round_trips", "exchanges")
_TOLD = 5  # wrong rows, and change points, one by one


def show_study(
    document: dict[str, Any], console: Console, *, everything: bool = False
) -> None:
    """Print a study's document; `everything`: also what few ask for."""
    if "runs" in document:
        _show_runs(document, console, everything)
    else:
        show_samples(document, console)
    for note in document["notes"]:
        show_line(console, f"note: {note}", "dim")
    _show_skipped(document, console)
    for warning in document["warnings"]:
        show_line(console, f"warning: {warning}", "bold yellow")


def _show_runs(document: dict[str, Any], console: Console, everything: bool) -> None:
    for folder, run in document["runs"].items():
        told = f"{run_name(folder, run)}: {plural(run['messages'], 'message')}, "
        told += plural(run["round_trips"], "round trip")
        told += f", {plural(run['exchanges'], 'exchange')}" if run["exchanges"] else ""
        where = ", ".join(filter(None, (run["host"], run["kernel"])))
        show_line(console, f"{told} ({where})" if where else told)
    if document["workload"]:
        show_line(console, setup_sentence(document))
    for sentence in (*exchange_sentences(document), *answers(document)):
        show_line(console, sentence, "bold")
    show_histograms(document, console, everything=everything)
    show_exchange_tables(document, console)
    for kind, figures in document["kinds"].items():
        show_stages(kind, figures, console)
        if everything and figures["stages"]:
            _show_parts(kind, figures, console)
    for protocol, figures in document["round_trips"].items():
        show_round_trips(protocol, figures, console)
    if not any(document[key] for key in _LATENCIES):
        show_line(console, "no latencies in it")
        return
    show_line(console, FEW, "dim")
    show_link(document, console)
    _show_directions(document, console)
    if everything:
        _show_stage_lines(document, console)
    _show_estimators(document, console)
    groups = _groups(document)
    show_tails(groups, console)
    show_order(groups, console)
    if document["slowest"]:
        show_line(
            console, "\n" + slowest_sentence(document["slowest"], document.get("lab"))
        )


def answers(document: dict[str, Any]) -> list[str]:
    """Say in a sentence or two where the time went, and what the link is."""
    found = []
    for kind, figures in document["kinds"].items():
        stages = {
            name: stage
            for name, stage in figures["stages"].items()
            if name not in ("end_to_end", "wakeup")
        }
        if not stages or "end_to_end" not in figures["stages"]:
            continue
        most = max(stages, key=lambda name: stages[name]["share_of_end_to_end"] or 0)
        share = percent(stages[most]["share_of_end_to_end"])
        whole = duration(figures["stages"]["end_to_end"]["p50_ns"])
        found.append(f"{kind}: {share} of the time in {most}; end to end {whole} p50")
    for kind, best in document["link"].items():
        if "fit" in best:
            bandwidth = best["fit"]["bandwidth_bits_per_second"]
            told = f"{with_interval(bandwidth, rate)}, by {best['quantity']}"
            found.append(f"{kind}: the link carries {told}{_but_for(best['fit'])}")
            continue
        trains = document["dispersion"].get(kind, {}).get("bandwidth_bits_per_second")
        if trains:
            told = f"{with_interval(trains, rate)}, by dispersion of trains"
            found.append(f"{kind}: the link carries {told}")
    unseen = unseen_ends(document)
    return [*found, unseen] if unseen else found


def _but_for(fit: dict[str, Any]) -> str:
    """Say between which rates the link's own lies, where that is not the interval."""
    within = fit["link_rate_range"]
    if not within["reason"]:
        return ""
    return f"; its own rate is {rate_span(within['low'], within['high'])}"


def _show_parts(kind: str, figures: dict[str, Any], console: Console) -> None:
    """Show end to end by size, by packets and by hops, where there are several."""
    sizes = {
        size: stages.get("end_to_end") for size, stages in figures["sizes"].items()
    }
    parts = {
        "{} B": {size: values for size, values in sizes.items() if values},
        "{} packets": figures["by_packets"],
        "{} hops": figures["by_hops"],
    }
    table = plain_table(
        console, f"{kind}: end to end by size, packets, hops", ("",), (*COLUMNS, "n")
    )
    for named, found in parts.items():
        for part, values in found.items() if len(found) > 1 else ():
            cells = durations(values)
            table.add_row(shown(named.format(part)), *cells, str(values["n"]))
    console.print(table)


def _groups(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Everything that has a tail: messages by kind, round trips by protocol."""
    messages = {
        f"{kind}, end to end": figures for kind, figures in document["messages"].items()
    }
    trips = {f"{p} round trip": f for p, f in document["round_trips"].items()}
    return {name: f for name, f in (messages | trips).items() if f["tail"]["n"]}


def _show_directions(document: dict[str, Any], console: Console) -> None:
    """Show what each direction says of the link: these need no factor."""
    trains = {
        kind: found["bandwidth_bits_per_second"]
        for kind, found in document["dispersion"].items()
        if found["bandwidth_bits_per_second"]
    }
    if not document["link"] and not trains:
        return
    title = "each way by itself: D = aS + b without a factor, and dispersion of trains"
    columns = ("kind", "from", "bandwidth", "the link's own", "fixed delay")
    table = plain_table(console, title, columns)
    notes = []
    for kind, best in document["link"].items():
        if "reason" in best:
            notes.append(f"{kind}: refused: {best['reason']}")
            continue
        fit = best["fit"]
        within = fit["link_rate_range"]
        table.add_row(
            shown(kind),
            best["quantity"],
            with_interval(fit["bandwidth_bits_per_second"], rate),
            rate_span(within["low"], within["high"]),
            with_interval(fit["fixed_delay_seconds"], duration, 1e9),
        )
    for kind, bandwidth in trains.items():
        told = with_interval(bandwidth, rate)
        table.add_row(shown(kind), "dispersion", told, NOT_ENOUGH, NOT_ENOUGH)
    if table.row_count:
        console.print(table)
    for note in notes:
        show_line(console, f" {note}", "dim")


def _show_stage_lines(document: dict[str, Any], console: Console) -> None:
    """Show what a byte adds to each stage, and what a packet adds besides."""
    title = "what a byte adds to each stage, what is left at no bytes, and what a "
    title += "packet adds beside its bytes"
    columns = ("kind", "stage", "for a byte", "fixed", "for a packet")
    table = plain_table(console, title, columns)
    for one in document["stage_fits"]:
        fit = one["fit"]
        if fit["slope_ns_per_byte"]:
            table.add_row(
                shown(f"{one['protocol']} {one['direction']}"),
                one["quantity"],
                with_interval(fit["slope_ns_per_byte"], _nanoseconds_per_byte),
                with_interval(fit["fixed_delay_seconds"], duration, 1e9),
                with_interval(fit["packet_cost"]["per_packet_ns"], duration),
            )
    console.print(table)


def _nanoseconds_per_byte(slope: float, digits: int) -> str:
    return f"{slope:.{digits}g} ns/B"


def _show_estimators(document: dict[str, Any], console: Console) -> None:
    """Show rival estimates of the same line: where they differ, look closer."""
    lines = {
        protocol: figures["estimators"]
        for protocol, figures in document["round_trips"].items()
        if isinstance(figures.get("estimators"), list)
    }
    if not lines:
        return
    title = "the same line by other estimators (where they differ, look closer)"
    table = plain_table(console, title, ("estimator", "bandwidth", "fixed delay"))
    for protocol, estimators in lines.items():
        for line in estimators:
            table.add_row(
                shown(f"{protocol} {line['name']}"),
                with_interval(line["bandwidth_bits_per_second"], rate),
                with_interval(line["fixed_delay_seconds"], duration, 1e9),
            )
    console.print(table)


def _show_skipped(document: dict[str, Any], console: Console) -> None:
    if not document["skipped_rows"]:
        return
    told = document["skipped"][:_TOLD]
    for row in told:
        show_line(console, f"left out: {row}", "yellow")
    rest = document["skipped_rows"] - len(told)
    if rest:
        show_line(console, f"left out: {plural(rest, 'more row')}", "yellow")
