"""`latprof probes`: what the running kernel offers of every quantity."""

from __future__ import annotations

import argparse

from latprof_analysis.cli.say import say_json

from latprof_agent.cli.root import require_root
from latprof_agent.probes.catalogue import (
    BY_FILTER,
    Capability,
    proven_capabilities,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )


def run(options: argparse.Namespace) -> int:
    """List the capabilities."""
    require_root("probes")
    found = proven_capabilities(needs=BY_FILTER)
    if options.json:
        say_json([c.as_dict() for c in found])
    else:
        show(found)
    return 0


def show(found: list[Capability]) -> None:
    """Print one line for each quantity."""
    from latprof_analysis.terminal import Terminal
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None)
    for column in ("quantity", "state", "from", "limit, or what to do"):
        table.add_column(column, overflow="fold")
    colours = {"exact": "green", "partial": "yellow", "unavailable": "red"}
    for c in found:
        limit = f"{c.reason}; {c.remedy}" if c.remedy else c.reason
        state = Text(c.state, style=colours[c.state])
        table.add_row(c.quantity, state, c.source, limit)
    Terminal().print(table)
