"""Where packets of a bulk run died on this host, when the other end is elsewhere.

Each place has a counter of its own, of all packets of this host, also those of others'
programs. The other host, and all between the two, has none.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from latprof_agent.errors import WorkloadError
from latprof_agent.lab import interface, qdisc
from latprof_agent.lab.netlink import connect
from latprof_agent.workload.bulk_places import (
    HOOKS,
    protocol_counters,
    received_places,
)

_HOST = "this host"


class Device(NamedTuple):
    """What leads to another host."""

    name: str
    mtu_bytes: int


class Counted(NamedTuple):
    """Packets until now."""

    interface: dict[str, int]
    qdiscs: list[dict[str, Any]]
    protocols: Counter[str]


def device_to(address: str) -> Device:
    """Find the device of the route to an address.

    Raises WorkloadError where there is none.
    """
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    address, _, scope = address.partition("%")
    try:
        with connect() as ip:
            if scope:
                index = interface.index_of(ip, scope)
            else:
                (route,) = ip.route("get", family=family, dst=address)
                index = route.get_attr("RTA_OIF")
            (link,) = ip.get_links(index)
            name, mtu = (link.get_attr(f"IFLA_{x}") for x in ("IFNAME", "MTU"))
            return Device(name, mtu)
    except OSError as error:
        raise WorkloadError(
            f"no way to {address}: {(error.strerror or str(error)).lower()}; see "
            f"`ip route get {address}`"
        ) from error


def count_here(device: Device) -> Counted:
    """Read all counters; raises LabError where the device has gone."""
    with connect() as ip:
        index = interface.index_of(ip, device.name)
        return Counted(
            interface.statistics(ip, index),
            qdisc.statistics(ip, index),
            protocol_counters(),
        )


def dropped_here(
    device: Device, before: Counted, after: Counted, direction: str
) -> list[dict[str, Any]]:
    """Count by `place` the `packets` dropped; receive buffers are no place."""
    grown = Counter(dict(_places(device.name, after, direction)))
    grown.subtract(dict(_places(device.name, before, direction)))
    return [{"place": name, "packets": n} for name, n in grown.items() if n > 0]


def _places(name: str, counted: Counted, direction: str) -> Iterator[tuple[str, int]]:
    root = next(iter(counted.qdiscs), None)
    if direction != "down":
        if root and root["kind"] not in HOOKS:
            yield f"qdisc {root['kind']} of {name}", root["dropped_packets"]
        yield f"{name}, out", counted.interface["tx_dropped"]
    if direction != "up":
        missed = counted.interface["rx_missed_errors"]  # in a ring that was full
        yield f"{name}, in", counted.interface["rx_dropped"] + missed
        yield from received_places(counted.protocols, _HOST)
    for hook in counted.qdiscs:
        if hook["kind"] in HOOKS:
            yield f"tc program of {name}", hook["dropped_packets"]
