"""The options of a sweep: which others take which values, and how often."""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

from latprof_analysis import units

MOST_REPEATS = 1000


class Swept(NamedTuple):
    """An option's name without dashes, and its values as they were given."""

    name: str
    values: tuple[str, ...]


def swept(text: str) -> Swept:
    """interval=400us,200us: an option and its values; `;` between where they have `,`.

    Examples
    --------
    >>> swept("interval=400us,200us").values, swept("sizes=64,1k;64k").values
    (('400us', '200us'), ('64,1k', '64k'))
    """
    name, equals, rest = text.removeprefix("--").partition("=")
    parts = rest.split(";" if ";" in rest else ",")
    values = tuple(part.strip() for part in parts)
    if not equals or not name or not all(values):
        raise argparse.ArgumentTypeError(
            f"must be an option and its values, like interval=1ms,2ms, got {text!r}"
        )
    if len(set(values)) < len(values):
        raise argparse.ArgumentTypeError(f"must have each value once, got {text!r}")
    return Swept(name, values)


def add_sweep(group: Any) -> None:
    """Add them."""
    group.add_argument(
        "--sweep",
        action="append",
        type=swept,
        default=[],
        metavar="OPTION=VALUE,...",
        help="a run with each value, e.g. interval=2ms,1ms, in random order; given "
        "again: all combinations; ; between values with commas (default: one run)",
    )
    group.add_argument(
        "--repeat",
        type=units.within(units.count, "1", str(MOST_REPEATS)),
        default=1,
        metavar="N",
        help="times, each with the next --seed (default: 1)",
    )
