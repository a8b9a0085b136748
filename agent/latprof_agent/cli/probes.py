"""`latprof probes`: what the running kernel offers of every quantity."""

from __future__ import annotations

import argparse
from contextlib import closing
from typing import TYPE_CHECKING

from latprof_analysis.say import say_json

from latprof_agent.cli.root import require_root

if TYPE_CHECKING:
    from latprof_agent.probes.catalogue import Capability

_TABLE_COLUMNS = 80  # narrower, a table has no room for its last column


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )


def run(options: argparse.Namespace) -> int:
    """List the capabilities."""
    # the parser is built where nothing is compiled yet, for man pages
    from latprof_agent.capture.cost import cost_capability
    from latprof_agent.probes.catalogue import ON_DEMAND, PROBES, proven_capabilities
    from latprof_agent.probes.flight_probes import FLIGHT_PROBES
    from latprof_agent.probes.kernel_functions import KernelFunctions
    from latprof_agent.probes.loss_probes import LOSS_PROBES

    require_root("probes")
    table = PROBES + LOSS_PROBES + FLIGHT_PROBES
    found = proven_capabilities(table=table, needs=ON_DEMAND)
    with closing(KernelFunctions()) as functions:
        found += [functions.capability, cost_capability()]
    if options.json:
        say_json([c.as_dict() for c in found])
    else:
        show(found)
    return 0


def show(found: list[Capability]) -> None:
    """Print a row for each quantity, on a narrow terminal a paragraph.

    A hook's name is one word to search for: it is never broken over lines.
    """
    from latprof_analysis.report.terminal import Terminal
    from rich.table import Table
    from rich.text import Text

    terminal = Terminal()
    if terminal.width < _TABLE_COLUMNS:
        for c in found:
            terminal.print(Text(_paragraph(c)))
        return
    table = Table(box=None)
    longest = max(len(word) for c in found for word in c.source.split() or [""])
    for column, least in (
        ("quantity", None),
        ("state", None),
        ("from", longest),
        ("limit, or what to do", None),
    ):
        table.add_column(column, overflow="fold", min_width=least)
    colours = {"exact": "green", "partial": "yellow", "unavailable": "red"}
    for c in found:
        state = Text(c.state, style=colours[c.state])
        table.add_row(c.quantity, state, c.source, _limit(c))
    terminal.print(table)


def _limit(found: Capability) -> str:
    return "; ".join(filter(None, (found.reason, found.remedy)))


def _paragraph(found: Capability) -> str:
    source = f", from {found.source}" if found.source else ""
    parts = (found.quantity, found.state + source, _limit(found))
    return ": ".join(filter(None, parts))
