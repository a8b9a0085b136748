"""A study of other tools' files for people."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from latprof_analysis.show import COLUMNS, FEW, durations, plain_table, show_line, shown
from latprof_analysis.study.shown_groups import show_order, show_tails
from latprof_analysis.text import NOT_ENOUGH, duration, plural, rate, with_interval


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
    if not kinds:
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
