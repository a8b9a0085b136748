"""Which devices of their own namespace flows pass on their way out, and the last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.kernel_names import name_of
from latprof_analysis.records.flows import IPPROTO_TCP, Flows

Array = NDArray[Any]

MOST_FLOWS = 1 << 14  # whose devices are remembered one by one
MOST_CHAINS = 256
SHOWN = 32
# As the kernel names them: a physical device has no kind, and what leaves by veth is
# on its way.
PLAIN = ("", "veth")
# What goes into a tunnel comes out as another packet, whose socket is not known.
TUNNELS = (
    *("bareudp", "erspan", "geneve", "gre", "gtp", "ip6erspan", "ip6gre", "ip6tnl"),
    *("ipip", "ovpn", "ppp", "sit", "tun", "vti", "vxlan", "wireguard", "xfrm"),
)


class Device(NamedTuple):
    """A device and its kind, as in `ip -d link`; a physical one has none."""

    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})" if self.kind else self.name


Chain = tuple[Device, ...]
OTHERS: Chain = ()  # beyond MOST_CHAINS


class _Passed(NamedTuple):
    """A device that a flow has passed, and when first."""

    t_ns: int
    lower: bool  # not the first that packets were handed to
    device: Device


class PathDevices:
    """Takes such records in; counts flows by the chain of devices they pass."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        # flow -> device's index; flows in the order of their coming
        self._passed: dict[int, dict[int, _Passed]] = {}
        self._counts: Counter[tuple[str, Chain]] = Counter()

    def add(self, records: Array) -> None:
        """Take in records of the ring; a flow may announce one device often."""
        if not len(records):
            return
        records = records[np.argsort(records["t_ns"], kind="stable")]
        device = records["netns"].astype("u8") << np.uint64(32) | records["ifindex"]
        mixed = records["flow"] ^ (device * np.uint64(0x9E3779B97F4A7C15))
        for record in records[np.unique(mixed, return_index=True)[1]]:
            self._add(record)
        if len(self._passed) > MOST_FLOWS:
            oldest = list(self._passed)[: MOST_FLOWS // 2]
            self._counts = self._counted(oldest)
            for flow in oldest:
                del self._passed[flow]

    def _add(self, record: Any) -> None:
        passed = self._passed.setdefault(int(record["flow"]), {})
        if int(record["ifindex"]) not in passed:
            device = Device(
                *(name_of(record[field].tobytes()) for field in Device._fields)
            )
            one = _Passed(int(record["t_ns"]), bool(record["lower"]), device)
            passed[int(record["ifindex"])] = one

    def _counted(self, numbers: Iterable[int]) -> Counter[tuple[str, Chain]]:
        """Add these flows to the counts."""
        found = Counter(self._counts)
        wanted = list(numbers)
        places = self._flows.index(np.array(wanted, "u8"))
        for flow, place in zip(wanted, places.tolist(), strict=True):
            passed = sorted(self._passed[flow].values())
            firsts = [i for i, one in enumerate(passed) if not one.lower]
            if not firsts:
                continue  # counted before, or its record was lost
            # of a flow that came to pass other devices the newest count
            chain = tuple(one.device for one in passed[firsts[-1] :])
            key = self._protocol(place), chain
            if key not in found and len(found) >= MOST_CHAINS:
                key = key[0], OTHERS
            found[key] += 1
        return found

    def _protocol(self, place: int) -> str:
        if place < 0:
            return ""  # released, or not announced
        return "tcp" if self._flows.table["protocol"][place] == IPPROTO_TCP else "udp"

    def as_list(self) -> list[dict[str, Any]]:
        """For run.json: chains by protocol, those of most flows first."""
        counts = self._counted(self._passed)
        order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return [
            {
                "protocol": protocol,
                "devices": [device._asdict() for device in chain],
                "flows": n,
            }
            for (protocol, chain), n in order[:SHOWN]
        ]


def last_devices(paths: list[dict[str, Any]], link: str = "") -> list[str]:
    """Say where `xmit` was taken, where packets passed any but plain devices.

    `link` is the device at which a lab's link begins: nothing is below it.
    """
    protocols: dict[Chain, list[str]] = {}
    for path in paths:
        devices = [Device(**device) for device in path["devices"]]
        chain = tuple(Device(d.name, "") if d.name == link else d for d in devices)
        if any(device.kind not in PLAIN for device in chain):
            protocols.setdefault(chain, []).append(path["protocol"])
    return [f"xmit{_of(names)}: {_last(chain)}" for chain, names in protocols.items()]


def with_last_devices(
    capabilities: list[dict[str, Any]], paths: list[dict[str, Any]], link: str
) -> list[dict[str, Any]]:
    """Put that into the capability of xmit."""
    taken = last_devices(paths, link)
    return [
        one | {"taken": taken} if taken and one["quantity"] == "xmit" else one
        for one in capabilities
    ]


def _of(protocols: list[str]) -> str:
    (one, *more) = [protocol for protocol in protocols if protocol] or [""]
    return f" ({one})" if one and not more else ""


def _last(chain: Chain) -> str:
    *above, last = chain
    below = f", below {' and '.join(map(str, above))}" if above else ""
    if last.kind in PLAIN:
        return f"at the driver of {last.name}{below}"
    if last.kind.startswith(TUNNELS):
        return f"at {last}{below}; what is below it counts as transit"
    return f"at {last}{below}"
