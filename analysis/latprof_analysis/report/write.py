"""A report to files: the page itself, its pictures, its tables."""

from __future__ import annotations

from pathlib import Path

from latprof_analysis.report.html import html_page
from latprof_analysis.report.markdown import write_markdown, write_table
from latprof_analysis.report.parts import Report
from latprof_analysis.report.typeset import typeset, typesetter
from latprof_analysis.report.vega import converter


def check_tools(chosen: str) -> None:
    """Raise LatprofError where what draws this format is not installed."""
    converter()
    if chosen in ("pdf", "png"):
        typesetter()


def write_report(report: Report, out: Path, chosen: str) -> list[Path]:
    """Write a report as html, md, pdf or png; returns the files beside `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if chosen == "md":
        return write_markdown(report, out)
    if chosen == "html":
        out.write_text(html_page(report), encoding="utf-8")
    else:
        out.write_bytes(typeset(report, chosen))
    return []


def write_csv(report: Report, folder: Path) -> list[Path]:
    """Write the table of each figure as a CSV file."""
    folder.mkdir(parents=True, exist_ok=True)
    return [write_table(figure, folder) for figure in report.figures()]
