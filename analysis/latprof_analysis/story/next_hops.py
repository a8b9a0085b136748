"""How long a message's packets waited for the link address of their next hop.

The kernel resolves it (ARP, NDP) where it does not know it, and keeps packets in a
queue of that neighbour meanwhile, before any device.
"""

from __future__ import annotations

from ipaddress import IPv6Address
from typing import NamedTuple

import numpy as np

from latprof_analysis.story.story import Flight, Records

RING = "address_waits"
RESOLVING = "waiting for the link address of"


class AddressWait(NamedTuple):
    """Time in which packets of a flow waited so; CLOCK_MONOTONIC.

    `given_up`: until they were freed, as the address was not found or the queue full.
    """

    begin_ns: int
    end_ns: int
    next_hop: str
    given_up: bool

    @property
    def what(self) -> str:
        """Whose address it was, as a part of a story has it."""
        return f"{self.next_hop} (neighbour resolution)"

    @property
    def time_ns(self) -> int:
        """How long it was."""
        return self.end_ns - self.begin_ns


def waits_of(
    flight: Flight, flow: int, begin_ns: int, end_ns: int
) -> list[AddressWait]:
    """Return when packets of a flow waited within a span, in order and apart.

    Of several packets that waited at once the last one ends the wait.
    """
    found: list[AddressWait] = []
    for wait in sorted(_all_of(flight, flow)):
        first_ns, last_ns = max(wait.begin_ns, begin_ns), min(wait.end_ns, end_ns)
        if last_ns <= first_ns:
            continue
        own = wait._replace(begin_ns=first_ns, end_ns=last_ns)
        if not found or first_ns > found[-1].end_ns:
            found.append(own)
        elif last_ns > found[-1].end_ns:
            found[-1] = own._replace(begin_ns=found[-1].begin_ns)
    return found


def wait_of_datagram(
    flight: Flight, flow: int, send_ns: int, queue_ns: int
) -> AddressWait | None:
    """Return how long a datagram waited before it was queued; None: it did not.

    Others of its flow may wait at the same time, and go in the order that they came in.
    """
    waits = [
        wait._replace(end_ns=queue_ns)
        for wait in sorted(_all_of(flight, flow))
        if send_ns <= wait.begin_ns and wait.end_ns <= queue_ns and not wait.given_up
    ]
    return waits[-1] if waits else None


def _all_of(flight: Flight, flow: int) -> list[AddressWait]:
    records = flight.rings.get(RING)
    if records is None:  # an older recording
        return []
    return [
        AddressWait(
            *(int(row["from_ns"]), int(row["until_ns"])),
            *(_address(row["next_hop"]), bool(row["given_up"])),
        )
        for row in records[records["flow"] == np.uint64(flow)]
    ]


def _address(words: Records) -> str:
    """Write an address: IPv4 is mapped."""
    found = IPv6Address(words.tobytes())
    return str(found.ipv4_mapped or found)
