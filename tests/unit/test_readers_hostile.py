"""Whatever a file holds: samples, or one line that names the file and the reason."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent.sinks.round_trip_rows import COLUMNS
from latprof_analysis.read import ReadError, detect, lines, read_columns, read_samples
from latprof_analysis.read.schema import MESSAGES

DATA = Path(__file__).parent.parent / "data"
FILES = sorted(path for path in DATA.rglob("*") if path.is_file())
_OTHERS = ("run.json", "summary.json", "make.sh", "README.md")
READABLE = [path for path in FILES if path.name not in _OTHERS]
HEADER = ",".join(column.name for column in MESSAGES.columns)
BELONG = f"where {len(MESSAGES.columns)} belong"


@pytest.fixture
def write(tmp_path):
    """Write a file to read."""

    def write(content: str | bytes) -> Path:
        path = tmp_path / "file"
        path.unlink(missing_ok=True)  # ext4 waits for the disk where one is replaced
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def message(**values: object) -> str:
    """A line of messages.csv."""
    row = {"protocol": "tcp", "kind": "request", "size_bytes": 64, "send_ns": 5}
    row |= values
    return ",".join(str(row.get(c.name, "")) for c in MESSAGES.columns) + "\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "it is empty"),
        (" \n\n", "it is empty"),
        (b"\x7fELF\0\0\0", "it is binary"),
        (b"\x1f\x8b\x08", "gzip data break off"),
        (b"\x1f\x8bx", "gzip data"),
        ("a,b\n".encode("utf-16"), "UTF-16; save it as UTF-8"),
        (b"PAR1....", "pyarrow|no whole Parquet"),
        ("a,b\n1,2\n", r"\(its columns: a, b\) say --latency-column and --unit"),
        ("a\n1\n", "of any CSV --latency-column names the column"),
        ("a\x1b[2J,b\n1,2\n", r"its columns: a\?\[2J, b"),
        ("size,ms\r64,5\r", "its lines end in CR alone; save it with LF"),
        (f"{HEADER}\r{HEADER}\n", "its lines end in CR alone; save it with LF"),
        (f"{HEADER},more\n" + "1,2\n" * 3, "columns, and each row 2, from line 2 on"),
        (HEADER + "x" * 70_000 + ",kind,size_bytes,send_ns\n", "more than 65536 bytes"),
        ("Size = 1 bytes, average latency = 1e99 s\n", "more than a hundred years"),
        ('{"start": {}, "int', "JSON breaks off in line 1 column"),
        ("[" * 100_000, "JSON"),
        (b'{"a": "\xff"}', "byte 7 is no UTF-8"),
        ('{"a": 1}', "its JSON is of no known format"),
        ("[1]", "its JSON is no object"),
        ('{"format":1,"state":"done","folder":"x"}', "give the folder"),
        ('{"start":{},"intervals":[],"end":{},"error":"no\\nroute"}', r"no\\nroute"),
        ('{"start":{"test_start":{}},"intervals":[],"end":{}}', "no intervals"),
        ('{"start":1,"intervals":2,"end":3}', "no object 'start'"),
        ('{"version":{"json_format":2},"round_trips":[]}', "must be 1, got '2'"),
        ("sockperf: No messages were received\n", "no reply came"),
        ("backend,op,payload_size_bytes,avg_time_ms\n", "columns repeat"),
        ("protocol,kind,size_bytes,send_ns,kind\n", "column 'kind' twice"),
        ("stress perf,1,local\n", "most rows are wrong .1 of 1., the first in line 1"),
    ],
)
def test_a_file_that_is_nothing_is_refused_in_one_line(write, content, why):
    path = write(content)
    with pytest.raises(ReadError, match=why) as refusal:
        read_samples(path)
    assert str(refusal.value).startswith(f"cannot read {path}: ")
    assert "\n" not in str(refusal.value)


def test_what_is_not_there_or_no_run_folder_is_refused(tmp_path):
    with pytest.raises(ReadError, match="no such file or directory"):
        read_samples(tmp_path / "nothing")
    with pytest.raises(ReadError, match="the folder has none of messages"):
        read_samples(tmp_path)
    with pytest.raises(ValueError, match="at least one file"):
        read_samples([])


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (message(send_ns=-5), "send_ns must be 0 or more, got -5"),
        (message(send_ns="NaN"), "send_ns must be a whole number, got 'NaN'"),
        (message(send_ns="1e9"), "send_ns must be a whole number, got '1e9'"),
        (message(send_ns=10**30), "send_ns must be a whole number, got '1000"),
        (message(kind=""), "kind is missing"),
        (message(size_bytes="64 B"), "size_bytes must be a whole number, got '64 B'"),
        (message(read_ns=4), "read_ns 4 is before send_ns 5"),
        (message(queue_ns=9, read_ns=7), "read_ns 7 is before queue_ns 9"),
        ("tcp,1,2\n", f"3 fields {BELONG}"),
        (message(sender_comm='"x'), "a quote that is not closed"),
        (message(sender_comm="a\0b"), "a NUL byte"),
        (HEADER + "\n", "must be a whole number"),
        (message(size_bytes="\x1b[2J" + "9" * 500), r"'\x1b[2J99999"),
    ],
)
def test_a_wrong_message_is_left_out_with_line_and_reason(write, row, why):
    good = message()
    path = write(HEADER + "\n" + good * 3 + row + good * 2)
    samples = read_samples(path)
    assert [skipped.line for skipped in samples.skipped] == [5]
    assert why in samples.skipped[0].why
    assert len(samples.skipped[0].why) < 120


def test_columns_that_stand_under_each_others_names_are_refused(write):
    names = HEADER.split(",")
    first, size = 0, names.index("size_bytes")
    names[first], names[size] = names[size], names[first]
    path = write(",".join(names) + "\n" + message() * 5)
    with pytest.raises(ReadError, match="size_bytes must be a whole number, got 'tcp'"):
        read_samples(path)


def test_a_line_without_end_is_left_out_and_what_follows_is_read(write, monkeypatch):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(lines, "LONGEST_LINE_BYTES", 8192)
    huge = message(sender_comm="x" * 100_000)
    good = message(read_ns=9, end_to_end_ns=4)
    samples = read_samples(write(HEADER + "\n" + good + huge + good + "x\n"))
    assert len(samples.frame) == 2
    assert [str(row.line) + row.why for row in samples.skipped] == [
        "3the line is longer than 8192 bytes",
        f"51 field {BELONG}",
    ]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("udp,2,64,64,5,5,9,,0", "it is not lost, and has no rtt_ns"),
        ("udp,2,64,64,5,5,9,4,2", "lost must be 0 or 1, got 2"),
        ("udp,,64,64,5,5,9,4,0", "sequence is missing"),
    ],
)
def test_a_wrong_round_trip_is_left_out_with_its_reason(write, row, why):
    head = ",".join(COLUMNS)
    samples = read_samples(write(f"{head}\nudp,1,64,64,5,5,9,4,0,\n{row},\n"))
    assert [(bad.line, bad.why) for bad in samples.skipped] == [(3, why)]
    assert samples.frame["latency_ns"].tolist() == [4.0]


def test_formulas_and_markup_stay_plain_text(write):
    text = '=HYPERLINK("x")<script>alert(1)</script>'
    quoted = '"' + text.replace('"', '""') + '"'
    path = write(HEADER + "\n" + message(kind=quoted, read_ns=9, end_to_end_ns=4))
    assert read_samples(path).frame["kind"].tolist() == [text]


def test_a_unit_that_cannot_be_is_refused(write):
    path = write("t\n" + "250000\n" * 5)
    with pytest.raises(ValueError, match="unit must be ns, us, ms or s, got 'h'"):
        read_columns(path, latency_column="t", unit="h")
    with pytest.raises(ReadError, match=r"median latency would be 2\.5e\+05 s; is the"):
        read_columns(path, latency_column="t", unit="s")
    tiny = write("t\n" + "0.0002\n" * 5)
    with pytest.raises(ReadError, match="is the unit ns"):
        read_columns(tiny, latency_column="t", unit="ns")


@pytest.mark.parametrize(
    ("content", "options", "why"),
    [
        ("a,b\n1,2\n", {"latency_column": "c", "unit": "ms"}, "column c missing; it"),
        ("a\n\n\n", {"latency_column": "a", "unit": "ms"}, "it has no latency"),
        ("a\nx\ny\n", {"latency_column": "a", "unit": "ms"}, "a must be a number"),
        ("a\n1\n", {"latency_column": "a"}, "unit of column 'a' must be given"),
        ("a\n1\n", {"unit": "ms"}, "of any CSV --latency-column names the column"),
        ("a\n1\n", {"size_column": "a"}, "latency_column must be given"),
        (
            "a\n1\n",
            {"latency_column": "a", "unit": "ms", "size_column": "a"},
            "must differ",
        ),
    ],
)
def test_columns_that_cannot_be_read_are_refused(write, content, options, why):
    with pytest.raises(ValueError, match=why):
        read_samples(write(content), **options)


@pytest.mark.parametrize("path", READABLE, ids=lambda path: path.name)
def test_a_file_cut_anywhere_is_read_or_refused(path, write):
    content = path.read_bytes()
    for end in range(0, len(content), max(1, len(content) // 40)):
        _read_or_refuse(write(content[:end]))


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(READABLE), st.data())
def test_a_file_with_any_bytes_in_it_is_read_or_refused(tmp_path_factory, path, data):
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content)))
    to = data.draw(st.integers(at, min(len(content), at + 50)))
    content[at:to] = data.draw(
        st.binary(max_size=50) | st.sampled_from([b'"', b",", b"\n", b"\0", b"null"])
    )
    spoiled = tmp_path_factory.mktemp("spoiled") / "file"
    spoiled.write_bytes(content)
    _read_or_refuse(spoiled)


def _read_or_refuse(path: Path) -> None:
    try:
        samples = read_samples(path)
    except ReadError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)
    else:
        latency = samples.frame["latency_ns"]
        assert (latency[~samples.frame["lost"]] >= 0).all()
        assert detect(path) in (*samples.format.split(), "messages", "round-trips")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_refused(write):
    path = write("a\n1\n")
    path.chmod(0)
    with pytest.raises(ReadError, match="permission denied"):
        read_samples(path)
