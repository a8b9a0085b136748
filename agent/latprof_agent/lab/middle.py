"""The middle of a lab of more than two hosts: a port towards each of them.

    h0: veth0 -- h0 [bridge] h1 -- veth0 :h1     netem at the ports, if there is one
    h0: tun0 ~~~ h0 [router] h1 ~~~ tun0 :h1     ~~~ is a link of the emulator

A port has its host's name. What leaves by it goes to that host, through the same
shaper as the host has at its own egress: the receiver's link is a bottleneck, too.
All functions work in the namespace of the calling thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latprof_agent.errors import LabError, remedy
from latprof_agent.lab import interface, qdisc
from latprof_agent.lab.host import Host
from latprof_agent.lab.link import LinkKind, LinkSpec
from latprof_agent.lab.netlink import connect, netlink_error

_BRIDGE = "br0"
_SILENT_BRIDGE = {"br_stp_state": 0, "br_forward_delay": 0, "br_mcast_snooping": 0}
# Where each host is stands in the table of the bridge: nothing is learnt or flooded.
_STATIC_PORT = {"learning": 0, "unicast_flood": 0, "mcast_flood": 0, "bcast_flood": 0}
_NUD_NOARP = 0x40
_NTF_MASTER = 0x04
_SYSCTL = Path("/proc/sys/net")


def make_bridge() -> None:
    """Make the bridge, which has no address and says nothing itself."""
    interface.switch_ipv6_off()
    with connect() as ip:
        try:
            ip.link("add", ifname=_BRIDGE, kind="bridge", **_SILENT_BRIDGE)
        except netlink_error() as error:
            raise LabError(
                f"cannot create a bridge: {error.args[1]}; "
                f"{remedy(error.code, 'load the module bridge')}"
            ) from error
        ip.link("set", index=interface.index_of(ip, _BRIDGE), state="up")


def join_bridge(hosts: Sequence[Host], mtu_bytes: int) -> None:
    """Attach the ports to the bridge, and fill its table with the hosts' MACs."""
    with connect() as ip:
        bridge = interface.index_of(ip, _BRIDGE)
        for host in hosts:
            port = interface.index_of(ip, host.name)
            ip.link("set", index=port, mtu=mtu_bytes, master=bridge)
            ip.brport("set", index=port, **_STATIC_PORT)
            ip.link("set", index=port, state="up")
            there = {"lladdr": host.mac, "state": _NUD_NOARP, "flags": _NTF_MASTER}
            ip.fdb("add", ifindex=port, **there)


def join_router(hosts: Sequence[Host], mtu_bytes: int) -> None:
    """Route between the ports, which the emulator has made."""
    (_SYSCTL / "ipv4/ip_forward").write_text("1")
    for folder in ("all", "default"):
        (_SYSCTL / f"ipv4/conf/{folder}/rp_filter").write_text("0")
    with connect() as ip:
        ports = {host: interface.index_of(ip, host.name) for host in hosts}
        for port in ports.values():
            # Else the port would report multicast groups on its link.
            interface.keep_silent(ip, port)
        if interface.has_ipv6(mtu_bytes):
            (_SYSCTL / "ipv6/conf/all/forwarding").write_text("1")
        for host, port in ports.items():
            ip.link("set", index=port, state="up")
            ip.route("add", dst=f"{host.ipv4}/32", oif=port)
            if interface.has_ipv6(mtu_bytes):
                ip.route("add", dst=f"{host.ipv6}/128", oif=port)


def finish(hosts: Sequence[Host], spec: LinkSpec, kind: LinkKind) -> None:
    """Shape the ports, once the other ends of all of them are up."""
    with connect() as ip:
        for host in hosts:
            port = interface.wait_for_carrier(ip, host.name)
            if kind != "emulator":
                interface.wait_for_bridge(ip, host.name)
            qdisc.shape_port(ip, port, spec, kind)


def statistics(hosts: Sequence[Host]) -> dict[str, Any]:
    """Count what passed each port; sent is what went to its host."""
    found = {}
    with connect() as ip:
        for host in hosts:
            index = interface.index_of(ip, host.name)
            found[host.name] = {
                "interface": interface.statistics(ip, index),
                "qdiscs": qdisc.statistics(ip, index),
            }
    return found
