"""The generator's log: round trips, when each message was made, and of which bytes."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.joiner import FOREVER
from latprof_analysis.records.message_rows import (
    LOADED,
    LOADED_REPLY,
    MESSAGE,
    PORTS,
    REPLY,
    REQUEST,
    TRAIN,
    TRAIN_REPLY,
    WARMUP,
    Ints,
    Messages,
)
from latprof_analysis.records.whole_messages import Spans
from latprof_analysis.stages import BLANK
from latprof_analysis.stages import LOADED as PHASE_LOADED
from numpy.typing import NDArray

from latprof_agent.sinks.round_trip_rows import TRAIN_COLUMNS, RoundTrips

# A reply is sent right after it is made, if its responder has a CPU.
REPLY_KEEP_NS = 1_000_000_000
# Of a message that is still held, the round trip may be over this much longer.
KEEP_NS = 10_000_000_000
WARMUP_FLAG, LOST_FLAG, CORRUPT_FLAG = 1, 2, 4
# Fields of the log with a message's end, its size, and when it was made, by its kind.
_FIELDS = {
    REQUEST: ("request_end", "size_bytes", "created_ns"),
    REPLY: ("reply_end", "reply_bytes", "reply_created_ns"),
}


class _Form(NamedTuple):
    """The form of a log's round trips."""

    open_loop: bool
    trains: bool
    phase: str


Log = Callable[[int], bytes]  # gives what is in a log from an offset on


def log_in(file: int) -> Log:
    """Read the log in a file, by its descriptor."""

    def read(offset: int) -> bytes:
        # not by seeking: who wrote it may share the place in the file
        return os.pread(file, max(0, os.fstat(file).st_size - offset), offset)

    return read


class LogTail:
    """Reads what the generator has appended to its log since the last time.

    The log's first line names its fields; each is a 64-bit number. `taken` is what the
    last reading took, as it stood there.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._offset = 0
        self._dtype: np.dtype[Any] | None = None
        self.taken = b""

    def read(self) -> NDArray[Any]:
        """Return new whole records; an empty array where there are none."""
        data, names = self._log(self._offset), 0
        if self._dtype is None:
            names = data.find(b"\n") + 1
            if not names:
                self.taken = b""
                return np.empty(0, "u8")
            words = data[:names].decode().split()
            self._dtype = np.dtype([(name, "<u8") for name in words])
        whole = (len(data) - names) // self._dtype.itemsize
        end = names + whole * self._dtype.itemsize
        self._offset += end
        self.taken = data[:end]
        return np.frombuffer(data[names:end], self._dtype)


def round_trips_of(
    protocol: str,
    records: NDArray[Any],
    *,
    open_loop: bool,
    trains: bool = False,
    phase: str = "",
) -> RoundTrips:
    """Make rows of measured round trips; with `trains` they have theirs.

    The round trip counts from the intended time in an open loop, and from the
    send call in a closed one.
    """
    lost = (records["flags"] & LOST_FLAG) != 0
    corrupt = (records["flags"] & CORRUPT_FLAG) != 0
    fields = ("sequence", "size_bytes", "reply_bytes", "intended_ns", "sent_ns")
    numbers = {name: records[name].astype("i8") for name in fields}
    received = records["received_ns"].astype("i8")
    rtt = received - numbers["intended_ns" if open_loop else "sent_ns"]
    numbers |= {
        "received_ns": np.where(lost, BLANK, received),
        "rtt_ns": np.where(lost, BLANK, rtt),
        "lost": lost.astype("i8"),
    }
    if trains:
        numbers |= _trains_of(records)
    return RoundTrips(protocol, numbers, int(corrupt.sum()), phase=phase)


def _trains_of(records: NDArray[Any]) -> dict[str, Ints]:
    """Return the columns of trains; BLANK of what went alone, and where not known."""
    numbers = {name: records[name].astype("i8") for name in TRAIN_COLUMNS}
    alone = numbers["train"] == 0
    for name in ("train", "train_messages", "train_gap_ns"):
        numbers[name] = np.where(alone, BLANK, numbers[name])
    for name in ("send_returned_ns", "receive_called_ns"):
        numbers[name] = np.where(numbers[name] == 0, BLANK, numbers[name])
    return numbers


class _Part:
    """Records of the log that came together, and how far each field reaches."""

    def __init__(self, records: NDArray[Any]) -> None:
        self.records = records
        self.bounds = {
            field: (int(records[field].min()), int(records[field].max()))
            for field in (
                *("request_end", "reply_end", "size_bytes", "reply_bytes"),
                *("reply_created_ns", "sent_ns", "received_ns"),
            )
        }

    def reaches(self, field: str, low: int, high: int) -> bool:
        first, last = self.bounds[field]
        return first <= high and low <= last

    def over_ns(self) -> int:
        """When the last of its messages was over."""
        return max(self.bounds["sent_ns"][1], self.bounds["received_ns"][1])


Flags = NDArray[np.bool_]


class _Found(NamedTuple):
    created_ns: Ints  # when each message was made, 0 unknown
    warmup: Flags  # whether it is of the warm-up
    train: Flags  # or of a train

    @classmethod
    def none(cls, n: int) -> _Found:
        return cls(np.zeros(n, "i8"), np.zeros(n, bool), np.zeros(n, bool))

    def put(self, rows: Any, made: _Made, at: Any) -> None:
        """Set what is known of these messages in some rows."""
        self.warmup[rows] = made.warmup[at]
        self.train[rows] = made.train[at]


class _Made(NamedTuple):
    ends: Ints  # sequence of the message in its direction, rising
    sizes: Ints
    created_ns: Ints
    over_ns: Ints  # when its round trip was; 0: not in the run
    warmup: Flags
    train: Flags

    def around(
        self, ends: Ints, sizes: Ints
    ) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """Which message holds a last byte; whether it ends there, and holds all."""
        if not len(self.ends):
            no = np.zeros(len(ends), bool)
            return np.zeros(len(ends), "i8"), no, no
        at = np.searchsorted(self.ends, ends)
        known = (at < len(self.ends)) & (ends > 0)
        at[~known] = 0
        inside = known & (ends - sizes >= self.ends[at] - self.sizes[at])
        return at, known & (self.ends[at] == ends), inside


class _Handshake:
    """How far the handshake reaches in each direction of the data's flow.

    Over TCP to a byte, over UDP to a datagram; so is the log's end of a message. It
    begins before the log does: over UDP with one datagram each way, or more.
    """

    def __init__(self, *, datagrams: bool, agreed: bool) -> None:
        opened = 1 if datagrams and agreed else 0
        self._ends = {REQUEST: opened, REPLY: opened}
        self._over_ns = 0
        self._datagrams = datagrams

    def read(self, records: NDArray[Any]) -> None:
        """Learn from the log's first message."""
        sent = np.flatnonzero(records["request_end"] > 0)
        if self._over_ns or not len(sent):
            return
        first = records[sent[0]]
        self._over_ns = int(first["sent_ns"])
        for kind, (end, size, _) in _FIELDS.items():
            own = 1 if self._datagrams else int(first[size])
            self._ends[kind] = max(self._ends[kind], int(first[end]) - own)

    def holds(self, kind: int, ends: Ints, first_ns: Ints) -> NDArray[np.bool_]:
        """Which messages are of it, by their last byte or number, and their time."""
        if self._datagrams and kind == REPLY and self._over_ns:
            # the log does not number the datagrams that come
            return (first_ns > 0) & (first_ns < self._over_ns)
        return (ends > 0) & (ends <= self._ends[kind])


class GeneratorLog:
    """Log of one generator run: its round trips, and when its messages were made.

    `agreed`: its wire begins with a handshake, whose messages count as warm-up.
    `one_clock`: of both ends; otherwise the log's times of replies say nothing here.
    """

    def __init__(
        self,
        log: Log,
        protocol: str,
        responder_port: int,
        *,
        open_loop: bool,
        agreed: bool,
        trains: bool = False,
        one_clock: bool = True,
        phase: str = "",
    ) -> None:
        self.tails = [LogTail(log)]
        self.calls: list[list[Any]] = []  # nothing is said to it
        self._one_clock = one_clock
        self._protocol = protocol
        self._port = responder_port
        self._form = _Form(open_loop, trains, phase)
        self._agreed = agreed
        self._handshake = _Handshake(datagrams=protocol == "udp", agreed=agreed)
        self._parts: list[_Part] = []
        # by kind: the last byte that the log has
        self._reached = {REQUEST: 0, REPLY: 0}

    def described(self) -> dict[str, Any]:
        """What makes one like it of a recording."""
        return {
            "kind": "generator",
            "protocol": self._protocol,
            "responder_port": self._port,
            "agreed": self._agreed,
            "one_clock": self._one_clock,
            **self._form._asdict(),
        }

    def read(self) -> RoundTrips | None:
        """Take in what is new; return its measured round trips."""
        records = self.tails[0].read()
        if not len(records):
            return None
        if not self._one_clock:
            records = records.copy()
            records["reply_created_ns"] = 0
        self._handshake.read(records)
        self._parts.append(_Part(records))
        for kind, (end, _, _) in _FIELDS.items():
            last = self._parts[-1].bounds[end][1]
            self._reached[kind] = max(self._reached[kind], last)
        measured = records[(records["flags"] & WARMUP_FLAG) == 0]
        return round_trips_of(self._protocol, measured, **self._form._asdict())

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name the messages of flows by where they lead; MESSAGE: not ours."""
        mine = (flows["protocol"] == IPPROTO_TCP) == (self._protocol == "tcp")
        there = mine & (flows["destination_port"] == self._port)
        back = mine & (flows["source_port"] == self._port)
        return np.select([there, back], [REQUEST, REPLY], MESSAGE)

    def created_of(self, rows: Messages) -> tuple[Ints, Ints, NDArray[np.int32]]:
        """Which rows are of this run, when each was made (0 unknown), their kinds.

        What belongs to the warm-up, to a train or beside a load gets that kind. As
        warm-up count
        the handshake, too, and the connection that a session over UDP has besides.
        """
        mine = np.flatnonzero(self._are_mine(rows) | self._are_control(rows))
        kinds = rows.texts["kind"][0][mine]
        kinds[kinds == MESSAGE] = WARMUP
        created = np.zeros(len(mine), "i8")
        for kind in (REQUEST, REPLY):
            at = np.flatnonzero(kinds == kind)
            if self._protocol == "udp" and kind == REPLY:
                found = self._replies_by_time(rows, mine[at])
            else:
                found = self._by_end(kind, rows, mine[at])
            created[at] = found.created_ns
            if self._form.phase == PHASE_LOADED:
                kinds[at] = LOADED if kind == REQUEST else LOADED_REPLY
            kinds[at[found.train]] = TRAIN if kind == REQUEST else TRAIN_REPLY
            warmup = found.warmup | self._in_handshake(kind, rows, mine[at])
            kinds[at[warmup]] = WARMUP
        return mine, created, kinds

    def spans_of(self, rows: Messages) -> tuple[NDArray[np.intp], Spans]:
        """Say which bytes make up the message that each row of this run lies in.

        Of TCP only: a datagram is one call.
        """
        if self._protocol == "udp":
            return np.empty(0, np.intp), Spans.none(0)
        mine = np.flatnonzero(self._are_mine(rows))
        spans = Spans.none(len(mine))
        kinds = rows.texts["kind"][0][mine]
        for kind in (REQUEST, REPLY):
            at = np.flatnonzero(kinds == kind)
            spans.put(at, self._spans(kind, rows, mine[at]))
        return mine, spans

    def _spans(self, kind: int, rows: Messages, of: NDArray[np.intp]) -> Spans:
        ends, sizes = self._bytes(rows, of)
        made = self._made_near(kind, ends)
        at, _, inside = made.around(ends, sizes)
        spans, at = Spans.none(len(of)), at[inside]
        over_ns = np.where(made.over_ns[at] > 0, made.over_ns[at], FOREVER)
        known = Spans(made.ends[at] - made.sizes[at], made.ends[at], over_ns)
        spans.put(np.flatnonzero(inside), known)
        # behind the log's last byte: of a message that is not over
        spans.over_ns[ends > self._reached[kind]] = FOREVER
        return spans

    def _by_end(self, kind: int, rows: Messages, of: NDArray[np.intp]) -> _Found:
        """When messages that end with these rows were made.

        Of several calls that were not united only the last has the message's end.
        """
        ends, sizes = self._bytes(rows, of)
        made = self._made_near(kind, ends)
        at, same, inside = made.around(ends, sizes)
        found = _Found.none(len(of))
        found.created_ns[same] = made.created_ns[at[same]]
        of_one = same | inside
        found.put(of_one, made, at[of_one])
        return found

    def _bytes(self, rows: Messages, of: NDArray[np.intp]) -> tuple[Ints, Ints]:
        """Last byte and size of some rows; a datagram has one number."""
        ends, size = rows.numbers["sequence"][of], rows.numbers["size_bytes"][of]
        one = (size == BLANK) | (self._protocol == "udp")
        return ends, np.where(one, 1, size)

    def _made_near(self, kind: int, ends: Ints) -> _Made:
        """The messages in which these bytes are."""
        end, size, _ = _FIELDS[kind]
        largest = max((part.bounds[size][1] for part in self._parts), default=0)
        near = self._reaching(end, ends, after=largest)
        return _made(near, kind, numbered=self._protocol == "udp")

    def _in_handshake(
        self, kind: int, rows: Messages, of: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        ends = rows.numbers["sequence"][of]
        return self._handshake.holds(kind, ends, rows.first_ns()[of])

    def _are_mine(self, rows: Messages) -> NDArray[np.bool_]:
        index, words = rows.texts["protocol"]
        return np.asarray(
            self._have_port(rows) & (index == words.index(self._protocol))
        )

    def _are_control(self, rows: Messages) -> NDArray[np.bool_]:
        if self._protocol != "udp":
            return np.zeros(len(rows), bool)
        index, words = rows.texts["protocol"]
        unnamed = rows.texts["kind"][0] == MESSAGE
        return np.asarray(
            self._have_port(rows) & unnamed & (index == words.index("tcp"))
        )

    def _have_port(self, rows: Messages) -> NDArray[np.bool_]:
        found = [rows.numbers[name] == self._port for name in PORTS]
        return np.asarray(np.logical_or.reduce(found))

    def _replies_by_time(self, rows: Messages, of: NDArray[np.intp]) -> _Found:
        """Find replies that the log does not number, datagrams, by their times.

        By when they were made, where that is by this host's clock; else by when they
        were read, which gives no more than what they belong to.
        """
        found = _Found.none(len(of))
        if self._form.trains:
            found.train[:] = True  # in no figure unless it is known to have gone alone
        if self._one_clock:
            send_ns = np.maximum(rows.numbers["send_ns"][of], 0)
            near = self._reaching("reply_created_ns", send_ns, before=REPLY_KEEP_NS)
            made = _made(near, REPLY, numbered=True)
            known, at = _sent_after(made.created_ns, send_ns)
            found.created_ns[at] = made.created_ns[known]
        else:
            read_ns = np.maximum(rows.numbers["read_ns"][of], 0)
            near = self._reaching("received_ns", read_ns, after=REPLY_KEEP_NS)
            made = _made(near, REPLY, numbered=True)
            known, at = _read_before(made.over_ns, read_ns)
        found.put(at, made, known)
        return found

    def _reaching(
        self, field: str, values: Ints, *, before: int = 0, after: int = 0
    ) -> list[_Part]:
        if not len(values):
            return []
        low, high = int(values.min()) - before, int(values.max()) + after
        return [part for part in self._parts if part.reaches(field, low, high)]

    def forget_before(self, time_ns: int) -> None:
        """Drop what no message asks for any more."""
        until = time_ns - KEEP_NS
        self._parts = [part for part in self._parts if part.over_ns() >= until]


def _made(parts: list[_Part], kind: int, *, numbered: bool) -> _Made:
    """The messages of one kind in these parts; `numbered`: their end is a number."""
    if not parts:
        none = np.empty(0, "i8")
        return _Made(none, none, none, none, *2 * [np.empty(0, bool)])
    records = np.concatenate([part.records for part in parts])
    records = records[np.argsort(records[_FIELDS[kind][0]], kind="stable")]
    ends, sizes, created = (records[name].astype("i8") for name in _FIELDS[kind])
    if numbered:
        sizes = np.ones(len(ends), "i8")
    over_ns = records["received_ns"].astype("i8")
    warmup = (records["flags"] & WARMUP_FLAG) != 0
    return _Made(ends, sizes, created, over_ns, warmup, records["train"] > 0)


def _sent_after(made_ns: Ints, send_ns: Ints) -> tuple[Ints, Ints]:
    """Pair each message made with the first send at or after it.

    The responder sends right after it has made a reply and makes one at a time,
    so this is the reply itself; for datagrams nothing else names it.
    """
    known = np.flatnonzero(made_ns > 0)
    order = np.argsort(send_ns, kind="stable")
    at = np.searchsorted(send_ns[order], made_ns[known])
    inside = at < len(order)
    return known[inside], order[at[inside]]


def _read_before(over_ns: Ints, read_ns: Ints) -> tuple[Ints, Ints]:
    """Pair each message that is over with the last read at or before its end.

    The client looks at the clock right after it has read a reply.
    """
    known = np.flatnonzero(over_ns > 0)
    # of several that come to one read the first is put there last, and stays
    known = known[np.argsort(-over_ns[known], kind="stable")]
    order = np.argsort(read_ns, kind="stable")
    at = np.searchsorted(read_ns[order], over_ns[known], "right") - 1
    inside = (at >= 0) & (read_ns[order][at] > 0)
    return known[inside], order[at[inside]]
