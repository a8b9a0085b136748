"""Batches hold what `read_runs` reads, and leave out what it leaves out."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from latprof_analysis.read import ReadError, batches, cells, read_runs, table
from latprof_analysis.read.batches import PieceReader, read_batches
from latprof_analysis.read.lines import Blocks, _plain_lines
from latprof_analysis.read.result import Skipped, concatenated
from latprof_analysis.read.schema import MESSAGES
from latprof_analysis.read.table import TableReader
from latprof_analysis.stages import BLANK
from latprof_analysis.study.scan import FileRows
from made_runs import as_parquet, messages, write_run, write_table

RUN = Path(__file__).parent.parent / "data" / "run"


@pytest.fixture(params=["column by column", "whole blocks"])
def engine(request, monkeypatch):
    """Parse blocks by each library in turn."""
    if request.param == "column by column":
        monkeypatch.setattr(cells, "_is_odd", lambda data, columns: True)
    return request.param


def check_same(found, frame: pd.DataFrame) -> None:
    """Batches have the rows of a frame, by column and one by one."""
    for column in MESSAGES.columns:
        values = frame[column.name]
        if column.kind == "text":
            texts = [
                labels[code] if code >= 0 else None
                for codes, labels in (batch.texts[column.name] for batch in found)
                for code in codes
            ]
            assert texts == [None if pd.isna(x) else x for x in values]
        else:
            numbers = np.concatenate([batch.numbers[column.name] for batch in found])
            expected = values.to_numpy("int64", na_value=BLANK)
            np.testing.assert_array_equal(numbers, expected)
    whole = concatenated([b.frame() for b in found])
    pd.testing.assert_frame_equal(whole, frame, check_categorical=False)
    last = found[-1].row(len(found[-1]) - 1)
    ends = frame.iloc[-1]
    assert {name: None if pd.isna(ends[name]) else ends[name] for name in last} == last


def test_batches_hold_the_rows_of_read_runs(engine, tmp_path):
    folder = write_run(tmp_path / "run")
    expected = read_runs(folder).messages.drop(columns="run")
    check_same(list(read_batches(folder, "messages")), expected)
    check_same(
        list(read_batches(RUN, "messages")), read_runs(RUN).messages[expected.columns]
    )


def test_batches_of_parquet_hold_the_rows_of_the_csv(tmp_path, monkeypatch):
    monkeypatch.setattr(table, "BATCH_ROWS", 50)
    folder = write_run(tmp_path / "run")
    expected = read_runs(folder).messages.drop(columns="run")
    as_parquet(folder / "messages.csv")
    found = list(read_batches(folder, "messages"))
    assert len(found) > 3
    check_same(found, expected)


def test_rows_that_are_taken_keep_no_labels_of_others(engine, tmp_path):
    rows = [{**row, "sender_comm": f"c{i}"} for i, row in enumerate(messages(50))]
    write_table(tmp_path / "messages.csv", rows)
    (batch,) = read_batches(tmp_path, "messages")
    frame = batch.take(np.array([7, 9])).frame()
    assert frame["sender_comm"].cat.categories.tolist() == ["c7", "c9"]
    assert frame["sequence"].tolist() == [8, 10]


def test_only_the_columns_asked_for_are_read(engine):
    (batch,) = read_batches(RUN, "messages", columns=["kind", "size_bytes"])
    assert list(batch.numbers) == ["size_bytes"]
    assert list(batch.texts) == ["kind"]
    with pytest.raises(KeyError):
        batch.numbers["send_ns"]


def test_columns_that_an_older_file_lacks_are_blank(engine, tmp_path):
    path = tmp_path / "messages.csv"
    path.write_text("protocol,kind,size_bytes,colour\ntcp,request,64,red\n")
    reader = PieceReader(*batches.pieces_of(path, "messages"))
    (batch,) = reader
    assert batch.numbers["hops"].tolist() == [BLANK]
    assert batch.texts["sender_comm"][0].tolist() == [-1]
    assert reader.ignored == ["colour"]


def test_the_line_that_a_killed_run_cut_is_left_out(engine, tmp_path):
    path = write_table(tmp_path / "messages.csv", messages(5))
    path.write_text(path.read_text()[:-3])
    reader = PieceReader(*batches.pieces_of(path, "messages"))
    assert [len(batch) for batch in reader] == [4]
    assert [str(row) for row in reader.skipped.rows] == [
        f"{path}:6: the line has no end: it was cut"
    ]


def test_a_file_of_which_most_rows_are_wrong_is_refused(engine, tmp_path):
    path = write_table(tmp_path / "messages.csv", messages(5))
    path.write_text(path.read_text() + "tcp\n" * 6)
    with pytest.raises(ReadError, match=r"most rows are wrong \(6 of 11\), the"):
        list(read_batches(path.parent, "messages"))


def outcome(path: Path, piece_bytes: int) -> tuple:
    """What is read of a file in pieces: its rows, and those left out."""
    batches.PIECE_BYTES = piece_bytes
    found = FileRows(0, 0, Skipped(path))
    frames = []
    try:
        for piece in batches.pieces_of(path, "messages"):
            reader = PieceReader(piece)
            frames += [batch.frame() for batch in reader]
            found.merge(FileRows(reader.rows, reader.lines, reader.skipped))
        found.skipped.check(found.rows)
    except ReadError as error:
        return str(error), (), ""
    text = concatenated(frames).to_csv() if frames else ""
    return found.skipped.count, tuple(found.skipped.in_order()), text


def of_table(path: Path) -> tuple:
    """The same by the reader that has all of it in memory."""
    try:
        table = TableReader(path, MESSAGES)
        frame = table.frame()
    except ReadError as error:
        return str(error), (), ""
    text = frame.to_csv() if len(frame) else ""
    return table.skipped.count, tuple(table.skipped.in_order()), text


def rows_of(text: str) -> list[list[str]]:
    """Cells but for the number of the row."""
    return [cells[1:] for cells in csv.reader(io.StringIO(text, newline=""))]


def check_all_ways(path: Path, monkeypatch) -> tuple:
    expected = of_table(path)
    whole = outcome(path, 1 << 20)
    assert whole == expected
    in_pieces = outcome(path, 2000)
    with monkeypatch.context() as patched:
        patched.setattr(cells, "_is_odd", lambda data, columns: True)
        assert outcome(path, 1 << 20) == expected
        assert outcome(path, 2000) == in_pieces
    if isinstance(in_pieces[0], int) and in_pieces[2]:
        # numbers of rows begin anew in each piece
        assert in_pieces[:2] == expected[:2]
        assert rows_of(in_pieces[2]) == rows_of(expected[2])
    return expected


@pytest.fixture
def piece_bytes(monkeypatch):
    """Put the size of pieces back behind the test."""
    monkeypatch.setattr(batches, "PIECE_BYTES", batches.PIECE_BYTES)


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        ("send_ns", "-5"),
        ("send_ns", str(-(2**63))),
        ("send_ns", "NaN"),
        ("send_ns", "0x10"),
        ("send_ns", str(10**30)),
        ("size_bytes", "64 B"),
        ("read_ns", "4"),
        ("kind", ""),
        ("protocol", ""),
        ("sender_comm", '"x'),
        ("sender_comm", '"two\nlines"'),
        ("sender_comm", "a\0b"),
        ("sender_comm", "a\rb"),
        ("sender_comm", "a,b"),
        ("packets", "1.0"),
        ("hops", " 7"),
        ("hops", "\x0b7"),
        ("hops", "7\x1c"),
        ("hops", "\u0667"),
        ("hops", "7_0"),
    ],
)
def test_wrong_and_odd_cells_are_treated_alike_in_all_ways(
    tmp_path, monkeypatch, piece_bytes, column, cell
):
    path = write_table(tmp_path / "messages.csv", messages(60))
    text = path.read_text().splitlines()
    at = [c.name for c in MESSAGES.columns].index(column)
    for i in (5, 40, 58):
        fields = text[i].split(",")
        fields[at] = cell
        text[i] = ",".join(fields)
    path.write_text("\n".join(text) + "\n")
    check_all_ways(path, monkeypatch)


@pytest.mark.thorough
@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.data())
def test_any_bytes_in_a_file_are_treated_alike_in_all_ways(
    tmp_path, monkeypatch, piece_bytes, data
):
    path = write_table(tmp_path / "messages.csv", messages(60))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        to = data.draw(st.integers(at, min(len(content), at + 50)))
        content[at:to] = data.draw(
            st.binary(max_size=50)
            | st.sampled_from([b'"', b",", b"\n", b"\n\n", b"\0", b"\r\n", b"-1"])
        )
    assume(not content.startswith(b"PAR1"))  # that is another reader's
    path.write_bytes(content)
    check_all_ways(path, monkeypatch)


def test_rows_with_newlines_in_quotes_are_in_one_piece(
    tmp_path, monkeypatch, piece_bytes
):
    rows = [{**row, "sender_comm": "a\nb"} for row in messages(60)]
    path = write_table(tmp_path / "messages.csv", rows)
    assert check_all_ways(path, monkeypatch)[0] == 0
    batches.PIECE_BYTES = 2000
    assert len(batches.pieces_of(path, "messages")) == 1


def test_quoted_texts_are_read_as_fast_as_bare_ones(tmp_path, monkeypatch):
    """In pieces, and no block of them line by line."""
    bare = write_table(tmp_path / "messages.csv", messages(600))
    quoted = tmp_path / "quoted.csv"
    with bare.open(newline="") as source, quoted.open("w", newline="") as to:
        csv.writer(to, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(
            csv.reader(source)
        )
    monkeypatch.setattr(Blocks, "_by_line", None)
    monkeypatch.setattr(batches, "PIECE_BYTES", 50_000)
    pieces = batches.pieces_of(quoted, "messages")
    assert len(pieces) > 3
    found = concatenated([b.frame() for piece in pieces for b in PieceReader(piece)])
    expected = TableReader(bare, MESSAGES).frame()
    pd.testing.assert_frame_equal(found, expected, check_categorical=False)


@given(st.text('a",\n', max_size=12))
def test_lines_that_are_taken_as_they_are_are_rows_to_the_csv_module(text):
    lines = (text + "\n").encode()
    if count := _plain_lines(lines, ","):
        rows = [next(csv.reader([row], strict=True)) for row in text.split("\n")]
        together = [*csv.reader(io.StringIO(text + "\n", newline=""), strict=True)]
        assert together == rows
        assert len(rows) == count
