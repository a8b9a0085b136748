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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.csv_cells import FORMULA
from latprof_analysis.records.flows import SIDE_SENDER, Flows
from latprof_analysis.records.process_names import Names

ELSEWHERE = "elsewhere"
# Ports that the kernel hands out, where its host says no others.
EPHEMERAL = range(32768, 61000)
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

    def label(self, ends: list[str], way: int, client: int) -> str:
        """Name who sends and who receives by the ends' names: "curl -> nginx:80".

        A process may call itself anything: what would need quotes, or begins as a
        formula of a spreadsheet, is left out. Its exact name is in the columns of
        names.
        """
        server = 1 - client
        address = self.addresses[server]
        names = list(ends)
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
    """

    def __init__(self, flows: Flows, ephemeral: range = EPHEMERAL) -> None:
        self._ephemeral = ephemeral
        self._flows = flows
        self._of_place: list[Conversation] = []
        self._of_end: dict[int, Conversation] = {}
        self._count = 0
        self.identity = np.empty(0, "i8")
        self.to_server = np.empty(0, bool)
        self.client_here = np.empty(0, bool)
        self.whole = np.empty(0, bool)
        self.both_ways = np.empty(0, bool)
        self._name_numbers: dict[str, int] = {"": 0}
        # by place: numbers of the names that its label has, of sender and reader
        self._named = np.empty((0, 2), "i4")
        self._label_at = np.empty(0, "i4")
        self._labels: list[str] = []
        # of messages of a place between processes of other names, by their numbers
        self._other_labels: dict[tuple[int, int, int], int] = {}

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
        self._named = np.r_[self._named, np.zeros((fresh, 2), "i4")]
        before = len(self._labels)
        self._label_at = np.r_[self._label_at, np.arange(fresh, dtype="i4") + before]
        self._labels += [""] * fresh
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
        """Unite two that were one: a translated flow, announced apart by its ends."""
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
        """Take in a flow's announcement: its ports, and when it was."""
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
            self._labels[self._label_at[place]] = conversation.label(
                conversation.names, way, client
            )
            for column, end in enumerate((way, 1 - way)):
                self._named[place, column] = self._number(conversation.names[end])

    def turned(self, place: int) -> int:
        """Return the place of the flow in the other direction, -1 if there is none."""
        if place < 0:
            return -1
        ways = self._of_place[place].ways
        others = (other for other, way in ways.items() if way != ways[place])
        return next(others, -1)

    def first_ns(self, place: int) -> int:
        """When the conversation of a flow was seen first."""
        return self._of_place[place].first_ns

    def label(self, place: int) -> str:
        """Who sends to whom, see `Conversation.label`; empty for -1."""
        return self._labels[self._label_at[place]] if place >= 0 else ""

    def ways(self, place: Array, sender: Names, reader: Names) -> Names:
        """Say of messages who sends to whom, by their flows and names of processes.

        A conversation has the names that were met first; where a process at its end
        has another one (after exec, or of a child), those messages say so.
        """
        numbers = np.column_stack([self._numbers(sender), self._numbers(reader)])
        numbers[place < 0] = 0
        for column in 0, 1:
            self._learn_names(place, numbers[:, column], column)
        index = np.r_[self._label_at, -1][place].astype(np.int32)
        named = np.r_[self._named, [[0, 0]]][place]
        other = np.flatnonzero(((numbers > 0) & (numbers != named)).any(axis=1))
        if len(other):
            met = np.where(numbers > 0, numbers, named)[other]
            index[other] = self._labels_of(place[other], met)
        return index, self._labels

    def _number(self, name: str) -> int:
        return self._name_numbers.setdefault(name, len(self._name_numbers))

    def _numbers(self, names: Names) -> Array:
        index, words = names
        return np.array([self._number(word) for word in words], "i4")[index]

    def _forget_names(self) -> None:
        """Number anew those that some label has."""
        used = np.unique(np.r_[0, self._named.ravel()])
        words = list(self._name_numbers)
        self._name_numbers = {words[old]: new for new, old in enumerate(used.tolist())}
        self._named = np.searchsorted(used, self._named).astype("i4")

    def _learn_names(self, place: Array, numbers: Array, column: int) -> None:
        named = np.r_[self._named[:, column], 0][place]
        new = np.flatnonzero((numbers > 0) & (named == 0))
        found, first = np.unique(place[new], return_index=True)
        words = list(self._name_numbers)
        for at, number in zip(
            found.tolist(), numbers[new[first]].tolist(), strict=True
        ):
            conversation = self._of_place[at]
            end = conversation.ways[at] ^ column
            if not conversation.names[end]:
                conversation.names[end] = words[number]
                self._settle(conversation)

    def _labels_of(self, place: Array, numbers: Array) -> list[int]:
        """Where the labels of messages are that have names of their own."""
        keys = np.column_stack([place, numbers])
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        at = [self._other_label(*map(int, key)) for key in unique]
        return [at[i] for i in inverse.ravel().tolist()]

    def _other_label(self, place: int, sender: int, reader: int) -> int:
        key = place, sender, reader
        if key not in self._other_labels:
            words = list(self._name_numbers)
            conversation = self._of_place[place]
            way = conversation.ways[place]
            names = [words[sender], words[reader]][:: 1 if way == 0 else -1]
            client = conversation.client(self._ephemeral)
            self._other_labels[key] = len(self._labels)
            self._labels.append(conversation.label(names, way, client))
        return self._other_labels[key]

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
        # rows that wait have the list as it was
        self._labels = [self._labels[i] for i in self._label_at[stay]]
        self._label_at = np.arange(len(stay), dtype="i4")
        self._other_labels = {}
        self._forget_names()
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
