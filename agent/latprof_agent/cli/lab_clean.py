"""`latprof lab clean`: remove what labs of dead processes left."""

from __future__ import annotations

import argparse

from latprof_agent.cli.root import require_root


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.add_argument(
        "action",
        choices=["clean"],
        help="remove their namespaces, processes and control groups",
    )


def run(options: argparse.Namespace) -> int:
    """Remove it, and say what it was."""
    require_root("lab")
    from latprof_agent.lab.lab import clean_dead_labs
    from latprof_agent.workload.control_group import clean_dead_groups

    removed = clean_dead_labs() + clean_dead_groups()
    for name in removed:
        print(f"removed {name}")
    if not removed:
        print("nothing to remove")
    return 0
