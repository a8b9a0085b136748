"""Halves without the other one: what was seen of the end that is missing.

The cause is named only as far as the announcements of flows show it: whether a watched
socket has the missing end's address and port, or any has its address.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.flows import Flows

Array = NDArray[Any]

# By what is known of the missing end.
NOT_FOLLOWED = "path not followed"  # its socket is watched, this flow not seen there
NOT_WATCHED = "not watched"  # on this host by its address, and no watched socket
NOT_SEEN = "not seen"  # no watched socket has its address
_MAPPED = np.array([0] * 10 + [255, 255], "u1")
_LOOPBACK = np.array([0] * 15 + [1], "u1")


class OneEnded:
    """Knows the ends of all sockets that announced a flow."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self._known = (0, 0, 0)
        self._ends = self._addresses = np.empty(0, "S20")

    def causes(self, places: Array, end: str) -> Counter[str]:
        """Count halves by cause, by their flows; `end` is source or destination.

        A flow that was not announced (-1) is not seen.
        """
        found: Counter[str] = Counter()
        flows, counts = np.unique(places, return_counts=True)
        found[NOT_SEEN] += int(counts[flows < 0].sum())
        flows, counts = flows[flows >= 0], counts[flows >= 0]
        if not len(flows):
            return +found
        self._refresh()
        rows = self._flows.table[flows]
        said = rows[end].any(axis=1)
        watched = said & np.isin(_end(rows, end), self._ends)
        here = said & np.isin(_end(rows, end, 0), self._addresses)
        here |= _is_loopback(rows[end])
        for cause, at in (
            (NOT_FOLLOWED, watched),
            (NOT_WATCHED, here & ~watched),
            (NOT_SEEN, ~here & ~watched),
        ):
            found[cause] += int(counts[at].sum())
        return +found

    def _refresh(self) -> None:
        flows = self._flows
        known = len(flows), int(flows.sender_here.sum()), int(flows.receiver_here.sum())
        if known == self._known:
            return
        own = [
            (flows.table[flows.sender_here], "source"),
            (flows.table[flows.receiver_here], "destination"),
        ]
        self._ends = np.unique(np.concatenate([_end(*each) for each in own]))
        self._addresses = np.unique(np.concatenate([_end(*each, 0) for each in own]))
        self._known = known


def _end(rows: Array, end: str, port: int | None = None) -> Array:
    """Address, port and protocol as one value; the address alone with port 0."""
    made = np.zeros((len(rows), 20), "u1")
    made[:, :16] = rows[end]
    if port is None:
        made[:, 16:18] = rows[f"{end}_port"].astype("<u2")[:, None].view("u1")
        made[:, 18] = rows["protocol"]
    return made.view("S20").ravel()


def _is_loopback(addresses: Array) -> Array:
    ipv4 = (addresses[:, :12] == _MAPPED).all(axis=1) & (addresses[:, 12] == 127)
    return np.asarray(ipv4 | (addresses == _LOOPBACK).all(axis=1))
