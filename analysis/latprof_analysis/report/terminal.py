"""The terminal for tables: whatever names are in them none acts on it, no line wraps.

A single line is told by `cli.say`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from latprof_analysis.text import NOT_ENOUGH, printable


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

    def render_str(self, text: str, **options: Any) -> Text:
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


_GAP = "  "  # between the outermost groups


class Column(NamedTuple):
    """Cells below a head, one a row: figures, or texts, which begin at the `left`."""

    head: str
    cells: Sequence[str]
    left: bool = False

    def lines(self, _depth: int) -> list[str]:
        """Write the head and the cells, all of one width."""
        texts = [self.head, *self.cells]
        width = max(map(len, texts))
        return [text.ljust(width) if self.left else text.rjust(width) for text in texts]

    @property
    def is_empty(self) -> bool:
        """Whether no cell tells anything."""
        return all(cell in ("", NOT_ENOUGH) for cell in self.cells)


class Group(NamedTuple):
    """Columns, or groups of them, below a common title."""

    title: str
    parts: Sequence[Group | Column]

    def lines(self, depth: int) -> list[str]:
        """Write the title, then what is below it, so many levels deep."""
        below = _beside([part.lines(depth - 1) for part in self.parts], " ")
        width = max(map(len, below))
        return [clipped(self.title, width).ljust(width), *below]


def table_lines(
    title: str, rows: Sequence[str], groups: Sequence[Group | Column], depth: int = 1
) -> list[str]:
    """Write a table: `rows` name the rows, `groups` are `depth` levels deep.

    Examples
    --------
    >>> tcp = Group("tcp", [Column("p50", ["7 us", "9 us"]), Column("n", ["1", "2"])])
    >>> for line in table_lines("size", ["18 B", "1024 B"], [tcp]):
    ...     print(line)
            tcp
    size     p50 n
    18 B    7 us 1
    1024 B  9 us 2
    """
    names = [*[""] * depth, title, *rows]
    width = max(map(len, names))
    first = [name.ljust(width) for name in names]
    lines = _beside([first, *(group.lines(depth) for group in groups)], _GAP)
    return [line.rstrip() for line in lines]


def fits(lines: Sequence[str], width: int) -> bool:
    """Whether no line is longer than `width`."""
    return max(map(len, lines)) <= width


def _beside(blocks: Sequence[Sequence[str]], gap: str) -> list[str]:
    return [gap.join(parts) for parts in zip(*blocks, strict=True)]


def clipped(text: str, width: int) -> str:
    """Return a text without control characters, cut where it is too long."""
    safe = printable(text)
    return safe if len(safe) <= width else safe[: max(0, width - 2)] + ".."
