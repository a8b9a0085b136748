"""Interfaces of a lab: addresses, offloads, statistics.

All functions work in the namespace of the calling thread.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from latprof_agent.errors import LabError, UsageError, remedy
from latprof_agent.lab.host import Host
from latprof_agent.lab.neighbours import set_neighbours
from latprof_agent.lab.netlink import connect, netlink_error

_PREFIX_BITS = {False: 24, True: 64}  # by whether it is IPv6
_LOOPBACK_MTU = 65536

_IFA_F_NODAD = 0x02
_IFF_NOARP = 0x80
_IFF_MULTICAST = 0x1000
_FORWARDING = 3  # BR_STATE_FORWARDING
_RTN_LOCAL = 2
_IPV6_MTU_MIN_BYTES = 1280
_READY_S = 15.0

_SIOCETHTOOL = 0x8946
# name: (command that reads, command that sets)
_OFFLOADS = {"tso": (0x1E, 0x1F), "gso": (0x23, 0x24), "gro": (0x2B, 0x2C)}

_CONGESTION = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_CONGESTIONS = _CONGESTION.with_name("tcp_available_congestion_control")
_ALLOWED = _CONGESTION.with_name("tcp_allowed_congestion_control")
_IPV4 = _CONGESTION.parent
_IPV6 = Path("/proc/sys/net/ipv6/conf")
_FOR_USERS = {"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"}


def kernel_has_ipv6() -> bool:
    """Say if this namespace has IPv6 at all."""
    return _IPV6.is_dir()


def has_ipv6(mtu_bytes: int) -> bool:
    """Say if an interface of this namespace has IPv6: not with a small MTU."""
    return kernel_has_ipv6() and mtu_bytes >= _IPV6_MTU_MIN_BYTES


def prepare_namespace() -> None:
    """Bring `lo` up; no IPv6 router is asked for, no duplicate address waited for.

    The namespace is for whoever works in it: any user may use any port, and ping.
    """
    for setting, value in _FOR_USERS.items():
        with suppress(OSError):  # what is refused needs root, as on the host
            (_IPV4 / setting).write_text(value)
    if kernel_has_ipv6():
        for setting in ("accept_dad", "router_solicitations", "autoconf"):
            for folder in ("all", "default"):
                (_IPV6 / folder / setting).write_text("0")
    with connect() as ip:
        loopback = index_of(ip, "lo")
        ip.link("set", index=loopback, state="up", mtu=_LOOPBACK_MTU)


def switch_ipv6_off() -> None:
    """Keep this namespace from sending anything by itself."""
    if kernel_has_ipv6():
        for folder in ("all", "default"):
            (_IPV6 / folder / "disable_ipv6").write_text("1")


def check_congestion(name: str) -> None:
    """Refuse a congestion control that no socket of this namespace can have.

    A socket of root's may have any that is there or can be loaded, also one that
    the host does not allow by default: so one is tried.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        try:
            tried.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except PermissionError:
            raise
        except OSError as error:
            there = ", ".join(_CONGESTIONS.read_text().split())
            raise UsageError(
                f"--congestion must be one of {there}, or a module tcp_NAME that can "
                f"be loaded, got {name!r}; see latprof run --help"
            ) from error


def set_congestion(name: str | None) -> str:
    """Choose the congestion control, or leave it; return which one it is."""
    if name is not None:
        try:
            _CONGESTION.write_text(name)
        except OSError as error:
            there, allowed = (
                path.read_text().split() for path in (_CONGESTIONS, _ALLOWED)
            )
            if name in allowed:  # so it is not the name that is wrong
                raise
            why = f"this kernel has {', '.join(there)}; choose one of these or load"
            why = f"{why} tcp_{name}"
            if name in there:
                allow = " ".join([*allowed, name])
                why = (
                    "the host restricts it; allow it with `sysctl -w "
                    f"net.ipv4.{_ALLOWED.name}='{allow}'`"
                )
            raise LabError(f"cannot set congestion control {name}: {why}") from error
    return _CONGESTION.read_text().strip()


def index_of(ip: Any, name: str) -> int:
    """Find an interface by its name."""
    found: list[int] = list(ip.link_lookup(ifname=name))
    if not found:
        raise LabError(f"cannot find interface {name}: it went away; try again")
    return found[0]


def make_veth(ip: Any, name: str, peer_name: str, peer_netns: str) -> None:
    """Join this namespace and another by a veth pair."""
    path = f"/run/netns/{peer_netns}"
    with Path(path).open("rb") as there:
        peer = {"ifname": peer_name, "net_ns_fd": there.fileno()}
        try:
            ip.link("add", ifname=name, kind="veth", peer=peer)
        except netlink_error() as error:
            raise LabError(
                f"cannot create a veth pair: {error.args[1]}; "
                f"{remedy(error.code, 'load the module veth')}"
            ) from error


def bring_up(
    name: str, mtu_bytes: int, mac: str | None = None, silent: bool = False
) -> None:
    """Bring an interface up; it carries packets only after `wait_for_carrier`.

    As an end of a veth link it has the address that the others know it by.
    """
    with connect() as ip:
        index = index_of(ip, name)
        how = {"address": mac} if mac else {}
        ip.link("set", index=index, mtu=mtu_bytes, **how)
        if silent:
            keep_silent(ip, index)
        ip.link("set", index=index, state="up")


def keep_silent(ip: Any, index: int) -> None:
    """Keep an interface that is down from ever sending what no socket sent.

    No neighbour is asked for, no group joined, no address tried before it is used.
    """
    ip.link("set", index=index, flags=_IFF_NOARP, change=_IFF_NOARP | _IFF_MULTICAST)


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _READY_S
    while not holds():
        if time.monotonic() > deadline:
            raise LabError(f"{what} does not come up: kernel too busy; try again")
        time.sleep(0.0005)


def wait_for_carrier(ip: Any, name: str) -> int:
    """Wait until an end that is up has its queue, and return its index.

    The kernel replaces the queue that drops everything a while after both ends of
    a veth pair are up.
    """
    index = index_of(ip, name)

    def carries() -> bool:
        link = next(iter(ip.get_links(index)))
        state, queue = (link.get_attr(f"IFLA_{x}") for x in ("OPERSTATE", "QDISC"))
        return state in ("UP", "UNKNOWN") and queue != "noop"

    _wait(carries, f"interface {name}")
    return index


def wait_for_bridge(ip: Any, name: str) -> None:
    """Wait until a bridge forwards by a port, which the kernel does a while after
    that has its carrier.
    """
    index = index_of(ip, name)

    def forwards() -> bool:
        link = next(iter(ip.get_links(index)))
        info = link.get_attr("IFLA_LINKINFO")
        data = info and info.get_attr("IFLA_INFO_SLAVE_DATA")
        return bool(data) and data.get_attr("IFLA_BRPORT_STATE") == _FORWARDING

    _wait(forwards, f"port {name}")


def add_addresses(
    ip: Any, index: int, host: Host, neighbours: Sequence[Host], mtu_bytes: int
) -> None:
    """Give a host its addresses, all of them usable on return.

    Neighbours are permanent: no message ever waits for ARP.
    """
    for six in (False, True) if has_ipv6(mtu_bytes) else (False,):
        own = host.address(six)
        flags = {"flags": _IFA_F_NODAD} if six else {}
        prefix = _PREFIX_BITS[six]
        ip.addr("add", index=index, address=own, prefixlen=prefix, **flags)
        set_neighbours(index, [(one.address(six), one.mac) for one in neighbours])
        # The kernel adds the local route of an IPv6 address later, in a work queue.
        _wait(partial(_is_local, ip, own, six), f"address {own}")


def _is_local(ip: Any, address: str, six: bool) -> bool:
    family = socket.AF_INET6 if six else socket.AF_INET
    try:
        routes = list(ip.route("get", family=family, dst=address))
    except netlink_error():  # no route at all yet
        return False
    return bool(routes) and routes[0]["type"] == _RTN_LOCAL


def _ethtool(name: str, command: int, value: int = 0) -> int:
    """Do what `ethtool -k` and `-K` do for one offload."""
    data = (ctypes.c_uint32 * 2)(command, value)
    request = struct.pack("16sP16x", name.encode(), ctypes.addressof(data))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)
    return int(data[1])


def set_offloads(ip: Any, name: str, on: bool) -> dict[str, object]:
    """Leave the kernel's offloads, or switch them off; return what they are.

    TCP makes large segments whatever the interface can, unless its limit is one.
    """
    index = index_of(ip, name)
    if not on:
        ip.link("set", index=index, gso_max_segs=1)
        for _, setting in _OFFLOADS.values():
            _ethtool(name, setting, 0)
    state: dict[str, object] = {
        offload: bool(_ethtool(name, reading))
        for offload, (reading, _) in _OFFLOADS.items()
    }
    link = next(iter(ip.get_links(index)))
    state["gso_max_segments"] = link.get_attr("IFLA_GSO_MAX_SEGS")
    return state


def statistics(ip: Any, index: int) -> dict[str, int]:
    """Read the interface's own counters."""
    link = next(iter(ip.get_links(index)))
    stats = link.get_attr("IFLA_STATS64") or link.get_attr("IFLA_STATS")
    what = ("packets", "bytes", "dropped", "errors")
    names = [f"{way}_{name}" for way in ("rx", "tx") for name in what]
    names.append("rx_missed_errors")
    return {name: int(stats[name]) for name in names}
