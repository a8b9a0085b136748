"""All traffic that was watched, by group: figures of histograms.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from latprof_analysis.coarse_histogram import CoarseHistogram
from latprof_analysis.readers.histograms import read_histograms
from latprof_analysis.scans.kind_totals import PERCENTILES
from latprof_analysis.show import durations, plain_table, show_line, shown
from latprof_analysis.text import duration, plural

COLUMNS = ("p50", "p90", "p99", "p99.9")
TITLE = "all traffic, counted in histograms"
_GROUPS = 6  # shown unless all are asked for

# By group, busiest first, then by quantity.
Figures = dict[str, dict[str, dict[str, Any]]]


def histogram_figures(paths: list[Path], notes: list[str]) -> Figures:
    """Return n, mean and percentiles in ns; None where there are too few for one.

    Of all folders together. A percentile is the middle of its bucket, which is at
    most 3.2% wide.
    """
    found: Figures = {}
    for (group, quantity), histogram in read_histograms(paths, notes).items():
        found.setdefault(group, {})[quantity] = _figures(histogram)
    busiest = sorted(found, key=lambda group: -_most(found[group]))
    return {group: found[group] for group in busiest}


def _figures(histogram: CoarseHistogram) -> dict[str, Any]:
    n = histogram.count
    quantiles = {name: histogram.quantile(p) for name, p in PERCENTILES.items()}
    return {
        "n": n,
        "mean_ns": histogram.sum_ns / n if n else None,
        **{f"{k}_ns": None if q is None else round(q) for k, q in quantiles.items()},
    }


def _most(quantities: dict[str, dict[str, Any]]) -> int:
    return max(int(figures["n"]) for figures in quantities.values())


def sampled_notes(documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Say of which runs the rows are a sample."""
    return [
        f"{name}: its messages and exchanges are a sample of what was watched; the"
        " histograms count all of it, and are what to take percentiles from"
        for name, parts in documents.items()
        if parts.get("run", {}).get("sampled")
    ]


def show_histograms(
    document: dict[str, Any], console: Console, *, everything: bool
) -> None:
    """Show each group's quantities."""
    groups: Figures = document["histograms"]
    told = list(groups.items())[: None if everything else _GROUPS]
    for group, quantities in told:
        table = plain_table(
            console, f"{group}: {TITLE}", ("quantity",), (*COLUMNS, "mean", "n")
        )
        for quantity, figures in quantities.items():
            mean = duration(figures["mean_ns"])
            cells = (*durations(figures, COLUMNS), mean, str(figures["n"]))
            table.add_row(shown(quantity), *cells)
        console.print(table)
    if rest := len(groups) - len(told):
        show_line(console, f" {plural(rest, 'more group')}: --all shows them", "dim")
