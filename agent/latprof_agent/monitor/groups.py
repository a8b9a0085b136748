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
from latprof_agent.containers.container_names import NO_POD, ContainerNames
from latprof_agent.monitor.totals import OTHER, Group
from latprof_agent.probes.cgroup import is_root, widest_mount
from latprof_agent.probes.grouping import BY_CONTAINER, NONE, Grouping
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
    containers: ContainerNames | None = None  # who names what is by their names
    mount: Path | None = field(default_factory=widest_mount)
    # what was called otherwise before, and is known now
    renamed: dict[Group, Group] = field(default_factory=dict)
    _known: dict[int, Group] = field(default_factory=dict)
    _keys: dict[int, bytes] = field(default_factory=dict)
    _cgroups: dict[int, str] = field(default_factory=dict)
    _unnamed: set[int] = field(default_factory=set)  # containers no runtime knew yet

    def read(self) -> dict[int, Group]:
        """Return all groups by number, those that came new included.

        What was returned before stays as it was: another thread may be at it.
        """
        keys, numbers = self.entries()
        known = self._known
        new = [i for i, n in enumerate(numbers.tolist()) if n not in known]
        self._keys |= {int(numbers[i]): keys[i].tobytes() for i in new}
        late = self._named_by_runtime([int(numbers[i]) for i in new])
        if new or late or not known:
            self.renamed = self.renamed | {known[n]: g for n, g in late.items()}
            named = {int(numbers[i]): self._name(keys[i]) for i in new}
            self._known = known = self._others() | known | named | late
        return known

    def _named_by_runtime(self, new: list[int]) -> dict[int, Group]:
        """Ask for new groups; return those of before that have a name only now."""
        if not self.containers or not self.grouping.asks_runtime:
            return {}
        before = self._unnamed
        paths = {number: self._path(number) for number in (*before, *new)}
        self.containers.look_up(list(paths.values()))
        self._unnamed = {n for n, p in paths.items() if not self.containers.knows(p)}
        return {n: self._name(self._key_of(n)) for n in before - self._unnamed}

    def _path(self, number: int) -> str:
        return self._cgroup(int(self._key_of(number)["cgroup"]))

    def _key_of(self, number: int) -> Any:
        return np.frombuffer(self._keys[number], self.layout.group)[0]

    def key(self, number: int) -> bytes | None:
        """Return what the kernel knows a group by; None where it has no name."""
        return self._keys.get(number)

    def other(self, number: int) -> int:
        """Return the number of those without room that a group would be of."""
        key = self._key_of(number)
        is_server = int(key["role"]) == self.layout.roles["server"]
        is_udp = int(key["protocol"]) == socket.IPPROTO_UDP
        return OTHER_GROUPS.start + 2 * is_udp + is_server

    def heirs(self, numbers: list[int]) -> dict[int, int]:
        """Say who gets what these groups had: one of the same name, else the others."""
        leaving = set(numbers)
        same = {self._known[n]: n for n in self._keys if n not in leaving}
        return {n: same.get(self._known[n], self.other(n)) for n in numbers}

    def forget(self, numbers: list[int]) -> None:
        """Numbers are others' from now on."""
        gone = set(numbers)
        self._unnamed -= gone
        self._known = {n: g for n, g in self._known.items() if n not in gone}
        self._keys = {n: k for n, k in self._keys.items() if n not in gone}

    def _others(self) -> dict[int, Group]:
        """Return the groups of what has no room, in the order of group.bpf.h."""
        by = [name for name in self.grouping.by if name != NONE]
        if "container" in by:
            by = [name for name in by if name != "pod"]
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
        if self.grouping.asks_runtime:
            named |= self._of_container(int(key["cgroup"]))
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

    def _of_container(self, number: int) -> dict[str, str]:
        """What containers are called; of what is not seen all names are the same."""
        path, by = self._cgroup(number), self.grouping.by
        if not path.startswith("/"):
            return {name: path for name in by if name in BY_CONTAINER}
        assert self.containers
        found = self.containers.named(path)
        named = {name: getattr(found, name) for name in by if name in BY_CONTAINER}
        if "container" in by and "pod" not in by:
            named["pod"] = "" if found.pod == NO_POD else found.pod
        return named | {"namespace": found.namespace}

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
