"""When packets left the devices below their first one: a bridge's port, a NIC.

The last of them is the sender's `xmit`, so that a queue below a tunnel or a bridge
is the message's `qdisc` and no part of its transit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.records.arrays import stacked
from latprof_analysis.records.stream_key import stream_key

Array = NDArray[Any]

KEPT = 1 << 18  # records: 13 MB
# More tables than this become one, so that slow senders' do not pile up.
MOST_TABLES = 64


class _Table(NamedTuple):
    """What one device has passed on in some time, ordered by flow and end.

    What went by it again is left out: a key is a place in `flows`, and an end.
    """

    ifindex: int
    last_ns: int
    flows: Array
    keys: Array
    records: Array

    def find(self, halves: Array) -> Array:
        """Index of the record that holds each half's end; -1 none."""
        flow = np.searchsorted(self.flows, halves["flow"])
        known = flow < len(self.flows)
        flow[~known] = 0
        known &= self.flows[flow] == halves["flow"]
        at = np.searchsorted(self.keys, stream_key(flow, halves["end"]))
        known &= at < len(self.keys)
        at[~known] = 0
        found = self.records[at]
        known &= (found["flow"] == halves["flow"]) & (found["key"] == halves["key"])
        stream = found["start"] < halves["end"]
        datagram = found["end"] == halves["end"]
        known &= np.where(halves["key"] == 0, stream, datagram)
        return np.where(known, at, -1)


def _tables_of(records: Array) -> list[_Table]:
    return [
        _table(int(ifindex), records[records["ifindex"] == ifindex])
        for ifindex in np.unique(records["ifindex"])
    ]


def _table(ifindex: int, records: Array) -> _Table:
    stream, t_ns = records["key"] == 0, records["t_ns"]
    by = np.where(stream, t_ns, records["end"])
    records = records.take(np.lexsort((t_ns, by, records["flow"])))
    first = np.r_[True, records["flow"][1:] != records["flow"][:-1]]
    keys = stream_key(np.cumsum(first) - 1, records["end"])
    # a record without a new byte or datagram was sent again
    new = np.r_[True, keys[1:] > np.maximum.accumulate(keys)[:-1]]
    flows = records["flow"][first]
    return _Table(ifindex, int(t_ns.max()), flows, keys[new], records.compress(new))


class LowerTransmits:
    """Takes such records in; gives the time when sent halves left for good."""

    def __init__(self) -> None:
        self._tables: list[_Table] = []  # the oldest first

    def __len__(self) -> int:
        return sum(len(table.records) for table in self._tables)

    def add(self, records: Array) -> None:
        """Take in records of the ring; only these are sorted."""
        if not len(records):
            return
        self._tables += _tables_of(records)
        if len(self._tables) > MOST_TABLES:
            old, new = (
                self._tables[: MOST_TABLES // 2],
                self._tables[MOST_TABLES // 2 :],
            )
            self._tables = _tables_of(stacked(*(t.records for t in old))) + new
        while len(self) > KEPT and len(self._tables) > 1:
            del self._tables[0]

    def forget_before(self, t_ns: int) -> None:
        """No half will be asked for that left its first device before."""
        self._tables = [table for table in self._tables if table.last_ns >= t_ns]

    def last_xmit(self, sent: Array, at: Array) -> None:
        """Put the last device's time into these sent halves.

        Where one is sent again it passes again: of each device the first time counts.
        """
        if not self._tables:
            return
        at = at[sent["xmit_ns"][at] > 0]
        first_ns = sent["xmit_ns"][at]
        last_ns = first_ns.copy()
        waiting = {table.ifindex: np.ones(len(at), bool) for table in self._tables}
        for table in self._tables:
            mine = waiting[table.ifindex]
            asking = np.flatnonzero(mine & (first_ns <= table.last_ns))
            if not len(asking):
                continue
            found = table.find(sent.take(at[asking]))
            there = asking[found >= 0]
            times = table.records["t_ns"][found[found >= 0]]
            last_ns[there] = np.maximum(last_ns[there], times)
            mine[there] = False
        sent["xmit_ns"][at] = last_ns
