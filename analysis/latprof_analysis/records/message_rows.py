"""Joined halves as the rows of messages.csv."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.csv_cells import text_of
from latprof_analysis.read.schema import MESSAGES, of_one_host
from latprof_analysis.records.arrays import as_bytes
from latprof_analysis.records.flows import IPPROTO_TCP, Flows
from latprof_analysis.records.host_records import HOST
from latprof_analysis.records.joiner import Joiner, Pairs
from latprof_analysis.records.process_names import as_cells
from latprof_analysis.stages import APART, BLANK, PROBE_STATISTICS, STAMPS, stages_of

TEXTS = MESSAGES.texts
COLUMNS = of_one_host(MESSAGES)
KINDS = ["message", "request", "reply", "heartbeat", *APART]
# As a message's receiver has them, behind a translator (NAT) others than its sender's.
FAR_PORTS = ("far_source_port", "far_destination_port")
PORTS = ("source_port", "destination_port", *FAR_PORTS)
MESSAGE, REQUEST, REPLY, HEARTBEAT, WARMUP = range(5)
TRAIN, TRAIN_REPLY, LOADED, LOADED_REPLY = range(5, 9)

# As in records.h.
WORK_NS = 16
_NEVER_SLEPT = 0xFFFFFFFF
_ALL = np.iinfo(np.int64).max

# What hosts set a TTL to begin with.
FIRST_TTLS = np.array([32, 64, 128, 255])

Ints = NDArray[np.int64]
Text = tuple[NDArray[np.int32], list[str]]


def number_at(column: Ints, i: int) -> int | None:
    """One of a column's numbers; None where blank."""
    value = int(column[i])
    return None if value == BLANK else value


def text_at(column: Text, i: int) -> str | None:
    """One of a column's texts; None where blank."""
    index, words = column
    return text_of(words[index[i]]) if index[i] >= 0 else None


@dataclass
class Rows:
    """Rows of a table by column, BLANK where there is no value."""

    COLUMNS: ClassVar[tuple[str, ...]]

    numbers: dict[str, Ints]
    texts: dict[str, Text]

    def columns(self) -> list[Any]:
        """All columns in the file's order, for `_rows.write`."""
        return [
            self.texts[name] if name in self.texts else self.numbers[name]
            for name in self.COLUMNS
        ]

    def row(self, i: int, columns: Sequence[str] = ()) -> dict[str, Any]:
        """One row by column, of all or of these; None where blank."""
        return {
            name: text_at(self.texts[name], i)
            if name in self.texts
            else number_at(self.numbers[name], i)
            for name in columns or self.COLUMNS
        }

    def __len__(self) -> int:
        return len(next(iter(self.numbers.values())))


@dataclass
class Messages(Rows):
    """Rows of messages.csv."""

    COLUMNS = COLUMNS

    retransmit_range: tuple[NDArray[Any], Ints, Ints]  # flow, start, end

    def take(self, at: NDArray[np.intp]) -> Messages:
        """Some of the rows."""
        flow, start, end = self.retransmit_range
        return Messages(
            {name: values[at] for name, values in self.numbers.items()},
            {name: (index[at], words) for name, (index, words) in self.texts.items()},
            (flow[at], start[at], end[at]),
        )

    def flow_and_end(self, i: int) -> tuple[int, int]:
        """Give the number of a row's flow, and the offset of its last byte."""
        flow, _, end = self.retransmit_range
        return int(flow[i]), int(end[i])

    def set_retransmits(self, counts: Ints) -> None:
        """Put in how many packets of each message were sent again.

        Of such a message a stamp behind its arrival is that of a retransmission: it
        left for the first time while the kernel reported nothing. It is left out.
        """
        numbers = self.numbers
        counted = numbers["retransmits"] != BLANK
        numbers["retransmits"] = np.where(counted, counts, BLANK)
        again = (numbers["retransmits"] > 0) & (numbers["arrive_ns"] > 0)
        for name in ("queue_ns", "xmit_ns"):
            late = again & (numbers[name] > numbers["arrive_ns"])
            numbers[name] = np.where(late, 0, numbers[name])

    def set_needless(self, counts: Ints) -> None:
        """Put in how many of them were sent when all of it had arrived."""
        self.numbers["needless"] = counts

    def set_created(self, created_ns: Ints) -> None:
        """Put in when the application made each message; 0 unknown."""
        self.numbers["created_ns"] = created_ns
        self._set_stages()

    def first_ns(self) -> Ints:
        """When each was sent, or the first that is known of it."""
        first = self.numbers["send_ns"]
        for stamp in STAMPS[STAMPS.index("send") + 1 :]:
            first = np.where(first > 0, first, self.numbers[f"{stamp}_ns"])
        return first

    def mark_statistics(self, met: NDArray[np.bool_]) -> None:
        """Put in which of them met the statistics of our own cost."""
        self.numbers[PROBE_STATISTICS] = np.where(met, 1, BLANK)

    def _set_stages(self) -> None:
        stamps = {name: self.numbers[f"{name}_ns"] for name in STAMPS}
        stamps = {name: np.where(v == BLANK, 0, v) for name, v in stamps.items()}
        for name, value in stages_of(stamps).items():
            self.numbers[f"{name}_ns"] = value
        for name, value in stamps.items():
            self.numbers[f"{name}_ns"] = np.where(value > 0, value, BLANK)


def joined_rows(parts: list[Messages]) -> Messages:
    """Rows of several parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    flow, start, end = zip(*(part.retransmit_range for part in parts), strict=True)
    return Messages(
        {
            name: np.concatenate([part.numbers[name] for part in parts])
            for name in parts[0].numbers
        },
        {
            name: joined_texts([part.texts[name] for part in parts])
            for name in parts[0].texts
        },
        (np.concatenate(flow), np.concatenate(start), np.concatenate(end)),
    )


def joined_texts(parts: list[Text]) -> Text:
    """Texts of several parts, one after the other; each word once."""
    words = parts[0][1]
    if all(others is words for _, others in parts):
        return np.concatenate([index for index, _ in parts]), words
    places: dict[str, int] = {}
    for _, words in parts:
        for word in words:
            places.setdefault(word, len(places))
    tables = [np.array([*map(places.get, words), -1], np.int32) for _, words in parts]
    index = [table[i] for table, (i, _) in zip(tables, parts, strict=True)]
    return np.concatenate(index), list(places)


def hops_of(ttl: Ints) -> Ints:
    """Routers on the way, from the TTL left and the usual first values."""
    first = FIRST_TTLS[np.searchsorted(FIRST_TTLS, np.clip(ttl, 0, 255))]
    return np.where(ttl > 0, first - ttl, BLANK)


class _Half:
    """One side of pairs: columns with a given value where the half is missing."""

    def __init__(self, records: NDArray[Any], index: NDArray[np.int64]) -> None:
        self.there = index >= 0
        self._whole = bool(self.there.all())
        if not len(records):
            records = np.zeros(1, records.dtype)
        at = index if self._whole else np.where(self.there, index, 0)
        self._records = as_bytes(records).take(at).view(records.dtype)

    def get(self, name: str, missing: int = 0) -> Ints:
        values = self._records[name].astype("i8")
        return values if self._whole else np.where(self.there, values, missing)

    def has(self, name: str) -> bool:
        return name in (self._records.dtype.names or ())

    def raw(self, name: str) -> NDArray[Any]:
        return np.asarray(self._records[name])


def _has(half: _Half, flag: int) -> Ints:
    """1 where a half was there and has a flag, else 0."""
    return np.where(half.get("flags") & flag, 1, 0)


def _answers(sent: _Half, answer: int) -> dict[str, Ints]:
    """What a server's thread did before it began this reply; BLANK not known.

    `answer` is the flag of such a message. Of one that never slept the run is _ALL
    that is not a wait.
    """
    if not answer:
        blank = np.full(len(sent.there), BLANK)
        return {"answer_run_ns": blank, "answer_waited_ns": blank}
    known = (sent.get("flags") & answer) != 0
    run, waited = sent.get("run"), sent.get("waited")
    run = np.where(run == _NEVER_SLEPT, _ALL, run * WORK_NS)
    return {
        "answer_run_ns": np.where(known, run, BLANK),
        "answer_waited_ns": np.where(known, waited * WORK_NS, BLANK),
    }


def _hosts(sent: _Half, received: _Half) -> dict[str, Ints]:
    """Number the hosts of both ends, where records are of several; else nothing."""
    halves = {"sender_at": sent, "reader_at": received}
    return {n: of.get(HOST, BLANK) for n, of in halves.items() if of.has(HOST)}


def _heads(sent: _Half, received: _Half, stream: NDArray[np.bool_]) -> dict[str, Ints]:
    """What the first bytes are, by the sender; of datagrams also by the receiver."""
    seen = received.there & ~stream & ~sent.there
    first = np.where(seen, received.get("start"), 0)
    kind = np.where(sent.there, sent.get("head"), first & 0xFFFF)
    return {
        "head": kind,
        "head_id": np.where(sent.there, sent.get("head_id"), first >> 16),
    }


def blank_zeros(values: Ints) -> Ints:
    """Return values that are BLANK where there were none."""
    return np.where(values > 0, values, BLANK)


def _arrivals(joiner: Joiner, sent: _Half, received: _Half, ends: Ints) -> Ints:
    """Arrival of each message; the early segments know it behind holes."""
    arrive = received.get("arrive_ns")
    flags = received.get("flags")
    filled = np.flatnonzero((flags & joiner.flag("RECORD_HOLE_FILLED")) != 0)
    if len(filled):
        early = joiner.early_arrivals(received.raw("flow")[filled], ends[filled])
        arrive[filled] = np.where(early <= received.get("ready_ns")[filled], early, 0)
    return arrive


def _first_known(sent: _Half) -> Ints:
    """When it was sent, as near as is known."""
    times = [sent.get(f"{stamp}_ns") for stamp in ("send", "queue", "xmit")]
    return np.asarray(np.select([t > 0 for t in times], times))


def _low_water(received: _Half, joiner: Joiner) -> Ints:
    """Of bytes that were below the low water mark of their socket, that mark; or 0."""
    below = _has(received, joiner.flag("RECORD_BELOW_MARK"))
    return np.asarray(np.where(below > 0, received.get("size_bytes"), 0))


def messages_of(
    joiner: Joiner, pairs: Pairs, kinds_of: Callable[[NDArray[Any]], Ints]
) -> Messages:
    """Make rows of pairs; `kinds_of` names the messages of a table of flows.

    Their stages are blank until `set_created` has computed them.
    """
    sent = _Half(pairs.sent, pairs.sent_index)
    received = _Half(pairs.received, pairs.received_index)
    number = np.where(sent.there, sent.raw("flow"), received.raw("flow"))
    flow = joiner.flows.index(number)
    stream = np.r_[joiner.flows.table["protocol"] == IPPROTO_TCP, False][flow]
    ends = np.where(sent.there, sent.get("end"), received.get("end"))
    size = np.where(sent.there, sent.get("size_bytes"), received.get("size_bytes"))
    arrive, ready = _arrivals(joiner, sent, received, ends), received.get("ready_ns")
    # a merged range knows when its end arrived, not what came before it
    merged = (received.get("flags") & joiner.flag("RECORD_MERGED")) != 0
    inside = merged & stream & ((received.get("end") != ends) | (ready == 0))
    arrive[inside] = ready[inside] = 0
    queue_bytes = np.where(inside, BLANK, received.get("queue_bytes", BLANK))
    never_read = joiner.flag("RECORD_DROPPED") | joiner.flag("RECORD_UNREAD")
    dropped = (received.get("flags") & never_read) != 0
    read = np.where(dropped, 0, received.get("read_ns"))
    no_wakeup = (received.get("flags") & joiner.flag("RECORD_NO_WAKEUP")) != 0
    wakeup = np.where(
        received.there & ~no_wakeup & (ready > 0), received.get("wakeup_ns"), BLANK
    )
    numbers = {
        "sequence": blank_zeros(ends),
        "size_bytes": np.where(sent.there | ~stream, size, BLANK),
        "packets": blank_zeros(sent.get("packets")),
        "retransmits": np.where(sent.there & stream, 0, BLANK),
        "hops": hops_of(received.get("ttl")),
        "queue_bytes_at_arrival": queue_bytes,
        "sender_pid": blank_zeros(sent.get("pid")),
        "reader_pid": blank_zeros(np.where(dropped, 0, received.get("pid"))),
        "reader_thread": blank_zeros(np.where(dropped, 0, received.get("thread"))),
        "low_water_bytes": _low_water(received, joiner),
        "not_accepted": _has(received, joiner.flag("RECORD_NOT_ACCEPTED")),
        **_hosts(sent, received),
        **_heads(sent, received, stream),
        **_answers(sent, joiner.flag("RECORD_ANSWER")),
        "entry_queued": _has(received, joiner.flag("RECORD_ENTRY_QUEUED")),
        "needless": np.zeros(len(flow), "i8"),  # retransmits, until they are counted
        "created_ns": np.zeros(len(flow), "i8"),
        **{f"{s}_ns": sent.get(f"{s}_ns") for s in ("send", "queue", "xmit")},
        "arrive_ns": arrive,
        "ready_ns": ready,
        "read_ns": read,
        "wakeup_ns": wakeup,
        PROBE_STATISTICS: np.full(len(flow), BLANK),  # until `mark_statistics`
    }
    ports, texts = flow_columns(joiner.flows, flow)
    far = np.concatenate([joiner.flows.far_ports, np.zeros((1, 2), "u2")])[flow]
    ports |= dict(zip(FAR_PORTS, far.T.astype("i8"), strict=True))
    translated = np.r_[joiner.flows.translated, False][flow]
    ports["translated"] = np.where(translated, 1, BLANK)
    kinds = np.r_[_kinds(joiner.flows, kinds_of), MESSAGE][flow]
    texts["kind"] = kinds.astype(np.int32), KINDS
    sender = joiner.names.of(sent.get("pid"), _first_known(sent))
    reader = joiner.names.of(received.get("pid"), received.get("read_ns"))
    texts["sender_comm"], texts["reader_comm"] = as_cells(sender), as_cells(reader)
    thread = joiner.names.of(numbers["reader_thread"], received.get("read_ns"))
    texts["reader_thread_comm"] = as_cells(thread)
    texts["way"] = joiner.conversations.ways(flow, sender, reader)
    # a range without a sender is no message, but so many bytes
    begins = np.where(sent.there | ~stream, ends - size, received.get("start"))
    return Messages(numbers | ports, texts, (number, begins, ends))


def _kinds(flows: Flows, kinds_of: Callable[[NDArray[Any]], Ints]) -> Ints:
    """Name the messages of flows, by the ports that either end has."""
    kinds = kinds_of(flows.table)
    if not flows.translated.any():  # as mostly
        return kinds
    far = flows.table[flows.translated]
    far["source_port"], far["destination_port"] = flows.far_ports[flows.translated].T
    kinds[flows.translated] = np.maximum(kinds[flows.translated], kinds_of(far))
    return kinds


def flow_columns(flows: Flows, flow: Ints) -> tuple[dict[str, Ints], dict[str, Text]]:
    """Return ports, and protocol and addresses, of flows by their places."""
    table, index = flows.table, flow.astype(np.int32)
    ports = {
        name: np.r_[table[name].astype("i8"), BLANK][flow]
        for name in ("source_port", "destination_port")
    }
    protocols = np.r_[(table["protocol"] != IPPROTO_TCP).astype("i4"), -1]
    texts: dict[str, Text] = {
        "protocol": (protocols[flow].astype(np.int32), ["tcp", "udp"]),
        "source_address": (index, flows.source_addresses),
        "destination_address": (index, flows.destination_addresses),
    }
    return ports, texts
