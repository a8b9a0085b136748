"""Which sockets the probes watch."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_agent.errors import UsageError
from latprof_agent.probes.catalogue import (
    BOTH,
    NEW_PROCESSES,
    NEW_SOCKETS,
    OPEN_SOCKETS,
    Need,
)
from latprof_agent.probes.layout import Layout

NAME_BYTES = 16  # of a task or an interface, the NUL at its end included
ADDRESS_BYTES = 16
_MAPPED = bytes(10) + b"\xff\xff"  # before an IPv4 address in an IPv6 one

Value = int | str | IPv4Network | IPv6Network


@dataclass(frozen=True)
class Word:
    """One value that was asked for, as the user wrote it: netns=blue."""

    kind: str
    text: str
    negated: bool = False
    values: tuple[Value, ...] = ()  # what it stands for; 0: it is gone
    paths: tuple[Path, ...] = ()  # whose inode numbers they are

    def __str__(self) -> str:
        return _phrase([self])


def _phrase(words: list[Word]) -> str:
    """Words of one kind and sign."""
    negated = "not " if words[0].negated else ""
    values = ",".join(shlex.quote(word.text) for word in words)
    return f"{negated}{words[0].kind}={values}"


@dataclass(frozen=True)
class Terms:
    """Values by kind, as the kernel knows them; 0 stands for what is gone."""

    netns: tuple[int, ...] = ()  # inode numbers
    ports: tuple[int, ...] = ()  # of either end
    local_ports: tuple[int, ...] = ()
    remote_ports: tuple[int, ...] = ()
    uids: tuple[int, ...] = ()  # of the socket
    remotes: tuple[IPv4Network | IPv6Network, ...] = ()
    pids: tuple[int, ...] = ()  # and their descendants
    comms: tuple[str, ...] = ()
    interfaces: tuple[str, ...] = ()
    cgroups: tuple[int, ...] = ()  # inode numbers; and those below


KINDS = {
    "netns": "TERM_NETNS",
    "ports": "TERM_PORT",
    "local_ports": "TERM_LOCAL_PORT",
    "remote_ports": "TERM_REMOTE_PORT",
    "uids": "TERM_UID",
    "remotes": "TERM_REMOTE",
    "pids": "TERM_PID",
    "comms": "TERM_COMM",
    "interfaces": "TERM_INTERFACE",
    "cgroups": "TERM_CGROUP",
}


# What the kernel notes of a process, and then of its sockets: that it is one of those
# asked for, or asked not to be. Bits, by field and sign.
FACTS = {
    ("pids", False): 1,
    ("pids", True): 2,
    ("comms", False): 4,
    ("comms", True): 8,
}


@dataclass(frozen=True)
class Filter(Terms):
    """Which sockets are watched.

    Values of one kind are alternatives, different kinds must all hold, and none of
    a kind means any. What holds of `but_not` excludes.
    """

    but_not: Terms = Terms()
    peers: bool = False  # and the other ends of their connections, on this host
    older: bool = False  # sockets may be open already: look for them
    protocols: tuple[str, ...] = BOTH
    words: tuple[Word, ...] = ()  # that it was made of

    def __str__(self) -> str:
        """What it was asked for by, in words that `parse_filter` reads."""
        runs = groupby(self.words, key=lambda word: (word.kind, word.negated))
        return " ".join(_phrase(list(run)) for _, run in runs)

    @property
    def by_process(self) -> bool:
        """Whether it asks who has a socket."""
        return any(terms.pids or terms.comms for terms in (self, self.but_not))

    @property
    def noted(self) -> tuple[Any, ...]:
        """What the notes depend on that are made of sockets before any verdict."""
        return (
            *(self.pids, self.comms, self.but_not.pids, self.but_not.comms),
            # of connections there are other notes for each filter
            self if self.peers else None,
        )

    @property
    def needs(self) -> frozenset[Need]:
        """What of the probes chooses these sockets."""
        found = {
            OPEN_SOCKETS: self.by_process or self.older,
            NEW_SOCKETS: self.by_process,
            NEW_PROCESSES: bool(self.pids or self.but_not.pids),
        }
        return frozenset(need for need, asked in found.items() if asked)

    @property
    def followed(self) -> dict[int, int]:
        """Processes to follow, with their FACTS."""
        found: dict[int, int] = {}
        for terms, negated in ((self, False), (self.but_not, True)):
            for pid in terms.pids:
                found[pid] = found.get(pid, 0) | FACTS["pids", negated]
        return found

    def as_record(self, layout: Layout, generation: int = 1, notes: int = 1) -> bytes:
        """The probes' struct options; another generation makes verdicts anew.

        Raises UsageError where it has more values than there is room for.
        """
        record = np.zeros((), layout.options)
        terms = [
            *_terms(self, layout, negated=False),
            *_terms(self.but_not, layout, negated=True),
        ]
        room = len(record["terms"])
        if len(terms) > room:
            raise UsageError(
                f"a filter has {room} values at most, its pids counted as one, "
                f"got {len(terms)}; use wider ones, such as a cgroup or a subnet"
            )
        for place, term in zip(record["terms"], sorted(terms), strict=False):
            place["kind"], place["negated"], value, mask = term
            place["value"], place["mask"] = _two_words(value), _two_words(mask)
        record["remote_ports"] = _bits_of((*self.ports, *self.remote_ports))
        record["remote_asked"] = bool(self.ports or self.remote_ports)
        record["peers"] = self.peers
        record["generation"] = generation
        record["notes"] = notes
        record["tcp"] = "tcp" in self.protocols
        record["udp"] = "udp" in self.protocols
        return record.tobytes()


def _bits_of(ports: tuple[int, ...]) -> list[int]:
    """Of the lowest byte of each port a bit, as words of 64."""
    lowest = {port & 255 for port in ports}
    return [sum(1 << (n & 63) for n in lowest if n >> 6 == word) for word in range(4)]


def _terms(
    terms: Terms, layout: Layout, *, negated: bool
) -> Iterator[tuple[int, bool, bytes, bytes]]:
    """Kind, sign, value and mask of each; which pids there are is kept apart."""
    for field, kind in KINDS.items():
        values = getattr(terms, field)
        for value in values[:1] if field == "pids" else values:
            number, mask = _value_and_mask(value)
            if fact := FACTS.get((field, negated)):
                mask = _whole(fact)
            yield layout.term_kinds[kind], negated, number, mask


def _value_and_mask(value: Value) -> tuple[bytes, bytes]:
    if isinstance(value, int):
        return _whole(value), b""
    if isinstance(value, str):  # as the kernel has it: cut, and filled with zeros
        return os.fsencode(value)[: NAME_BYTES - 1], b""
    address, mask = value.network_address.packed, value.netmask.packed
    if isinstance(value, IPv4Network):
        return _MAPPED + address, b"\xff" * len(_MAPPED) + mask
    return address, mask


def _whole(value: int) -> bytes:
    return value.to_bytes(ADDRESS_BYTES, "little")


def _two_words(value: bytes) -> NDArray[np.uint64]:
    return np.frombuffer(value.ljust(ADDRESS_BYTES, b"\0"), "<u8")
