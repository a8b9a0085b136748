"""`latprof probes`: what the running kernel offers of every quantity."""

from __future__ import annotations

import argparse
from contextlib import closing

from latprof_analysis.cli.say import say_json

from latprof_agent.cli.root import require_root
from latprof_agent.monitor.kernel_functions import KernelFunctions
from latprof_agent.probes.catalogue import (
    ON_DEMAND,
    PROBES,
    Capability,
    proven_capabilities,
)
from latprof_agent.probes.flight_probes import FLIGHT_PROBES
from latprof_agent.probes.loss_probes import LOSS_PROBES


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )


def run(options: argparse.Namespace) -> int:
    """List the capabilities."""
    require_root("probes")
    table = PROBES + LOSS_PROBES + FLIGHT_PROBES
    found = proven_capabilities(table=table, needs=ON_DEMAND)
    with closing(KernelFunctions()) as functions:
        found.append(functions.capability)
    if options.json:
        say_json([c.as_dict() for c in found])
    else:
        show(found)
    return 0


def show(found: list[Capability]) -> None:
    """Print one line for each quantity."""
    from latprof_analysis.report.terminal import Terminal
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
