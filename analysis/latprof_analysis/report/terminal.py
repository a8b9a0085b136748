"""The terminal as a writer of parts: no name in them acts on it, no table wraps.

`say` prints a single line.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
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
    """A console on which no text is markup, and no character moves the cursor."""

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
        note = isinstance(part, Text) and part.quiet
        if before and (apart or (isinstance(before, Table) and not note)):
            console.print()
        _write(part, console)


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
    width = console.width - len(margin)
    form = fitting(table, width)
    for i, line in enumerate(table_lines(form, width)):
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
    fit = (form for form in forms if max(map(len, _lines(form, _cells(form)))) <= width)
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
    cells = _cells(table)
    lines = _lines(table, cells)
    if max(map(len, lines)) <= width:
        return lines
    return [line[:width] for line in _lines(table, _folded(table, cells, width))]


def _cells(table: Table) -> list[list[str]]:
    """Return the texts of a table by row, the titles of its columns first."""
    rows = [table.columns, *table.rows]
    return [[printable(_text(cell)) for cell in row] for row in rows]


def _text(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text} ({cell.under})" if cell.under else cell.text


def _laid_out(
    table: Table, cells: Sequence[Sequence[str]]
) -> tuple[list[int], list[bool]]:
    """Return how wide each column is, and whether it begins at the left.

    Names and texts do, figures do not.
    """
    columns = list(zip(*cells, strict=True))
    left = [
        not (i and table.numeric) or not all(map(_FIGURE.fullmatch, column[1:]))
        for i, column in enumerate(columns)
    ]
    return [max(map(len, column)) for column in columns], left


def _lines(table: Table, cells: Sequence[Sequence[str]]) -> list[str]:
    widths, left = _laid_out(table, cells)
    for level in table.heads:
        for title, over in _places(level):  # room for short titles above few columns
            have = sum(widths[over]) + len(widths[over]) - 1
            widths[over.start] += max(0, min(len(title), _SHORT) - have)
    begins = [over.start for level in table.heads[:1] for _, over in _places(level)]
    gaps = ["  " if at_left or i in begins else " " for i, at_left in enumerate(left)]
    gaps[0] = ""

    def line(row: Sequence[str]) -> str:
        texts = (
            gap + (text.ljust(width) if at_left else text.rjust(width))
            for gap, text, width, at_left in zip(gaps, row, widths, left, strict=True)
        )
        return "".join(texts).rstrip()

    def head(level: Sequence[tuple[str, int]]) -> str:
        """Write titles above their columns, cut where they are wider."""
        made = " " * widths[0]
        for title, over in _places(level):
            room = sum(widths[over]) + len("".join(gaps[over])) - len(gaps[over.start])
            made += gaps[over.start] + clipped(title, room).ljust(room)
        return made.rstrip()

    return [*map(head, table.heads), *map(line, cells)]


def _places(level: Sequence[tuple[str, int]]) -> Iterator[tuple[str, slice]]:
    """Yield titles with the columns that they stand above."""
    at = 1
    for title, n in level:
        yield title, slice(at, at + n)
        at += n


def _folded(
    table: Table, cells: Sequence[Sequence[str]], width: int
) -> list[Sequence[str]]:
    """Fold the longest texts until all columns have room; a row becomes several."""
    room, left = _laid_out(table, cells)
    gaps = sum(2 if at_left else 1 for at_left in left[1:])
    while sum(room) + gaps > width:
        widest = max(range(len(room)), key=lambda i: room[i] if left[i] else 0)
        if not left[widest] or room[widest] <= _LEAST:
            break
        room[widest] -= 1
    found: list[Sequence[str]] = []
    for row in cells:
        parts = (
            textwrap.wrap(text, columns, break_on_hyphens=False) or [""]
            for text, columns in zip(row, room, strict=True)
        )
        found += zip_longest(*parts, fillvalue="")
    return found


def shown(text: str, style: str = "") -> Line:
    """Make a text that neither markup nor control characters in it can change."""
    return Line(printable(text), style=style)


def show_line(console: Console, text: str, style: str = "") -> None:
    """Print a line."""
    console.print(shown(text, style))


def clipped(text: str, width: int) -> str:
    """Return a text without control characters, cut where it is too long."""
    safe = printable(text)
    return safe if len(safe) <= width else safe[: max(0, width - 2)] + ".."
