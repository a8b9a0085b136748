"""A process may be called anything: its name is read as it is, and runs nowhere."""

from __future__ import annotations

import csv
import os

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from latprof_agent import _rows
from latprof_analysis.csv_cells import cell_of, guarded, text_of, unguarded
from latprof_analysis.read import cells as parsing
from latprof_analysis.read import read_runs
from latprof_analysis.read.batches import read_batches
from latprof_analysis.read.run_folder import write_parquet

NAMES = [
    "=1+1",
    "+1",
    "-bash",
    "@SUM(A1)",
    "\tx",
    "\rx",
    " =1",
    "'=1",
    "''=1",
    "'",
    "'quoted'",
    "it's",
    '="a,b"',
    "\uff1d1",
    "a;=1",
    "redis",
    "",
]
# As Excel, LibreOffice and Google Sheets begin a formula.
FORMULAS = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")


@given(st.text())
@example("'=")
@example("''\t=")
def test_a_text_comes_back_from_its_cell(text):
    assert unguarded(guarded(text)) == text
    assert text_of(cell_of(text)) == text
    assert not guarded(text).lstrip(" ").startswith(FORMULAS)


@pytest.fixture
def run(tmp_path):
    """A run folder that the agent's writer made, a message from each name."""
    header = "protocol,kind,size_bytes,send_ns,sender_comm\n"
    descriptor = os.open(tmp_path / "messages.csv", os.O_CREAT | os.O_WRONLY)
    os.write(descriptor, header.encode())
    rows = np.zeros(len(NAMES), "i4")
    numbers = np.arange(len(NAMES), dtype="i8")
    each = np.where([bool(name) for name in NAMES], numbers, -1).astype("i4")
    columns = [(rows, ["tcp"]), (rows, ["request"]), numbers, numbers]
    columns.append((each, [cell_of(name) for name in NAMES]))
    _rows.write(descriptor, columns, len(NAMES))
    os.close(descriptor)
    return tmp_path


def told(names):
    return ["" if name is None else name for name in names]


def test_a_spreadsheet_finds_no_formula(run):
    with (run / "messages.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert len(rows) == len(NAMES)
    assert not [cell for row in rows for cell in row if cell.startswith(FORMULAS)]


@pytest.mark.parametrize("engine", ["column by column", "whole blocks"])
def test_the_readers_give_the_very_names(run, engine, monkeypatch):
    if engine == "column by column":
        monkeypatch.setattr(parsing, "_is_odd", lambda data, columns: True)
    names = read_runs(run).messages["sender_comm"]
    assert told(names.astype(object).where(names.notna(), None)) == NAMES
    found = [
        batch.row(i)["sender_comm"]
        for batch in read_batches(run, "messages")
        for i in range(len(batch))
    ]
    assert told(found) == NAMES


def test_parquet_has_the_very_names(run):
    write_parquet(run)
    (run / "messages.csv").unlink()
    names = read_runs(run).messages["sender_comm"]
    assert told(names.astype(object).where(names.notna(), None)) == NAMES
