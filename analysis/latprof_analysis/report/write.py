"""A report to files: the page itself, its pictures, its tables."""

from __future__ import annotations

from pathlib import Path

from latprof_analysis.csv_cells import csv_text
from latprof_analysis.report.parts import Report


def check_tools(chosen: str) -> None:
    """Raise LatprofError where what draws this format is not installed."""
    from latprof_analysis.report.vega import converter

    converter()
    if chosen in ("pdf", "png"):
        from latprof_analysis.report.typeset import typesetter

        typesetter()


def write_report(report: Report, out: Path, chosen: str) -> list[Path]:
    """Write a report as html, md, pdf or png; returns the files beside `out`."""
    out.parent.mkdir(parents=True, exist_ok=True)
    if chosen == "html":
        from latprof_analysis.report.html import html_page

        out.write_text(html_page(report), encoding="utf-8")
        return []
    if chosen == "md":
        from latprof_analysis.report.markdown import write_markdown

        return write_markdown(report, out)
    from latprof_analysis.report.typeset import typeset

    out.write_bytes(typeset(report, chosen))
    return []


def write_csv(report: Report, folder: Path) -> list[Path]:
    """Write the table of each figure as a CSV file."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for figure in report.figures():
        path = folder / f"{figure.name}.csv"
        path.write_text(csv_text(figure.data), encoding="utf-8")
        written.append(path)
    return written
