"""All traffic that was watched, by group: percentiles from its histograms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from latprof_analysis.report.parts import Cell, Fold, Part, Table, Text
from latprof_analysis.report.words import number
from latprof_analysis.text import duration

_OPEN = 3  # groups shown at once
_COLUMNS = ("p50", "p90", "p99", "p99.9", "mean")
_NOTE = (
    "Each message, exchange or sample of this group was counted. A percentile is the"
    " middle of its bucket, at most 3.2% wide."
)


def traffic_parts(document: Mapping[str, Any]) -> list[Part]:
    """Return a table for each group; those of quieter groups at a click."""
    groups = document.get("histograms") or {}
    tables = {group: _table(group, found) for group, found in groups.items()}
    shown = list(tables.values())[:_OPEN]
    folded = [Fold(group, [table]) for group, table in list(tables.items())[_OPEN:]]
    told = [Text("Messages and exchanges below are a sample of it.", quiet=True)]
    return [*told, *shown, *folded] if tables else []


def _table(group: str, quantities: Mapping[str, Any]) -> Table:
    rows = [_row(quantity, figures) for quantity, figures in quantities.items()]
    return Table(group, ("quantity", *_COLUMNS, "n"), rows, note=_NOTE)


def _row(quantity: str, figures: Mapping[str, Any]) -> list[str | Cell]:
    values = (figures[f"{name}_ns"] for name in _COLUMNS)
    cells = (Cell(duration(ns), "" if ns is not None else "too few") for ns in values)
    return [quantity, *cells, number(figures["n"])]
