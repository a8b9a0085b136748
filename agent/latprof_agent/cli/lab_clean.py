"""`latprof lab clean`: remove what labs of dead processes left."""

from __future__ import annotations

import argparse

from latprof_analysis.say import say, say_error

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
    from latprof_agent.lab.registry import clean_dead_labs

    done = clean_dead_labs()
    for name in done.removed:
        say(f"removed {name}")
    for path in done.strange:
        say_error(f"left as it is: {path}, it is no entry of latprof's")
    for why in done.kept:
        say_error(why)
    if not done.removed and not done.kept:
        say("nothing to remove")
    return 1 if done.kept else 0
