"""`latprof story`: why messages were slow, of a run or an agent that keeps stories."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from latprof_analysis import units
from latprof_analysis.say import say, say_json

EPILOG = """\
PATH is a run folder of `latprof run --story TIME`, the folder of `latprof agent
--story-dir DIR`, or a file of either. Of each message the stage that took longest is
told, and what its thread did meanwhile.

  latprof story runs/latest                        # the slowest
  latprof story runs/latest --slowest 3
  latprof story runs/latest --above 20ms --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument(
        "path", metavar="PATH", type=Path, help="a run folder, an agent's, or a file"
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--slowest",
        metavar="N",
        type=units.count,
        default=1,
        help="so many of the slowest messages (default: 1)",
    )
    which.add_argument(
        "--message",
        metavar="ID",
        help="one message, by its `sequence` in messages.csv, by WAY#SEQUENCE where "
        "several flows have that, or by a story's id",
    )
    which.add_argument(
        "--above",
        metavar="TIME",
        type=units.time_ns,
        help="all messages that took longer",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )


def run(options: argparse.Namespace) -> int:
    """Read, choose, show."""
    from latprof_analysis.read.stories import read_stories
    from latprof_analysis.report.story_lines import causes, story_lines, summary_lines

    document = read_stories(options.path)
    chosen = _chosen(document["stories"], options)
    if options.json:
        say_json(document | {"causes": causes(document), "stories": chosen})
        return 0
    for story in chosen:
        for line in story_lines(story):
            say(line)
        say("")
    if options.message is not None and len(chosen) > 1:
        ways = sorted({_names(story)[1] for story in chosen})
        say(f"{len(chosen)} messages are called {options.message}: {', '.join(ways)}")
    for line in summary_lines(document, len(chosen)):
        say(line)
    return 0


def _names(story: Any) -> tuple[str, str, str | None]:
    message = story["message"]
    number = str(message["sequence"])
    return number, f"{message.get('way')}#{number}", story.get("id")


def _chosen(stories: list[Any], options: argparse.Namespace) -> list[Any]:
    from latprof_analysis.read.stories import took_ns

    if options.message is not None:
        return [s for s in stories if options.message in _names(s)]
    if options.above is not None:
        return [s for s in stories if took_ns(s) > options.above]
    return stories[: options.slowest]
