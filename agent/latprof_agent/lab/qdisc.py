"""Queueing disciplines at the egress of a lab's link, by pyroute2."""

from __future__ import annotations

import errno
from typing import Any

from latprof_agent import netns
from latprof_agent.errors import LabError, remedy
from latprof_agent.lab.link import LinkKind, LinkSpec
from latprof_agent.lab.netlink import connect, netlink_error

_ROOT = 0x10000
_CLASS = 0x10001
_LEAF = 0x20000
_BELOW_NETEM = 0x30000
_ANY_ROOT = 0xFFFFFFFF  # TC_H_ROOT
# netem holds delayed packets in its queue; the one bound is in packets.
_NETEM_LIMIT_PACKETS = 1_000_000
# What pyroute2 calls the limit of a qdisc, in packets, where that is not "limit".
_LIMIT = {"codel": "cdl_limit", "fq_codel": "fqc_limit"}


def _add(ip: Any, command: str, kind: str, index: int, handle: int, **how: Any) -> None:
    try:
        ip.tc(command, kind, index, handle, **how)
    except netlink_error() as error:
        if error.code == errno.ENOENT:
            why = f"this kernel has no {kind}; choose another, or load sch_{kind}"
        else:
            why = errno.errorcode.get(error.code, str(error.code))
            why = f"{why}; {remedy(error.code, 'try other values')}"
        raise LabError(f"cannot set up qdisc {kind}: {why}") from error


def kernel_has(kind: str) -> bool:
    """Say if the kernel has a qdisc with a limit, by making one elsewhere."""

    def make() -> bool:
        with connect() as ip:
            loopback = ip.link_lookup(ifname="lo")[0]
            try:
                ip.tc("add", kind, loopback, _ROOT, limit=1)
            except netlink_error() as error:
                if error.code in (errno.ENOENT, errno.EOPNOTSUPP):
                    return False
                raise LabError(
                    f"cannot try qdisc {kind}: {error.args[1]}; "
                    f"{remedy(error.code, 'use --emulator always')}"
                ) from error
        return True

    return netns.run_in_new(make)


def _add_shaper(
    ip: Any, index: int, spec: LinkSpec, shaper: str, at: dict[str, int]
) -> dict[str, int]:
    """Add the qdisc that holds the rate; return where its child goes."""
    handle = at["handle"]
    rate = spec.rate_bps // 8  # bytes/s
    if shaper == "tbf":
        values = {"rate": rate, "burst": spec.burst(), "limit": spec.queue()}
        _add(ip, "add", "tbf", index, **at, **values)
    else:
        _add(ip, "add", "htb", index, **at, default=_CLASS & 0xFFFF)
        values = {"rate": rate, "burst": spec.burst(), "cburst": spec.burst()}
        _add(ip, "add-class", "htb", index, handle | 1, parent=handle, **values)
    return {"handle": handle + _ROOT, "parent": handle | 1}


def _add_queue(
    ip: Any, index: int, spec: LinkSpec, packet_bytes: int, at: dict[str, int]
) -> None:
    """Add the qdisc in which packets wait; fq bounds flows and has limits for that."""
    kind = spec.queue_kind
    if not kind:
        return
    limit = {_LIMIT.get(kind, "limit"): max(1, spec.queue() // packet_bytes)}
    # without a rate the queue of a discipline that keeps it short is its own
    bounded = spec.rate_bps or spec.queue_bytes is not None or kind == "pfifo"
    _add(ip, "add", kind, index, **at, **(limit if bounded and kind != "fq" else {}))


def shape(
    ip: Any,
    index: int,
    spec: LinkSpec,
    kind: LinkKind,
    at: dict[str, int] | None = None,
) -> None:
    """Give an egress the shaper and the queue of the link, below `at`, or as root.

    The emulator holds the rate itself unless a qdisc was asked for.
    """
    at = at or {"handle": _ROOT}
    shaper = spec.shaper(kind)
    if shaper:
        at = _add_shaper(ip, index, spec, shaper, at)
    _add_queue(ip, index, spec, spec.packet_bytes(kind), at)


def shape_end(ip: Any, index: int, spec: LinkSpec, kind: LinkKind) -> None:
    """Give an end of a link between two hosts the qdiscs that it needs there.

    Without a qdisc the rate of a netem link is that of its path.
    """
    if kind != "netem" or spec.qdisc:
        shape(ip, index, spec, kind)


def shape_path(ip: Any, index: int, spec: LinkSpec) -> None:
    """Make an egress between two hosts delay and lose, and hold the rate."""
    below = _add_netem(ip, index, spec)
    if spec.rate_bps and not spec.qdisc:
        _add_shaper(ip, index, spec, "tbf", below)


def shape_port(ip: Any, index: int, spec: LinkSpec, kind: LinkKind) -> None:
    """Give a port of the middle of many hosts what a host has, below netem if any."""
    at = _add_netem(ip, index, spec) if kind == "netem" else None
    shape(ip, index, spec, kind, at)


def _add_netem(ip: Any, index: int, spec: LinkSpec) -> dict[str, int]:
    how = {
        "delay": spec.delay_ns // 1000,  # us
        "loss": spec.loss * 100,  # percent
        "limit": _NETEM_LIMIT_PACKETS,
    }
    _add(ip, "add", "netem", index, _ROOT, **how)
    return {"handle": _BELOW_NETEM, "parent": _CLASS}


def _name(parent: int) -> str:
    """Write where a qdisc is as `tc` does."""
    return "root" if parent == _ANY_ROOT else f"{parent >> 16:x}:{parent & 0xFFFF:x}"


def statistics(ip: Any, index: int) -> list[dict[str, object]]:
    """Read what `tc -s qdisc` shows of an interface, the root first.

    The kernel counts at a parent again what its children have sent and dropped: the
    root's are all.
    """
    rows = []
    for message in ip.get_qdiscs(index):
        stats = message.get_attr("TCA_STATS2")
        basic, queue = (stats.get_attr(f"TCA_STATS_{x}") for x in ("BASIC", "QUEUE"))
        rows.append(
            {
                "kind": message.get_attr("TCA_KIND"),
                "handle": f"{message['handle'] >> 16:x}:",
                "parent": _name(message["parent"]),
                "sent_bytes": basic["bytes"],
                "sent_packets": basic["packets"],
                "dropped_packets": queue["drops"],
                "overlimits": queue["overlimits"],
                "requeues": queue["requeues"],
                "backlog_bytes": queue["backlog"],
                "qlen_packets": queue["qlen"],
            }
        )
    return rows
