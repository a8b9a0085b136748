"""The terminal as a writer of parts: no name in them acts on it, no table wraps.

A single line is told by `cli.say`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text as Line

from latprof_analysis.report.parts import (
    Cell,
    Figure,
    Fold,
    Items,
    Missing,
    Part,
    Table,
    Text,
)
from latprof_analysis.text import printable


class Terminal(Console):
    """A console on which no text is markup, and no character moves the cursor.

    Parameters
    ----------
    **options
        Of `rich.console.Console`.

    Examples
    --------
    >>> Terminal(width=40).print("[red]a[/]\\x1b[2J")
    [red]a[/]?[2J
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Line:
        """Make a text of a string: a cell, a title, a line."""
        return super().render_str(printable(text), **options | {"markup": False})

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, and see to texts that were none of `render_str`."""
        for text, style, control in super().render(renderable, options):
            if control or text == "\n" or text.isprintable():
                yield Segment(text, style, control)
            else:
                lines = text.split("\n")
                yield Segment("\n".join(map(printable, lines)), style)


_FIGURE = re.compile(r"|-|[-+]?[\d.,]+(e[-+]?\d+)? ?[^\s\d]{0,6}")
_SHORT = 16  # of a title above columns, which are made as wide
_LEAST = 10  # columns that a text is folded into where there is no room


def write_parts(parts: Sequence[Part], console: Console) -> None:
    """Write parts to a terminal, tables as wide as it is at most."""
    for before, part in pairwise((None, *parts)):
        apart = isinstance(part, Table | Figure | Missing | Fold)
        if before and (apart or (isinstance(before, Table) and not _is_quiet(part))):
            console.print()
        _write(part, console)


def _is_quiet(part: Part | None) -> bool:
    return isinstance(part, Text) and part.quiet


def _write(part: Part | None, console: Console) -> None:
    match part:
        case Text():
            show_line(console, part.text, "dim" if part.quiet else _TONES[part.tone])
        case Items():
            for item in part.items:
                show_line(console, item)
        case Missing():
            show_line(console, f"{part.title}: {part.reason}", "dim")
        case Figure():
            show_line(console, part.title, "bold")
            show_line(console, f" {part.alt}")
        case Fold():
            show_line(console, part.title, "bold")
            write_parts(part.parts, console)
        case Table():
            _write_table(part, console)


_TONES = {"": "", "answer": "bold", "warning": "bold yellow"}


def _write_table(table: Table, console: Console) -> None:
    if table.title:
        show_line(console, table.title, "bold")
    margin = " " if table.title else ""
    form = fitting(table, console.width - len(margin))
    lines = table_lines(form, console.width - len(margin))
    for i, line in enumerate(lines):
        head = i <= len(table.heads)
        whole = table.whole and line.startswith(table.whole)
        style = "bold" if whole else "dim" if head and table.title else ""
        text = shown(f"{margin}{line}", style)
        console.print(text, no_wrap=True, overflow="crop", soft_wrap=False)
    if form.note:
        show_line(console, margin + form.note, "dim")


def fitting(table: Table, width: int) -> Table:
    """Return the first form of a table that is not wider, else the last."""
    forms = [table, *table.narrow]
    wide = (max(map(len, _lines(form, _cells(form)))) for form in forms)
    fit = (form for form, found in zip(forms, wide, strict=True) if found <= width)
    return next(fit, forms[-1])


def table_lines(table: Table, width: int) -> list[str]:
    """Write a table; where it is wider, with its texts folded.

    Examples
    --------
    >>> rows = [["18 B", "7.00 us", "1"], ["1024 B", "9.00 us", "20"]]
    >>> for line in table_lines(Table("", ["size", "p50", "n"], rows), 80):
    ...     print(line)
    size       p50  n
    18 B   7.00 us  1
    1024 B 9.00 us 20
    """
    lines = _lines(table, _cells(table))
    if max(map(len, lines)) <= width:
        return lines
    return [line[:width] for line in _lines(table, _folded(table, width))]


def _cells(table: Table) -> list[list[str]]:
    """Return the texts of a table by row, the titles of its columns first."""
    rows = [table.columns, *table.rows]
    return [[printable(_text(cell)) for cell in row] for row in rows]


def _text(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text} ({cell.under})" if cell.under else cell.text


def _is_left(table: Table, cells: Sequence[Sequence[str]], column: int) -> bool:
    """Whether a column begins at the left: names and texts do, figures do not."""
    if not column or not table.numeric:
        return True
    return not all(_FIGURE.fullmatch(row[column]) for row in cells[1:])


def _lines(table: Table, cells: Sequence[Sequence[str]]) -> list[str]:
    columns = range(len(table.columns))
    left = [_is_left(table, cells, i) for i in columns]
    widths = [max(len(row[i]) for row in cells) for i in columns]
    _widen(table, widths)
    begins = _begins(table)
    gaps = ["" if not i else "  " if left[i] or i in begins else " " for i in columns]

    def line(row: Sequence[str]) -> str:
        texts = (
            gap + (text.ljust(width) if at_left else text.rjust(width))
            for gap, text, width, at_left in zip(gaps, row, widths, left, strict=True)
        )
        return "".join(texts).rstrip()

    found = [
        _head(level, [len(g) + w for g, w in zip(gaps, widths, strict=True)], gaps)
        for level in table.heads
    ]
    return found + [line(row) for row in cells]


def _widen(table: Table, widths: list[int]) -> None:
    """Make room for short titles above few columns."""
    for level in table.heads:
        at = 1
        for title, n in level:
            have = sum(widths[at : at + n]) + n - 1
            widths[at] += max(0, min(len(title), _SHORT) - have)
            at += n


def _begins(table: Table) -> set[int]:
    """Return at which columns the outermost titles begin."""
    begins, at = set(), 1
    for _, n in table.heads[0] if table.heads else ():
        begins.add(at)
        at += n
    return begins


def _head(
    level: Sequence[tuple[str, int]], widths: Sequence[int], gaps: Sequence[str]
) -> str:
    """Write titles above their columns, cut where they are wider."""
    line, at = " " * widths[0], 1
    for title, n in level:
        room = sum(widths[at : at + n]) - len(gaps[at])
        line += gaps[at] + clipped(title, room).ljust(room)
        at += n
    return line.rstrip()


def _folded(table: Table, width: int) -> list[list[str]]:
    """Fold the longest texts until all columns have room; a row becomes several."""
    cells = _cells(table)
    columns = range(len(table.columns))
    left = [_is_left(table, cells, i) for i in columns]
    room = [max(len(row[i]) for row in cells) for i in columns]
    gaps = sum(2 if left[i] else 1 for i in columns[1:])
    while sum(room) + gaps > width:
        widest = max(columns, key=lambda i: room[i] if left[i] else 0)
        if not left[widest] or room[widest] <= _LEAST:
            break
        room[widest] -= 1
    found = []
    for row in cells:
        parts = [
            textwrap.wrap(text, room[i], break_on_hyphens=False) or [""]
            for i, text in enumerate(row)
        ]
        found += [list(one) for one in zip_longest(*parts, fillvalue="")]
    return found


def shown(text: str, style: str = "") -> Line:
    """Make a text that neither markup nor control characters in it can change."""
    return Line(printable(text), style=style)


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print a line, after an empty one if it begins with a line feed."""
    if text.startswith("\n"):
        console.print()
    console.print(shown(text.removeprefix("\n"), style))


def clipped(text: str, width: int) -> str:
    """Return a text without control characters, cut where it is too long."""
    safe = printable(text)
    return safe if len(safe) <= width else safe[: max(0, width - 2)] + ".."
