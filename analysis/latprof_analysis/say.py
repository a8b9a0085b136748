"""What commands print: a line of text, or a document. Tables: `terminal.Terminal`.

Nothing else in the program prints (ruff sees to it), so that names of others reach
the terminal as text only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

from latprof_analysis.text import printable

if TYPE_CHECKING:
    from latprof_analysis.report.parts import Part


def say(text: str, file: TextIO | None = None) -> None:
    """Print one line, on stdout if no file is given."""
    print(printable(text), file=file)


def say_error(text: str) -> None:
    """Print one line on stderr, with the program's name before it."""
    say(f"latprof: {text}", sys.stderr)


def say_json(document: Any) -> None:
    """Print one JSON document on stdout: ASCII, so that nothing in it acts."""
    json.dump(document, sys.stdout, indent=2, allow_nan=False)
    print()


def say_json_line(document: Any) -> None:
    """Print one JSON document as a line, at once: for who reads them one by one."""
    print(json.dumps(document, allow_nan=False, separators=(",", ":")), flush=True)


def say_document(document: dict[str, Any], *, as_json: bool, everything: bool) -> None:
    """Print a summary, or what `analyze` found: as JSON, or as a screen of it."""
    if as_json:
        say_json(document)
        return
    from latprof_analysis.report.depth import depth
    from latprof_analysis.report.overview import overview

    say_parts(depth(document) if everything else overview(document))


def say_parts(parts: Sequence[Part], file_width: int | None = None) -> None:
    """Print parts of a report on stdout; in a file, tables are `file_width` wide."""
    from latprof_analysis.report.terminal import Terminal, write_parts

    # only a terminal needs its lines broken; a file's reader may search in them
    to_file = not sys.stdout.isatty()
    write_parts(
        parts, Terminal(soft_wrap=to_file, width=file_width if to_file else None)
    )
