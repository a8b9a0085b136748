"""By what live traffic is grouped: `--by`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latprof_agent.filters.groupings import GROUPINGS, grouping_of


def add_grouping_options(group: Any) -> None:
    """Add `--by` to a parser or a group of it; None where it is not given."""
    group.add_argument(
        "--by",
        type=lambda text: grouping_of(text.split(",")),
        metavar="WHAT[,WHAT]",
        help=f"tell traffic apart by up to two of {', '.join(GROUPINGS)}; service is "
        "the port of the server's end, with the role of this end; pod, container and "
        "workload have the names that this host's runtime gives them, else the start "
        "of the container's id, the pod's uid; remote is a subnet, /24 of IPv4 and "
        "/64 of IPv6, or remote/16, remote/16/48 (default: service)",
    )
    group.add_argument(
        "--runtime",
        type=_runtime,
        metavar="SOCKET",
        help="of containerd, CRI-O (CRI), docker or podman, which is asked for names "
        "of containers, e.g. unix:///run/containerd/containerd.sock (default: those "
        "of them that are found)",
    )


def _runtime(text: str) -> Path:
    from latprof_agent.containers.runtime import runtime_address

    return runtime_address(text)
