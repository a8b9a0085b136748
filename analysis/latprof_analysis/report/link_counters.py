"""Where a lab's own counters stand: its hosts, ports of its middle, and ways between.

Of two hosts the ways are "ab" and "ba"; of more, "h0 up" leads from a host to the
middle, and the port "h0" of the middle, as "h0 down", to that host.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from latprof_analysis.read.mesh_shape import LAB_HOSTS


def way_name(way: str) -> str:
    """Name a way of an emulator or netem for people.

    Examples
    --------
    >>> way_name("ab"), way_name("h0 up")
    ('a to b', 'h0 up')
    """
    return " to ".join(way) if way in ("ab", "ba") else way


def egresses(counters: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Name each host's interface and each port of the middle, with what it counted.

    Examples
    --------
    >>> dict(egresses({"h0": 1, "ports": {"h0": 2}, "emulator": {}}))
    {'h0': 1, 'port to h0': 2}
    """
    for host in LAB_HOSTS:
        if host in counters:
            yield host, counters[host]
    for host, figures in counters.get("ports", {}).items():
        yield f"port to {host}", figures


def root_qdisc(counted: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the counters of an interface's first qdisc: its children's are in them."""
    none = {"kind": "", "sent_packets": 0, "dropped_packets": 0}
    return next(iter(counted["qdiscs"]), none)
