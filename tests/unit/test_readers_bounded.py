"""No file takes more memory or time than its size is worth, or never ends."""

from __future__ import annotations

import gzip
import os
import socket
import subprocess
import sys
import textwrap

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import ReadError, json_document, read_samples, run_folder
from latprof_analysis.read.proxystore import SCHEMA as PROXYSTORE
from latprof_analysis.read.schema import MESSAGES, ROUND_TRIPS
from run_folders import write_run

LIMIT_BYTES = 3 << 30
MOST_PEAK_BYTES = 700 << 20


def analyzed(path, *, lines=()):
    """Analyze in a process of its own with little memory; its end and peak."""
    code = textwrap.dedent(
        f"""
        import resource, sys
        resource.setrlimit(resource.RLIMIT_AS, ({LIMIT_BYTES},) * 2)
        from latprof_analysis.cli import OFFLINE, VERSION
        from latprof_analysis.cli.program import run_program
        {"; ".join(lines)}
        status = run_program(OFFLINE, VERSION, ["analyze", sys.argv[1], "--json"])
        status_lines = open("/proc/self/status").read().splitlines()
        (peak,) = (line for line in status_lines if line.startswith("VmHWM:"))
        print("peak", int(peak.split()[1]) << 10, file=sys.stderr)
        sys.exit(status)
        """
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, path],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
    )
    *told, last = ended.stderr.splitlines()
    assert last.startswith("peak "), ended.stderr
    return ended.returncode, "\n".join(told), int(last.split()[1])


def assert_refused(path, why):
    """Refused in one line, in little memory."""
    status, told, peak = analyzed(path)
    assert (status, told.count("\n")) == (1, 0), told
    assert why in told
    assert peak < MOST_PEAK_BYTES


def bomb_of_rows(path, schema, rows):
    """Write a Parquet file whose rows are all the same, in a few kB."""
    values = {"text": ("tcp", pa.string()), "count": (1, pa.int64())}
    names = [column.name for column in schema.columns if column.needed]
    kinds = {column.name: column.kind for column in schema.columns}
    columns = {
        name: pa.DictionaryArray.from_arrays(
            pa.array([0] * 1000, pa.int32()),
            pa.array([values[kinds[name]][0]], values[kinds[name]][1]),
        )
        for name in names
    }
    if schema is ROUND_TRIPS:
        columns["rtt_ns"] = columns["size_bytes"]
    table = pa.concat_tables([pa.table(columns)] * (rows // 1000))
    pq.write_table(table, path, row_group_size=rows, compression="zstd")
    return path


@pytest.mark.parametrize("schema", [MESSAGES, ROUND_TRIPS], ids=("messages", "trips"))
def test_a_parquet_file_of_few_bytes_and_many_rows_is_refused(tmp_path, schema):
    name = "messages" if schema is MESSAGES else "round_trips"
    path = bomb_of_rows(tmp_path / f"{name}.parquet", schema, 20_000_000)
    assert path.stat().st_size < 1 << 20
    assert_refused(tmp_path, f"it claims 20000000 rows in {path.stat().st_size} bytes")


def test_a_parquet_file_with_a_text_of_gigabytes_is_refused(tmp_path):
    path = tmp_path / "messages.parquet"
    row = pa.table(
        {
            "protocol": pa.array(["tcp"]),
            "kind": pa.array(["x" * (60 << 20)]),
            "size_bytes": pa.array([1]),
            "send_ns": pa.array([1]),
        }
    )
    rows = pa.concat_tables([row] * 20)  # the same memory twenty times
    pq.write_table(rows, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 1 << 20
    assert_refused(tmp_path, "a row group has 1200 MiB unpacked")


def test_a_long_text_of_a_parquet_file_is_not_repeated_for_every_row(tmp_path):
    rows = 300_000
    labels = pa.array(["tcp", "x" * (64 << 10)])
    kinds = pa.DictionaryArray.from_arrays(pa.array([0] * 9 + [1], pa.int32()), labels)
    kinds = pa.concat_arrays([kinds] * (rows // 10))
    names = [column.name for column in ROUND_TRIPS.columns if column.needed]
    ones = pa.array([1] * rows)
    columns = dict.fromkeys([*names, "rtt_ns"], ones) | {"protocol": kinds}
    columns["lost"] = pa.array([0] * rows)
    pq.write_table(pa.table(columns), tmp_path / "round_trips.parquet")
    status, told, peak = analyzed(tmp_path)
    assert (status, told) == (0, "")
    assert peak < MOST_PEAK_BYTES
    samples = read_samples(tmp_path)
    assert (len(samples.frame), samples.skipped_rows) == (rows * 9 // 10, rows // 10)
    assert samples.skipped[0].why == "protocol has more than 1000 characters"


def test_a_description_of_gigabytes_is_left_out_in_one_line(tmp_path):
    write_run(tmp_path / "run")
    with (tmp_path / "run" / "run.json").open("wb") as file:
        file.write(b'{"name": "')
        file.truncate(6 << 30)
    status, told, peak = analyzed(tmp_path / "run")
    assert (status, told) == (0, "")
    assert peak < MOST_PEAK_BYTES


def test_what_is_left_out_of_a_large_description_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(run_folder, "MOST_BYTES", 1 << 20)
    write_run(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text("[" + " " * (1 << 20) + "]")
    notes: list[str] = []
    run_folder.read_documents(tmp_path / "run", "run", notes)
    path = tmp_path / "run" / "run.json"
    assert notes == [f"run: cannot read {path}: it has more than 1 MiB of JSON"]


def test_json_of_other_tools_is_read_up_to_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(json_document, "MOST_BYTES", 1 << 20)
    path = tmp_path / "irtt.json"
    path.write_text('{"version": {}, "round_trips": [' + "1," * (1 << 19) + "1]}")
    with pytest.raises(ReadError, match="it has more than 1 MiB of JSON"):
        read_samples(path)


def fifo(path):
    os.mkfifo(path)


def unix_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def link_to(target):
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (fifo, "it is no regular file"),
        (unix_socket, "it is no regular file"),
        (link_to("/dev/zero"), "it is no regular file"),
        (link_to("/proc/kmsg"), "it is empty"),
        (link_to("/proc/self/mem"), "it is empty"),
        (link_to("nothing"), "no such file"),
    ],
    ids=("fifo", "socket", "device", "kmsg", "mem", "dangling link"),
)
@pytest.mark.parametrize("named", [False, True], ids=("told", "columns"))
def test_what_is_no_file_is_refused_at_once(tmp_path, capsys, make, why, named):
    path = tmp_path / "file"
    make(path)
    options = ["--latency-column", "rtt", "--unit", "ms"] if named else []
    assert run_program(OFFLINE, VERSION, ["analyze", str(path), *options]) == 1
    told = capsys.readouterr().err
    assert told.startswith(f"latprof: cannot read {path}: ")
    assert why in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("name", ["messages.csv", "messages.parquet", "run.json"])
@pytest.mark.parametrize("make", [fifo, link_to("/dev/zero"), link_to("/proc/kmsg")])
def test_what_is_no_file_in_a_run_folder_does_not_hang(tmp_path, capsys, make, name):
    folder = tmp_path / "run"
    write_run(folder)
    (folder / name).unlink(missing_ok=True)
    make(folder / name)
    status = run_program(OFFLINE, VERSION, ["analyze", str(folder)])
    told = capsys.readouterr()
    assert (status, told.err.count("\n")) in ((0, 0), (1, 1))


@pytest.mark.parametrize(
    "name", ["messages.csv", "round_trips.csv.gz", "messages.parquet", "run.json"]
)
def test_what_was_packed_to_fill_the_memory_is_refused(tmp_path, capsys, name):
    folder = tmp_path / "run"
    write_run(folder)
    schema = ROUND_TRIPS if name.startswith("round_trips") else MESSAGES
    header = ",".join(column.name for column in schema.columns) + "\n"
    packed = gzip.compress(header.encode() + bytes(65 << 20))
    # which is read else
    (folder / name.replace("parquet", "csv").removesuffix(".gz")).unlink()
    (folder / name).write_bytes(packed)
    status = run_program(OFFLINE, VERSION, ["analyze", str(folder)])
    told = capsys.readouterr()
    # what describes a run is left out, and a note says so
    assert status == (0 if name.endswith("json") else 1)
    said = " ".join((told.out + told.err).split())
    assert "it unpacks to more than 200 times its size" in said


def test_more_kinds_than_any_tool_has_are_refused_at_once(tmp_path, capsys):
    path = tmp_path / "ops.csv"
    header = ",".join(column.name for column in PROXYSTORE.columns)
    rows = (f"R,op{i},64,5,5,1,1,1,1\n" for i in range(100_000))
    path.write_text(header + "\n" + "".join(rows))
    assert run_program(OFFLINE, VERSION, ["analyze", str(path)]) == 1
    assert "cannot tell 100000 kinds of latencies apart" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_line_of_gigabytes_is_left_out_in_little_memory(tmp_path):
    header = ",".join(column.name for column in MESSAGES.columns)
    with (tmp_path / "messages.csv").open("wb") as file:
        file.write(header.encode() + b"\n")
        file.truncate(2 << 30)  # NUL bytes, which take no room on the disk
    assert_refused(tmp_path, "the line is longer than 1048576 bytes")
