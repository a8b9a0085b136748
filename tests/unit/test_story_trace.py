"""Traces of stories, read again by Perfetto's own schema."""

from __future__ import annotations

import io
import itertools
import json
import shutil
import tarfile
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from latprof_agent.cli import main
from latprof_agent.join.join import JoinOptions, join
from latprof_agent.rebuild import rebuild
from latprof_analysis.records.recording import NAME
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as schema
from split_recording import own_time, split

HERE = Path(__file__).parents[1] / "recordings"
EVENT = schema.TrackEvent
MONOTONIC = schema.BUILTIN_CLOCK_MONOTONIC


class Slice(NamedTuple):
    track: str
    name: str
    begin_ns: int
    end_ns: int
    depth: int
    flows: tuple[int, ...]


class Read:
    """What a trace holds, by tracks' names with those of who they are within."""

    def __init__(self, data: bytes) -> None:
        trace = schema.Trace.FromString(data)
        trace.DiscardUnknownFields()
        assert trace.ByteSize() == len(data)  # no field that the schema has not
        self.about = {
            packet.track_descriptor.uuid: packet.track_descriptor
            for packet in trace.packet
            if packet.HasField("track_descriptor")
        }
        (clocks,) = (p for p in trace.packet if p.HasField("clock_snapshot"))
        assert clocks.clock_snapshot.primary_trace_clock == MONOTONIC
        self.slices: list[Slice] = []
        self.instants: list[Slice] = []
        self.counters: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._read([p for p in trace.packet if p.HasField("track_event")])

    def name(self, uuid: int) -> str:
        about = self.about[uuid]
        name = about.name
        if about.HasField("process"):
            name = f"process {about.process.pid} {about.process.process_name}"
        if about.HasField("thread"):
            name = f"thread {about.thread.tid} {about.thread.thread_name}"
        return f"{self.name(about.parent_uuid)}/{name}" if about.parent_uuid else name

    def _read(self, packets: list[Any]) -> None:
        times = [packet.timestamp for packet in packets]
        assert times == sorted(times)
        open_slices = defaultdict(list)
        for packet in packets:
            assert packet.timestamp_clock_id == MONOTONIC
            event = packet.track_event
            track, at_ns = self.name(event.track_uuid), packet.timestamp
            stack, flows = open_slices[track], tuple(event.flow_ids)
            if event.type == EVENT.TYPE_SLICE_BEGIN:
                stack.append((event.name, at_ns, flows))
            elif event.type == EVENT.TYPE_SLICE_END:
                name, begin_ns, flows = stack.pop()
                self.slices.append(
                    Slice(track, name, begin_ns, at_ns, len(stack), flows)
                )
            elif event.type == EVENT.TYPE_INSTANT:
                self.instants.append(Slice(track, event.name, at_ns, at_ns, 0, flows))
            else:
                self.counters[track].append((at_ns, event.counter_value))
        assert not any(open_slices.values())

    def on(self, *words: str) -> list[Slice]:
        return [one for one in self.slices if all(w in one.track for w in words)]


def running_fast(times: np.ndarray) -> np.ndarray:
    """A clock that is ahead by 3 s, and by 20 us a second more."""
    return times + 3_000_000_000 + times // 50_000


def run_folder(name: str, folder: Path) -> Path:
    (folder / "run").mkdir()
    shutil.copy(HERE / f"{name}.arrows.zst", folder / "run" / NAME)
    rebuild.rebuild(folder / "run", folder / "whole", lambda *_: None)
    return folder / "whole"


def stories_in(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]]
    found = json.loads((folder / "stories.json").read_text())["stories"]
    return found


@pytest.mark.parametrize("name", ["stories", "full-window", "answered-through-a-queue"])
def test_a_trace_has_each_story_with_its_stages_and_an_arrow(name, tmp_path, capsys):
    folder = run_folder(name, tmp_path)
    assert main(["trace", str(folder)]) == 0
    assert "trace.pftrace" in capsys.readouterr().out
    found = Read((folder / "trace.pftrace").read_bytes())
    stories = stories_in(folder)
    assert stories
    for number, story in enumerate(stories, 1):
        check_story(found, f"/{number}: ", story)


def check_story(found: Read, title: str, story: dict[str, Any]) -> None:
    message, stages = story["message"], story["stages"]
    of_it = [one for one in found.slices if title in one.track]
    (whole,) = (one for one in of_it if one.track.count("/") == 1 and not one.depth)
    assert whole.end_ns - whole.begin_ns == message["end_to_end_ns"]
    drawn = [one for one in of_it if one.track == whole.track and one.depth == 1]
    took = {one.name: one.end_ns - one.begin_ns for one in drawn}
    assert took == {stage: of["time_ns"] for stage, of in stages.items()}
    for stamp, at_ns in (("send_ns", whole.begin_ns), ("read_ns", whole.end_ns)):
        if message.get(stamp) and not message.get("created_ns"):
            assert message[stamp] == at_ns
    instants = [one for one in found.instants if title in one.track]
    from_sender = flows_of(of_it + instants, "/sender: ")
    assert from_sender & flows_of(of_it + instants, "/reader: ")


def flows_of(slices: list[Slice], end: str) -> set[int]:
    return {flow for one in slices if end in one.track for flow in one.flows}


def test_no_number_of_an_arrow_is_of_two_stories(tmp_path):
    folder = run_folder("stories", tmp_path)
    assert main(["trace", str(folder), "--out", str(tmp_path / "x")]) == 0
    found = Read((tmp_path / "x").read_bytes())
    by_flow = defaultdict(set)
    for one in found.slices + found.instants:
        if ": " in one.track:
            for flow in one.flows:
                by_flow[flow].add(one.track.split("/")[1])
    assert by_flow
    assert {len(tracks) for tracks in by_flow.values()} == {1}


def test_a_threads_track_has_what_stories_saw_of_it_once(tmp_path):
    folder = run_folder("answered-through-a-queue", tmp_path)
    assert main(["trace", str(folder)]) == 0
    found = Read((folder / "trace.pftrace").read_bytes())
    threads = defaultdict(list)
    for one in found.slices:
        if one.track.startswith("thread "):
            assert not one.depth
            threads[one.track].append(one)
    assert any(
        "asleep: in recvfrom, answered by store" in one.name
        for of in threads.values()
        for one in of
    )
    for of in threads.values():
        of.sort(key=lambda one: one.begin_ns)
        for before, after in itertools.pairwise(of):
            assert before.end_ns <= after.begin_ns
    assert {one.track for one in found.on("interrupts/CPU")} <= {
        f"interrupts/CPU {cpu}" for cpu in range(256)
    }


def test_counters_are_what_stories_say_of_queues_and_windows(tmp_path):
    folder = run_folder("answered-through-a-queue", tmp_path)
    assert main(["trace", str(folder)]) == 0
    found = Read((folder / "trace.pftrace").read_bytes())
    backlogs = sorted(
        (story["message"]["queue_ns"], of["queue"]["backlog_bytes"])
        for story in stories_in(folder)
        for of in story["stages"].values()
        if of.get("queue")
    )
    (queue,) = (track for track in found.counters if "tbf" in track)
    assert backlogs
    assert found.counters[queue] == backlogs


def test_windows_are_drawn_as_tcp_had_them(tmp_path):
    folder = run_folder("full-window", tmp_path)
    assert main(["trace", str(folder)]) == 0
    found = Read((folder / "trace.pftrace").read_bytes())
    (track,) = (track for track in found.counters if "/window bytes" in track)
    assert 0 in {value for _, value in found.counters[track]}  # a zero window


def test_joined_hosts_are_machines_on_their_own_clocks(tmp_path):
    run_folder("over-three", tmp_path)
    second = ("middle", "last")
    hosts = split(
        tmp_path / "run" / NAME, tmp_path, own_time, running_fast, second=second
    )
    folder = tmp_path / "joined"
    join(hosts, folder, lambda *_: None, JoinOptions())
    assert main(["trace", str(folder)]) == 0
    with tarfile.open(folder / "trace.tar") as archive:
        members = {one.name: archive.extractfile(one).read() for one in archive}
    assert next(iter(members)) == "perfetto_manifest.json"
    text = members.pop("perfetto_manifest.json")
    assert text.startswith(b'{"perfetto_manifest"')  # by which it is recognised
    manifest = json.loads(text)["perfetto_manifest"]
    first, other = manifest["files"]
    assert manifest["version"] == 1
    assert [first["machine"]["name"], other["machine"]["name"]] == ["a", "b"]
    assert manifest["trace_time"] == {"clock": "MONOTONIC", "file": first["path"]}
    assert {first["path"], other["path"]} == members.keys()
    clocks = other["clocks"]
    assert clocks["sync_to"] == {"file": first["path"], "clock": "MONOTONIC"}

    ours, theirs = (Read(members[one["path"]]) for one in (first, other))
    offsets = [
        values
        for track, values in ours.counters.items()
        if track.endswith("of b is ahead")
    ]
    assert -clocks["offset_ns"] in {value for _, value in offsets[0]}
    # b runs fast: its clock is ahead, and on the common one its threads are where the
    # stories have them
    assert clocks["offset_ns"] < 0
    on_b = [one for one in theirs.slices if "middle" in one.track]
    assert on_b
    servers = [one for one in ours.slices if "/reader: middle on b" in one.track]
    for one in on_b:
        begin_ns = one.begin_ns + clocks["offset_ns"]
        end_ns = one.end_ns + clocks["offset_ns"]
        assert any(s.begin_ns <= begin_ns and end_ns <= s.end_ns for s in servers)
    assert not [
        one
        for one in ours.slices
        if one.track.startswith("thread") and "middle" in one.track
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "it is made by `latprof run --story TIME`"),
        ('{"format": 1, "stories": [', "breaks off"),
        ("[" * 100_000, "cannot be parsed"),
        ("[1]", "is no object"),
    ],
)
def test_what_has_no_stories_is_refused_in_a_line(text, why, tmp_path, capsys):
    if text is not None:
        (tmp_path / "stories.json").write_text(text)
    assert main(["trace", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert why in said.err
    assert said.err.count("\n") == 1
    assert not (tmp_path / "trace.pftrace").exists()


def story_file(folder: Path, **message: Any) -> None:
    about = dict.fromkeys(
        (
            "sequence",
            "size_bytes",
            "sender_pid",
            "reader_pid",
            "sender_comm",
            "reader_comm",
            "retransmits",
        ),
    )
    one = {"protocol": "tcp", "kind": "message", "end_to_end_ns": 5, **about, **message}
    stage = {"receive_queue": {"time_ns": 5, "parts": None}}
    document = {
        "limit_ns": 1,
        "slow_messages": 1,
        "recorder": {"copies": 0, "skipped": 0, "symbols": "none needed"},
        "stories": [{"message": one, "stages": stage}],
    }
    (folder / "stories.json").write_text(json.dumps(document))


def test_stories_without_stamps_are_said_to_be_left_out(tmp_path, capsys):
    story_file(tmp_path)
    assert main(["trace", str(tmp_path)]) == 1
    assert "no story in it has its stamps" in capsys.readouterr().err
    story_file(tmp_path, read_ns=3)  # before it was made
    assert main(["trace", str(tmp_path)]) == 1
    story_file(tmp_path, read_ns=9, reader_comm="\x1b[31m\ud800</b>", reader_pid=7)
    assert main(["trace", str(tmp_path)]) == 0
    found = Read((tmp_path / "trace.pftrace").read_bytes())
    assert {(one.begin_ns, one.end_ns) for one in found.slices} == {(4, 9)}


@pytest.mark.parametrize(
    "row",
    [
        "b,a,1,2,,,x,good",
        "b,a,1",
        "b,a,1,x,,,1,good",
        f"b,a,1,{1 << 63},,,1,good",
        "x" * 200_000,
    ],
)
def test_clocks_that_are_none_do_no_harm(row, tmp_path, capsys):
    story_file(tmp_path, read_ns=9)
    head = "host,reference,at_ns,offset_ns,low_ns,high_ns,drift_ppb,state\n"
    (tmp_path / "clocks.csv").write_text(f"{head}{row}\n")
    status = main(["trace", str(tmp_path)])
    assert status == (0 if "x,good" in row else 1)
    assert capsys.readouterr().err.count("\n") == status


def test_the_archive_is_a_tar_of_ordinary_members(tmp_path):
    story_file(tmp_path, read_ns=9)
    rows = ["a,a,1,0,0,0,0,good", "../../b,a,1,5,,,1,unknown"]
    head = "host,reference,at_ns,offset_ns,low_ns,high_ns,drift_ppb,state"
    (tmp_path / "clocks.csv").write_text("\n".join((head, *rows, "")))
    assert main(["trace", str(tmp_path)]) == 0
    data = io.BytesIO((tmp_path / "trace.tar").read_bytes())
    with tarfile.open(fileobj=data) as archive:
        names = archive.getnames()
    assert len(names) == 3
    assert not [name for name in names if "/" in name or len(name) > 99]
