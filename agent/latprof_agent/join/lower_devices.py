"""When packets left the devices below their first one: a bridge's port, a NIC.

The last of them is the sender's `xmit`, so that a queue below a tunnel or a bridge
is the message's `qdisc` and no part of its transit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

KEPT = 1 << 18


class LowerTransmits:
    """Takes such records in; tells of sent halves when they left for good."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._records = np.empty(0, dtype)

    def add(self, records: Array) -> None:
        """Take in records of the ring."""
        if len(records):
            self._records = np.concatenate([self._records, records])[-KEPT:]

    def last_xmit(self, sent: Array, at: Array) -> None:
        """Put the last device's time into these sent halves."""
        at = at[sent["xmit_ns"][at] > 0] if len(self._records) else at[:0]
        at = at[np.isin(sent["flow"][at], self._records["flow"])]
        if not len(at):
            return
        for ifindex in np.unique(self._records["ifindex"]):
            mine = self._records[self._records["ifindex"] == ifindex]
            # sent again it passes again: the first time counts
            mine = mine[np.lexsort((mine["t_ns"], mine["end"], mine["flow"]))]
            found = _covering(mine, sent[at])
            there = found >= 0
            times = mine["t_ns"][found[there]]
            old = sent["xmit_ns"][at[there]]
            sent["xmit_ns"][at[there]] = np.maximum(old, times)


def _covering(records: Array, halves: Array) -> Array:
    """Index of the first record that holds each half's end; -1 none."""
    pair = np.dtype([("flow", "u8"), ("end", "u8")])
    keys, wanted = np.empty(len(records), pair), np.empty(len(halves), pair)
    for name in ("flow", "end"):
        keys[name], wanted[name] = records[name], halves[name]
    at = np.searchsorted(keys, wanted)
    inside = at < len(records)
    at[~inside] = 0
    found = records[at]
    same = inside & (found["flow"] == halves["flow"]) & (found["key"] == halves["key"])
    stream = found["start"] < halves["end"]
    datagram = found["end"] == halves["end"]
    return np.where(same & np.where(halves["key"] == 0, stream, datagram), at, -1)
