"""A recording gives back what was written, as far as it goes, and believes nothing."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.capture.recording_writer import (
    RecordingWriter,
    recording_header,
    rings_of,
)
from latprof_agent.probes.layout import layout_of
from latprof_agent.rebuild.rebuilt import ephemeral_ports
from latprof_analysis.read.result import ReadError
from latprof_analysis.records.recording import (
    CLOCKS,
    FORMAT,
    HEADER,
    PERIODS,
    WORDS,
    Recording,
    Step,
)

LAYOUT = layout_of()
RINGS = rings_of(LAYOUT, stories=True)
HEADER_WORDS = {
    "layout": {word: getattr(LAYOUT, word) for word in WORDS},
    "version": "0.0",
}


def records(ring: str, count: int, seed: int) -> np.ndarray:
    """Any bits; what the compiler left between fields is not recorded."""
    data = np.random.default_rng(seed).bytes(count * RINGS[ring].itemsize)
    return np.frombuffer(data, RINGS[ring])


def written(*fill: Callable[[RecordingWriter], None], header=HEADER_WORDS) -> bytes:
    file = io.BytesIO()
    writer = RecordingWriter(file.write, RINGS, header)
    for one in fill:
        one(writer)
    writer.close()
    return file.getvalue()


def read(data: bytes, path: Path) -> tuple[Recording, list[Step]]:
    path.write_bytes(data)
    recording = Recording(path)
    steps = list(recording.steps())
    return recording, steps[1:]  # without the first, which is empty


@pytest.mark.parametrize("ports", [range(32768, 61000), range(7, 8)])
def test_the_ports_of_clients_come_back_with_the_last(ports, tmp_path):
    header = recording_header(LAYOUT, [], ports)
    recording, _ = read(written(header=header), tmp_path / "recording")
    assert ephemeral_ports(recording) == ports


@pytest.mark.parametrize("ring", RINGS)
def test_every_field_of_a_ring_comes_back(ring, tmp_path):
    made = records(ring, 7, seed=1)
    data = written(lambda writer: writer.step(5, {ring: made}))
    recording, (step,) = read(data, tmp_path / "one")
    assert not recording.cut_off
    assert step.drained_ns == 5
    for name in RINGS[ring].names:
        assert np.array_equal(step.rings[ring][name], made[name]), name
    assert {name for name, found in step.rings.items() if len(found)} == {ring}


def test_logs_notes_and_periods_come_back_in_their_order(tmp_path):
    def fill(writer):
        writer.note(source={"kind": "generator"})
        writer.note(end=True)
        periods = np.array([[1, 2], [3, 9]])
        writer.step(None, {}, periods=periods, logs=[(0, 1, b"a\0b"), (2, 0, b"")])
        writer.step(8, {}, periods=np.array([[1, 2], [3, 5]]))

    recording, (first, second) = read(written(fill), tmp_path / "one")
    assert first.notes == [{"source": {"kind": "generator"}}, {"end": True}]
    assert first.logs == [(0, 1, b"a\0b"), (2, 0, b"")]
    assert (first.drained_ns, second.drained_ns) == (None, 8)
    assert first.beside[PERIODS].tolist() == [(1, 2), (3, 9)]
    assert second.beside[PERIODS].tolist() == [(3, 5)]  # its end is known by now
    assert (second.notes, second.logs) == ([], [])
    assert recording.layout.flags == LAYOUT.flags
    assert recording.header["version"] == "0.0"


def test_all_clocks_are_in_it_as_the_kernel_has_them(tmp_path):
    import time

    before_ns = time.time_ns() - time.monotonic_ns()
    path = tmp_path / "one"
    path.write_bytes(written())
    (step,) = Recording(path).steps()
    after_ns = time.time_ns() - time.monotonic_ns()
    (clocks,) = step.beside[CLOCKS]
    off_ns = int(clocks["realtime_ns"]) - int(clocks["monotonic_ns"])
    slack_ns = 1_000_000 + int(clocks["width_ns"])  # between the two readings here
    assert min(before_ns, after_ns) - slack_ns <= off_ns
    assert off_ns <= max(before_ns, after_ns) + slack_ns
    offset_ns = int(clocks["tai_ns"]) - int(clocks["realtime_ns"])
    tai_seconds = round(offset_ns / 1e9)  # 0 where nobody told the kernel, now 37
    assert tai_seconds in (0, *range(30, 50))


def test_any_arrow_library_reads_it(tmp_path):
    made = records("sent_messages", 3, seed=2)
    data = written(lambda writer: writer.step(5, {"sent_messages": made}))
    unpacked = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    table = pa.ipc.open_stream(unpacked).read_all()
    rows = table.column("sent_messages")[1].as_py()
    assert [row["send_ns"] for row in rows] == made["send_ns"].tolist()
    field = table.schema.field("sent_messages").type.value_type.field("send_ns")
    assert field.metadata == {b"unit": b"ns"}
    header = json.loads(table.schema.metadata[HEADER.encode()])
    assert header["format"] == FORMAT


def several(writer: RecordingWriter) -> None:
    for step in range(4):
        writer.note(counters={"step": step})
        writer.step(step, {"sent_messages": records("sent_messages", 50, seed=step)})


WHOLE = written(several)


@given(at=st.integers(0, len(WHOLE)))
@settings(max_examples=60, deadline=None)
def test_of_one_that_was_cut_off_all_steps_before_are_there(at, tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "one"
    _, whole = read(WHOLE, path)
    try:
        recording, steps = read(WHOLE[:at], path)
    except ReadError:
        assert at < len(WHOLE) // 2  # not even the schema
        return
    assert [step.drained_ns for step in steps] == list(range(len(steps)))
    for step, full in zip(steps, whole, strict=False):
        for ring, found in step.rings.items():
            assert np.array_equal(found, full.rings[ring])
    assert recording.cut_off or len(steps) == len(whole)


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "full")])
def test_what_interrupts_writing_reaches_whoever_gave_the_step(error, capfd):
    file, is_full = io.BytesIO(), False

    def write(data: bytes) -> None:
        if is_full:
            raise error
        file.write(data)

    writer = RecordingWriter(write, RINGS, HEADER_WORDS)
    is_full = True
    many = records("turns", 20_000, 1)  # so much is written before a step ends
    with pytest.raises(type(error) if isinstance(error, OSError) else error):
        writer.step(1, {"turns": many})
    assert capfd.readouterr().err == ""


def test_steps_of_before_come_with_their_notes_and_the_rings_that_are_named(tmp_path):
    def fill(writer):
        names = records("tasks", 3, seed=1)
        for at in (5, 6, 7):
            writer.note(counters={"at": at})
            sent = records("sent_messages", at, seed=at)
            writer.step(at, {"tasks": names, "sent_messages": sent})

    (tmp_path / "one").write_bytes(written(fill))
    _, first, second, last = Recording(tmp_path / "one").steps(
        since_ns=7, always=("tasks",)
    )
    for step, at in ((first, 5), (second, 6)):
        assert (step.drained_ns, list(step.rings), step.beside) == (at, ["tasks"], {})
        assert len(step.rings["tasks"]) == 3
        assert step.notes == [{"counters": {"at": at}}]
    assert set(last.rings) == set(RINGS)
    assert len(last.rings["sent_messages"]) == 7


def test_a_step_of_another_recording_is_written_as_it_was(tmp_path):
    def fill(writer):
        writer.note(counters={"lost": 1})
        batch = {ring: records(ring, 2, seed=3) for ring in RINGS}
        writer.step(5, batch, periods=np.array([[1, 2]]), logs=[(0, 1, b"line")])

    _, (step,) = read(written(fill), tmp_path / "one")
    _, (copy,) = read(written(lambda writer: writer.copy(step)), tmp_path / "copy")
    assert (copy.drained_ns, copy.notes, copy.logs) == (5, step.notes, step.logs)
    for ring in RINGS:
        assert np.array_equal(copy.rings[ring], step.rings[ring]), ring
    for name, found in step.beside.items():
        assert np.array_equal(copy.beside[name], found), name


def packed(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_what_somebody_else_wrote_is_read_or_refused_in_one_line(
    data, tmp_path_factory
):
    path = tmp_path_factory.mktemp("hostile") / "one"
    inner = bytearray(zstandard.ZstdDecompressor().decompressobj().decompress(WHOLE))
    for _ in range(data.draw(st.integers(1, 8))):
        inner[data.draw(st.integers(0, len(inner) - 1))] = data.draw(
            st.integers(0, 255)
        )
    try:
        read(packed(bytes(inner)), path)
    except ReadError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("header", "why"),
    [
        ({**HEADER_WORDS, "format": FORMAT + 1}, "use latprof 0.0"),
        ({**HEADER_WORDS, "format": "1"}, "no format"),
        ({"layout": {}}, "no recording"),
        ({"layout": {**HEADER_WORDS["layout"], "flags": {"a": "b"}}}, "no recording"),
    ],
)
def test_a_header_that_is_none_is_refused(header, why, tmp_path):
    with pytest.raises(ReadError, match=why):
        read(written(header=header), tmp_path / "one")


@pytest.mark.parametrize("data", [b"", b"{}", packed(b""), packed(b"abc" * 999)])
def test_a_file_of_another_kind_is_refused(data, tmp_path):
    with pytest.raises(ReadError, match="no recording"):
        read(data, tmp_path / "one")


def test_what_is_no_file_is_not_opened(tmp_path):
    import os

    os.mkfifo(tmp_path / "one")
    with pytest.raises(ReadError, match="no regular file"):
        Recording(tmp_path / "one")
