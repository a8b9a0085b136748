"""Names of groups by their numbers, from the keys by which the kernel groups."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.kernel_names import name_of
from latprof_analysis.records.flows import address_text
from numpy.typing import NDArray

from latprof_agent.capture.histograms import OTHER_GROUPS
from latprof_agent.monitor.totals import OTHER, Group
from latprof_agent.probes.cgroup import is_root, widest_mount
from latprof_agent.probes.grouping import NONE, Grouping
from latprof_agent.probes.layout import Layout

PROTOCOLS = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp"}
GONE = "gone"  # a cgroup that was removed before it was looked up
# a cgroup that may be there, or gone: in a cgroup namespace few of them are seen
OUTSIDE = "outside this container's view, id"

Entries = Callable[[], tuple[NDArray[Any], NDArray[Any]]]


@dataclass
class GroupNames:
    """Looks up each group once; what is gone by then keeps its number as a name."""

    layout: Layout
    grouping: Grouping
    entries: Entries  # of the map of groups
    mount: Path | None = field(default_factory=widest_mount)
    _known: dict[int, Group] = field(default_factory=dict)
    _keys: dict[int, bytes] = field(default_factory=dict)
    _cgroups: dict[int, str] = field(default_factory=dict)

    def read(self) -> dict[int, Group]:
        """Return all groups by number, those that came new included.

        What was returned before stays as it was: another thread may be at it.
        """
        keys, numbers = self.entries()
        known = self._known
        new = [i for i, n in enumerate(numbers.tolist()) if n not in known]
        if new or not known:
            named = {int(numbers[i]): self._name(keys[i]) for i in new}
            self._keys |= {int(numbers[i]): keys[i].tobytes() for i in new}
            self._known = known = self._others() | known | named
        return known

    def key(self, number: int) -> bytes | None:
        """Return what the kernel knows a group by; None where it has no name."""
        return self._keys.get(number)

    def other(self, number: int) -> int:
        """Return the number of those without room that a group would be of."""
        key = np.frombuffer(self._keys[number], self.layout.group)[0]
        is_server = int(key["role"]) == self.layout.roles["server"]
        is_udp = int(key["protocol"]) == socket.IPPROTO_UDP
        return OTHER_GROUPS.start + 2 * is_udp + is_server

    def forget(self, numbers: list[int]) -> None:
        """Numbers are others' from now on."""
        gone = set(numbers)
        self._known = {n: g for n, g in self._known.items() if n not in gone}
        self._keys = {n: k for n, k in self._keys.items() if n not in gone}

    def _others(self) -> dict[int, Group]:
        """Return the groups of what has no room, in the order of group.bpf.h."""
        by = [name for name in self.grouping.by if name != NONE]
        kinds = product(PROTOCOLS.values(), self._roles().values())
        return {
            number: Group(
                protocol,
                role if "service" in by else "",
                **dict.fromkeys(by, OTHER),
            )
            for number, (protocol, role) in zip(OTHER_GROUPS, kinds, strict=True)
        }

    def _roles(self) -> dict[int, str]:
        """Return the names of our end's roles, in the order of their numbers."""
        names = {number: name for name, number in self.layout.roles.items()}
        return dict(sorted(names.items()))

    def _name(self, key: Any) -> Group:
        by = self.grouping.by
        named = {"protocol": PROTOCOLS.get(int(key["protocol"]), "")}
        if "service" in by:
            named["service"] = str(int(key["service"]))
            named["role"] = self._roles().get(int(key["role"]), "")
        if "cgroup" in by:
            named["cgroup"] = self._cgroup(int(key["cgroup"]))
        if "comm" in by:
            named["comm"] = name_of(key["comm"].tobytes())
        if "remote" in by:
            named["remote"] = self._subnet(key["remote"].tobytes())
        if "interface" in by:
            named["interface"] = _interface(int(key["ifindex"]), int(key["netns"]))
        return Group(**named)

    def _subnet(self, address: bytes) -> str:
        text = address_text(address)
        prefix = self.grouping.prefix_ipv6 if ":" in text else self.grouping.prefix_ipv4
        return f"{text}/{prefix}"

    def _cgroup(self, number: int) -> str:
        """The path of a cgroup below the mount; its number where it is not there."""
        if number not in self._cgroups and self.mount:
            for path in (self.mount, *self.mount.rglob("*/")):
                with suppress(OSError):  # removed meanwhile
                    below = "/" / path.relative_to(self.mount)
                    self._cgroups[path.stat().st_ino] = str(below)
        if number not in self._cgroups:
            whole = self.mount and is_root(self.mount)
            return f"{GONE if whole else OUTSIDE} {number}"
        return self._cgroups[number]


def _interface(ifindex: int, netns: int) -> str:
    """Its name where it is in our namespace, else its number and namespace."""
    if netns == Path("/proc/self/ns/net").stat().st_ino:
        try:
            return socket.if_indextoname(ifindex)
        except OSError:
            return f"{ifindex}"
    return f"{ifindex} in netns {netns}"


def key_types(layout: Layout) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Of the map's keys and values."""
    return layout.group, np.dtype("u4")
