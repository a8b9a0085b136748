"""`latprof schema`: what a command prints with --json, as JSON Schema."""

from __future__ import annotations

import argparse
from importlib.resources import files

from latprof_analysis.say import say

EPILOG = """\
Of each document its schema (2020-12) has what stays: a member keeps its meaning, type
and unit until `version` is raised. Others may be there: `additionalProperties`.

  latprof schema                     # which there are
  latprof schema watch > watch.schema.json
"""
_FOLDER = files("latprof_analysis") / "schemas"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument(
        "document",
        metavar="COMMAND",
        nargs="?",
        choices=_names(),
        help=f"whose: {', '.join(_names())} (default: list them)",
    )


def run(options: argparse.Namespace) -> int:
    """Print one, or the list of them."""
    if options.document:
        text = (_FOLDER / f"{options.document}.json").read_text("utf-8")
        for line in text.splitlines():
            say(line)
        return 0
    for name in _names():
        say(name)
    return 0


def _names() -> list[str]:
    return sorted(
        path.name.removesuffix(".json")
        for path in _FOLDER.iterdir()
        if path.name.endswith(".json")
    )
