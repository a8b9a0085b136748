"""The report as PDF, or as one picture: set by Typst, figures as vectors.

Every text reaches the template as data (JSON), never as markup of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import Any

from latprof_analysis.report.parts import (
    Cell,
    Figure,
    Fold,
    Part,
    Report,
    Section,
    Table,
)
from latprof_analysis.report.vega import needed, svg

_PICTURE_PPI = 144.0
# The pixels that figures are laid out for, over the width of the text.
_PAGE_WIDTH = 720
_PICTURE_WIDTH = 1000
_GUTTER = 16


def typeset(report: Report, chosen: str) -> bytes:
    """Write a report as a PDF, or its answer and main figures as a PNG."""
    typst = typesetter()
    if chosen == "pdf":
        width, options = _PAGE_WIDTH, {}
        picture = [report.picture] if report.picture else []
        sections = [Section("", "", picture), *report.sections]
    else:
        width, options = _PICTURE_WIDTH, {"ppi": _PICTURE_PPI}
        sections = [Section("", "", report.main_figures())]
    told = {
        "title": report.title,
        "subtitle": report.subtitle,
        "answer": list(report.answer),
        "key_figures": report.key_figures,
        "warnings": list(report.warnings),
        "sections": [
            {"title": section.title, "parts": _parts(section.parts, width)}
            for section in sections
        ],
    }
    inputs = {"report": json.dumps(told, default=vars), "format": chosen}
    template = resources.files(__package__).joinpath("page.typ").read_bytes()
    return bytes(typst.compile(template, sys_inputs=inputs, format=chosen, **options))


def typesetter() -> Any:
    """Return typst."""
    with needed("typst", "typst", "write a report as PDF or PNG"):
        import typst
    return typst


def _parts(parts: Sequence[Part], width: int) -> list[dict[str, Any]]:
    """Tell parts; of figures that are not wide, two in a row stand side by side."""
    told: list[dict[str, Any]] = []
    for narrow, run in groupby(parts, _is_narrow):
        if not narrow:
            told += [_part(part, width) for part in run]
            continue
        figures = list(run)
        for two in (figures[i : i + 2] for i in range(0, len(figures), 2)):
            half = (width - _GUTTER) // 2
            each = [_part(figure, half) for figure in two]
            told.append({"kind": "row", "parts": each})
    return told


def _is_narrow(part: Part) -> bool:
    return isinstance(part, Figure) and not part.wide and len(part.charts) == 1


def _part(part: Part, width: int) -> dict[str, Any]:
    told = dict(vars(part))
    match part:
        case Table():
            told["rows"] = [
                [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
                for row in part.rows
            ]
        case Figure():
            told = _figure(part, width)
        case Fold():
            told["parts"] = _parts(part.parts, width)
    return {"kind": type(part).__name__.lower(), **told}


def _figure(figure: Figure, width: int) -> dict[str, Any]:
    across = len(figure.charts) if not figure.zooms else 1
    each = (width - _GUTTER * (across - 1)) // across
    charts = [
        {"title": chart.title, "svg": svg(figure, chart, each)}
        for chart in figure.charts
    ]
    shown = {name: getattr(figure, name) for name in ("title", "caption", "alt")}
    return {**shown, "across": across, "charts": charts}
