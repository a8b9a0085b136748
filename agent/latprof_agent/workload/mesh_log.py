"""The logs of a mesh's clients: round trips of all pairs, and their messages.

A message is found by its pair, its test and its last byte as one number, so that the
logs of hundreds of connections are searched at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from latprof_analysis.records.arrays import stacked
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.joiner import FOREVER
from latprof_analysis.records.message_rows import (
    HEARTBEAT,
    MESSAGE,
    REPLY,
    REQUEST,
    WARMUP,
    Ints,
    Messages,
)
from latprof_analysis.records.stream_key import OFFSET_BITS, stream_key
from latprof_analysis.records.whole_messages import Spans
from latprof_analysis.stages import BLANK
from latprof_analysis.study.mesh import PairTrips
from numpy.typing import NDArray

from latprof_agent.sinks.round_trip_rows import RoundTrips
from latprof_agent.workload.generator_log import (
    KEEP_NS,
    REPLY_KEEP_NS,
    WARMUP_FLAG,
    Log,
    LogTail,
    round_trips_of,
)

HEARTBEAT_FLAG = 8
# Pairs of hosts, times tests: they share what OFFSET_BITS leave of a number.
MOST_STREAMS = 1 << (62 - OFFSET_BITS)
# By kind: fields of a record with the message's end, size, and when it was made.
_FIELDS = {
    REQUEST: ("request_end", "size_bytes", "created_ns"),
    REPLY: ("reply_end", "reply_bytes", "reply_created_ns"),
}
# What else is asked of a record when its messages come.
_COLUMNS = (
    *("flags", "received_ns", "receive_called_ns"),
    *(name for of in _FIELDS.values() for name in of),
)


@dataclass(frozen=True)
class MeshEnds:
    """Whose the ends of a mesh's flows are, by number of `names`.

    A responder is known by address and port, who sends by the address; what has
    another one is of host `otherwise`, -1: of none.
    """

    names: tuple[str, ...]
    responders: Mapping[tuple[str, int], int]
    senders: Mapping[str, int]
    otherwise: int = -1

    @property
    def ports(self) -> Ints:
        """Those of all responders."""
        return np.array(sorted({port for _, port in self.responders}), "i8")


class _Part(NamedTuple):
    """Records that were read together, and when the first began and the last ended."""

    columns: dict[str, Ints]  # `stream` is a record's pair and test
    begin_ns: int
    end_ns: int


class _Records:
    """Records of some parts, whose columns are put together when they are asked for."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        self._parts = parts

    def __getitem__(self, name: str) -> Ints:
        if not self._parts:
            return np.empty(0, "i8")
        return np.concatenate([part.columns[name] for part in self._parts])


class _Found(NamedTuple):
    """Of each row: its record in the log, whether there is one, and where it ends."""

    records: _Records
    at: NDArray[np.intp]
    same: NDArray[np.bool_]  # the message ends with the row
    inside: NDArray[np.bool_]  # all of the row is of the message

    def of(self, field: str, rows: NDArray[np.bool_]) -> Ints:
        """A field of the records of some rows."""
        return self.records[field][self.at[rows]]


class _Mine(NamedTuple):
    """What is asked of rows of messages that are of the mesh."""

    at: NDArray[np.intp]  # places among all rows
    kind: NDArray[np.int32]
    stream: Ints  # number of who asks, who answers, and the test; -1: none
    first_ns: Ints
    sequence: Ints
    size: Ints  # in units of the sequence
    read_ns: Ints

    def take(self, rows: NDArray[np.intp]) -> _Mine:
        """Some of them."""
        columns: list[Any] = [column[rows] for column in self]
        return _Mine(*columns)


class _OfKind(NamedTuple):
    """Messages of one kind, and their records in the log."""

    at: NDArray[np.intp]  # places among those of the mesh
    rows: _Mine
    found: _Found


class _Seen(NamedTuple):
    """Rows, and what was found of them: their spans are asked for, then their kinds."""

    rows: Messages
    mine: _Mine
    kinds: dict[int, _OfKind]


def _joined(parts: Sequence[tuple[NDArray[Any], Ints]]) -> tuple[NDArray[Any], Ints]:
    if len(parts) == 1:
        return parts[0]
    records, pairs = zip(*parts, strict=True)
    return stacked(*records), np.concatenate(pairs)


class MeshLog:
    """A `recorder.Source`: what all clients of a mesh log, test after test.

    `one_clock`: of all hosts; otherwise the log's times of replies say nothing here.
    `trips` are the round trips of the last test.
    """

    def __init__(
        self, protocol: str, ends: MeshEnds, *, one_clock: bool = True
    ) -> None:
        self._protocol = protocol
        self._one_clock = one_clock
        self._of_ends = ends
        self._names = list(ends.names)
        self.hosts = len(ends.names)
        self._ports = ends.ports
        self.tails: list[LogTail] = []  # by the host that sends
        self.calls: list[list[Any]] = []  # what was said to it, for a recording
        self._begins: list[int] = []  # of each test
        self._starts: list[int] = []  # when clients begin to send in it; 0 not known
        self._parts: list[_Part] = []
        # of each pair in each test: when its first message was sent; by kind the last
        # byte that the log has, and the one up to which all was the handshake
        self._first_ns = np.empty(0, "i8")
        self._reached = {kind: np.empty(0, "i8") for kind in _FIELDS}
        self._agreed = {kind: np.empty(0, "i8") for kind in _FIELDS}
        self._counts = True
        self._void: list[bool] = []  # of each test: begun again, so of no account
        self._held: list[tuple[NDArray[Any], Ints]] = []
        self._seen: _Seen | None = None
        self.trips: list[PairTrips] = []

    def described(self) -> dict[str, Any]:
        """What makes one like it of a recording."""
        ends = self._of_ends
        return {
            "kind": "mesh",
            "protocol": self._protocol,
            "one_clock": self._one_clock,
            "names": list(ends.names),
            "responders": [[*place, host] for place, host in ends.responders.items()],
            "senders": dict(ends.senders),
            "otherwise": ends.otherwise,
        }

    def begin(self, begin_ns: int, logs: Sequence[Log], start_ns: int = 0) -> None:
        """A test begins; each host's client logs there, from the beginning.

        What is sent before `start_ns` opens its sessions.

        Until it `counts` its round trips are held: if a client comes too late it is
        begun again, and what the others have sent by then is of no test.
        """
        self.calls.append(["begin", begin_ns, start_ns])
        self._begins.append(begin_ns)
        self._starts.append(start_ns)
        self._void.append(False)
        self.tails = [LogTail(log) for log in logs]
        never = np.full(self.hosts**2, FOREVER)
        self._first_ns = np.concatenate([self._first_ns, never])
        for kind in _FIELDS:
            none = self._reached[kind], np.zeros_like(never)
            self._reached[kind] = np.concatenate(none)
            self._agreed[kind] = np.concatenate([self._agreed[kind], never])
        self._counts, self._held = False, []
        self.trips = []
        self._seen = None

    def counts(self) -> None:
        """All clients of the test have begun in time."""
        self.calls.append(["counts"])
        self._counts = True

    def is_void(self) -> None:
        """The test is begun again: what was sent in it counts as warm-up."""
        self.calls.append(["is_void"])
        self._void[-1] = True
        self._held = []

    @property
    def begun_again(self) -> int:
        """How many tests were begun again, since a client came too late."""
        return sum(self._void)

    @property
    def sent(self) -> int:
        """Count measured messages and heartbeats of this test in the log."""
        return sum(map(len, self.trips))

    def read(self) -> RoundTrips | None:
        """Take in what is new; return its measured round trips."""
        found = [
            self._of_host(host, tail.read()) for host, tail in enumerate(self.tails)
        ]
        found = [part for part in found if len(part[0])]
        if found:
            records, pairs = _joined(found)
            self._keep(records, pairs)
            measured = (records["flags"] & WARMUP_FLAG) == 0
            if not measured.all():
                records, pairs = records[measured], pairs[measured]
            self._held.append((records, pairs))
        if not self._counts or not self._held:
            return None
        held, self._held = self._held, []
        return self._rows(*_joined(held))

    def _of_host(self, host: int, records: NDArray[Any]) -> tuple[NDArray[Any], Ints]:
        """Records of one client, and their pairs: its peers are all other hosts."""
        if not len(records):
            return records, np.empty(0, "i8")
        peer = records["peer"].astype("i8")
        return records, host * self.hosts + peer + (peer >= host)

    def _keep(self, records: NDArray[Any], pairs: Ints) -> None:
        self._seen = None  # more is known now
        columns = {name: records[name].astype("i8") for name in _COLUMNS}
        if not self._one_clock:
            columns["reply_created_ns"][:] = 0
        stream = self._stream(pairs, len(self._begins) - 1)
        np.minimum.at(self._first_ns, stream, records["sent_ns"].astype("i8"))
        for kind, (end, size, _) in _FIELDS.items():
            sizes = 1 if self._protocol == "udp" else columns[size]
            begins = np.where(columns[end] > 0, columns[end] - sizes, FOREVER)
            np.maximum.at(self._reached[kind], stream, columns[end])
            np.minimum.at(self._agreed[kind], stream, begins)
        columns["stream"] = stream
        over = np.maximum(records["sent_ns"], records["received_ns"])
        begin_ns = int(records["sent_ns"].min())
        self._parts.append(_Part(columns, begin_ns, int(over.max())))

    def _rows(self, records: NDArray[Any], pairs: Ints) -> RoundTrips:
        """Make rows, and keep what the test's figures need of them."""
        found = round_trips_of(self._protocol, records, open_loop=True)
        source, destination = pairs // self.hosts, pairs % self.hosts
        heartbeat = (records["flags"] & HEARTBEAT_FLAG) != 0
        times = (found.numbers[f"{of}_ns"] for of in ("intended", "sent", "received"))
        self.trips.append(PairTrips(source, destination, heartbeat, *times))
        found.numbers["heartbeat"] = heartbeat.astype("i8")
        found.numbers["test"] = np.full(len(records), len(self._begins))
        found.texts.update(
            source=(source.astype(np.int32), self._names),
            destination=(destination.astype(np.int32), self._names),
        )
        return found

    def kinds_of(self, flows: NDArray[Any]) -> Ints:
        """Name the messages of flows by where they lead; MESSAGE: not ours.

        By ports alone; `created_of` knows the hosts, too.
        """
        mine = (flows["protocol"] == IPPROTO_TCP) == (self._protocol == "tcp")
        there = mine & np.isin(flows["destination_port"], self._ports)
        back = mine & np.isin(flows["source_port"], self._ports)
        return np.select([there, back], [REQUEST, REPLY], MESSAGE)

    def _mine(self, rows: Messages) -> _Mine:
        """Take what is asked of those rows that are ours."""
        index, words = rows.texts["protocol"]
        there = np.isin(rows.numbers["destination_port"], self._ports)
        back = np.isin(rows.numbers["source_port"], self._ports)
        # over UDP a session has a connection besides
        of_ours = there | back
        if self._protocol == "tcp":
            of_ours &= index == words.index("tcp")
        at = np.flatnonzero(of_ours)
        asks, answers = self._ends(rows, at, there[at])
        first_ns = rows.first_ns()[at]
        test = np.searchsorted(self._begins, first_ns, "right") - 1
        ours = (asks >= 0) & (answers >= 0) & (test >= 0)
        pair = asks * self.hosts + answers
        sizes = rows.numbers["size_bytes"][at]
        one = (sizes == BLANK) | (self._protocol == "udp")
        return _Mine(
            at,
            rows.texts["kind"][0][at],
            np.where(ours, self._stream(pair, test), np.int64(-1)),
            first_ns,
            rows.numbers["sequence"][at],
            np.where(one, 1, sizes),
            rows.numbers["read_ns"][at],
        )

    def _ends(
        self, rows: Messages, at: NDArray[np.intp], there: NDArray[np.bool_]
    ) -> tuple[Ints, Ints]:
        """Number who asks and who answers in rows, of requests `there`; -1: nobody."""
        asks, answers = np.empty((2, len(at)), "i8")
        for of, own, other in (
            (there, "source", "destination"),
            (~there, "destination", "source"),
        ):
            asks[of] = self._senders(rows, own, at[of])
            answers[of] = self._responders(rows, other, at[of])
        return asks, answers

    def _senders(self, rows: Messages, end: str, at: NDArray[np.intp]) -> Ints:
        index, words = rows.texts[f"{end}_address"]
        ends = self._of_ends
        numbers = [*map(ends.senders.get, words, repeat(ends.otherwise)), -1]
        return np.array(numbers, "i8")[index[at]]

    def _responders(self, rows: Messages, end: str, at: NDArray[np.intp]) -> Ints:
        index, words = rows.texts[f"{end}_address"]
        ports = rows.numbers[f"{end}_port"][at]
        found = np.full(len(at), -1)
        for port in self._ports.tolist():
            numbers = [self._of_ends.responders.get((word, port), -1) for word in words]
            of_port = np.flatnonzero(ports == port)
            # the last one's place is that of -1
            found[of_port] = np.array([*numbers, -1], "i8")[index[at[of_port]]]
        return found

    def _stream(self, pair: Ints, test: Ints | int) -> Ints:
        return np.asarray(test * self.hosts**2 + pair)

    def created_of(self, rows: Messages) -> tuple[Ints, Ints, NDArray[np.int32]]:
        """Which rows are of this run, when each was made (0 unknown), their kinds."""
        seen = self._see(rows)
        mine = seen.mine
        kinds = np.where(mine.kind == MESSAGE, np.int32(WARMUP), mine.kind)
        kinds[mine.stream < 0] = MESSAGE  # others' that have the port, too
        created = np.zeros(len(kinds), "i8")
        for kind, (_, _, made) in _FIELDS.items():
            at, of_kind, found = self._of_kind(kind, seen)
            created[at[found.same]] = found.of(made, found.same)
            of_one = found.same | found.inside
            flags = found.of("flags", of_one)
            kinds[at[of_one][(flags & HEARTBEAT_FLAG) != 0]] = HEARTBEAT
            kinds[at[of_one][(flags & WARMUP_FLAG) != 0]] = WARMUP
            kinds[at[self._in_handshake(kind, of_kind)]] = WARMUP
        void = np.array([*self._void, False])  # the last: of no stream
        kinds[void[np.where(mine.stream < 0, -1, mine.stream // self.hosts**2)]] = (
            WARMUP
        )
        return mine.at, created, kinds

    def _see(self, rows: Messages) -> _Seen:
        if self._seen is None or self._seen.rows is not rows:
            self._seen = _Seen(rows, self._mine(rows), {})
        return self._seen

    def _of_kind(self, kind: int, seen: _Seen) -> _OfKind:
        if kind not in seen.kinds:
            at = np.flatnonzero(seen.mine.kind == kind)
            rows = seen.mine.take(at)
            seen.kinds[kind] = _OfKind(at, rows, self._find(kind, rows))
        return seen.kinds[kind]

    def _find(self, kind: int, rows: _Mine) -> _Found:
        """Find the records of messages; the log does not number datagrams that come."""
        if self._protocol == "tcp" or kind == REQUEST:
            return self._by_end(kind, rows)
        return self._by_time(rows) if self._one_clock else self._by_receipt(rows)

    def _in_handshake(self, kind: int, rows: _Mine) -> NDArray[np.bool_]:
        """Find rows that were sent before all in the log of their test."""
        ours, stream = rows.stream >= 0, np.maximum(rows.stream, 0)
        if not len(self._first_ns):
            return ours & False
        start_ns = np.array(self._starts, "i8")[stream // self.hosts**2]
        # they may be over long before there is anything in the log
        early = ours & (rows.first_ns < start_ns)
        first_ns = self._first_ns[stream]
        if self._protocol == "udp" and kind == REPLY:
            # the log does not number the datagrams that come
            opening = rows.first_ns < first_ns
        else:
            opening = rows.sequence <= self._agreed[kind][stream]
        return np.asarray(early | ours & (first_ns < FOREVER) & opening)

    def spans_of(self, rows: Messages) -> tuple[NDArray[np.intp], Spans]:
        """Say which bytes make up the message that each row of TCP lies in."""
        if self._protocol == "udp":
            return np.empty(0, np.intp), Spans.none(0)
        seen = self._see(rows)
        spans = Spans.none(len(seen.mine.at))
        for kind in _FIELDS:
            spans.put(*self._spans(kind, seen))
        return seen.mine.at, spans

    def _spans(self, kind: int, seen: _Seen) -> tuple[NDArray[np.intp], Spans]:
        at, rows, found = self._of_kind(kind, seen)
        spans, inside = Spans.none(len(at)), found.inside
        end, size, _ = _FIELDS[kind]
        ends, received = found.of(end, inside), found.of("received_ns", inside)
        over_ns = np.where(received > 0, received, FOREVER)
        known = Spans(ends - found.of(size, inside), ends, over_ns)
        spans.put(np.flatnonzero(inside), known)
        # behind the last byte of this test's log: of a message that is not over
        now = (rows.stream >= 0) & (rows.first_ns >= self._begins[-1])
        reached = self._reached[kind][np.maximum(rows.stream, 0)]
        spans.over_ns[now & (rows.sequence > reached)] = FOREVER
        return at, spans

    def _by_end(self, kind: int, rows: _Mine) -> _Found:
        """Find the messages that the last bytes of rows are of."""
        end, size, _ = _FIELDS[kind]
        records = self._around(rows.first_ns, 0)
        keys = stream_key(records["stream"], records[end])
        order = np.argsort(keys)
        keys, wanted = keys[order], stream_key(rows.stream, rows.sequence)
        place = np.searchsorted(keys, wanted)
        known = (place < len(keys)) & (rows.stream >= 0) & (rows.sequence > 0)
        place[~known] = 0
        if not len(keys):
            return _Found(records, place, known, known.copy())
        known &= keys[place] >> OFFSET_BITS == rows.stream
        at = order[place]
        lengths = np.int64(1) if self._protocol == "udp" else records[size][at]
        begins = records[end][at] - lengths
        inside = known & (rows.sequence - rows.size >= begins)
        return _Found(records, at, known & (keys[place] == wanted), inside)

    def _around(self, first_ns: Ints, before_ns: int) -> _Records:
        """Records of messages that were on their way when rows began."""
        if not len(first_ns):
            return _Records([])
        low, high = int(first_ns.min()) - before_ns, int(first_ns.max())
        near = [p for p in self._parts if p.begin_ns <= high and low <= p.end_ns]
        return _Records(near)

    def _by_time(self, rows: _Mine) -> _Found:
        """Give each reply made to the first send at or after it, of its own pair.

        For datagrams nothing else names it; a responder answers one at a time.
        """
        records = self._around(rows.first_ns, REPLY_KEEP_NS)
        made_ns, stream = records["reply_created_ns"], records["stream"]
        # in the order of time: of those before the rows at hand the last one stays
        known = np.argsort(made_ns, kind="stable")
        known = known[made_ns[known] > 0]
        at, same = np.zeros(len(rows.at), np.intp), np.zeros(len(rows.at), bool)
        order = np.lexsort((rows.first_ns, rows.stream))
        # streams one after the other, and in each the times in order
        begin_ns = min(self._begins, default=0)
        since_ns = np.maximum(rows.first_ns - begin_ns, 0)
        keys = stream_key(rows.stream, since_ns)[order]
        wanted = stream_key(stream[known], np.maximum(made_ns[known] - begin_ns, 0))
        place = np.searchsorted(keys, wanted)
        inside = place < len(keys)
        place[~inside] = 0
        if len(keys):
            inside &= keys[place] >> OFFSET_BITS == stream[known]
            at[order[place[inside]]] = known[inside]
            same[order[place[inside]]] = True
        return _Found(records, at, same, same)

    def _by_receipt(self, rows: _Mine) -> _Found:
        """Give each reply that was read the record in whose receive call it was.

        A client reads one datagram at a time: of all its calls one was going on then.
        """
        records = self._around(rows.first_ns, 0)
        received_ns, called_ns = records["received_ns"], records["receive_called_ns"]
        answered = np.flatnonzero(called_ns > 0)
        order = answered[np.argsort(received_ns[answered], kind="stable")]
        place = np.searchsorted(received_ns[order], rows.read_ns)
        same = (place < len(order)) & (rows.read_ns > 0) & (rows.stream >= 0)
        place[~same] = 0
        if not len(order):
            return _Found(records, place, same, same)
        at = order[place]
        same &= called_ns[at] <= rows.read_ns
        same &= records["stream"][at] == rows.stream
        return _Found(records, at, same, same)

    def forget_before(self, time_ns: int) -> None:
        """Drop what no message asks for any more."""
        self._seen = None
        until = time_ns - KEEP_NS
        self._parts = [part for part in self._parts if part.end_ns >= until]
