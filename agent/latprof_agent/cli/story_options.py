"""The limit above which a message gets a story: a time, or the running p99.9."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from latprof_analysis.cli.program import OPEN_FILES, need_open_files

from latprof_agent.cli.given_words import OldName
from latprof_agent.values import story_above, story_bytes, story_count, story_group


def make_room_for_stories() -> None:
    """Let this process open the files that stories need, or raise LatprofError.

    A clock of each CPU takes samples of what runs; programs whose functions have
    names are open elsewhere (symbols/files_helper.py).
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
        "--story",
        dest="story_above",
        type=story_above,
        metavar="TIME",
        help="of what takes longer, up to 8 of each group in 10 s (default: p99.9: the "
        "running one of each group, and 1 ms)",
    )
    parser.add_argument(
        "--story-above",
        action=OldName,
        new="--story",
        type=story_above,
        metavar="TIME",
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
    """Add the option of stories of live traffic, by a flight recorder."""
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
