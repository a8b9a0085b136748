"""What flow numbers stand for, as columns; two numbers of one flow behind a NAT."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SIDE_SENDER, SIDE_RECEIVER, SIDE_ACCEPTED, SIDE_CLOSED = 1, 2, 3, 4
IPPROTO_TCP = 6


def address_text(raw: Any) -> str:
    """Write an address of 16 bytes; IPv4 in its own way."""
    address = IPv6Address(bytes(raw))
    return str(address.ipv4_mapped or address)


def _ends_of(record: Any) -> bytes:
    """Addresses and ports of a flow."""
    fields = ("source", "destination", "source_port", "destination_port")
    return b"".join(record[field].tobytes() for field in fields)


def _sequences(record: Any) -> int:
    """Both first sequence numbers of a TCP connection; 0 where one is not known."""
    if record["protocol"] != IPPROTO_TCP or not record["first_answer"]:
        return 0
    return int(record["first_sequence"]) << 32 | int(record["first_answer"])


def _ports(records: Any) -> Array:
    return np.stack([records["source_port"], records["destination_port"]], axis=-1)


class Flows:
    """Flows in the order of their coming; a flow's index is its place.

    `table` has the announcement of each (see struct flow), the sender's where it was
    seen. `sender_here` and `receiver_here` are true of those that were. A translator
    (NAT) gives a flow another number on its way: then `translated` is true, and both
    numbers have one index. TCP's are found by the first sequence numbers of both
    directions. `far_ports` has the ports, source and destination, as the receiver has
    them.

    UDP's number holds the namespace that sends. A receiver that did not learn it has
    another number, which is the flow of the only sender with such addresses and ports;
    where several namespaces send so, nothing says whose datagrams it gets, and it is
    `ambiguous`.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.table = np.empty(0, dtype)
        self.sender_here = np.empty(0, bool)
        self.receiver_here = np.empty(0, bool)
        self.translated = np.empty(0, bool)
        self.far_ports = np.empty((0, 2), "u2")
        self.ambiguous = np.empty(0, bool)
        self.source_addresses: list[str] = []
        self.destination_addresses: list[str] = []
        self._used = np.empty(0, "i8")  # when last, by `touch`
        self._touches = 0
        self._ordered = np.empty(0, "u8")
        self._places = np.empty(0, "i8")
        self._by_sequences: dict[int, int] = {}  # of TCP's flows -> place
        # by UDP's addresses and ports: numbers of senders, and of a receiver that does
        # not know its sender's namespace
        self._senders: dict[bytes, list[int]] = {}
        self._strangers: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self.table)

    def add(self, records: Array) -> None:
        """Take in announcements; each end of a flow announces it."""
        _, first = np.unique(records["flow"], return_index=True)
        fresh = records[np.sort(first)]
        fresh = fresh[self.index(fresh["flow"]) < 0]
        datagrams = fresh["protocol"] != IPPROTO_TCP
        self._add_streams(fresh[~datagrams])
        self._add_datagrams(fresh[datagrams])
        at = self.index(records["flow"])
        sender = records["side"] == SIDE_SENDER
        self.sender_here[at[sender]] = True
        self.receiver_here[at[~sender]] = True

    def _add_streams(self, fresh: Array) -> None:
        new: list[int] = []
        known: list[tuple[Any, int]] = []
        for i, record in enumerate(fresh):
            sequences = _sequences(record)
            place = self._by_sequences.get(sequences, -1)
            if place >= 0:
                known.append((record, place))
                continue
            if sequences:
                self._by_sequences[sequences] = len(self) + len(new)
            new.append(i)
        self._append(fresh[new])
        for record, place in known:
            self._insert(record["flow"][None], np.array([place]))
            self._translate(record, place)

    def _add_datagrams(self, fresh: Array) -> None:
        new: list[int] = []
        known: list[tuple[Any, int]] = []
        parted: list[tuple[int, int]] = []
        for i, record in enumerate(fresh):
            ends, number = _ends_of(record), int(record["flow"])
            senders, same = self._senders.get(ends, []), None
            if record["side"] == SIDE_SENDER:
                same = self._strangers.get(ends)
                if same is not None and senders:
                    parted.append((same, senders[0]))
                    same = None
                self._senders[ends] = [*senders, number]
            elif not record["sender_netns"]:
                self._strangers[ends] = number
                same = senders[0] if len(senders) == 1 else None
                if len(senders) > 1:
                    parted.append((number, senders[0]))
            if same is None:
                new.append(i)
            else:
                known.append((record, same))
        self._append(fresh[new])
        for record, number in known:
            place = self.index(np.array([number], "u8"))
            self._insert(record["flow"][None], place)
            if record["side"] == SIDE_SENDER:
                self.table[place] = record
        for stranger, sender in parted:
            self._part(stranger, sender)

    def _part(self, stranger: int, sender: int) -> None:
        """Several namespaces send so: none of them is known to be the receiver's."""
        numbers = np.array([stranger, sender], "u8")
        place, of_sender = self.index(numbers).tolist()
        if place < 0:
            return
        if place != of_sender:
            self.ambiguous[place] = True
            return
        alone = self.table[place : place + 1].copy()
        alone["flow"] = stranger
        self._places[np.searchsorted(self._ordered, numbers[0])] = len(self)
        self._append_rows(alone)
        self.receiver_here[-1] = self.ambiguous[-1] = True
        self.receiver_here[place] = False

    def unite(self, number: Any, other: Any) -> tuple[int, int]:
        """Give a receiver's number the place of a sender's: NAT made two of one.

        Return the place that it had, and the one that it has.
        """
        at = np.searchsorted(self._ordered, number)
        place = int(self.index(np.array([other], "u8"))[0])
        gone = int(self._places[at])
        self._places[at] = place
        self._translate(self.table[gone], place)
        self.receiver_here[place] = True
        return gone, place

    def _translate(self, record: Any, place: int) -> None:
        """Take in addresses of another end, which may differ: the sender's count."""
        self.translated[place] |= _ends_of(record) != _ends_of(self.table[place])
        if record["side"] != SIDE_SENDER:
            self.far_ports[place] = _ports(record)
        else:
            self.far_ports[place] = _ports(self.table[place])
            self.table[place] = record
            self.source_addresses[place] = address_text(record["source"])
            self.destination_addresses[place] = address_text(record["destination"])

    def _append(self, fresh: Array) -> None:
        self._insert(fresh["flow"], np.arange(len(self), len(self) + len(fresh)))
        self._append_rows(fresh)

    def _append_rows(self, fresh: Array) -> None:
        self.table = np.concatenate([self.table, fresh])
        none = np.zeros(len(fresh), bool)
        self.sender_here = np.r_[self.sender_here, none]
        self.receiver_here = np.r_[self.receiver_here, none]
        self.translated = np.r_[self.translated, none]
        self.far_ports = np.concatenate([self.far_ports, _ports(fresh)])
        self.ambiguous = np.r_[self.ambiguous, none]
        self._used = np.r_[self._used, np.full(len(fresh), self._touches)]
        self.source_addresses += map(address_text, fresh["source"])
        self.destination_addresses += map(address_text, fresh["destination"])

    def _insert(self, numbers: Array, places: Array) -> None:
        order = np.argsort(numbers)
        at = np.searchsorted(self._ordered, numbers[order])
        self._ordered = np.insert(self._ordered, at, numbers[order])
        self._places = np.insert(self._places, at, places[order])

    def index(self, numbers: Array) -> Array:
        """Indices of flow numbers, -1 where none was announced."""
        if not len(self._ordered):
            return np.full(len(numbers), -1, "i8")
        at = np.searchsorted(self._ordered, numbers)
        at[at == len(self._ordered)] = 0
        return np.where(self._ordered[at] == numbers, self._places[at], -1)

    def touch(self, *indices: Array) -> None:
        """These flows are in use; what was not touched lately may be released."""
        self._touches += 1
        for index in indices:
            self._used[index[index >= 0]] = self._touches

    def release(self, keep: int) -> Array:
        """Release all but the `keep` used last, and those used as lately.

        Return the places that stay. All indices change; what refers to the lists of
        addresses keeps the old ones.
        """
        stay = np.flatnonzero(self._used >= np.partition(self._used, -keep)[-keep])
        place_of = np.full(len(self), -1, "i8")
        place_of[stay] = np.arange(len(stay))
        self.table = self.table[stay]
        self.sender_here = self.sender_here[stay]
        self.receiver_here = self.receiver_here[stay]
        self.translated = self.translated[stay]
        self.far_ports = self.far_ports[stay]
        self.ambiguous = self.ambiguous[stay]
        self._used = self._used[stay]
        self.source_addresses = [self.source_addresses[i] for i in stay]
        self.destination_addresses = [self.destination_addresses[i] for i in stay]
        places = place_of[self._places]
        self._ordered, self._places = self._ordered[places >= 0], places[places >= 0]
        self._by_sequences = {
            sequences: int(place_of[place])
            for sequences, place in self._by_sequences.items()
            if place_of[place] >= 0
        }
        self._forget_ends()
        return stay

    def _forget_ends(self) -> None:
        """Forget the numbers that have no place any more."""
        stay = set(self._ordered.tolist())
        self._strangers = {k: n for k, n in self._strangers.items() if n in stay}
        kept = {
            ends: [number for number in numbers if number in stay]
            for ends, numbers in self._senders.items()
        }
        self._senders = {ends: numbers for ends, numbers in kept.items() if numbers}
