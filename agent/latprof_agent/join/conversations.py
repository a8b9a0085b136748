"""Flows -> conversations: which two flows are the two directions of one, and whose.

Each end announces the flows that it sends and receives; the two of one end have the
same addresses, ports and first sequence numbers, turned round. So both directions of
a conversation meet at an end, also where a translator (NAT) changes them on the way.

The server of a TCP connection is the end that was accepted. Where no end says so (a
listener without backlog; UDP), it is the one whose port is none of those that the
kernel hands out; else the client is who spoke first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.csv_cells import FORMULA
from numpy.typing import NDArray

from latprof_agent.join.flows import SIDE_SENDER, Flows
from latprof_agent.probes.grouping import EPHEMERAL_PORTS

ELSEWHERE = "elsewhere"
UNKNOWN = -1
_UNFIT = re.compile(rf"""^'*\s*[{FORMULA}]|[",;\x00-\x1f\x7f]""")

Array = NDArray[Any]


@dataclass
class Conversation:
    """One conversation. It has two ends, 0 and 1, and `way` n is what end n sends."""

    identity: int = 0
    ways: dict[int, int] = field(default_factory=dict)  # of flows, by place
    ends: dict[int, int] = field(default_factory=dict)  # by key, those that were seen
    server: int = UNKNOWN  # the end that was accepted
    first_ns: int = 0
    first: int = 0  # who spoke first
    ports: list[int] = field(default_factory=lambda: [0, 0])
    addresses: list[str] = field(default_factory=lambda: ["", ""])
    names: list[str] = field(default_factory=lambda: ["", ""])

    def client(self, ephemeral: range) -> int:
        """Return which end is the client."""
        if self.server != UNKNOWN:
            return 1 - self.server
        handed_out = [port in ephemeral for port in self.ports]
        if handed_out[0] != handed_out[1]:
            return int(handed_out[1])
        return self.first

    def label(self, way: int, client: int) -> str:
        """Name who sends and who receives: "curl -> nginx:80".

        A process may call itself anything: what would need quotes, or begins as a
        formula of a spreadsheet, is left out. Its exact name is in the columns of
        names.
        """
        server = 1 - client
        address = self.addresses[server]
        names = list(self.names)
        names[client] = names[client] or ELSEWHERE
        names[server] = names[server] or (f"[{address}]" if ":" in address else address)
        names[server] += f":{self.ports[server]}"
        return _UNFIT.sub("?", f"{names[way]} -> {names[1 - way]}")


NONE = Conversation()


class Conversations:
    """What conversation each flow belongs to, by the places of `Flows`.

    Attributes
    ----------
    identity : ndarray of int64
        The same for both directions of a conversation, and for no other: they are
        counted from 1.
    to_server, client_here, whole, both_ways : ndarray of bool
        Whether the flow goes to the server; whether the client's end was seen; whether
        both were; whether both have spoken.
    labels : list of str
        Who sends to whom, see `Conversation.label`.
    """

    def __init__(self, flows: Flows, ephemeral_ports: Path = EPHEMERAL_PORTS) -> None:
        low, high = map(int, ephemeral_ports.read_text().split())
        self._ephemeral = range(low, high + 1)
        self._flows = flows
        self._of_place: list[Conversation] = []
        self._of_end: dict[int, Conversation] = {}
        self._count = 0
        self.identity = np.empty(0, "i8")
        self.to_server = np.empty(0, bool)
        self.client_here = np.empty(0, bool)
        self.whole = np.empty(0, bool)
        self.both_ways = np.empty(0, bool)
        self._named = np.empty((0, 2), bool)  # by place: sender, reader
        self.labels: list[str] = []

    def add(self, records: Array) -> None:
        """Take in announcements, after `flows` has."""
        self._grow(len(self._flows) - len(self.identity))
        sends = (records["side"] == SIDE_SENDER).tolist()
        ports = zip(
            records["source_port"].tolist(),
            records["destination_port"].tolist(),
            strict=True,
        )
        changed = {}
        for end_sends, key, place, of_ways, accepted, t_ns in zip(
            sends,
            _end_keys(records).tolist(),
            self._flows.index(records["flow"]).tolist(),
            ports,
            records["accepted"].tolist(),
            records["t_ns"].tolist(),
            strict=True,
        ):
            conversation = self._find(key, place, sends=end_sends)
            self._learn(conversation, place, of_ways, t_ns)
            if accepted:
                conversation.server = conversation.ends[key]
            changed[conversation.identity] = conversation
        for conversation in changed.values():
            self._settle(conversation)

    def _grow(self, fresh: int) -> None:
        none = np.zeros(fresh, bool)
        self.identity = np.r_[self.identity, np.zeros(fresh, "i8")]
        self.to_server = np.r_[self.to_server, none]
        self.client_here = np.r_[self.client_here, none]
        self.whole = np.r_[self.whole, none]
        self.both_ways = np.r_[self.both_ways, none]
        self._named = np.r_[self._named, np.zeros((fresh, 2), bool)]
        self.labels += [""] * fresh
        self._of_place += [NONE] * fresh

    def _find(self, key: int, place: int, *, sends: bool) -> Conversation:
        """Return the conversation of an announcement, which is placed in it."""
        of_end, of_flow = self._of_end.get(key), self._of_place[place]
        if of_flow is NONE and of_end:
            end = of_end.ends[key]
            self._put(of_end, place, end if sends else 1 - end)
            return of_end
        if of_flow is NONE:
            self._count += 1
            of_flow = Conversation(self._count)
            self._put(of_flow, place, 0)
        way = of_flow.ways[place]
        end = way if sends else 1 - way
        if of_end and of_end is not of_flow:
            self._unite(of_flow, of_end, turned=of_end.ends[key] != end)
        of_flow.ends[key], self._of_end[key] = end, of_flow
        return of_flow

    def _put(self, conversation: Conversation, place: int, way: int) -> None:
        conversation.ways[place] = way
        self._of_place[place] = conversation
        self.identity[place] = conversation.identity

    def _unite(self, kept: Conversation, other: Conversation, *, turned: bool) -> None:
        """Two were one: a translated flow, whose ends told each without the other."""
        for key, end in other.ends.items():
            kept.ends[key] = 1 - end if turned else end
            self._of_end[key] = kept
        for place, way in other.ways.items():
            self._put(kept, place, 1 - way if turned else way)
        if other.server != UNKNOWN:
            kept.server = 1 - other.server if turned else other.server
        if other.first_ns < kept.first_ns:
            kept.first_ns = other.first_ns
            kept.first = 1 - other.first if turned else other.first

    def _learn(
        self, conversation: Conversation, place: int, ports: tuple[int, int], t_ns: int
    ) -> None:
        """Take in what a flow's announcement tells: its ports, and when it was."""
        way = conversation.ways[place]
        conversation.ports[way], conversation.ports[1 - way] = ports
        conversation.addresses[way] = self._flows.source_addresses[place]
        conversation.addresses[1 - way] = self._flows.destination_addresses[place]
        if not conversation.first_ns or t_ns < conversation.first_ns:
            conversation.first_ns, conversation.first = t_ns, way

    def _settle(self, conversation: Conversation) -> None:
        """Put what is known of a conversation to its flows."""
        client = conversation.client(self._ephemeral)
        seen = set(conversation.ends.values())
        both = len(set(conversation.ways.values())) > 1
        for place, way in conversation.ways.items():
            self.to_server[place] = way == client
            self.client_here[place] = client in seen
            self.whole[place] = len(seen) > 1
            self.both_ways[place] = both
            self.labels[place] = conversation.label(way, client)

    def first_ns(self, place: int) -> int:
        """When the conversation of a flow was seen first."""
        return self._of_place[place].first_ns

    def name(
        self, place: Array, sender: Array, reader: Array, comms: dict[int, str]
    ) -> None:
        """Learn the names of ends from messages: their flows, and who sent and read.

        `sender` and `reader` are process ids, 0 where not known.
        """
        for column, pids in enumerate((sender, reader)):
            new = np.flatnonzero((pids > 0) & (place >= 0))
            new = new[~self._named[place[new], column]]
            found, first = np.unique(place[new], return_index=True)
            for at, pid in zip(found.tolist(), pids[new[first]].tolist(), strict=True):
                self._name(at, column, comms.get(pid, ""))
                self._named[at, column] = True

    def _name(self, place: int, column: int, name: str) -> None:
        conversation = self._of_place[place]
        end = conversation.ways[place] ^ column
        if name and not conversation.names[end]:
            conversation.names[end] = name
            self._settle(conversation)

    def unite(self, gone: int, kept: int) -> None:
        """Two places were one flow behind a NAT: `gone` is no place any more."""
        of_gone, of_kept = self._of_place[gone], self._of_place[kept]
        if of_gone is NONE or of_kept is NONE or of_gone is of_kept:
            return
        turned = of_gone.ways[gone] != of_kept.ways[kept]
        self._unite(of_kept, of_gone, turned=turned)
        self._settle(of_kept)

    def release(self, stay: Array) -> None:
        """Only these places stay, and move up."""
        for name in (
            "identity",
            "to_server",
            "client_here",
            "whole",
            "both_ways",
            "_named",
        ):
            setattr(self, name, getattr(self, name)[stay])
        self.labels = [self.labels[i] for i in stay]
        before, self._of_place = self._of_place, [self._of_place[i] for i in stay]
        moved = dict(zip(stay.tolist(), range(len(stay)), strict=True))
        for conversation in {id(c): c for c in before if c is not NONE}.values():
            conversation.ways = {
                moved[place]: way
                for place, way in conversation.ways.items()
                if place in moved
            }
            if not conversation.ways:
                for key in conversation.ends:
                    del self._of_end[key]


def _end_keys(records: Array) -> Array:
    """Number the ends that announce: one of a connection has always the same."""
    sends = records["side"] == SIDE_SENDER
    key = records["netns"].astype("u8") << np.uint64(16) | records["protocol"]
    key = _mixed(np.ones(len(records), "u8"), key)
    for source, destination in (
        ("source", "destination"),
        ("source_port", "destination_port"),
        ("first_sequence", "first_answer"),
    ):
        there, here = _words(records[source]), _words(records[destination])
        for one, other in zip(here, there, strict=True):
            key = _mixed(key, np.where(sends, other, one))
            key = _mixed(key, np.where(sends, one, other))
    return key.astype("i8")


def _words(values: Array) -> list[Array]:
    """Return values as columns of 64 bits."""
    if values.ndim == 1:
        return [values.astype("u8")]
    return list(np.ascontiguousarray(values).view("u8").T)


def _mixed(key: Array, value: Array) -> Array:
    """Mix 64 bits into a hash, as flow.bpf.h does."""
    key = (key ^ value) * np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(key ^ (key >> np.uint64(29)))
