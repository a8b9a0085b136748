"""By what live traffic is grouped: `--by`."""

from __future__ import annotations

from typing import Any

from latprof_agent.filters.groupings import GROUPINGS, grouping_of


def add_grouping_options(group: Any) -> None:
    """Add `--by` to a parser or a group of it; None where it is not given."""
    group.add_argument(
        "--by",
        type=lambda text: grouping_of(text.split(",")),
        metavar="WHAT[,WHAT]",
        help=f"tell traffic apart by up to two of {', '.join(GROUPINGS)}; service is "
        "the port of the server's end, with the role of this end; remote is a subnet, "
        "/24 of IPv4 and /64 of IPv6, or remote/16, remote/16/48 (default: service)",
    )
