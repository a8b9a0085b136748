"""Tables as Parquet hold every cell of their CSV."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from latprof_analysis.read import ReadError, batches, parquet, read_runs
from latprof_analysis.read.run_folder import write_parquet
from latprof_analysis.read.schema import MESSAGES
from latprof_analysis.study.scan import scan_runs
from made_runs import messages, write_run, write_table
from test_scan import check_same

RUN = Path(__file__).parent.parent / "data" / "run"
COLUMNS = len(MESSAGES.columns)

numbers = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.integers(0, 99))
# what a comm may hold; a blank cell and an empty text are one in a CSV
texts = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]),
    min_size=1,
    max_size=15,
)
rows = st.fixed_dictionaries(
    {
        column.name: st.one_of(st.none(), texts) if column.kind == "text" else numbers
        for column in MESSAGES.columns
    }
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(rows, max_size=8))
def test_every_value_and_blank_survives(tmp_path, each):
    write_table(tmp_path / "messages.csv", each)
    (path,) = write_parquet(tmp_path)
    assert pq.read_table(path).to_pylist() == each


def test_both_tables_are_written_and_read_as_the_csvs_were(tmp_path):
    folder = Path(shutil.copytree(RUN, tmp_path / "run"))
    expected = {name: read_runs(folder) for name in ("messages", "round_trips")}
    written = write_parquet(folder)
    assert [path.name for path in written] == [
        "messages.parquet",
        "round_trips.parquet",
    ]
    for table, runs in expected.items():
        (folder / f"{table}.csv").unlink()
        found = getattr(read_runs(folder), table)
        assert found.to_csv() == getattr(runs, table).to_csv()


def test_a_scan_of_the_parquet_is_that_of_the_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 70)
    monkeypatch.setattr(parquet, "_BLOCK_BYTES", 10_000)
    folder = write_run(tmp_path / "run", 400)
    expected = scan_runs(folder)
    written = write_parquet(folder)
    assert pq.ParquetFile(written[0]).num_row_groups > 3
    for path in written:
        path.with_suffix(".csv").unlink()
    check_same(scan_runs(folder), expected)


def test_wrong_rows_are_told_by_their_number_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 2)
    monkeypatch.setattr(batches, "PIECE_ROWS", 4)
    rows = messages(20)
    for i in (3, 14):
        rows[i] = {**rows[i], "transit_ns": -5}
    write_table(tmp_path / "messages.csv", rows)
    write_parquet(tmp_path)
    (tmp_path / "messages.csv").unlink()
    found = scan_runs(tmp_path).skipped
    why = "transit_ns must be 0 or more, got -5"
    assert [(row.line, row.why) for row in found] == [(4, why), (15, why)]
    assert found == read_runs(tmp_path).skipped


def test_columns_of_a_newer_version_are_kept_as_text(tmp_path):
    path = tmp_path / "messages.csv"
    path.write_text("protocol,kind,size_bytes,colour\ntcp,request,64,007\n")
    write_parquet(tmp_path)
    (row,) = pq.read_table(tmp_path / "messages.parquet").to_pylist()
    assert row == {
        "protocol": "tcp",
        "kind": "request",
        "size_bytes": 64,
        "colour": "007",
    }


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda text: text[:-3], "its last line was cut: the run was killed"),
        (lambda text: text + "tcp\n", f"Expected {COLUMNS} columns, got 1"),
        (
            lambda text: text.replace("tcp", "tcp,x", 1),
            f"Expected {COLUMNS} columns, got {COLUMNS + 1}",
        ),
        (lambda text: "", "it is empty"),
    ],
)
def test_what_is_no_whole_table_is_refused_and_leaves_no_file(tmp_path, spoil, why):
    path = write_table(tmp_path / "messages.csv", messages(5))
    path.write_text(spoil(path.read_text()))
    with pytest.raises(ReadError, match=why):
        write_parquet(tmp_path)
    assert [inner.name for inner in tmp_path.iterdir()] == ["messages.csv"]


def test_without_tables_nothing_is_written(tmp_path):
    with pytest.raises(ReadError, match="the folder has none of messages"):
        write_parquet(tmp_path)


def test_the_file_is_smaller_than_the_csv(tmp_path):
    path = write_table(tmp_path / "messages.csv", messages(20_000))
    (written,) = write_parquet(tmp_path)
    assert written.stat().st_size < path.stat().st_size / 3
    stamps = pq.read_table(written)["send_ns"].to_numpy()
    with path.open() as file:
        expected = [int(row["send_ns"]) for row in csv.DictReader(file)]
    np.testing.assert_array_equal(stamps, expected)
