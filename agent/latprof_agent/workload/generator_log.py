"""The generator's log: round trips, and when each of its messages was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from latprof_analysis.stages import BLANK
from numpy.typing import NDArray

from latprof_agent.join.flows import IPPROTO_TCP
from latprof_agent.join.message_rows import (
    MESSAGE,
    REPLY,
    REQUEST,
    WARMUP,
    Ints,
    Messages,
)
from latprof_agent.sinks.round_trip_rows import RoundTrips

# A reply is sent right after it is made, if its responder has a CPU.
REPLY_KEEP_NS = 1_000_000_000
# Of a message that is still held, its record may be this much older.
KEEP_NS = 10_000_000_000
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


def round_trips_of(
    protocol: str, records: NDArray[Any], *, open_loop: bool
) -> RoundTrips:
    """Make rows of measured round trips.

    The round trip counts from the intended time in an open loop, and from the
    send call in a closed one.
    """
    lost = (records["flags"] & LOST_FLAG) != 0
    corrupt = (records["flags"] & CORRUPT_FLAG) != 0
    told = ("sequence", "size_bytes", "reply_bytes", "intended_ns", "sent_ns")
    numbers = {name: records[name].astype("i8") for name in told}
    received = records["received_ns"].astype("i8")
    rtt = received - numbers["intended_ns" if open_loop else "sent_ns"]
    numbers |= {
        "received_ns": np.where(lost, BLANK, received),
        "rtt_ns": np.where(lost, BLANK, rtt),
        "lost": lost.astype("i8"),
    }
    return RoundTrips(protocol, numbers, int(corrupt.sum()))


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


# When each message was made, 0 unknown, and whether in the warm-up.
_Found = tuple[Ints, NDArray[np.bool_]]


class _Made(NamedTuple):
    ends: Ints  # sequence of the message in its direction, rising
    created_ns: Ints
    warmup: NDArray[np.bool_]


class GeneratorLog:
    """Log of one generator run: its round trips, and when its messages were made."""

    def __init__(
        self, path: Path, protocol: str, responder_port: int, *, open_loop: bool
    ) -> None:
        self._tail = LogTail(path)
        self._protocol = protocol
        self._port = responder_port
        self._open_loop = open_loop
        self._parts: list[_Part] = []

    def read(self) -> RoundTrips | None:
        """Take in what is new; return its measured round trips."""
        records = self._tail.read()
        if not len(records):
            return None
        self._parts.append(_Part(records))
        measured = records[(records["flags"] & WARMUP_FLAG) == 0]
        return round_trips_of(self._protocol, measured, open_loop=self._open_loop)

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name the messages of flows by where they lead; MESSAGE: not ours."""
        mine = (flows["protocol"] == IPPROTO_TCP) == (self._protocol == "tcp")
        there = mine & (flows["destination_port"] == self._port)
        back = mine & (flows["source_port"] == self._port)
        return np.select([there, back], [REQUEST, REPLY], MESSAGE)

    def created_of(self, rows: Messages) -> tuple[Ints, Ints, NDArray[np.int32]]:
        """Which rows are of this run, when each was made (0 unknown), their kinds.

        What belongs to the warm-up gets that kind.
        """
        mine = np.flatnonzero(self._are_mine(rows))
        kinds = rows.texts["kind"][0][mine]
        ends = rows.numbers["sequence"][mine]
        send_ns = np.maximum(rows.numbers["send_ns"][mine], 0)
        created = np.zeros(len(mine), "i8")
        requests = np.flatnonzero(kinds == REQUEST)
        replies = np.flatnonzero(kinds == REPLY)
        known = [(requests, self._requests(ends[requests]))]
        if self._protocol == "udp":
            known.append((replies, self._replies_by_time(send_ns[replies])))
        else:
            known.append((replies, self._replies(ends[replies])))
        for at, (found, warmup) in known:
            created[at] = found
            kinds[at[warmup]] = WARMUP
        return mine, created, kinds

    def _are_mine(self, rows: Messages) -> NDArray[np.bool_]:
        index, words = rows.texts["protocol"]
        ports = rows.numbers
        mine = (ports["source_port"] == self._port) | (
            ports["destination_port"] == self._port
        )
        return np.asarray(mine & (index == words.index(self._protocol)))

    def _requests(self, ends: Ints) -> _Found:
        near = self._reaching("request_end", ends)
        return _lookup(_made(near, "request_end", "created_ns"), ends)

    def _replies(self, ends: Ints) -> _Found:
        near = self._reaching("reply_end", ends)
        return _lookup(_made(near, "reply_end", "reply_created_ns"), ends)

    def _replies_by_time(self, send_ns: Ints) -> _Found:
        near = self._reaching("reply_created_ns", send_ns, REPLY_KEEP_NS)
        return _by_time(_made(near, "reply_end", "reply_created_ns"), send_ns)

    def _reaching(self, field: str, values: Ints, before: int = 0) -> list[_Part]:
        if not len(values):
            return []
        low, high = int(values.min()) - before, int(values.max())
        return [part for part in self._parts if part.reaches(field, low, high)]

    def forget_before(self, send_ns: int) -> None:
        """Drop what no message asks for any more."""
        until = send_ns - KEEP_NS
        self._parts = [p for p in self._parts if p.bounds["sent_ns"][1] >= until]


def _made(parts: list[_Part], end: str, created: str) -> _Made:
    if not parts:
        return _Made(np.empty(0, "i8"), np.empty(0, "i8"), np.empty(0, bool))
    records = np.concatenate([part.records for part in parts])
    ends = records[end].astype("i8")
    order = np.argsort(ends, kind="stable")
    warmup = (records["flags"] & WARMUP_FLAG) != 0
    return _Made(ends[order], records[created].astype("i8")[order], warmup[order])


def _lookup(made: _Made, ends: Ints) -> _Found:
    if not len(made.ends):
        return np.zeros(len(ends), "i8"), np.zeros(len(ends), bool)
    at = np.searchsorted(made.ends, ends)
    at[at == len(made.ends)] = 0
    same = (made.ends[at] == ends) & (ends > 0)
    return np.where(same, made.created_ns[at], 0), same & made.warmup[at]


def _by_time(made: _Made, send_ns: Ints) -> _Found:
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
