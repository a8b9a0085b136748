"""The report as PDF, or as one picture: set by Typst, figures as vectors.

Every text reaches the template as data (JSON), never as markup of it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from itertools import groupby
from typing import TYPE_CHECKING, Any

from latprof_analysis.errors import LatprofError
from latprof_analysis.report.parts import (
    Cell,
    Figure,
    Fold,
    Items,
    Missing,
    Part,
    Report,
    Table,
    Text,
)
from latprof_analysis.report.vega import svg

if TYPE_CHECKING:
    from types import ModuleType

_PICTURE_PPI = 144.0
# The pixels that figures are laid out for, over the width of the text.
_PAGE_WIDTH = 720
_PICTURE_WIDTH = 1000
_GUTTER = 16


def typeset(report: Report, chosen: str) -> bytes:
    """Write a report as a PDF, or its answer and main figures as a PNG."""
    typst = typesetter()
    if chosen == "pdf":
        picture = [report.picture] if report.picture else []
        first = {"title": "", "parts": _parts(picture, _PAGE_WIDTH)}
        sections = [first, *map(_section, report.sections)]
        told = _told(report, _PAGE_WIDTH, sections)
        return _compiled(typst, told, format="pdf")
    shown = _parts(report.main_figures(), _PICTURE_WIDTH)
    told = _told(report, _PICTURE_WIDTH, [{"title": "", "parts": shown}])
    return _compiled(typst, told, format="png", ppi=_PICTURE_PPI)


def typesetter() -> ModuleType:
    """Return typst, or say in one line that it is missing."""
    try:
        import typst
    except ImportError as error:
        raise LatprofError(
            "cannot write a report as PDF or PNG: typst is not installed; install "
            "latprof-analysis[report], or pip install typst"
        ) from error
    module: ModuleType = typst
    return module


def _compiled(typst: ModuleType, told: dict[str, Any], **options: Any) -> bytes:
    template = resources.files(__package__).joinpath("page.typ").read_bytes()
    inputs = {"report": json.dumps(told), "format": options["format"]}
    return bytes(typst.compile(template, sys_inputs=inputs, **options))


def _told(report: Report, width: int, sections: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "title": report.title,
        "subtitle": report.subtitle,
        "answer": list(report.answer),
        "key_figures": [vars(one) for one in report.key_figures],
        "warnings": list(report.warnings),
        "width": width,
        "sections": sections,
    }


def _section(section: Any) -> dict[str, Any]:
    return {"title": section.title, "parts": _parts(section.parts, _PAGE_WIDTH)}


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
    match part:
        case Text():
            return {"kind": "text", "text": part.text}
        case Items():
            return {"kind": "items", "items": list(part.items)}
        case Missing():
            return {"kind": "missing", "title": part.title, "reason": part.reason}
        case Table():
            return _table(part)
        case Figure():
            return _figure(part, width)
        case Fold():
            parts = _parts(part.parts, width)
            return {"kind": "fold", "title": part.title, "parts": parts}


def _table(table: Table) -> dict[str, Any]:
    rows = [
        [
            {"text": cell.text, "under": cell.under}
            if isinstance(cell, Cell)
            else {"text": cell, "under": ""}
            for cell in row
        ]
        for row in table.rows
    ]
    told = {"title": table.title, "columns": list(table.columns), "rows": rows}
    return {"kind": "table", **told, "note": table.note, "numeric": table.numeric}


def _figure(figure: Figure, width: int) -> dict[str, Any]:
    across = len(figure.charts) if not figure.zooms else 1
    each = (width - _GUTTER * (across - 1)) // across
    charts = [
        {"title": chart.title, "svg": svg(figure, chart, each)}
        for chart in figure.charts
    ]
    return {
        "kind": "figure",
        "title": figure.title,
        "caption": figure.caption,
        "alt": figure.alt,
        "across": across,
        "charts": charts,
    }
