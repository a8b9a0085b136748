"""From when on a message's story is told: a time, or the running p99.9."""

from __future__ import annotations

import argparse

from latprof_analysis.cli import units

P999 = "p99.9"


def story_above(text: str) -> int:
    """Read a time as ns, or p99.9 as 0."""
    if text == P999:
        return 0
    try:
        return units.within(units.time_ns, "10us", "1h")(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {P999}") from error


def add_story_option(parser: argparse.ArgumentParser) -> None:
    """Let live traffic be told of with a flight recorder."""
    parser.add_argument(
        "--story",
        type=story_above,
        nargs="?",
        const=0,
        metavar="TIME",
        help="keep in a recorder in the kernel what CPUs do, and tell why messages and "
        "servers took as long, up to 8 of each group in 10 s; without TIME what is "
        "above the running p99.9 of its group, and 1 ms (default: no recorder)",
    )
