"""Lines of CSV against Python's own csv module."""

from __future__ import annotations

import csv
import io
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_agent import _rows
from latprof_analysis.csv_cells import cell_of, unguarded
from latprof_analysis.records.message_rows import Rows
from latprof_analysis.stages import BLANK

NUMBERS = st.one_of(
    st.just(BLANK),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63) + 1]),
)
# a comm is up to 15 bytes and may hold any but NUL
TEXTS = st.text(
    st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=15
)


def written(columns: list, count: int, folder) -> str:
    path = folder / "rows.csv"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        _rows.write(descriptor, columns, count)
    finally:
        os.close(descriptor)
    return path.read_bytes().decode()


def expected(columns: list, count: int) -> str:
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    for i in range(count):
        row = []
        for column in columns:
            if isinstance(column, tuple):
                index = int(column[0][i])
                row.append(column[1][index] if index >= 0 else "")
            else:
                row.append("" if column[i] == BLANK else int(column[i]))
        writer.writerow(row)
    return lines.getvalue()


@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=30))
def test_numbers_are_written_as_csv_writes_them(tmp_path_factory, rows):
    columns = [np.array(column, "i8") for column in zip(*rows, strict=True)]
    folder = tmp_path_factory.mktemp("rows")
    assert written(columns, len(rows), folder) == expected(columns, len(rows))


@settings(deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=10), st.data())
def test_texts_survive_whatever_they_hold(tmp_path_factory, words, data):
    index = data.draw(
        st.lists(st.integers(-1, len(words) - 1), min_size=1, max_size=20)
    )
    numbers = np.arange(len(index), dtype="i8")
    column = np.array(index, "i4"), [cell_of(word) for word in words]
    folder = tmp_path_factory.mktemp("rows")
    text = written([column, numbers], len(index), folder)
    read = list(csv.reader(io.StringIO(text, newline="")))
    told = [unguarded(row[0]) for row in read]
    assert told == [words[i] if i >= 0 else "" for i in index]
    assert not [row[0] for row in read if row[0].startswith(tuple("=+-@\t\r"))]
    assert [int(row[1]) for row in read] == numbers.tolist()


@settings(deadline=None)
@given(TEXTS)
def test_one_row_by_itself_has_the_text_as_it_was(word):
    table = Rows({}, {"way": (np.zeros(1, "i4"), [cell_of(word)])})
    table.COLUMNS = ("way",)
    assert table.row(0) == {"way": word}


def test_more_rows_than_the_buffer_holds_are_all_written(tmp_path):
    columns = [np.arange(100_000, dtype="i8")] * 5
    assert written(columns, 100_000, tmp_path) == expected(columns, 100_000)


@pytest.mark.parametrize(
    "columns",
    [[np.zeros(3, "i8")], [np.zeros(2, "i4")], [(np.zeros(2, "i8"), ["a"])]],
)
def test_columns_of_the_wrong_shape_are_refused(tmp_path, columns):
    with pytest.raises(ValueError, match="columns must be int64"):
        written(columns, 2, tmp_path)


def test_a_descriptor_that_cannot_be_written_raises_the_systems_error():
    with pytest.raises(OSError, match="Bad file descriptor"):
        _rows.write(-1, [np.zeros(1, "i8")], 1)
