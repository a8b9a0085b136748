"""The generator's log: round trips, and when each of its messages was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from latprof_analysis.stages import BLANK
from numpy.typing import NDArray

from latprof_agent.join.joiner import IPPROTO_TCP
from latprof_agent.join.message_rows import (
    MESSAGE,
    REPLY,
    REQUEST,
    WARMUP,
    Ints,
    Messages,
)

COLUMNS = (
    "protocol",
    "sequence",
    "size_bytes",
    "reply_bytes",
    "intended_ns",
    "sent_ns",
    "received_ns",
    "rtt_ns",
    "lost",
)
# A reply is sent right after it is made, if its responder has a CPU.
REPLY_KEEP_NS = 1_000_000_000
WARMUP_FLAG, LOST_FLAG, CORRUPT_FLAG = 1, 2, 4


class LogTail:
    """Reads what the generator has appended to its log since the last time.

    The log's first line names its fields; each is a 64-bit number.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._dtype: np.dtype[Any] | None = None

    def read(self) -> NDArray[Any]:
        """Return new whole records; an empty array where there are none."""
        try:
            with self._path.open("rb") as log:
                if self._dtype is None and not self._read_names(log.readline()):
                    return np.empty(0, "u8")
                log.seek(self._offset)
                data = log.read()
        except FileNotFoundError:
            return np.empty(0, "u8")
        assert self._dtype is not None
        whole = len(data) // self._dtype.itemsize * self._dtype.itemsize
        self._offset += whole
        return np.frombuffer(data[:whole], self._dtype)

    def _read_names(self, line: bytes) -> bool:
        if not line.endswith(b"\n"):
            return False
        self._offset = len(line)
        self._dtype = np.dtype([(name, "<u8") for name in line.decode().split()])
        return True


def csv_columns(protocol: str, records: NDArray[Any], open_loop: bool) -> list[Any]:
    """Columns of round_trips.csv for these records.

    The round trip counts from the intended time in an open loop, and from the
    send call in a closed one.
    """
    lost = (records["flags"] & LOST_FLAG) != 0
    received = np.where(lost, BLANK, records["received_ns"].astype("i8"))
    return [
        (np.zeros(len(records), np.int32), [protocol]),
        *(records[name].astype("i8") for name in COLUMNS[1:6]),
        received,
        np.where(lost, BLANK, rtt_ns(records, open_loop)),
        lost.astype("i8"),
    ]


def rtt_ns(records: NDArray[Any], open_loop: bool) -> Ints:
    """Round trip times of answered records."""
    since = records["intended_ns" if open_loop else "sent_ns"].astype("i8")
    return np.asarray(records["received_ns"].astype("i8") - since)


class _Part:
    """Records of the log that came together, and how far each field reaches.

    Of a long log only the parts near the messages in question are looked at.
    """

    def __init__(self, records: NDArray[Any]) -> None:
        self.records = records
        self.bounds = {
            field: (int(records[field].min()), int(records[field].max()))
            for field in ("request_end", "reply_end", "reply_created_ns", "sent_ns")
        }

    def reaches(self, field: str, low: int, high: int) -> bool:
        first, last = self.bounds[field]
        return first <= high and low <= last


class _Made(NamedTuple):
    ends: Ints  # sequence of the message in its direction, rising
    created_ns: Ints
    warmup: NDArray[np.bool_]


class Created:
    """When the messages of one generator run were made, by their sequence."""

    def __init__(self, protocol: str, responder_port: int) -> None:
        self.protocol = protocol
        self._port = responder_port
        self._parts: list[_Part] = []

    def add(self, records: NDArray[Any]) -> None:
        """Take in records of the log."""
        if len(records):
            self._parts.append(_Part(records))

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name the messages of flows by where they lead; MESSAGE: not ours."""
        mine = (flows["protocol"] == IPPROTO_TCP) == (self.protocol == "tcp")
        there = mine & (flows["destination_port"] == self._port)
        back = mine & (flows["source_port"] == self._port)
        return np.select([there, back], [REQUEST, REPLY], MESSAGE)

    def rows_of(self, rows: Messages) -> NDArray[np.bool_]:
        """Which rows are of this run."""
        index, words = rows.texts["protocol"]
        ports = rows.numbers
        mine = (ports["source_port"] == self._port) | (
            ports["destination_port"] == self._port
        )
        return np.asarray(mine & (index == words.index(self.protocol)))

    def requests(self, ends: Ints) -> _Made:
        """Requests by their sequence, at least those in question."""
        near = self._reaching("request_end", ends)
        return _made(near, "request_end", "created_ns")

    def replies(self, ends: Ints) -> _Made:
        """Replies by their sequence, where the log knows it (TCP)."""
        near = self._reaching("reply_end", ends)
        return _made(near, "reply_end", "reply_created_ns")

    def replies_by_time(self, send_ns: Ints) -> _Made:
        """Replies made at most REPLY_KEEP_NS before the first send in question."""
        near = self._reaching("reply_created_ns", send_ns, REPLY_KEEP_NS)
        return _made(near, "reply_end", "reply_created_ns")

    def _reaching(self, field: str, values: Ints, before: int = 0) -> list[_Part]:
        if not len(values):
            return []
        low, high = int(values.min()) - before, int(values.max())
        return [part for part in self._parts if part.reaches(field, low, high)]

    def forget_before(self, sent_ns: int) -> None:
        """Drop what no message asks for any more."""
        self._parts = [p for p in self._parts if p.bounds["sent_ns"][1] >= sent_ns]


def _made(parts: list[_Part], end: str, created: str) -> _Made:
    if not parts:
        return _Made(np.empty(0, "i8"), np.empty(0, "i8"), np.empty(0, bool))
    records = np.concatenate([part.records for part in parts])
    ends = records[end].astype("i8")
    order = np.argsort(ends, kind="stable")
    warmup = (records["flags"] & WARMUP_FLAG) != 0
    return _Made(ends[order], records[created].astype("i8")[order], warmup[order])


def _lookup(made: _Made, ends: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    if not len(made.ends):
        return np.zeros(len(ends), "i8"), np.zeros(len(ends), bool)
    at = np.searchsorted(made.ends, ends)
    at[at == len(made.ends)] = 0
    same = (made.ends[at] == ends) & (ends > 0)
    return np.where(same, made.created_ns[at], 0), same & made.warmup[at]


def _by_time(made: _Made, send_ns: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """Give each message made to the first send at or after it.

    The responder sends right after it has made a reply and makes one at a time,
    so this is the reply itself; for datagrams nothing else names it.
    """
    created = np.zeros(len(send_ns), "i8")
    warmup = np.zeros(len(send_ns), bool)
    known = np.flatnonzero(made.created_ns > 0)
    order = np.argsort(send_ns, kind="stable")
    at = np.searchsorted(send_ns[order], made.created_ns[known])
    inside = at < len(order)
    rows = order[at[inside]]
    created[rows] = made.created_ns[known[inside]]
    warmup[rows] = made.warmup[known[inside]]
    return created, warmup


def created_of(
    run: Created, kinds: NDArray[np.int32], ends: Ints, send_ns: Ints
) -> tuple[Ints, NDArray[np.int32]]:
    """Creation times of rows of this run (0 unknown), and their kinds.

    What belongs to the warm-up gets that kind.
    """
    created = np.zeros(len(ends), "i8")
    kinds = kinds.copy()
    requests = np.flatnonzero(kinds == REQUEST)
    replies = np.flatnonzero(kinds == REPLY)
    known = [(requests, _lookup(run.requests(ends[requests]), ends[requests]))]
    if run.protocol == "udp":
        sent = send_ns[replies]
        known.append((replies, _by_time(run.replies_by_time(sent), sent)))
    else:
        known.append((replies, _lookup(run.replies(ends[replies]), ends[replies])))
    for rows, (found, warmup) in known:
        created[rows] = found
        kinds[rows[warmup]] = WARMUP
    return created, kinds
