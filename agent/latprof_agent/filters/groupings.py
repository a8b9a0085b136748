"""By what live traffic is grouped: the words of `--by`, and the same elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace

from latprof_agent.errors import UsageError
from latprof_agent.probes.grouping import (
    BY_CONTAINER,
    MOST_AT_ONCE,
    NONE,
    Grouping,
)

DEFAULT = Grouping()
# Subnets of IPv4 and IPv6, and the longest of them.
PREFIX_BITS = {"prefix_ipv4": 32, "prefix_ipv6": 128}
_REMOTE = "remote"
# As the probes know them, but for those of containers; a test compares.
GROUPINGS = ("service", "cgroup", *BY_CONTAINER, "comm", _REMOTE, "interface", NONE)


def grouping_of(names: Iterable[str], like: Grouping = DEFAULT) -> Grouping:
    """Make a grouping of what is named, or raise ArgumentTypeError.

    Subnets without a prefix length have that of `like`.
    """
    words = [name.strip() for name in names]
    given = ",".join(words)
    by = tuple(_REMOTE if word.startswith(f"{_REMOTE}/") else word for word in words)
    for name in by:
        if name not in GROUPINGS:
            raise argparse.ArgumentTypeError(
                f"must be of {', '.join(GROUPINGS)}, got {name!r}"
            )
    if not 1 <= len(by) <= MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(
            f"must be one or {MOST_AT_ONCE} of {', '.join(GROUPINGS)}, got {given!r}"
        )
    if len(set(by)) < len(by):
        raise argparse.ArgumentTypeError(f"must be different kinds, got {given!r}")
    if NONE in by and len(by) > 1:
        raise argparse.ArgumentTypeError(f"must be none or others, got {given!r}")
    prefixes = [_prefixes(word) for word in words if word.startswith(f"{_REMOTE}/")]
    return replace(like, by=by, **(prefixes[0] if prefixes else {}))


def _prefixes(name: str) -> dict[str, int]:
    """How wide the subnets of remote/16 or remote/16/48 are."""
    found = dict(zip(PREFIX_BITS, name.split("/")[1:], strict=False))
    if name.count("/") > len(PREFIX_BITS) or not all(
        bits.isdecimal() and len(bits) < 4 and int(bits) <= PREFIX_BITS[field]
        for field, bits in found.items()
    ):
        raise argparse.ArgumentTypeError(
            f"must be like remote/16 or remote/16/48, got {name!r}"
        )
    return {field: int(bits) for field, bits in found.items()}


def next_grouping(words: str, now: Grouping) -> Grouping:
    """Read another one while it runs; without words what comes after the first of now.

    Raises UsageError.
    """
    if not words:
        at = GROUPINGS.index(now.by[0])
        return replace(now, by=(GROUPINGS[(at + 1) % len(GROUPINGS)],))
    try:
        return grouping_of(words.split(","), now)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--by {error}") from error
