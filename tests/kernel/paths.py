"""Paths of several devices between the ends of a lab, as their users build them.

The ends keep the device veth0, which is the last (or only) one of its namespace;
what the packets pass before it, and in a third namespace behind it, is told by
the path's name. What was made goes with the lab.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from bpf_programs import compiled
from recording import Lab, netns

NIC = "veth0"
MIDDLE = {"a": "port-a", "b": "port-b"}
OUTER_IPV4_BYTES, OUTER_UDP_BYTES, VXLAN_BYTES, ETHERNET_BYTES = 20, 8, 8, 14
VXLAN_OVERHEAD_BYTES = OUTER_IPV4_BYTES + OUTER_UDP_BYTES + VXLAN_BYTES + ETHERNET_BYTES
FRONT_PORT = 8080  # where the translating host listens for the one behind it
IPV6_NET = "fd00:6c61:7470:1::"
NAT = """\
table ip latprof_test {{
  counter datagrams {{ }}
  chain front {{
    type nat hook prerouting priority dstnat
    ip daddr {front} tcp dport {port} dnat to {server}:{server_port}
    ip daddr {front} udp dport {port} dnat to {server}:{server_port}
  }}
  chain back {{
    type nat hook postrouting priority srcnat
    oifname "{device}" masquerade
  }}
  chain passed {{
    type filter hook forward priority filter
    ct direction original udp length > 8 counter name datagrams
  }}
}}
"""


# In the namespace of an end itself; traffic that they change is counted behind them.
OWN_NAT = """\
table ip latprof_test {{
  counter datagrams {{ }}
  chain change {{
    type nat hook {hook}
    {protocol} {rule}
  }}
  chain passed {{
    type filter hook {behind} priority filter + 200
    ct direction original udp length > 8 counter name datagrams
  }}
}}
"""
SERVICE_NET = "10.203.9"
ENTRY_TBF = "tbf rate 1mbit burst 1600 limit 200000"  # 1000 bytes: 8 ms


class OwnNat(NamedTuple):
    """Rules of one end, for TCP and for UDP."""

    end: str
    hook: str
    behind: str
    rule: str  # of one protocol

    def rules(self, **values: object) -> str:
        """Write them for nft."""
        rules = [self.rule.format(protocol=p, **values) for p in ("tcp", "udp")]
        return OWN_NAT.format(
            hook=self.hook, behind=self.behind, protocol=rules[0], rule="\n" + rules[1]
        )


@dataclass
class Path:
    """A lab with more devices between its ends."""

    kind: str
    lab: Lab
    # of each end, from the first that a packet is handed to, to the last
    devices: list[str] = field(default_factory=lambda: [NIC])
    overhead_bytes: int = 0  # that a packet gains before it leaves the last device
    # True: b's socket is reached, and knows its peer, by other addresses
    translated: bool = False
    front: tuple[str, int] = ("", 0)  # where a sends to, if that is not b's socket
    own_nat: OwnNat | None = None  # else it is in the middle

    @property
    def middle(self) -> str:
        """The namespace between the ends; not all paths have one."""
        return self.lab.a_netns.removesuffix("a") + "w"

    @property
    def translator(self) -> str:
        """The namespace whose netfilter changes addresses."""
        return self.lab.netns_of(self.own_nat.end) if self.own_nat else self.middle

    def run(self, name: str, *words: str, text: str | None = None) -> str:
        """Run a program in a namespace and return what it says."""
        command = ["ip", "netns", "exec", name, *words]
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, check=False, timeout=20
        )
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def ip(self, name: str, words: str) -> str:
        """Run `ip` in a namespace."""
        return self.run(name, "ip", *words.split())

    def tc(self, name: str, words: str) -> str:
        """Run `tc` in a namespace."""
        return self.run(name, "tc", *words.split())

    def ends(self) -> Iterator[tuple[str, str, str]]:
        """Namespace, number and the other's number of each end."""
        yield self.lab.a_netns, "1", "2"
        yield self.lab.b_netns, "2", "1"

    def statistics(self, name: str, device: str) -> dict[str, Any]:
        """What a device has counted: `ip -s link`."""
        (found,) = json.loads(self.ip(name, f"-s -j link show dev {device}"))
        return dict(found["stats64"])

    def dropped(self) -> int:
        """Packets that any device or qdisc of the path has dropped so far."""
        names = [self.lab.a_netns, self.lab.b_netns]
        if (netns.NETNS_DIRECTORY / self.middle).exists():
            names.append(self.middle)
        total = 0
        for name in names:
            for device in json.loads(self.ip(name, "-s -j link show")):
                counts = device["stats64"]
                total += counts["rx"]["dropped"] + counts["tx"]["dropped"]
            total += sum(q["drops"] for q in json.loads(self.tc(name, "-s -j qdisc")))
        return total


def _silence_ipv6(path: Path, name: str) -> None:
    """Leave the devices to IPv4, so that all that passes is the test's."""
    for which in ("all", "default"):
        path.run(name, "sysctl", "-qw", f"net.ipv6.conf.{which}.disable_ipv6=1")


def _make_middle(path: Path) -> None:
    """Put a namespace between the ends, where packets stop for now."""
    lab = path.lab
    path.ip(lab.a_netns, f"link del {NIC}")
    netns.create(path.middle)
    _silence_ipv6(path, path.middle)
    for end in ("a", "b"):
        name, device = lab.netns_of(end), MIDDLE[end]
        path.ip(
            name, f"link add {NIC} type veth peer name {device} netns {path.middle}"
        )
        path.ip(path.middle, f"link set {device} up")


def _bring_up(path: Path, addresses: dict[str, str]) -> None:
    """Give the last device of each end an address, where it has none left."""
    for end, address in addresses.items():
        path.ip(path.lab.netns_of(end), f"addr add {address}/24 dev {NIC}")
        path.ip(path.lab.netns_of(end), f"link set {NIC} up")


def _bridge_ends(path: Path) -> None:
    """A bridge in the namespace of each end, with the NIC as its port."""
    for name, number, _ in path.ends():
        path.ip(name, f"addr flush dev {NIC}")
        path.ip(name, "link add br0 type bridge forward_delay 0 mcast_snooping 0")
        path.ip(name, f"link set {NIC} master br0")
        path.ip(name, f"addr add 10.203.0.{number}/24 dev br0")
        path.ip(name, "link set br0 up")
    path.devices = ["br0", *path.devices]


def _bridge_middle(path: Path) -> None:
    """A bridge in a namespace between the ends: a switch."""
    _make_middle(path)
    path.ip(path.middle, "link add br0 type bridge forward_delay 0 mcast_snooping 0")
    for device in MIDDLE.values():
        path.ip(path.middle, f"link set {device} master br0")
    path.ip(path.middle, "link set br0 up")
    _bring_up(path, {"a": "10.203.0.1", "b": "10.203.0.2"})


def _vxlan(path: Path) -> None:
    """A tunnel over what is there."""
    level = sum(device.startswith("vxlan") for device in path.devices)
    device, under, net = f"vxlan{level}", path.devices[0], f"10.204.{level}"
    remote = path.lab.b_address.rsplit(".", 1)[0]
    port = 4789 + level  # one port, one network: the outer ones know no inner
    for name, number, other in path.ends():
        path.ip(
            name,
            f"link add {device} type vxlan id {7 + level} dstport {port} "
            f"remote {remote}.{other} local {remote}.{number} dev {under}",
        )
        path.ip(name, f"addr add {net}.{number}/24 dev {device}")
        path.ip(name, f"link set {device} up")
    path.devices = [device, *path.devices]
    path.overhead_bytes += VXLAN_OVERHEAD_BYTES
    path.lab.a_address, path.lab.b_address = f"{net}.1", f"{net}.2"


def _macvlan(path: Path) -> None:
    """A second address of the NIC, as containers get it."""
    for name, number, _ in path.ends():
        path.ip(name, f"addr flush dev {NIC}")
        path.ip(name, f"link add mv0 link {NIC} type macvlan mode bridge")
        path.ip(name, f"addr add 10.203.0.{number}/24 dev mv0")
        path.ip(name, "link set mv0 up")
    path.devices = ["mv0", *path.devices]


def _route_middle(path: Path) -> None:
    """A router between the ends."""
    _make_middle(path)
    path.run(path.middle, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    _bring_up(path, {"a": "10.203.1.1", "b": "10.203.2.1"})
    for end, net in (("a", "10.203.1"), ("b", "10.203.2")):
        path.ip(path.middle, f"addr add {net}.254/24 dev {MIDDLE[end]}")
    path.ip(path.lab.a_netns, "route add default via 10.203.1.254")
    path.lab.a_address, path.lab.b_address = "10.203.1.1", "10.203.2.1"


def _router(path: Path) -> None:
    _route_middle(path)
    path.ip(path.lab.b_netns, "route add default via 10.203.2.254")


def _nat(path: Path) -> None:
    """Destination NAT and masquerading, as a published port of a container."""
    _route_middle(path)
    path.translated = True
    path.front = "10.203.1.254", FRONT_PORT


def _redirect(path: Path) -> None:
    """A server whose host leads another port to it."""
    path.translated = True
    path.front = path.lab.b_address, FRONT_PORT
    rule = "{protocol} dport {port} redirect to :{server_port}"
    path.own_nat = OwnNat("b", "prerouting priority dstnat", "input", rule)


def _service(path: Path) -> None:
    """A service's address that the client's host turns into the server's."""
    path.translated = True
    path.front = f"{SERVICE_NET}.9", FRONT_PORT
    path.ip(path.lab.a_netns, f"route add {SERVICE_NET}.0/24 via {path.lab.b_address}")
    rule = "ip daddr {front} {protocol} dport {port} dnat to {server}:{server_port}"
    path.own_nat = OwnNat("a", "output priority -100", "postrouting", rule)


def _masquerade(path: Path) -> None:
    """A client whose host gives its traffic other ports."""
    path.translated = True
    path.front = path.lab.b_address, 0
    # none that a client has by itself: it would keep that, as 1 of 28 did
    rule = "{protocol} dport {server_port} masquerade to :20000-20999"
    path.own_nat = OwnNat("a", "postrouting priority srcnat", "postrouting", rule)


def _host_between(path: Path) -> None:
    """A host between a and b, which is a container of it."""
    _make_middle(path)
    _bring_up(path, {"a": "10.203.0.1", "b": "10.203.0.2"})


def _macvlan_container(path: Path) -> None:
    """A container with a macvlan on its host's device, which is in no other way."""
    _host_between(path)
    path.ip(path.lab.b_netns, f"link del {NIC}")
    path.ip(
        path.middle,
        f"link add mv0 link {MIDDLE['a']} netns {path.lab.b_netns} "
        "type macvlan mode bridge",
    )
    path.ip(path.lab.b_netns, f"link set mv0 name {NIC}")
    _bring_up(path, {"b": "10.203.0.2"})


def _redirect_peer(path: Path) -> None:
    """A container whose host's BPF hands packets into it, past its own device."""
    _host_between(path)
    for here, there, section in (("a", "b", "tc/peer"), ("b", "a", "tc/out")):
        device = path.run(path.middle, "cat", f"/sys/class/net/{MIDDLE[there]}/ifindex")
        with compiled("redirect.bpf.c", f"-DIFINDEX={device.strip()}") as program:
            path.tc(path.middle, f"qdisc add dev {MIDDLE[here]} clsact")
            path.tc(
                path.middle,
                f"filter add dev {MIDDLE[here]} ingress bpf da "
                f"obj {program} sec {section}",
            )


def _generic_xdp(path: Path) -> None:
    """An XDP program at both ends, for which the kernel copies packets."""
    with compiled("pass.bpf.c") as program:
        for name, _, _ in path.ends():
            path.ip(name, f"link set dev {NIC} xdpgeneric obj {program} sec xdp")


def _ifb(path: Path) -> None:
    """A queue at b's entry, that lets one small packet through at a time."""
    name = path.lab.b_netns
    path.ip(name, "link add ifb0 type ifb")
    path.ip(name, "link set ifb0 up")
    path.tc(name, f"qdisc add dev ifb0 root {ENTRY_TBF}")
    path.tc(name, f"qdisc add dev {NIC} handle ffff: ingress")
    path.tc(
        name,
        f"filter add dev {NIC} parent ffff: protocol ip u32 match u32 0 0 "
        "action mirred egress redirect dev ifb0",
    )


def _bridge_behind(path: Path) -> None:
    """The translating host knows a as a container on its bridge."""
    device = MIDDLE["a"]
    path.ip(path.middle, f"addr flush dev {device}")
    path.ip(path.middle, "link add br0 type bridge forward_delay 0 mcast_snooping 0")
    path.ip(path.middle, f"link set {device} master br0")
    path.ip(path.middle, "addr add 10.203.1.254/24 dev br0")
    path.ip(path.middle, "link set br0 up")


def _ipv6(path: Path) -> None:
    """Addresses of the other family on the first device."""
    device = path.devices[0]
    for name, number, _ in path.ends():
        path.run(name, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=0")
        path.ip(name, f"addr add {IPV6_NET}{number}/64 dev {device} nodad")
    path.lab.a_address, path.lab.b_address = IPV6_NET + "1", IPV6_NET + "2"


STEPS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "plain": (),
    "bridge": (_bridge_ends,),
    "switch": (_bridge_middle,),
    "bridge-switch-bridge": (_bridge_middle, _bridge_ends),
    "vxlan": (_vxlan,),
    "vxlan-bridge": (_bridge_ends, _vxlan),
    "vxlan-vxlan-bridge": (_bridge_ends, _vxlan, _vxlan),
    "bridge-ipv6": (_bridge_ends, _ipv6),
    "vxlan-ipv6": (_vxlan, _ipv6),
    "macvlan": (_macvlan,),
    "vxlan-macvlan": (_macvlan, _vxlan),
    "router": (_router,),
    "nat": (_nat,),
    "nat-bridge": (_nat, _bridge_behind),
    "ifb": (_ifb,),
    "generic-xdp": (_generic_xdp,),
    "macvlan-container": (_macvlan_container,),
    "redirect-peer": (_redirect_peer,),
    "redirect": (_redirect,),
    "service": (_service,),
    "service-vxlan": (_vxlan, _service),
    "masquerade": (_masquerade,),
}
# Packets of these pass more devices of the sender's namespace than one.
STACKED = ("bridge", "vxlan", "vxlan-bridge", "vxlan-vxlan-bridge", "vxlan-macvlan")
STACKED += ("service-vxlan",)


def build(kind: str, lab: Lab) -> Path:
    """Turn a plain lab into one with such a path."""
    path = Path(kind, lab)
    for name, _, _ in path.ends():
        _silence_ipv6(path, name)
    for step in STEPS[kind]:
        step(path)
    return path


def publish(path: Path, server_port: int) -> tuple[str, int]:
    """Say where a shall send to reach this port of b, which NAT then knows."""
    if not path.translated:
        return path.lab.b_address, server_port
    front, port = path.front
    values = {
        "front": front,
        "port": port or server_port,
        "server": path.lab.b_address,
        "server_port": server_port,
    }
    if path.own_nat:
        rules = path.own_nat.rules(**values)
    else:
        rules = NAT.format(device=MIDDLE["b"], **values)
    path.run(path.translator, "nft", "-f", "-", text="flush ruleset\n" + rules)
    return front, port or server_port


def translated_datagrams(path: Path) -> int:
    """Packets of UDP from a to b that nftables has counted."""
    words = "nft -j list counter ip latprof_test datagrams"
    said = path.run(path.translator, *words.split())
    return next(
        int(entry["counter"]["packets"])
        for entry in json.loads(said)["nftables"]
        if "counter" in entry
    )


@contextmanager
def shaped(path: Path, name: str, device: str, words: str) -> Iterator[None]:
    """Let a device of a namespace send through a qdisc for a while."""
    path.tc(name, f"qdisc add dev {device} root {words}")
    try:
        yield
    finally:
        path.tc(name, f"qdisc del dev {device} root")
