"""The report as Markdown, with its pictures and tables in a folder beside it."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from latprof_analysis.csv_cells import csv_text
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
from latprof_analysis.write.whole_file import make_folder, write_file

_WIDTH = 720
# What Markdown or the HTML in it would read as more than a letter.
_MARKUP = re.compile(r"([\\`*_\[\]|#~!])")
# What begins a list or underlines a title, where it begins a line.
_BEGINNING = re.compile(r"^(\s*\d*)([-+=.)])")
# What GitHub makes a link of by itself.
_LINK = re.compile(r"(?<=[a-z]):(?=//)|(?<=www)\.|@", re.IGNORECASE)


def write_markdown(report: Report, out: Path) -> list[Path]:
    """Write a report and its figures; returns the files beside `out`."""
    folder = out.with_name(f"{out.stem}-figures")
    make_folder(folder)
    written: list[Path] = []
    lines = [f"# {_plain(report.title)}", "", _plain(report.subtitle), ""]
    for sentence in report.answer:
        lines += [_plain(sentence), ""]
    if report.picture:
        lines += [*_figure(report.picture, folder, written), ""]
    for one in report.key_figures:
        shown = f"**{_plain(one.value)}** ({_plain(one.under)})"
        lines.append(f"- {_plain(one.label)}: {shown}")
    lines += ["", *(f"> Warning: {_plain(text)}\n" for text in report.warnings)]
    for section in report.sections:
        lines += [f"## {_plain(section.title)}", ""]
        for part in section.parts:
            lines += [*_part(part, folder, written), ""]
    write_file(out, "\n".join(lines).encode())
    return written


def write_table(figure: Figure, folder: Path) -> Path:
    """Write what a figure draws as CSV."""
    path = folder / f"{figure.name}.csv"
    write_file(path, csv_text(figure.data).encode())
    return path


def _plain(text: str) -> str:
    """Return a text that is nothing but text in Markdown."""
    line = _MARKUP.sub(r"\\\1", escape(text, quote=False).replace("\n", " "))
    line = _BEGINNING.sub(r"\1\\\2", line.lstrip())
    return _LINK.sub(lambda found: f"&#{ord(found[0])};", line)


def _part(part: Part, folder: Path, written: list[Path]) -> list[str]:
    match part:
        case Text():
            return [_plain(part.text)]
        case Items():
            return [f"- {_plain(item)}" for item in part.items]
        case Missing():
            return [f"**{_plain(part.title)}** not told: {_plain(part.reason)}"]
        case Table():
            return _table(part)
        case Figure():
            return _figure(part, folder, written)
        case Fold():
            lines = [f"### {_plain(part.title)}", ""]
            for one in part.parts:
                lines += [*_part(one, folder, written), ""]
            return lines


def _table(table: Table) -> list[str]:
    side = "--:" if table.numeric else ":--"
    rules = [":--", *[side] * (len(table.columns) - 1)]
    rows = [table.columns, *table.rows]
    made = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    made.insert(1, "| " + " | ".join(rules) + " |")
    note = ["", _plain(table.note)] if table.note else []
    return [f"**{_plain(table.title)}**", "", *made, *note]


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return _plain(cell)
    under = f" ({_plain(cell.under)})" if cell.under else ""
    return _plain(cell.text) + under


def _figure(figure: Figure, folder: Path, written: list[Path]) -> list[str]:
    table = write_table(figure, folder)
    written.append(table)
    lines = [f"**{_plain(figure.title)}**", ""]
    for i, chart in enumerate(figure.charts):
        number = f"-{i + 1}" if len(figure.charts) > 1 else ""
        path = folder / f"{figure.name}{number}.svg"
        write_file(path, svg(figure, chart, _WIDTH).encode())
        written.append(path)
        if chart.title:
            lines += [_plain(chart.title), ""]
        # the folder's name is the user's: a space would end the link
        lines += [f"![{_plain(figure.alt)}](<{folder.name}/{path.name}>)", ""]
    link = f"[CSV](<{folder.name}/{table.name}>)"
    return [*lines, f"{_plain(figure.caption)} {link}"]
