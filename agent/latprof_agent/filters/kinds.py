"""What the words of a filter may be about: one row for each kind."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TYPE_CHECKING

from latprof_analysis import units

from latprof_agent.errors import UsageError
from latprof_agent.filters import places

if TYPE_CHECKING:
    from latprof_agent.probes.filter import Value

PROTOCOLS = ("tcp", "udp")


@dataclass(frozen=True)
class Kind:
    """What a word may be about."""

    metavar: str
    help: str  # for --help
    field: str  # of Terms
    read: Callable[[str], Value] | None = None  # or it is ...
    find: Callable[[str], tuple[Path, ...]] | None = None  # ... an inode number
    # the same of what the runtime of containers knows by name
    find_named: Callable[[str, Path | None], tuple[Path, ...]] | None = None


def _subnet(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"must be an address or a subnet like 10.0.0.0/8 or fd00::/8, got {text!r}"
        ) from error


def _protocol(text: str) -> str:
    if text not in PROTOCOLS:
        raise argparse.ArgumentTypeError(f"must be tcp or udp, got {text!r}")
    return text


KINDS = {
    "pid": Kind(
        "PID",
        "processes and all their descendants; sockets that they have or make, and all "
        "connections of a listener among them, whichever process accepts them",
        "pids",
        read=places.find_pid,
    ),
    "comm": Kind(
        "NAME",
        "processes of this name, or with such a thread, as in `ps -o comm`, and "
        "those that come later",
        "comms",
        read=str,
    ),
    "cgroup": Kind(
        "PATH",
        "sockets that were made in this control group or below, e.g. "
        "system.slice/redis-server.service",
        "cgroups",
        find=places.find_cgroup,
    ),
    "container": Kind(
        "ID",
        "of docker, containerd and others, by the start of its id; of "
        "systemd-nspawn and LXC by its name",
        "cgroups",
        find=places.find_container,
    ),
    "pod": Kind(
        "POD",
        "of Kubernetes, by NAME, NAMESPACE/NAME or uid; those that are there now",
        "cgroups",
        find_named=places.find_pod,
    ),
    "namespace": Kind(
        "NAME",
        "the pods of a namespace that are there now",
        "cgroups",
        find_named=places.find_namespace,
    ),
    "netns": Kind(
        "NAME",
        "a network namespace by its name in `ip netns`, its path, or the number of a "
        "process in it",
        "netns",
        find=places.find_netns,
    ),
    "interface": Kind(
        "NAME",
        "that a socket is bound to, else that of its route at first; "
        "by its name in the socket's namespace",
        "interfaces",
        read=places.find_interface,
    ),
    "port": Kind("PORT", "at either end", "ports", read=units.port),
    "local-port": Kind("PORT", "at the watched end", "local_ports", read=units.port),
    "remote-port": Kind("PORT", "at the other end", "remote_ports", read=units.port),
    "remote": Kind(
        "SUBNET",
        "address of the other end, e.g. 10.0.0.0/8 or fd00::/8; unconnected UDP has "
        "none, nor a remote port",
        "remotes",
        read=_subnet,
    ),
    "protocol": Kind("NAME", "tcp, udp or both", "protocols", read=_protocol),
    "uid": Kind(
        "USER",
        "who made or accepted the socket; number or name",
        "uids",
        read=places.find_uid,
    ),
}


def kind_of(name: str, where: str = "") -> Kind:
    """The kind of this name; `where` goes before it in the error."""
    if name not in KINDS:
        from latprof_analysis.text import did_you_mean

        known = f"must be one of {', '.join(KINDS)}"
        raise UsageError(f"{where}{name}: {known}{did_you_mean(name, KINDS)}")
    return KINDS[name]


def values_of(kind: str, text: str) -> list[str]:
    """Values with commas between; pidof puts blanks between pids."""
    if kind == "pid":
        text = ",".join(text.split())
    if kind == "protocol" and text == "both":
        return list(PROTOCOLS)
    return [value.strip() for value in text.split(",")]
