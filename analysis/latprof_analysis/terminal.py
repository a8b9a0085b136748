"""The terminal for tables: whatever names are in them, none acts on it.

A single line is told by `cli.say`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

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
