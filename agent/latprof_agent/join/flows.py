"""What flow numbers stand for, as columns."""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SIDE_SENDER = 1


def address_text(raw: Any) -> str:
    """Write an address of 16 bytes; IPv4 in its own way."""
    address = IPv6Address(bytes(raw))
    return str(address.ipv4_mapped or address)


class Flows:
    """Flows in the order of their coming; a flow's index is its place.

    `table` has the announcement of each (see struct flow); `sender_here` tells
    whether its sender's end was seen, too.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.table = np.empty(0, dtype)
        self.sender_here = np.empty(0, bool)
        self.source_addresses: list[str] = []
        self.destination_addresses: list[str] = []
        self._used = np.empty(0, "i8")  # when last, by `touch`
        self._touches = 0
        self._ordered = np.empty(0, "u8")
        self._places = np.empty(0, "i8")

    def __len__(self) -> int:
        return len(self.table)

    def add(self, records: Array) -> None:
        """Take in announcements; each end of a flow announces it."""
        _, first = np.unique(records["flow"], return_index=True)
        fresh = records[np.sort(first)]
        fresh = fresh[self.index(fresh["flow"]) < 0]
        order = np.argsort(fresh["flow"])
        numbers = fresh["flow"][order]
        at = np.searchsorted(self._ordered, numbers)
        self._ordered = np.insert(self._ordered, at, numbers)
        self._places = np.insert(self._places, at, len(self) + order)
        self.table = np.concatenate([self.table, fresh])
        self.sender_here = np.r_[self.sender_here, np.zeros(len(fresh), bool)]
        self._used = np.r_[self._used, np.full(len(fresh), self._touches)]
        self.source_addresses += map(address_text, fresh["source"])
        self.destination_addresses += map(address_text, fresh["destination"])
        senders = records["flow"][records["side"] == SIDE_SENDER]
        self.sender_here[self.index(senders)] = True

    def index(self, numbers: Array) -> Array:
        """Indices of flow numbers, -1 where none was announced."""
        if not len(self._ordered):
            return np.full(len(numbers), -1, "i8")
        at = np.searchsorted(self._ordered, numbers)
        at[at == len(self._ordered)] = 0
        return np.where(self._ordered[at] == numbers, self._places[at], -1)

    def touch(self, *indices: Array) -> None:
        """These flows are in use; what was not touched lately may be let go."""
        self._touches += 1
        for index in indices:
            self._used[index[index >= 0]] = self._touches

    def let_go(self, keep: int) -> Array:
        """Let go of all but the `keep` used last, and those used as lately.

        Return the places that stay. All indices change; what refers to the lists of
        addresses keeps the old ones.
        """
        stay = np.flatnonzero(self._used >= np.partition(self._used, -keep)[-keep])
        self.table = self.table[stay]
        self.sender_here = self.sender_here[stay]
        self._used = self._used[stay]
        self.source_addresses = [self.source_addresses[i] for i in stay]
        self.destination_addresses = [self.destination_addresses[i] for i in stay]
        self._places = np.argsort(self.table["flow"])
        self._ordered = self.table["flow"][self._places]
        return stay
