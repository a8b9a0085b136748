"""The middle of a link by netem: a namespace that passes on all that comes.

    a: veth0 -- a [middle] b -- veth0 :b

Delay and loss are at its two egresses, so that they are the path's: a qdisc at
an end's own egress would be that end's queue. All functions work in the
namespace of the calling thread.
"""

from __future__ import annotations

from typing import Any

from latprof_agent.errors import LabError, remedy
from latprof_agent.lab import interface, qdisc
from latprof_agent.lab.link import LinkSpec
from latprof_agent.lab.netlink import connect, netlink_error

_INGRESS = 0xFFFF0000
_EVERY_PROTOCOL = 3  # ETH_P_ALL
_EVERY_PACKET = "0x0/0x0+0"  # u32: value, mask, offset


def bring_up(mtu_bytes: int) -> None:
    """Bring both sides up; the middle has no address and says nothing itself."""
    interface.switch_ipv6_off()
    for side in ("a", "b"):
        interface.bring_up(side, mtu_bytes)


def finish(spec: LinkSpec) -> None:
    """Join the sides, whose other ends must be up, by what the link shall be."""
    with connect() as ip:
        index = {side: interface.wait_for_carrier(ip, side) for side in ("a", "b")}
        for side in ("a", "b"):
            qdisc.shape_path(ip, index[side], spec)
            _redirect(ip, index[side], index["b" if side == "a" else "a"])


def _redirect(ip: Any, source: int, target: int) -> None:
    redirect = {
        "kind": "mirred",
        "direction": "egress",
        "action": "redirect",
        "ifindex": target,
    }
    every = {"protocol": _EVERY_PROTOCOL, "keys": [_EVERY_PACKET], "target": 0}
    how = {"parent": _INGRESS, "action": redirect, **every}
    try:
        ip.tc("add", "ingress", source, _INGRESS)
        ip.tc("add-filter", "u32", source, **how)
    except netlink_error() as error:
        load = (
            "load the modules sch_ingress, cls_u32 and act_mirred, or use "
            "--emulator always"
        )
        raise LabError(
            f"cannot join a path in the middle: {error.args[1]}; "
            f"{remedy(error.code, load)}"
        ) from error


def statistics() -> dict[str, Any]:
    """Count what passed each way."""
    found = {}
    with connect() as ip:
        for way, egress in (("ab", "b"), ("ba", "a")):
            index = interface.index_of(ip, egress)
            found[way] = {
                "interface": interface.statistics(ip, index),
                "qdiscs": qdisc.statistics(ip, index),
            }
    return found
