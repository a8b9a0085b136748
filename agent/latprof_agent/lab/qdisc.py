"""Queueing disciplines at the egress of a lab's link, by pyroute2."""

from __future__ import annotations

import errno
from typing import Any

from latprof_agent.errors import LabError, remedy
from latprof_agent.lab import netns
from latprof_agent.lab.link import LinkKind, LinkSpec
from latprof_agent.lab.netlink import connect, netlink_error

_ROOT = 0x10000
_CLASS = 0x10001
_LEAF = 0x20000
_LEAF_OF_NETEM = 0x30000
# netem holds delayed packets in its queue; the one bound is in packets.
_NETEM_LIMIT_PACKETS = 1_000_000


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
    """Tell if the kernel has a qdisc with a limit, by making one elsewhere."""

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
    ip: Any, index: int, spec: LinkSpec, shaper: str, parent: dict[str, int]
) -> int:
    """Add the qdisc that holds the rate; return where its child goes."""
    handle = parent.pop("handle")
    rate = spec.rate_bps // 8  # bytes/s
    if shaper == "tbf":
        values = {"rate": rate, "burst": spec.burst(), "limit": spec.queue()}
        _add(ip, "add", "tbf", index, handle, **values, **parent)
        return handle | 1
    _add(ip, "add", "htb", index, handle, default=_CLASS & 0xFFFF, **parent)
    values = {"rate": rate, "burst": spec.burst(), "cburst": spec.burst()}
    _add(ip, "add-class", "htb", index, handle | 1, parent=handle, **values)
    return handle | 1


def shape(ip: Any, index: int, spec: LinkSpec, kind: LinkKind) -> None:
    """Give an end of the link the qdiscs that it needs there.

    What holds the rate is the root, and below it the qdisc asked for. Without a
    qdisc the rate of a netem link is that of its path.
    """
    if kind == "netem" and not spec.qdisc:
        return
    shaper = spec.shaper(kind)
    parent = {"handle": _ROOT}
    child = None
    if shaper:
        child = _add_shaper(ip, index, spec, shaper, dict(parent))
    packets = max(1, spec.queue() // spec.packet_bytes(kind))
    if shaper == "htb":
        # Its default leaf is as long as the interface's own queue.
        _add(ip, "add", "pfifo", index, _LEAF, parent=child, limit=packets)
    elif spec.qdisc and spec.qdisc != shaper:
        if child:
            parent = {"handle": _LEAF, "parent": child}
        how = {} if spec.qdisc == "fq" else {"limit": packets}
        handle = parent.pop("handle")
        _add(ip, "add", spec.qdisc, index, handle, **how, **parent)


def shape_path(ip: Any, index: int, spec: LinkSpec) -> None:
    """Make an egress between the ends delay and lose, and hold the rate."""
    how = {
        "delay": spec.delay_ns // 1000,  # us
        "loss": spec.loss * 100,  # percent
        "limit": _NETEM_LIMIT_PACKETS,
    }
    _add(ip, "add", "netem", index, _ROOT, **how)
    if spec.rate_bps and not spec.qdisc:
        parent = {"handle": _LEAF_OF_NETEM, "parent": _CLASS}
        _add_shaper(ip, index, spec, "tbf", parent)


def statistics(ip: Any, index: int) -> list[dict[str, object]]:
    """Read what `tc -s qdisc` shows of an interface, the root first."""
    rows = []
    for message in ip.get_qdiscs(index):
        stats = message.get_attr("TCA_STATS2")
        basic, queue = (stats.get_attr(f"TCA_STATS_{x}") for x in ("BASIC", "QUEUE"))
        rows.append(
            {
                "kind": message.get_attr("TCA_KIND"),
                "handle": f"{message['handle'] >> 16:x}:",
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
