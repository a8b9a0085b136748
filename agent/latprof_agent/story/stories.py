"""Stories: the slowest messages, and what the flight recorder kept of their time."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from latprof_analysis.read.stories import FORMAT
from latprof_analysis.records.exchange_rows import ExchangeRows
from latprof_analysis.records.joiner import FOREVER, Joiner
from latprof_analysis.records.message_rows import Ints, Messages, Rows
from latprof_analysis.stages import EXCHANGE, STAGES, STAMPS
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.story.answers import (
    NO_ANSWERS,
    REPLY,
    REQUEST,
    Answer,
    Answers,
)
from latprof_analysis.story.device_queue import Ends, QueueWait, wait_of
from latprof_analysis.story.next_hops import (
    RESOLVING,
    AddressWait,
    wait_of_datagram,
)
from latprof_analysis.story.stacks import FEW
from latprof_analysis.story.story import (
    NO_FLIGHT,
    QUEUED,
    Flight,
    Part,
    longest_spans,
    thread_at,
    time_of,
)
from latprof_analysis.study.totals import are_measured
from numpy.typing import NDArray

from latprof_agent.capture.flight import (
    RUNNING_LEAST_NS,
    SHARES,
    UNTIL_KNOWN_NS,
)
from latprof_agent.capture.recorded_flights import Flights
from latprof_agent.sinks.sink import Sink
from latprof_agent.story.read_before import ReadBefore
from latprof_agent.story.slowest import Slow, Slowest
from latprof_agent.story.socket_stories import TcpHistory

Flags = NDArray[np.bool_]
RUNNING = 0.999  # of messages are not slow, where nobody said from when on
# Of a stage whose end a thread of this host brings about: the column of its process, of
# itself where it is known, and the two stamps.
_OF_THREADS = {
    "application": ("sender_pid", "sender_thread", "created_ns", "send_ns"),
    "receive_queue": ("reader_pid", "reader_thread", "ready_ns", "read_ns"),
}
# A datagram is in its send call until it is queued, or waits for a link address.
_OF_CALL = ("sender_pid", "sender_thread", "send_ns", "call_end_ns")
# What was read before a message is finished within that time of it: what has no other
# half waits for 0.3 s.
NEIGHBOURS_NS = 1_000_000_000
# How often copies are forgotten, and after how long each row is there: a message waits
# 3 s for its other half, and an exchange of one end then 4 s for its other turn.
FORGETS_NS, FINISHED_NS = 1_000_000_000, 10_000_000_000


@dataclass
class _Known:
    """What is known of a slow one beside its row.

    `way`: its bytes, of a message; `queue`: of its wait for its reader, and `answers`:
    what threads waited for meanwhile, once asked.
    """

    way: TcpHistory | None = None
    accepted: bool = True  # when it was readable
    queue: dict[str, Any] = field(default_factory=dict)
    answers: Answers | None = None


class _Limit:
    """From when on something is slow: as was asked for, or more than most take."""

    def __init__(self, limit_ns: int) -> None:
        """0: longer than 99.9% of all until then."""
        self.limit_ns = limit_ns or UNTIL_KNOWN_NS
        self.known_ns = 0  # when it was that others take less
        self.seen = 0
        self._all = None if limit_ns else Histogram()

    def follow(self, took_ns: Ints, now_ns: int) -> None:
        """Learn from what some took, that is known now."""
        if not self._all:
            return
        self._all.record(took_ns)
        most_ns = self._all.quantile(RUNNING)
        if most_ns is not None:
            self.limit_ns = max(round(most_ns), RUNNING_LEAST_NS)
            self.known_ns = self.known_ns or now_ns

    def least_ns(self, ended_ns: Ints) -> Ints:
        """Return from when on what ended then is slow."""
        # the recorder made no copies for what was shorter before that was known
        early = ended_ns < self.known_ns
        return np.where(early, max(self.limit_ns, UNTIL_KNOWN_NS), self.limit_ns)


class Stories(Sink):
    """Follows finished messages; keeps the slowest of those that took long.

    Of what has its other end on another host the time here is all that is known. Where
    that is long, what CPUs did meanwhile is asked for and kept in the recording: who
    joins both hosts' halves has the story.

    Parameters
    ----------
    limit_ns : int
        That long, or 0: longer than 99.9% of all until then, and than 100 us; before
        that is known, 1 ms.
    recorder : Flights
        Learns from when on a message may be kept.
    joiner : Joiner
        Knows what was sent again, and what threads read.
    """

    def __init__(self, limit_ns: int, recorder: Flights, joiner: Joiner) -> None:
        self._messages, self._exchanges = _Limit(limit_ns), _Limit(limit_ns)
        self._recorder = recorder
        self._joiner = joiner
        self._before = ReadBefore(joiner, recorder)
        self._slowest = Slowest()
        self._halves = Slowest()
        self._forgot_ns = 0

    def add_messages(self, rows: Messages) -> None:
        """Keep slow ones."""
        self._before.add_messages(rows)
        took_ns, ended_ns = rows.numbers["end_to_end_ns"], rows.numbers["read_ns"]
        for i in self._slow(self._messages, rows, took_ns, ended_ns):
            self._offer(self._slowest, rows, i, took_ns[i], ended_ns[i])
        begin_ns, end_ns = _time_here(rows)
        alone = (took_ns < 0) & are_measured(rows)
        for i in self._long_halves(self._messages, alone, begin_ns, end_ns):
            self._offer(self._halves, rows, i, end_ns[i] - begin_ns[i], end_ns[i])
        self._ask(self._before.newest_ns - NEIGHBOURS_NS)
        self._forget(self._joiner.drained_ns)

    def _offer(
        self, to: Slowest, rows: Messages, i: int, took_ns: int, ended_ns: int
    ) -> None:
        flow, end = rows.flow_and_end(i)
        make = partial(self._message, rows, i)
        to.offer(int(took_ns), flow, (flow, end, int(ended_ns)), make)

    def _forget(self, now_ns: int) -> None:
        """Have the recorder keep copies of what may have a story, now and then."""
        if now_ns < self._forgot_ns + FORGETS_NS:
            return
        self._forgot_ns = now_ns
        kept = (*self._slowest.kept, *self._halves.kept)
        spans = (span for one in kept for span in spans_of(one.row))
        self._recorder.keep(spans, now_ns - FINISHED_NS)

    def _slow(
        self, limit: _Limit, rows: Rows, took_ns: Ints, ended_ns: Ints
    ) -> list[int]:
        """Find rows that took long, of those that stand in figures."""
        measured = are_measured(rows)
        limit.follow(took_ns[measured & (took_ns > 0)], self._joiner.drained_ns)
        self._recorder.set_limits(self._messages.limit_ns, self._exchanges.limit_ns)
        slow = measured & (took_ns >= limit.least_ns(ended_ns))
        return list(np.flatnonzero(slow).tolist())

    def _long_halves(
        self, limit: _Limit, alone: Flags, begin_ns: Ints, end_ns: Ints
    ) -> list[int]:
        """Find those that are copied: with their other half they may be slow."""
        took_ns = np.where((begin_ns > 0) & (end_ns > 0), end_ns - begin_ns, 0)
        least_ns = limit.least_ns(end_ns) // SHARES
        return list(np.flatnonzero(alone & (took_ns >= least_ns)).tolist())

    def _message(self, rows: Messages, i: int) -> tuple[dict[str, Any], _Known]:
        row = rows.row(i)
        for name in ("entry_queued", "low_water_bytes"):
            row[name] = int(rows.numbers[name][i])
        way = TcpHistory.of(row, *rows.flow_and_end(i), self._joiner)
        return row, _Known(way, not rows.numbers["not_accepted"][i])

    def add_exchanges(self, rows: ExchangeRows) -> None:
        """Keep slow ones of which the server's work is the longest part.

        Of others it is a message that was slow.
        """
        if not rows.are_exchanges:
            return
        numbers = rows.numbers
        took_ns, work_ns = numbers["response_ns"], numbers["server_work_ns"]
        until_read_ns = numbers["request_way_ns"] + numbers["server_queue_ns"]
        longest = work_ns >= np.maximum(until_read_ns, numbers["reply_way_ns"])
        # where stamps lack, as of a pipeline, its parts are not known
        longest &= (work_ns > 0) & (numbers["server_ns"] > 0)
        longest &= numbers["server_pid"] > 0
        ended_ns = numbers["reply_read_ns"]
        ready_ns, replied_ns = numbers["request_ready_ns"], numbers["reply_sent_ns"]
        alone = (took_ns < 0) & (numbers["server_pid"] > 0) & are_measured(rows)
        for i in self._long_halves(self._exchanges, alone, ready_ns, replied_ns):
            flow = _connection(rows, i)
            identity = flow, int(ready_ns[i]), int(replied_ns[i])
            make = partial(_exchange, rows, i, self._recorder)
            self._halves.offer(identity[2] - identity[1], flow, identity, make)
        for i in self._slow(self._exchanges, rows, took_ns, ended_ns):
            if not longest[i]:
                continue
            self._exchanges.seen += 1
            flow = _connection(rows, i)
            sent_ns = numbers["request_sent_ns"]
            identity = flow, int(sent_ns[i]), int(replied_ns[i])
            make = partial(_exchange, rows, i, self._recorder)
            self._slowest.offer(int(took_ns[i]), flow, identity, make)

    def _ask(self, until_ns: int) -> None:
        """Find what was read before those that were read by then: it is forgotten."""
        before = self._before
        for one in (*self._slowest.kept, *self._halves.kept):
            known, spans = one.known, spans_of(one.row)
            if known.answers or not spans or spans[-1][1] > until_ns:
                continue
            known.answers = before.answers(spans[0][0], spans[-1][1])
            if known.way:
                self._ask_for_queue(one.row, known, known.way)

    def _ask_for_queue(
        self, row: dict[str, Any], known: _Known, of: TcpHistory
    ) -> None:
        reads = self._before.while_waiting(row, of.flow, of.end)
        known.queue = {} if reads is None else {"reads": reads}
        if not known.accepted:
            known.queue["accept"] = self._before.accept(row, of.flow)

    def document(self) -> dict[str, Any]:
        """Return what `latprof story` reads, the slowest first."""
        recorder, slowest = self._recorder, self._slowest
        self._ask(FOREVER)
        stories = slowest.slowest
        sample = slowest.sample if slowest.seen > len(stories) else []
        # many of the sample have a story, too, and to split its time takes long
        stages = {one.identity: _stages(one, recorder) for one in (*stories, *sample)}
        for half in self._halves.slowest:
            _stages(half, recorder)
        return {
            "format": FORMAT,
            "limit_ns": self._messages.limit_ns,
            "exchange_limit_ns": self._exchanges.limit_ns,
            **({"quantile": RUNNING} if self._messages.known_ns else {}),
            "slow_messages": slowest.seen - self._exchanges.seen,
            "slow_exchanges": self._exchanges.seen,
            "slow_flows": slowest.flows,
            "more_flows": slowest.more_flows,
            "flows_with_story": len({one.flow for one in stories}),
            "recorder": {
                "copies": recorder.copies,
                "skipped": recorder.skipped,
                "symbols": recorder.symbols.source,
            },
            "stories": [
                {"message": one.row, "stages": stages[one.identity]} for one in stories
            ],
            "sample": [
                {
                    "message": {"kind": one.row["kind"], "end_to_end_ns": one.took_ns},
                    "stages": _without_details(stages[one.identity]),
                    "stands_for": slowest.seen / len(sample),
                }
                for one in sample
            ],
        }


# Of an exchange: its ends.
_ENDS = ("protocol", "client_address", "client_port", "server_address", "server_port")
_PARTS = ("request_way", "server", "reply_way")
# What a share needs of a part.
_OF_PARTS = ("kind", "what", "time_ns", "who", "functions", "cpu")
_OF_WHO = ("pid", "comm", "time_ns", "lower_class", "peer")


def _connection(rows: ExchangeRows, i: int) -> int:
    """Number the connection of an exchange by its ends."""
    return zlib.crc32(repr([*rows.row(i, _ENDS).values()]).encode())


def _time_here(rows: Messages) -> tuple[Ints, Ints]:
    """Return the first and the last stamp of each row; 0: it has none."""
    stamps = np.stack([np.maximum(rows.numbers[f"{name}_ns"], 0) for name in STAMPS])
    first = np.where(stamps > 0, stamps, FOREVER).min(axis=0)
    return np.where(first < FOREVER, first, 0), stamps.max(axis=0)


def _exchange(
    rows: ExchangeRows, i: int, recorder: Flights
) -> tuple[dict[str, Any], _Known]:
    """Describe one as a message that its client sends and its server reads."""
    row = rows.row(i)
    pid, sent_ns = row["server_pid"], row["reply_sent_ns"]
    found = {
        **{"kind": EXCHANGE, "protocol": row["protocol"], "sequence": None},
        **{"size_bytes": row["request_bytes"], "retransmits": row["retransmits"]},
        **{"sender_pid": row["client_pid"], "sender_comm": row["client_comm"]},
        **{"reader_pid": pid, "reader_comm": row["server_comm"]},
        "reader_thread": recorder.answers.thread(pid, sent_ns),
        **{f"source_{of}": row[f"client_{of}"] for of in ("address", "port")},
        **{f"destination_{of}": row[f"server_{of}"] for of in ("address", "port")},
        "end_to_end_ns": row["response_ns"],
        **{"ready_ns": row["request_ready_ns"], "reply_sent_ns": sent_ns},
        **{f"{stage}_ns": row[f"{stage}_ns"] for stage in _PARTS},
    }
    return found, _Known()


def spans_of(row: dict[str, Any]) -> list[tuple[int, int]]:
    """Return the times of which its story asks what CPUs did.

    One copy need not have the whole of a message: each of its stages is asked for.
    """
    names = ("ready", "reply_sent") if row["kind"] == EXCHANGE else STAMPS
    stamps = [row[f"{name}_ns"] for name in names if row[f"{name}_ns"]]
    return list(pairwise(stamps))


def _exchange_stages(
    row: dict[str, Any], recorder: Flights, answers: Answers
) -> dict[str, Any]:
    """Return the parts of an exchange, of which the server's thread has one."""
    found: dict[str, Any] = {
        stage: {"time_ns": row[f"{stage}_ns"], "parts": None} for stage in _PARTS
    }
    found["server"] |= thread_in_words(
        recorder,
        row["reader_pid"],
        row["reader_thread"],
        row["ready_ns"],
        row["reply_sent_ns"],
        answers=answers,
        asker=row["sender_pid"] or 0,
    )
    return found


def _without_details(stages: dict[str, Any]) -> dict[str, Any]:
    """Keep what shares need."""
    return {
        stage: {
            "time_ns": of["time_ns"],
            "parts": of["parts"]
            and [
                {name: part[name] for name in _OF_PARTS}
                | {"who": [_named(who) for who in part["who"][:1]]}
                | {"functions": part["functions"][:FEW]}
                for part in of["parts"]
            ],
        }
        for stage, of in stages.items()
    }


def _named(who: dict[str, Any]) -> dict[str, Any]:
    return {name: who[name] for name in _OF_WHO if name in who}


def _stages(one: Slow, recorder: Flights) -> dict[str, Any]:
    """Return its stages, and what it met in the queue of its reader."""
    answers = one.known.answers or NO_ANSWERS
    if one.row["kind"] == EXCHANGE:
        return _exchange_stages(one.row, recorder, answers)
    stages = stages_in_words(one.row, recorder, one.known.way, answers)
    if "receive_queue" in stages:
        stages["receive_queue"] |= one.known.queue
    return stages


def stages_in_words(
    row: dict[str, Any],
    recorder: Flights,
    way: TcpHistory | None = None,
    answers: Answers = NO_ANSWERS,
) -> dict[str, Any]:
    """By stage its time, and where a thread or a socket here had it, its parts."""
    found: dict[str, Any] = {}
    wait = _address_wait(row, recorder, way)
    row = row | {"call_end_ns": wait.begin_ns if wait else row["queue_ns"]}
    row["sender_thread"] = _sender_thread(row, recorder)
    for stage in STAGES:
        time_ns = row[f"{stage}_ns"]
        if time_ns is None:
            continue
        found[stage] = {"time_ns": time_ns, "parts": None}
        columns, behind = _OF_THREADS.get(stage, ("",) * 4), None
        if (stage, row["protocol"]) == ("send_queue", "udp"):
            columns, behind = _OF_CALL, wait
        pid, thread, begin_ns, end_ns = (row.get(column) for column in columns)
        thread_ns = time_ns - (behind.time_ns if behind else 0)
        if pid and begin_ns and end_ns and end_ns - begin_ns == thread_ns:
            asker = mark = 0
            if stage == "receive_queue":
                asker, mark = row["sender_pid"] or 0, row.get("low_water_bytes", 0)
            words = thread_in_words(
                *(recorder, pid, thread, begin_ns, end_ns),
                answers=answers,
                asker=asker,
                low_water_bytes=mark,
            )
            found[stage] |= _with_wait(words, behind) if behind else words
        elif way:
            found[stage] |= way.split(stage, time_ns, row, recorder, answers)
    if found.get("qdisc", {}).get("time_ns"):
        found["qdisc"] |= _queue_wait(row, recorder)
    return found


def _address_wait(
    row: dict[str, Any], recorder: Flights, way: TcpHistory | None
) -> AddressWait | None:
    """Return how long a datagram waited for a link address behind its call."""
    begin_ns, end_ns = row["send_ns"], row["queue_ns"]
    if row["protocol"] != "udp" or not (way and begin_ns and end_ns):
        return None
    flight = recorder.flight(begin_ns, end_ns)
    return wait_of_datagram(flight, way.flow, begin_ns, end_ns) if flight else None


def _with_wait(words: dict[str, Any], wait: AddressWait) -> dict[str, Any]:
    """Add what came behind a datagram's send call to what its thread did in it."""
    part = Part(RESOLVING, wait.time_ns, wait.what)
    parts = sorted(
        [*words["parts"], asdict(part)], key=lambda one: one["time_ns"], reverse=True
    )
    span = {
        **{"from_ns": sum(one["time_ns"] for one in words["parts"])},
        **{name: getattr(part, name) for name in ("time_ns", "kind", "what", "cpu")},
    }
    return {"parts": parts, "timeline": longest_spans([*words["timeline"], span])}


def _sender_thread(row: dict[str, Any], recorder: Flights) -> int | None:
    """Who sent a datagram, if that is sure: its thread had a CPU at both ends of it."""
    pid, _, begin_ns, end_ns = (row.get(column) for column in _OF_CALL)
    if row["protocol"] != "udp" or not (pid and begin_ns and end_ns):
        return None
    flight = recorder.flight(begin_ns, end_ns)
    return thread_at(flight, pid, begin_ns, end_ns) if flight else None


def _queue_wait(row: dict[str, Any], recorder: Flights) -> dict[str, Any]:
    """Whose bytes a message waited for in its device's queue."""
    begin_ns, end_ns = row["queue_ns"], row["xmit_ns"]
    if not begin_ns or not end_ns:
        return {}
    flight = recorder.flight(begin_ns, end_ns)
    if not flight:
        return {}
    wait = _wait_in_queue(recorder, flight, Ends.of_message(row), begin_ns, end_ns)
    return {"parts": [asdict(part) for part in wait.parts], "queue": wait.queue}


def _wait_in_queue(
    recorder: Flights, flight: Flight, ends: Ends, begin_ns: int, end_ns: int
) -> QueueWait:
    return wait_of(
        *(flight.rings[QUEUED], ends, begin_ns, end_ns),
        queue_at=recorder.queues.at(),
        owner_of=recorder.queues.owner,
        since_ns=flight.since(QUEUED),
    )


def _queue_of(
    recorder: Flights, flight: Flight, answer: Answer
) -> dict[str, Any] | None:
    """Return the queue in which an answer or its question was most of their time."""
    took, peer = answer.took, answer.peer
    ways = (f"{REQUEST} qdisc", f"{REPLY} qdisc")
    if not took or took.stage not in ways:
        return None
    ends = (peer.own_address, peer.own_port), (peer.address, peer.port)
    source, destination = ends if took.stage == ways[0] else ends[::-1]
    row = {
        **{"source_address": source[0], "source_port": source[1]},
        **{"destination_address": destination[0], "destination_port": destination[1]},
        "protocol": peer.protocol,
    }
    times = took.begin_ns, took.end_ns
    return _wait_in_queue(recorder, flight, Ends.of_message(row), *times).queue


def thread_in_words(
    recorder: Flights,
    pid: int,
    thread: int | None,
    begin_ns: int,
    end_ns: int,
    *,
    answers: Answers = NO_ANSWERS,
    asker: int = 0,
    low_water_bytes: int = 0,
) -> dict[str, Any]:
    """What a thread did, by what the recorder kept of this time."""
    flight = recorder.flight(begin_ns, end_ns) or NO_FLIGHT
    parts, timeline = time_of(
        flight,
        pid,
        begin_ns,
        end_ns,
        thread=thread,
        name=recorder.symbols.stack,
        calls=recorder.calls,
        answers=answers,
        asker=asker,
        queue_of=partial(_queue_of, recorder, flight),
        low_water_bytes=low_water_bytes,
    )
    return {"parts": [asdict(part) for part in parts], "timeline": timeline}
