"""A study for people: the answer first, then what it rests on.

The order of time and the tails of each group are told, of run folders and of other
tools' files.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from latprof_analysis.report.tables import (
    COLUMNS,
    FEW,
    durations,
    exchange_sentences,
    plain_table,
    run_name,
    setup_sentence,
    show_exchange_tables,
    show_line,
    show_link,
    show_round_trips,
    show_stages,
    shown,
    slowest_sentence,
)
from latprof_analysis.report.transfers import COLUMNS as TRANSFER_COLUMNS
from latprof_analysis.report.transfers import TITLE as TRANSFERS
from latprof_analysis.report.transfers import transfer_rows
from latprof_analysis.study.findings import SMALLEST_STEP, alike, large_changes
from latprof_analysis.study.runs import show_histograms
from latprof_analysis.study.ways import unseen_ends
from latprof_analysis.text import (
    NOT_ENOUGH,
    duration,
    percent,
    plural,
    rate,
    rate_span,
    with_interval,
)

_TOLD = 5  # change points one by one


def show_tails(groups: dict[str, dict[str, Any]], console: Console) -> None:
    """Show percentiles with intervals, the three pieces, and modes.

    `groups` are by name what `message_figures` and `trip_figures` give.
    """
    if not groups:
        return
    title = "tails: percentiles with their 95% intervals, open where n is too small"
    table = plain_table(console, title, ("", "", "value", "interval"), ("n",))
    for name, figures in groups.items():
        first = name
        for p, figure in figures["tail"]["percentiles"].items():
            if figure["value_ns"] is not None:
                value, interval = duration(figure["value_ns"]), _interval(figure)
                table.add_row(shown(first), p, value, interval, str(figure["n"]))
                first = ""
    if table.row_count:
        console.print(table)
    for name, figures in groups.items():
        tail = figures["tail"]
        show_line(console, f" {name}: {_pieces(tail)}", "dim")
        if modes := _modes(tail["modes"]):
            of = f", messages of {tail['modes_of']} bytes" if tail["modes_of"] else ""
            show_line(console, f" {name}{of}: {modes}")


def _interval(figure: dict[str, Any]) -> str:
    low, high = (
        NOT_ENOUGH if figure[end] is None else duration(figure[end])
        for end in ("low_ns", "high_ns")
    )
    return f"[{low}, {high}]"


def _pieces(tail: dict[str, Any]) -> str:
    if not isinstance(tail["pieces"], list):
        return str(tail["pieces"]["reason"])
    return "; ".join(
        f"{piece['name']} {duration(piece['low_ns'])} to {duration(piece['high_ns'])}"
        for piece in tail["pieces"]
        if piece["count"]
    )


def _modes(modes: dict[str, Any]) -> str:
    """Name modes where there is more than one."""
    found = modes.get("modes", [])
    if len(found) < 2:
        return ""
    told = ", ".join(
        f"{mode['name']} at {duration(mode['value'])} ({percent(mode['share'])}"
        f"{_longer(mode)})"
        for mode in found
    )
    return f"{len(found)} modes: {told}"


def _longer(mode: dict[str, Any]) -> str:
    """Say where a mode takes longer than the one below it, if that is known."""
    longer = mode.get("longer_in")
    if not longer:
        return ""
    return f", {duration(longer['by_ns'])} more in {longer['stage']}"


def show_order(groups: dict[str, dict[str, Any]], console: Console) -> None:
    """Show what the order of time tells: dependence, change points, loss, queues."""
    told = {name: _order_sentences(figures) for name, figures in groups.items()}
    if any(told.values()):
        show_line(console, "\nin the order of time", "bold")
    for name, sentences in told.items():
        for i, sentence in enumerate(sentences):
            if not i:
                show_line(console, f" {name}")
            show_line(console, f"   {sentence}", "dim")


def _order_sentences(figures: dict[str, Any]) -> list[str]:
    found = [_dependence(figures["time"]["autocorrelation"])]
    found += _changes(figures["time"]["level_changes"], _median(figures["tail"]))
    if "delay_variation" in figures:
        found.append(_variation(figures["delay_variation"]))
    if "queueing" in figures:
        found.append(_queueing(figures["queueing"]))
    if "loss" in figures:
        found.append(_loss(figures["loss"]))
    return [sentence for sentence in found if sentence]


def _median(tail: dict[str, Any]) -> float | None:
    median = tail["percentiles"].get("p50", {}).get("value_ns")
    return None if median is None else float(median)


def _dependence(correlation: dict[str, Any]) -> str:
    if "reason" in correlation:
        return ""
    n, worth = correlation["n"], correlation["n_effective"]
    text = f"correlation of neighbours {correlation['lag_1']:.2f}"
    if worth < n / 2:
        text += f": {n} values tell as much as {worth:.0f} independent ones"
    return text


def _changes(levels: dict[str, Any], median_ns: float | None) -> list[str]:
    """Tell the changes of level that are of any size beside the median."""
    large = large_changes(levels, median_ns)
    found = [
        f"level changed at value {change['index']} [{change['low']}, "
        f"{change['high']}]: {_signed(change['before'])} to {_signed(change['after'])}"
        " beside the median of its size"
        for change in large[:_TOLD]
    ]
    if len(large) > _TOLD:
        found.append(f"and {plural(len(large) - _TOLD, 'more change')} of level")
    if large and alike(levels):
        found.append(
            "neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones"
        )
    small = len(levels.get("changes", [])) - len(large)
    if small:
        least = percent(SMALLEST_STEP)
        found.append(f"{plural(small, 'change')} of level below {least} of the median")
    return found


def _signed(quantile: dict[str, Any]) -> str:
    value = quantile["value"]
    return ("+" if value >= 0 else "-") + duration(abs(value))


def _variation(variation: dict[str, Any]) -> str:
    told = []
    for name in ("ipdv", "pdv"):
        percentiles = variation[name].get("percentiles", {})
        median = percentiles.get("p50", {}).get("value_ns")
        if median is not None:
            told.append(f"{name.upper()} {duration(median)} p50")
    if not told:
        return ""
    size = variation["size_bytes"]
    return f"{', '.join(told)} ({variation['of']} of messages of {size} bytes)"


def _queueing(queue: dict[str, Any]) -> str:
    if "reason" in queue or queue["slope"] is None:
        return ""
    rank = queue["rank_correlation"]
    low, high = queue["slope_low"], queue["slope_high"]
    return (
        f"each byte that waited before it: {queue['slope']:.3g} ns [{low:.3g}, "
        f"{high:.3g}] more in receive_queue; rank correlation {rank:.2f}"
    )


def _loss(loss: dict[str, Any]) -> str:
    share = loss["share"]
    if "lost" not in share or not share["lost"]:
        return ""
    text = f"lost {share['lost']} of {share['n']}: {percent(share['value'])}"
    if share["low"] is not None:
        text += f" [{percent(share['low'])}, {percent(share['high'])}]"
    episodes = loss["episodes"]
    text += f" in {plural(episodes['count'], 'episode')}, the longest "
    text += str(episodes["longest"])
    if loss["model"] and loss["model"].get("best"):
        text += f"; model by BIC: {loss['model']['best']}"
    return text


def show_samples(document: dict[str, Any], console: Console) -> None:
    """Show what files of other formats hold."""
    show_line(console, f"{document['input']['format']}: {document['latency']}")
    for kind, figures in document["samples"]["kinds"].items():
        if figures["n"]:
            _show_kind(kind, figures, console)
        if figures["given"]:
            _show_given(kind, figures["given"], console)
        _show_fit(kind, figures["fit"], console)
        if "least_squares" in figures:
            _show_least_squares(kind, figures["least_squares"], console)
    kinds = document["samples"]["kinds"]
    transfers = transfer_rows(document)
    if transfers:
        table = plain_table(console, TRANSFERS, ("",), TRANSFER_COLUMNS)
        for row in transfers:
            table.add_row(*map(shown, row))
        console.print(table)
    elif not kinds:
        show_line(console, "no latencies in it")
    groups = {kind: figures for kind, figures in kinds.items() if "tail" in figures}
    if groups:
        show_line(console, FEW, "dim")
        show_tails(groups, console)
        show_order(groups, console)


def _show_kind(kind: str, figures: dict[str, Any], console: Console) -> None:
    lost = f", {figures['lost']} lost" if figures["lost"] else ""
    title = f"{kind}: {plural(figures['n'], 'latency').replace('ys', 'ies')}{lost}"
    table = plain_table(console, title, ("size",), (*COLUMNS, "n"))
    for size, values in figures["sizes"].items():
        cells = durations(values)
        table.add_row(f"{size} B", *cells, str(values["n"]))
    console.print(table)


def _show_given(kind: str, given: list[dict[str, Any]], console: Console) -> None:
    title = f"{kind}: as the file gives it, the median of its rows and their range"
    figures = ("median", "min", "max", "rows", "messages")
    table = plain_table(console, title, ("size", "statistic"), figures)
    for row in given:
        size = NOT_ENOUGH if row["size_bytes"] is None else f"{row['size_bytes']} B"
        cells = durations(row, ("median", "min", "max"))
        messages = NOT_ENOUGH if row["messages"] is None else str(row["messages"])
        cells += [str(row["rows"]), messages]
        table.add_row(size, shown(row["statistic"]), *cells)
    console.print(table)


def _show_fit(kind: str, fit: dict[str, Any], console: Console) -> None:
    if "model" not in fit:
        show_line(console, f" {kind}: no fit: {fit['reason']}", "dim")
        return
    show_line(console, f" {kind}: {_line_text(fit)} ({fit['model']}: {fit['reason']})")
    for caveat in fit["caveats"]:
        show_line(console, f" {kind}: {caveat}", "dim")


def _line_text(fit: dict[str, Any]) -> str:
    bandwidth = with_interval(fit["bandwidth_bits_per_second"], rate)
    delay = with_interval(fit["fixed_delay_seconds"], duration, 1e9)
    return f"bandwidth {bandwidth}, fixed delay {delay}"


def _show_least_squares(kind: str, fit: dict[str, Any], console: Console) -> None:
    """Show the procedure of means of five, which is what such files are made for."""
    if "reason" in fit:
        show_line(console, f" {kind}: no means of five: {fit['reason']}", "dim")
        return
    show_line(
        console,
        f" {kind}: {_line_text(fit)} (least squares on {fit['means']} means of five, "
        f"{fit['removed']} outliers removed)",
        "dim",
    )


_LATENCIES = ("histograms", "kinds", "round_trips", "exchanges")
_TOLD = 5  # wrong rows, and change points, one by one


def show_study(
    document: dict[str, Any], console: Console, *, everything: bool = False
) -> None:
    """Print a study's document; `everything`: also what few ask for."""
    for place, setup in enumerate(document.get("setups", ()), 1):
        show_line(console, f"set-up {place} of {len(document['setups'])}", "bold")
        show_study(setup, console, everything=everything)
        show_line(console, "")
    if "setups" in document:
        pass
    elif "runs" in document:
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
