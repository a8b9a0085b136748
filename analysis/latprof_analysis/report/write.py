"""A report to files: the page itself, or set as PDF or picture by Typst; its tables.

Every text reaches Typst's template as data (JSON), never as markup of it.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

from latprof_analysis.extras import needed
from latprof_analysis.report.html import html_page
from latprof_analysis.report.markdown import write_markdown, write_table
from latprof_analysis.report.parts import (
    Cell,
    Figure,
    Fold,
    Part,
    Report,
    Section,
    Table,
)
from latprof_analysis.report.vega import converter, svg
from latprof_analysis.write.whole_file import make_folder, write_file


def check_tools(chosen: str) -> None:
    """Raise LatprofError where what draws this format is not installed."""
    converter()
    if chosen in ("pdf", "png"):
        typesetter()


def write_report(report: Report, out: Path, chosen: str) -> list[Path]:
    """Write a report as html, md, pdf or png; returns the files beside `out`."""
    make_folder(out.parent)
    if chosen == "md":
        return write_markdown(report, out)
    if chosen == "html":
        write_file(out, html_page(report).encode())
    else:
        write_file(out, typeset(report, chosen))
    return []


def write_csv(report: Report, folder: Path) -> list[Path]:
    """Write the table of each figure as a CSV file."""
    make_folder(folder)
    return [write_table(figure, folder) for figure in report.figures()]


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
    content = {
        "title": report.title,
        "subtitle": report.subtitle,
        "answer": list(report.answer),
        "key_figures": report.key_figures,
        "warnings": list(report.warnings),
        "sections": [
            {
                "title": section.title,
                "parts": [_part(part, width) for part in section.parts],
            }
            for section in sections
        ],
    }
    inputs = {"report": json.dumps(content, default=vars), "format": chosen}
    template = resources.files(__package__).joinpath("page.typ").read_bytes()
    return bytes(typst.compile(template, sys_inputs=inputs, format=chosen, **options))


def typesetter() -> Any:
    """Return typst."""
    with needed("write a report as PDF or PNG"):
        import typst
    return typst


def _part(part: Part, width: int) -> dict[str, Any]:
    fields = dict(vars(part))
    match part:
        case Table():
            fields["rows"] = [
                [cell if isinstance(cell, Cell) else Cell(cell) for cell in row]
                for row in part.rows
            ]
        case Figure():
            fields = _figure(part, width)
        case Fold():
            fields["parts"] = [_part(one, width) for one in part.parts]
    return {"kind": type(part).__name__.lower(), **fields}


def _figure(figure: Figure, width: int) -> dict[str, Any]:
    across = len(figure.charts) if not figure.zooms else 1
    each = (width - _GUTTER * (across - 1)) // across
    charts = [
        {"title": chart.title, "svg": svg(figure, chart, each)}
        for chart in figure.charts
    ]
    shown = {name: getattr(figure, name) for name in ("title", "caption", "alt")}
    return {**shown, "across": across, "charts": charts}
