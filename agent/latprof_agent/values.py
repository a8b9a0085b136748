"""Values with units that options and the agent's configuration share."""

from __future__ import annotations

import argparse
import grp
import math

from latprof_analysis import units

NO_LIMIT = "none"
DEFAULT_OVERHEAD = 0.02
_share = units.either(NO_LIMIT, units.within(units.share, "0.1%", "100%"))


def overhead(text: str) -> float:
    """Read a share of one CPU, or none: infinity."""
    read = _share(text)
    return math.inf if isinstance(read, str) else read


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
