"""`latprof lab clean`: remove what labs of dead processes left."""

from __future__ import annotations

import argparse
import sys

from latprof_agent.cli.root import require_root


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.add_argument(
        "action",
        choices=["clean"],
        help="remove their namespaces, processes and control groups",
    )


def run(options: argparse.Namespace) -> int:
    """Remove it, and say what it was; 1 where something of ours stays."""
    require_root("lab")
    from latprof_analysis.text import printable

    from latprof_agent.lab.registry import clean_dead_labs

    done = clean_dead_labs()
    for name in done.removed:
        print(f"removed {name}")
    for path in done.strange:
        said = printable(str(path))
        print(f"left as it is: {said}, it is no entry of latprof's", file=sys.stderr)
    for why in done.kept:
        print(f"latprof: {why}", file=sys.stderr)
    if not done.removed and not done.kept:
        print("nothing to remove")
    return 1 if done.kept else 0
