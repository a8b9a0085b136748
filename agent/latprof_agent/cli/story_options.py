"""From when on a message's story is told: a time, or the running p99.9."""

from __future__ import annotations

import argparse
import grp
import os
from pathlib import Path

from latprof_analysis.cli import units
from latprof_analysis.cli.program import OPEN_FILES, need_open_files

P999 = "p99.9"


def story_above(text: str) -> int:
    """Read a time as ns, or p99.9 as 0."""
    if text == P999:
        return 0
    try:
        return units.within(units.time_ns, "10us", "1h")(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or {P999}") from error


story_count = units.within(units.count, "1", "100000")
story_bytes = units.within(units.size, "100k", "100GB")


def story_group(text: str) -> int:
    """Read a group's name or number."""
    try:
        return int(text) if text.isdecimal() else grp.getgrnam(text).gr_gid
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(
            f"must be a group's name or number, got {text!r}"
        ) from None


def make_room_for_stories() -> None:
    """Let this process open the files that stories need, or raise LatprofError.

    A clock of each CPU takes samples of what runs; programs whose functions have
    names are open elsewhere (story/files_helper.py).
    """
    need_open_files(OPEN_FILES + (os.cpu_count() or 1))


def add_story_folder_options(parser: argparse.ArgumentParser) -> None:
    """Let an agent keep stories in a folder; whose defaults are the configuration's."""
    parser.add_argument(
        "--story-dir",
        type=Path,
        metavar="DIR",
        help="keep in a recorder in the kernel what CPUs do, and in this folder why "
        "messages and servers were slow (default: no recorder)",
    )
    parser.add_argument(
        "--story-above",
        type=story_above,
        metavar="TIME",
        help="what takes longer is told of, up to 8 of each group in 10 s (default: "
        "p99.9: the running one of each group, and 1 ms)",
    )
    parser.add_argument(
        "--story-count",
        type=story_count,
        metavar="N",
        help="keep so many stories: the newest half, and the slowest of those before "
        "(default: 200)",
    )
    parser.add_argument(
        "--story-bytes",
        type=story_bytes,
        metavar="SIZE",
        help="keep no more than so many bytes of them (default: 20MB)",
    )
    parser.add_argument(
        "--story-group",
        type=story_group,
        metavar="GROUP",
        help="let this group read them, beside the agent's user (default: its own)",
    )


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
