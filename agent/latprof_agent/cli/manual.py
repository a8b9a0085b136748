"""Man pages, from the parser itself: `python3 -m latprof_agent.cli.manual DIR`.

Only the build calls it, with argparse-manpage installed and nothing compiled yet;
without DIR it names the pages. SOURCE_DATE_EPOCH, in seconds, is their date.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from latprof_analysis.cli.program import (
    DESCRIPTION,
    Subcommand,
    parsers_of,
)
from latprof_analysis.say import say
from latprof_analysis.version import VERSION
from latprof_analysis.write.whole_file import write_file

from latprof_agent.cli import SUBCOMMANDS

_SHORT = "where did my message spend its time?"


def write_pages(folder: Path) -> None:
    """Write latprof.1 and a page for each command and form."""
    pages = {"latprof": (_overview(SUBCOMMANDS), _SHORT)}
    for words, parser in parsers_of(SUBCOMMANDS, VERSION).items():
        name, _, form = words.partition(" ")
        subcommand = SUBCOMMANDS[name]
        what = subcommand.forms[form] if form else subcommand.what
        pages[f"latprof-{words.replace(' ', '-')}"] = parser, what
    for name, (parser, what) in pages.items():
        others = [other for other in pages if other != name]
        page = _page(name, parser, what, others)
        write_file(folder / f"{name}.1", page.encode())


def page_names() -> list[str]:
    """Name the files that `write_pages` writes."""
    forms = (f"{name}-{form}" for name, s in SUBCOMMANDS.items() for form in s.forms)
    return ["latprof.1", *(f"latprof-{words}.1" for words in (*SUBCOMMANDS, *forms))]


def _overview(subcommands: Mapping[str, Subcommand]) -> argparse.ArgumentParser:
    """Make a parser that looks like a list of the commands."""
    parser = argparse.ArgumentParser(
        prog="latprof", usage="latprof COMMAND [options]", description=DESCRIPTION
    )
    commands = parser.add_argument_group("commands")
    for name, subcommand in subcommands.items():
        commands.add_argument(name, metavar=f"latprof {name}", help=subcommand.what)
    parser.add_argument("--version", action="version", help="print the version")
    return parser


def _page(
    name: str, parser: argparse.ArgumentParser, what: str, others: Sequence[str]
) -> str:
    from argparse_manpage.manpage import Manpage

    epilog, parser.epilog = parser.epilog or "", None
    about = {"description": what, "project_name": "latprof", "version": VERSION}
    page = Manpage(parser, about | {"manual_title": "latprof"})
    page.prog = name
    page.date = date.fromisoformat(page.date).strftime("%B %d, %Y")
    if epilog:
        page.add_section("examples", "=", _preformatted(epilog))
    page.add_section("exit status", "=", "0 done, 1 failed, 2 wrong usage.")
    see = " ,\n".join(f".BR {other} (1)" for other in others)
    page.add_section("see also", "=", see)
    return str(page)


def _preformatted(text: str) -> str:
    """Keep the lines of a text as they are."""
    lines = []
    for line in text.strip("\n").splitlines():
        escaped = line.replace("\\", "\\e").replace("-", "\\-")
        lines.append(f"\\&{escaped}" if escaped[:1] in (".", "'") else escaped)
    return "\n".join([".nf", *lines, ".fi"])


if __name__ == "__main__":
    if sys.argv[1:]:
        write_pages(Path(sys.argv[1]))
    else:
        say(" ".join(page_names()))
