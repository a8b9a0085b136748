"""Run folders are read cell by cell, and wrong rows are told by their lines."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.read import ReadError, cells, lines, read_runs, read_samples
from latprof_analysis.read.result import Skipped
from latprof_analysis.read.run_folder import write_parquet
from latprof_analysis.read.schema import MESSAGES, Column, Schema
from latprof_analysis.read.table import TableReader
from latprof_analysis.study.scan import scan_runs

DATA = Path(__file__).parent.parent / "data"
RUN = DATA / "run"
HEADER = ",".join(column.name for column in MESSAGES.columns)


@pytest.fixture(params=["column by column", "whole blocks"])
def engine(request, monkeypatch):
    """Parse blocks by each library in turn."""
    if request.param == "column by column":
        monkeypatch.setattr(cells, "_is_odd", lambda data, columns: True)
    return request.param


@pytest.fixture
def folder(tmp_path):
    """A copy of the sample run to spoil."""
    return Path(shutil.copytree(RUN, tmp_path / "run"))


def cells_of(path: Path) -> list[dict[str, str]]:
    """The rows as python's csv module sees them."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def as_text(value: object) -> str:
    return "" if pd.isna(value) else str(value)


@pytest.mark.parametrize("table", ["messages", "round_trips"])
def test_every_cell_is_what_the_csv_module_reads(engine, table):
    frame = getattr(read_runs([RUN]), table)
    expected = cells_of(RUN / f"{table}.csv")
    assert len(frame) == len(expected) > 10
    for name in expected[0]:
        assert [as_text(x) for x in frame[name]] == [row[name] for row in expected]
    assert set(frame["run"]) == {"run"}


def test_times_above_two_to_the_53_keep_their_nanoseconds_beside_blanks(engine, folder):
    path = folder / "round_trips.csv"
    first, second = 2**53 + 1, 2**60 + 1  # no float64 is either
    rows = f"udp,1,64,64,{first},{first},,,1\nudp,2,64,64,7,7,{second},5,0\n"
    path.write_text(path.read_text().splitlines()[0] + "\n" + rows)
    frame = read_runs([folder]).round_trips
    assert frame["sent_ns"].tolist() == [first, 7]
    assert frame["received_ns"].tolist() == [pd.NA, second]


def test_round_trips_become_samples_with_the_lost_among_them():
    samples = read_samples(RUN)
    expected = cells_of(RUN / "round_trips.csv")
    lost = [row["lost"] == "1" for row in expected]
    assert samples.format == "run"
    assert samples.frame["lost"].tolist() == lost
    assert sum(lost) == 1
    rtt = [float(row["rtt_ns"]) if row["rtt_ns"] else np.nan for row in expected]
    np.testing.assert_array_equal(samples.frame["latency_ns"], rtt)
    assert "responder's own time" in samples.meta["latency"]


def test_a_run_without_round_trips_gives_its_messages(folder):
    (folder / "round_trips.csv").unlink()
    ends = [row["end_to_end_ns"] for row in cells_of(RUN / "messages.csv")]
    samples = read_samples(folder)
    assert samples.frame["latency_ns"].tolist() == [float(x) for x in ends if x]


def test_a_killed_run_is_read_up_to_the_line_that_was_cut(engine, folder):
    (folder / "summary.json").unlink()
    (folder / "run.json").write_text('{"format": 1, "state": "running"}')
    path = folder / "messages.csv"
    whole = path.read_text()
    rows = whole.count("\n") - 1
    path.write_text(whole[:-3])  # the last cell would read as a smaller number
    runs = read_runs([folder])
    assert len(runs.messages) == rows - 1
    assert [str(row) for row in runs.skipped] == [
        f"{path}:{rows + 1}: the line has no end: it was cut"
    ]
    assert any("killed" in note for note in runs.notes)
    assert any("is running" in note for note in runs.notes)


def test_a_run_that_was_killed_at_once_has_no_rows(engine, folder):
    (folder / "messages.csv").write_text(HEADER + "\n")
    (folder / "round_trips.csv").unlink()
    (folder / "run.json").write_text('{"state": "runn')
    runs = read_runs([folder])
    assert len(runs.messages) == len(runs.round_trips) == 0
    assert runs.messages["send_ns"].dtype == "Int64"
    assert any("JSON breaks off in line 1" in note for note in runs.notes)


def test_runs_are_read_together_by_folder_glob_and_parent(tmp_path):
    for name in ("one", "two", "three"):
        shutil.copytree(RUN, tmp_path / name)
    rows = len(cells_of(RUN / "round_trips.csv"))
    assert len(read_samples(tmp_path).frame) == 3 * rows
    assert len(read_samples(str(tmp_path / "t*")).frame) == 2 * rows
    both = read_samples([tmp_path / "one", tmp_path / "two", tmp_path / "one"])
    assert both.frame["source"].value_counts().to_dict() == {"one": rows, "two": rows}
    with pytest.raises(ReadError, match="no file or folder matches"):
        read_samples(str(tmp_path / "x*"))


def test_an_older_folder_lacks_columns_and_a_newer_one_has_more(engine, folder):
    path = folder / "messages.csv"
    rows = cells_of(path)
    names = [name for name in rows[0] if name not in ("wakeup_ns", "hops")]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["colour", *names], extrasaction="ignore", lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows({**row, "colour": "red"} for row in rows)
    runs = read_runs([folder])
    assert runs.messages["wakeup_ns"].isna().all()
    assert runs.messages["read_ns"].notna().any()
    assert "colour" in runs.notes[0]
    assert list(runs.messages.columns) == [*HEADER.split(","), "run"]


def test_a_folder_from_before_the_column_translated_is_read_whole(engine, folder):
    # recorded when messages.csv had 31 columns
    header, *rows = (RUN / "messages.csv").read_text().splitlines()
    assert header.count(",") == 30
    assert "translated" not in header
    by_row = read_runs(folder)
    assert (by_row.skipped_rows, len(by_row.messages)) == (0, len(rows))
    scan = scan_runs(folder)
    assert (scan.skipped_rows, scan.row_counts["run", "messages"]) == (0, len(rows))
    if engine == "whole blocks":
        write_parquet(folder)
        (folder / "messages.csv").unlink()
        assert read_runs(folder).messages.equals(by_row.messages)


def test_only_the_columns_that_are_asked_for_are_kept(engine):
    runs = read_runs([RUN], columns={"kind", "end_to_end_ns", "rtt_ns"})
    assert list(runs.messages.columns) == ["kind", "end_to_end_ns", "run"]
    assert list(runs.round_trips.columns) == ["rtt_ns", "run"]


def test_parquet_says_the_same_as_csv(folder):
    expected = read_runs([folder])
    for table in ("messages", "round_trips"):
        text = folder / f"{table}.csv"
        pq.write_table(pa_csv.read_csv(text), folder / f"{table}.parquet")
        text.unlink()
    got = read_runs([folder])
    for table in ("messages", "round_trips"):
        pd.testing.assert_frame_equal(
            getattr(got, table), getattr(expected, table), check_categorical=False
        )
    assert read_samples(folder / "messages.parquet").format == "run"
    (folder / "messages.csv").write_text(HEADER + "\n")  # a Parquet file cut short
    broken = (folder / "messages.parquet").read_bytes()[:-9]
    (folder / "messages.parquet").write_bytes(broken)
    assert len(read_runs([folder]).messages) == 0
    with pytest.raises(ReadError, match="no whole Parquet"):
        read_samples(folder / "messages.parquet")


@pytest.mark.parametrize("broken", ["cut", "a name that is no UTF-8"])
def test_parquet_that_is_broken_is_left_for_the_csv(folder, broken):
    path = folder / "messages.parquet"
    path.write_bytes(b"PAR1 and so on")
    if broken != "cut":
        pq.write_table(pa_csv.read_csv(folder / "messages.csv"), path)
        path.write_bytes(path.read_bytes().replace(b"size_bytes", b"size\x8bbytes"))
    assert len(read_runs([folder]).messages) > 10
    (folder / "messages.csv").unlink()
    with pytest.raises(ReadError, match=r"messages\.parquet: it breaks off"):
        read_runs([folder])


def test_parquet_with_a_long_text_for_a_number_is_refused_in_a_short_line(folder):
    rows = pd.read_csv(folder / "messages.csv").astype({"send_ns": str})
    rows.loc[0, "send_ns"] = "x" * 5000
    (folder / "messages.csv").unlink()
    rows.to_parquet(folder / "messages.parquet")
    with pytest.raises(ReadError, match=r"send_ns must be a count: .* 'xxx") as refusal:
        read_runs([folder])
    assert len(str(refusal.value)) < 1000


def test_no_byte_of_a_parquet_file_that_is_wrong_ends_in_a_traceback(tmp_path):
    path = tmp_path / "messages.parquet"
    needed = Schema(tuple(c for c in MESSAGES.columns if c.needed))
    rows = pa.table(
        {
            "protocol": ["tcp", "tcp", "udp"],
            "kind": ["request"] * 3,
            "size_bytes": [64, 64, 1000],
            "send_ns": [5, 6, 7],
        }
    )
    pq.write_table(rows, path, store_schema=False, write_statistics=False)
    whole = path.read_bytes()
    read = 0
    for place, changed in itertools.product(range(len(whole)), (0x01, 0x55, 0xFF)):
        path.write_bytes(
            whole[:place] + bytes([whole[place] ^ changed]) + whole[place + 1 :]
        )
        with suppress(ReadError):
            read += len(TableReader(path, needed, parquet=True).frame()) > 0
    # names of the writer, say
    assert 100 < read < 2 * len(whole)


PAIR = Schema((Column("a", "count"), Column("b", "number"), Column("c", "text")))
GOOD = st.tuples(
    st.integers(0, 10**18 - 1).map(str),
    st.floats(0, 1e12).map(repr),
    st.sampled_from(
        ["x", "=cmd()", "<b>", "NaN", "-1", "007", "ü", '"a,b"', '"two\nlines"']
    ),
).map(",".join)
BAD = st.sampled_from(
    (
        *("", "1", "1,2", "1,2,x,y", "-1,2,x", "1,-2,x", "1,nan,x", "1,inf,x"),
        *("nan,1,x", "1.5,2,x", "0x10,2,x", "1,0x10,x", ",2,x", "1,,x", "1,2,"),
        *("one,2,x", '1,2,"x', '1,2,"x"y', "1e3,2,x", f"{2**64},2,x", "1,2\0,x"),
        *("1,2,x\ry", "True,1,x", "1,2.0.0,x", "1_0,2,x"),
    )
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.just(True), GOOD) | st.tuples(st.just(False), BAD)))
def test_exactly_the_wrong_rows_are_left_out_and_told_by_line(tmp_path_factory, rows):
    good = [text for is_good, text in rows if is_good]
    rows = rows + [(True, "1,2.0,x")] * len(rows)  # most are right
    path = tmp_path_factory.mktemp("t") / "t.csv"
    text = "a,b,c\n" + "".join(row + "\n" for _, row in rows)
    path.write_bytes(text.encode())
    table = TableReader(path, PAIR)
    frame = table.frame()

    expected = list(csv.reader(good))[: len(good)]
    got = frame.iloc[: len(good)]
    assert got["a"].tolist() == [int(row[0]) for row in expected]
    assert got["b"].tolist() == [float(row[1]) for row in expected]
    assert got["c"].tolist() == [row[2] for row in expected]
    assert len(frame) == len(good) + len(rows) // 2
    bad_lines, line = [], 2
    for is_good, row in rows:
        if not is_good and row:  # an empty line is no row
            bad_lines.append(line)
        line += 1 + row.count("\n")
    assert sorted(row.line for row in table.skipped.rows) == bad_lines
    assert table.skipped.count == len(bad_lines)


def test_lines_are_right_across_blocks(monkeypatch, tmp_path, engine):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    rows = [f"{i},{i}.5,text" for i in range(500)]
    for i in (7, 123, 499):
        rows[i] = f"{i},x,text"
    rows[200] = '200,200.5,"a\nb"'
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "\n".join(rows))  # no newline at the end
    table = TableReader(path, PAIR)
    frame = table.frame()
    assert [row.line for row in table.skipped.rows] == [9, 125, 502]
    assert frame["a"].tolist() == [i for i in range(500) if i not in (7, 123, 499)]
    assert frame["c"].tolist().count("a\nb") == 1


def test_a_text_that_is_blank_in_a_whole_block_is_missing_there(
    monkeypatch, tmp_path, engine
):
    monkeypatch.setattr(lines, "BLOCK_BYTES", 64)
    schema = Schema((Column("a", "count"), Column("c", "text", blank=True)))
    path = tmp_path / "t.csv"
    path.write_text("a,c\n" + "1,\n" * 50 + "1,007\n" * 50 + "1,True\n" * 50)
    texts = TableReader(path, schema).frame()["c"]
    assert texts.isna().tolist() == [True] * 50 + [False] * 100
    assert texts.dropna().tolist() == ["007"] * 50 + ["True"] * 50


def test_wrong_rows_are_all_counted_and_the_first_hundred_told(tmp_path, engine):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n" + "1,2,x\n" * 1000 + "1,-2,x\n" * 900)
    table = TableReader(path, PAIR)
    table.frame()
    assert table.skipped.count == 900
    assert [row.line for row in table.skipped.rows] == list(range(1002, 1102))


def test_a_file_of_mostly_wrong_rows_is_refused_with_its_first(tmp_path, engine):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,2,x\n1,2,x\nhello,2,x\n1,2\n1,2\n")
    with pytest.raises(ReadError) as refusal:
        TableReader(path, PAIR).frame()
    assert str(refusal.value) == (
        f"cannot read {path}: most rows are wrong (3 of 5), the first in line 4:"
        " a must be a whole number, got 'hello'; is it what it looks like?"
    )


def test_a_result_can_be_written_as_json():
    document = json.loads(json.dumps(read_samples(RUN).as_dict()))
    assert document["rows"] == 17
    assert document["lost"] == 1


def test_what_was_skipped_is_told_as_file_line_and_reason():
    skipped = Skipped("a.csv")
    skipped.add(3, "why")
    assert str(skipped.rows[0]) == "a.csv:3: why"


def test_runs_may_be_named_by_a_pattern_or_the_folder_above(folder):
    shutil.copytree(folder, folder.parent / "another")
    each = read_runs([folder.parent / "another", folder]).messages
    assert sorted(each["run"].unique()) == ["another", "run"]
    for paths in (folder.parent, str(folder.parent / "*")):
        pd.testing.assert_frame_equal(read_runs(paths).messages, each)
