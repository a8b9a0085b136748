"""Stories as tracks that Perfetto draws: what was slow, its threads, queues, clocks.

A message or exchange has a track with its stages, and one for each of its ends, with
what was seen there; an arrow leads from the sender's to the reader's. Threads and
interrupts have tracks by process and CPU. Of joined hosts each is a machine with a
file of its own, in one archive with the manifest that says how their clocks compare.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from latprof_analysis.read.paths import opened
from latprof_analysis.read.result import ReadError
from latprof_analysis.read.stories import read_stories, took_ns
from latprof_analysis.report import trace_packets as packets
from latprof_analysis.report.story_lines import story_lines
from latprof_analysis.stages import EXCHANGE, MODEL, RECEIVER, SENDER, stages_at
from latprof_analysis.text import duration

MANIFEST = "perfetto_manifest.json"
_CLOCKS = "clocks.csv"
_MOST_CLOCKS_BYTES = 64 << 20
_ENDS = ("sender", "reader")
# At which end a stage is; between both it is at none.
_SIDES = {
    **dict.fromkeys(stages_at(SENDER), "sender"),
    **dict.fromkeys((*stages_at(RECEIVER), "server"), "reader"),
}
# Whose thread it is that spans of a stage are of.
_THREADS = {"application": "sender", "receive_queue": "reader", "server": "reader"}
_INTERRUPTS = "interrupts"
_FLOWS = 4  # numbers of a story's arrows
_ODD = re.compile(r"[^A-Za-z0-9.-]")
_TCP_COUNTERS = {
    "in_flight_packets": packets.UNIT_COUNT,
    "cwnd_packets": packets.UNIT_COUNT,
    "window_bytes": packets.UNIT_BYTES,
    "unsent_bytes": packets.UNIT_BYTES,
}


class Trace(NamedTuple):
    """A trace, packed, and what of the stories is in it."""

    data: bytes
    stories: int
    without_stamps: int
    machines: int


class _Offset(NamedTuple):
    """What a host's clock is ahead of the reference's, as clocks.csv has it."""

    at_ns: int
    ahead_ns: int
    low_ns: int | None
    high_ns: int | None
    drift_ppb: str
    state: str


class _Stage(NamedTuple):
    name: str
    begin_ns: int
    end_ns: int
    of: dict[str, Any]


def trace_of(path: Path) -> Trace:
    """Make a trace of the stories of a run folder, an agent's, or a file.

    Raises
    ------
    ReadError
        There are no stories, or none that says when it was.
    """
    document = read_stories(path)
    placed = [(one, stages) for one in document["stories"] if (stages := _placed(one))]
    lacking = len(document["stories"]) - len(placed)
    if not placed:
        none = "no story in it has its stamps" if lacking else "it has no story"
        raise ReadError(path, f"{none}, so that there is nothing to draw")
    reference, offsets = _clocks(path)
    middle = {host: of[len(of) // 2] for host, of in offsets.items()}
    machines = {reference: _Machine()} | {
        host: _Machine(of.ahead_ns) for host, of in middle.items() if host != reference
    }
    first = machines[reference]
    for rank, (story, stages) in enumerate(placed):
        _draw(first, rank, story, stages)
        _draw_threads(machines, reference, rank, story["message"], stages)
    for host in machines.keys() - {reference}:
        _draw_offset(first, host, offsets[host])
    one = len(machines) == 1
    data = first.trace() if one else _archive(machines, middle, reference)
    return Trace(data, len(placed), lacking, len(machines))


def _placed(story: dict[str, Any]) -> list[_Stage]:
    """Return its stages with their times; none, where it has no stamps."""
    message, stages = story["message"], story["stages"]
    if message["kind"] == EXCHANGE:
        sent_ns = message.get("reply_sent_ns")
        ends = {"request_way": message.get("ready_ns"), "server": sent_ns}
        if isinstance(sent_ns, int) and "reply_way" in stages:
            ends["reply_way"] = sent_ns + stages["reply_way"]["time_ns"]
    else:
        ends = {one.name: message.get(f"{one.until}_ns") for one in MODEL}
    found = []
    for name, of in stages.items():
        end_ns = ends.get(_last(name))
        if not isinstance(end_ns, int) or not of["time_ns"] <= end_ns < 1 << 62:
            return []
        found.append(_Stage(name, end_ns - of["time_ns"], end_ns, of))
    return sorted(found, key=lambda one: (one.begin_ns, one.end_ns))


def _last(name: str) -> str:
    """Of stages that are one, that at whose end it ends."""
    return name.rsplit("+", maxsplit=1)[-1]


class _Machine:
    """The tracks of a host, and what happened on them.

    Times are on the reference's clock; `ahead_ns` is what this host's is ahead of it.
    """

    def __init__(self, ahead_ns: int = 0) -> None:
        self._ahead_ns = ahead_ns
        self._tracks: dict[Any, int] = {}
        self._packets: list[bytes] = []
        self._events: list[tuple[int, bytes]] = []
        self._spans: defaultdict[int, set[tuple[int, int, str]]] = defaultdict(set)

    def track(self, key: Any, name: str = "", **about: Any) -> int:
        """Return the track of something; `about` is as `track_packet` wants it."""
        if key not in self._tracks:
            self._tracks[key] = uuid = len(self._tracks) + 1
            self._packets.append(packets.track_packet(uuid, name, **about))
        return self._tracks[key]

    def add(
        self, at_ns: int, kind: int, track: int, name: str = "", **more: Any
    ) -> None:
        """Have something happen; of two at one time the first stays first."""
        own_ns = at_ns + self._ahead_ns
        packet = packets.event_packet(own_ns, kind, track, name, **more)
        self._events.append((at_ns, packet))

    @contextmanager
    def span(
        self, begin_ns: int, end_ns: int, track: int, name: str, **more: Any
    ) -> Iterator[None]:
        """Draw what lasts; what is drawn in the block on its track is within it."""
        self.add(begin_ns, packets.BEGIN, track, name, **more)
        yield
        self.add(end_ns, packets.END, track)

    def see(self, track: int, begin_ns: int, end_ns: int, name: str) -> None:
        """Draw what several stories may have seen, each the same."""
        self._spans[track].add((begin_ns, end_ns, name))

    def trace(self) -> bytes:
        """Return all as a trace."""
        for track, spans in self._spans.items():
            done_ns = 0
            for begin_ns, end_ns, name in sorted(spans):
                if end_ns > max(begin_ns, done_ns):
                    with self.span(max(begin_ns, done_ns), end_ns, track, name):
                        done_ns = end_ns
        events = sorted(self._events, key=lambda event: event[0])
        # without any event it has no time, and no clock is needed
        begin_ns = events[0][0] + self._ahead_ns if events else 0
        of_events = (packet for _, packet in events)
        return packets.whole_trace(
            [packets.clock_packet(begin_ns), *self._packets, *of_events]
        )


def _draw(
    machine: _Machine, rank: int, story: dict[str, Any], stages: list[_Stage]
) -> None:
    """Draw one with its stages, and what was seen at each end."""
    message = story["message"]
    root = machine.track("stories", "slow messages and exchanges")
    title = f"{rank + 1}: {duration(took_ns(story))} {_way(message)}"
    whole = machine.track(("story", rank), title, parent=root, rank=rank)
    ends = {
        end: machine.track(
            (end, rank), f"{end}: {message[f'{end}_comm'] or 'unknown'}", parent=whole
        )
        for end in _ENDS
    }
    flow = _FLOWS * rank
    if message["kind"] == EXCHANGE:
        begun, ended = stages[0].begin_ns, stages[-1].end_ns
        machine.add(begun, packets.INSTANT, ends["sender"], "asks", flow=flow + 1)
    notes = {"story": "\n".join(story_lines(story))}
    with machine.span(
        stages[0].begin_ns, stages[-1].end_ns, whole, message["kind"], notes=notes
    ):
        for stage in stages:
            end = _SIDES.get(_last(stage.name))
            with machine.span(stage.begin_ns, stage.end_ns, whole, stage.name):
                if end is None:
                    _draw_spans(machine, whole, stage)
            if end is not None:
                arrow = _arrow(stages, stage, flow)
                with machine.span(
                    stage.begin_ns, stage.end_ns, ends[end], stage.name, **arrow
                ):
                    _draw_spans(machine, ends[end], stage)
            _draw_counters(machine, message, stage)
    if message["kind"] == EXCHANGE and _last(stages[-1].name) == "reply_way":
        machine.add(ended, packets.INSTANT, ends["sender"], "has read", flow=flow + 2)


def _arrow(stages: list[_Stage], stage: _Stage, flow: int) -> dict[str, Any]:
    """Return where an arrow leads from, or to: the last here, the first there."""
    side = _SIDES[_last(stage.name)]
    if _last(stage.name) == "server":
        return {"flow": flow + 1, "other_flow": flow + 2}
    of_end = [one for one in stages if _SIDES.get(_last(one.name)) == side]
    is_met = stage is (of_end[-1] if side == "sender" else of_end[0])
    return {"flow": flow + 1} if is_met else {}


def _draw_spans(machine: _Machine, track: int, stage: _Stage) -> None:
    for begin_ns, end_ns, name, _ in _spans(stage):
        with machine.span(begin_ns, end_ns, track, name):
            pass


def _spans(stage: _Stage) -> Iterator[tuple[int, int, str, dict[str, Any]]]:
    """Give what was seen of a stage's time, in order and within it."""
    done_ns = stage.begin_ns
    for one in stage.of.get("timeline") or ():
        begin_ns = max(stage.begin_ns + one["from_ns"], done_ns)
        done_ns = min(stage.begin_ns + one["from_ns"] + one["time_ns"], stage.end_ns)
        if done_ns > begin_ns:
            name = ": ".join(filter(None, (one["kind"], one["what"])))
            yield begin_ns, done_ns, name, one


def _draw_counters(machine: _Machine, message: dict[str, Any], stage: _Stage) -> None:
    """Draw what stood in queues, and what TCP allowed, each where it was seen."""

    def count(at_ns: int, what: str, unit: int, value: Any) -> None:
        if isinstance(value, int) and 0 <= value < 1 << 62:
            root = machine.track("queues", "queues and windows, where one was slow")
            track = machine.track(("queue", what), what, parent=root, unit=unit)
            machine.add(at_ns, packets.COUNTER, track, value=value)

    queue, way = stage.of.get("queue"), _way(message)
    if queue:
        name = f"bytes in {queue['name'] or queue['kind']}"
        count(stage.begin_ns, name, packets.UNIT_BYTES, queue["backlog_bytes"])
    if _last(stage.name) == "receive_stack":
        waiting = message.get("queue_bytes_at_arrival")
        name = f"bytes unread at arrival, {way}"
        count(stage.begin_ns, name, packets.UNIT_BYTES, waiting)
    for begin_ns, _, _, one in _spans(stage):
        for key, unit in _TCP_COUNTERS.items() if one.get("tcp") else ():
            name = f"{key.replace('_', ' ')}, {way}"
            count(begin_ns, name, unit, one["tcp"][key])


def _draw_threads(
    machines: dict[str, _Machine],
    reference: str,
    rank: int,
    message: dict[str, Any],
    stages: list[_Stage],
) -> None:
    """Draw what threads of both ends did, and interrupts, on the hosts' own tracks."""
    by_end = {}
    for end in _ENDS:
        pid, comm = message[f"{end}_pid"], message[f"{end}_comm"] or "unknown"
        if pid is None:
            continue
        name, _, host = comm.rpartition(" on ")
        if host not in machines or not name:
            name, host = comm, reference
        machine = machines[host]
        whole = machine.track(("process", pid), name, process=(pid, name))
        thread = message.get(f"{end}_thread")
        if thread is not None:
            called = message.get(f"{end}_thread_comm") or name
            whole = machine.track(
                ("thread", pid, thread), called, thread=(pid, thread, called)
            )
        by_end[end] = machine, whole
    for end, (at_ns, what) in _moments(message, stages).items():
        if end in by_end:
            machine, track = by_end[end]
            text = f"{what} {rank + 1}"
            machine.add(at_ns, packets.INSTANT, track, text, flow=_FLOWS * rank + 3)
    for stage in stages:
        of_end = by_end.get(_THREADS.get(_last(stage.name), ""))
        if of_end is None:
            continue
        machine, track = of_end
        for begin_ns, end_ns, name, one in _spans(stage):
            machine.see(track, begin_ns, end_ns, name)
            if one["kind"] == _INTERRUPTS and one["cpu"] is not None:
                root = machine.track(_INTERRUPTS, _INTERRUPTS)
                cpu = one["cpu"]
                of_cpu = machine.track(
                    ("cpu", cpu), f"CPU {cpu}", parent=root, rank=cpu
                )
                machine.see(of_cpu, begin_ns, end_ns, one["what"])


def _moments(
    message: dict[str, Any], stages: list[_Stage]
) -> dict[str, tuple[int, str]]:
    """Say when the sender sent, and the reader read: by stamps that are there."""
    if message["kind"] == EXCHANGE:
        sent_ns = stages[0].begin_ns if stages[0].name == "request_way" else None
        read_ns = message.get("ready_ns")
        words = "sends request", "can read request"
    else:
        sent_ns, read_ns = message.get("send_ns"), message.get("read_ns")
        words = "sends", "reads"
    moments = dict(zip(_ENDS, zip((sent_ns, read_ns), words, strict=True), strict=True))
    return {end: (at, word) for end, (at, word) in moments.items() if at}


def _draw_offset(machine: _Machine, host: str, offsets: list[_Offset]) -> None:
    """Draw what a host's clock is ahead, and in which interval that lies."""
    root = machine.track("clocks", "clocks of hosts")
    for one in offsets:
        for word, value in (
            ("", one.ahead_ns),
            (" at least", one.low_ns),
            (" at most", one.high_ns),
        ):
            if value is not None:
                name = f"clock of {host} is ahead{word}"
                track = machine.track(name, name, parent=root, unit=packets.UNIT_NS)
                machine.add(one.at_ns, packets.COUNTER, track, value=value)


def _way(message: dict[str, Any]) -> str:
    way = message.get("way")
    if isinstance(way, str) and way:
        return way
    ends = (message[f"{end}_comm"] or "unknown" for end in _ENDS)
    return " -> ".join(ends)


def _clocks(path: Path) -> tuple[str, dict[str, list[_Offset]]]:
    """Return the host on whose clock all times are, and offsets of all by host.

    Of one host alone: none.
    """
    file = path / _CLOCKS
    if not path.is_dir() or not file.exists():
        return "", {}
    with opened(file) as source:
        text = source.read(_MOST_CLOCKS_BYTES + 1)
    if len(text) > _MOST_CLOCKS_BYTES:
        raise ReadError(file, f"it has more than {_MOST_CLOCKS_BYTES >> 20} MiB")
    reference, offsets = "", defaultdict(list)
    rows = csv.DictReader(io.StringIO(text.decode("utf-8", "replace")))
    try:
        for row in rows:
            reference = row["reference"]
            offsets[row["host"]].append(_offset(row))
    except (KeyError, ValueError, TypeError, csv.Error) as error:
        line = f"line {rows.line_num} is none of {_CLOCKS}"
        raise ReadError(file, f"{line}: {error}") from error
    return reference, dict(offsets)


def _offset(row: dict[str, str]) -> _Offset:
    low, high = (
        int(row[name]) if row[name] else None for name in ("low_ns", "high_ns")
    )
    at_ns, ahead_ns = int(row["at_ns"]), int(row["offset_ns"])
    if max(map(abs, (at_ns, ahead_ns, low or 0, high or 0))) >= 1 << 62:
        raise ValueError("a time is beyond 64 bits")
    return _Offset(at_ns, ahead_ns, low, high, row["drift_ppb"], row["state"])


def _archive(
    machines: dict[str, _Machine], offsets: dict[str, _Offset], reference: str
) -> bytes:
    """Pack a trace for each host, and the manifest of their clocks.

    A host's times are by its own clock, as any other trace of it has them: one offset
    moves them, that in the middle, and what is drawn stands where it was joined.
    """
    names = {
        host: f"{number}-{_ODD.sub('_', host)[:60]}.pftrace"
        for number, host in enumerate(machines)
    }
    files: list[dict[str, Any]] = []
    for host, name in names.items():
        clocks = {
            "clock": "MONOTONIC",
            "sync_to": {"file": names[reference], "clock": "MONOTONIC"},
            "offset_ns": -offsets[host].ahead_ns if host != reference else 0,
        }
        more = {} if host == reference else {"clocks": clocks}
        files.append({"path": name, "machine": {"name": host}} | more)
    manifest = {
        "version": 1,
        "trace_time": {"clock": "MONOTONIC", "file": names[reference]},
        "files": files,
        "attributes": {
            f"latprof.clock.{host}": _said(offsets[host])
            for host in machines
            if host != reference
        },
    }
    members = {MANIFEST: json.dumps({"perfetto_manifest": manifest}).encode()}
    members |= {names[host]: machine.trace() for host, machine in machines.items()}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return archive.getvalue()


def _said(offset: _Offset) -> str:
    low, high = ("?" if x is None else str(x) for x in (offset.low_ns, offset.high_ns))
    return (
        f"{offset.ahead_ns} ns ahead ({low} to {high}) at {offset.at_ns} ns, "
        f"{offset.drift_ppb} ppb, {offset.state}"
    )
