"""What flow numbers stand for, as columns that only grow."""

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
        self._ordered = np.empty(0, "u8")
        self._places = np.empty(0, "i8")

    def add(self, records: Array) -> None:
        """Take in announcements; each end of a flow announces it."""
        _, first = np.unique(records["flow"], return_index=True)
        fresh = records[np.sort(first)]
        fresh = fresh[self.index(fresh["flow"]) < 0]
        self.table = np.concatenate([self.table, fresh])
        self.sender_here = np.r_[self.sender_here, np.zeros(len(fresh), bool)]
        self.source_addresses += map(address_text, fresh["source"])
        self.destination_addresses += map(address_text, fresh["destination"])
        self._places = np.argsort(self.table["flow"])
        self._ordered = self.table["flow"][self._places]
        senders = records["flow"][records["side"] == SIDE_SENDER]
        self.sender_here[self.index(senders)] = True

    def index(self, numbers: Array) -> Array:
        """Indices of flow numbers, -1 where none was announced yet."""
        if not len(self._ordered):
            return np.full(len(numbers), -1, "i8")
        at = np.searchsorted(self._ordered, numbers)
        at[at == len(self._ordered)] = 0
        return np.where(self._ordered[at] == numbers, self._places[at], -1)
