"""Which traffic is watched: as options, as words, as a table of TOML."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING

from latprof_agent.errors import UsageError
from latprof_agent.filters.kinds import KINDS, values_of

if TYPE_CHECKING:
    from latprof_agent.probes.filter import Filter, Word

TEXT = """\
Each takes several values, with commas or given again, of which one must hold; of
different options all must hold; what --not holds of is left out. Decided once for
each socket, those that were open before included (%s).
"""


def add_filter_options(
    parser: argparse.ArgumentParser, without: str = "default: all sockets"
) -> None:
    """Add --port, --comm, --not and the others, as a group of their own."""
    group = parser.add_argument_group("which traffic", TEXT % without)
    for name, kind in KINDS.items():
        group.add_argument(
            f"--{name}",
            dest="filter_words",
            action="extend",
            type=partial(_words, name),
            default=[],
            metavar=f"{kind.metavar},...",
            help=f"{kind.help}",
        )
    group.add_argument(
        "--not",
        dest="filter_words",
        action="extend",
        type=_words_not,
        default=[],
        metavar="KIND=VALUE,...",
        help="not these: any of the options above without its dashes, e.g. "
        "--not comm=curl --not port=22,443",
    )


def filter_of(options: argparse.Namespace) -> Filter:
    """Make the filter of the options.

    Raises UsageError for what nothing can be called, and FilterError where something
    is not there.
    """
    from latprof_agent.filters.words import filter_of_words

    runtime = getattr(options, "runtime", None)  # of watch and agent
    return filter_of_words(options.filter_words, "--", runtime)


def parse_filter(text: str) -> Filter:
    """Make a filter of words like "port=6379 not comm=curl"; raises as `filter_of`."""
    from latprof_agent.filters.words import filter_of_words, read_words

    return filter_of_words(read_words(text))


def _words(kind: str, text: str) -> list[Word]:
    from latprof_agent.probes.filter import Word

    return [Word(kind, value) for value in values_of(kind, text)]


def _words_not(text: str) -> list[Word]:
    from latprof_agent.filters.words import words_of

    try:
        return words_of(text, negated=True)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
