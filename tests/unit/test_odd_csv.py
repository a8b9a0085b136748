"""CSV as people and spreadsheets write it is read as it is meant, and that is said."""

from __future__ import annotations

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import ReadError, read_columns, read_samples

MS = [1.802, 3.026, 0.89, 12.5, 2.0, 1250.75]


def english(value: float) -> str:
    return f"{value:,}"


def german(value: float) -> str:
    return f"{value:,}".translate(str.maketrans(",.", ".,"))


FORMS = {
    "pipe": ("seq|rtt\n", "{i}|{v}\n", str, "utf-8", ""),
    "blanks": ("  seq   rtt\n", "{i:5}   {v}\n", str, "utf-8", "cells cut by blanks"),
    "comments": ("# by hand\nseq,rtt\n", "{i},{v}\n#\n", str, "utf-8", "comments"),
    "comment above": ("# seq rtt\n", "{i} {v}\n", str, "utf-8", "comments"),
    "utf-16": ("seq\trtt\r\n", "{i}\t{v}\r\n", str, "utf-16", "UTF-16"),
    "thousands": ("seq,rtt\n", '{i},"{v}"\n', english, "utf-8", "thousands"),
    "decimal comma": ("seq;rtt\n", "{i};{v}\n", german, "utf-8", "a decimal comma"),
    "units": ("seq,rtt\n", "{i},{v} ms\n", str, "utf-8", "units in cells"),
    "units without a space": ("seq,rtt\n", "{i},{v}ms\n", str, "utf-8", "units in"),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.always
def test_a_csv_is_read_as_it_is_meant_and_says_what_was_recognised(
    name, tmp_path, capsys
):
    header, row, write, encoding, said = FORMS[name]
    rows = [row.format(i=i, v=write(value)) for i, value in enumerate(MS)]
    path = tmp_path / "a.csv"
    path.write_bytes((header + "".join(rows)).encode(encoding))
    # of cells with units that of the caller does not matter
    unit = "s" if "unit" in name else "ms"
    samples = read_samples(path, latency_column="rtt", unit=unit, size_column="seq")
    ms = samples.frame["latency_ns"] / 1e6
    assert ms.tolist() == list(map(pytest.approx, MS))
    assert samples.frame["size_bytes"].tolist() == list(range(len(MS)))
    assert samples.skipped_rows == 0
    words = ["analyze", str(path), "--latency-column", "rtt", "--unit", unit]
    assert run_program(OFFLINE, VERSION, words) == 0
    screen = capsys.readouterr().out
    assert ("recognised: " in screen) == bool(said)
    assert said in screen


@pytest.mark.parametrize(
    ("numbers", "ms"), [("decimal-comma", 1.802), ("thousands", 1802)]
)
def test_a_comma_that_may_mean_both_is_asked_for(numbers, ms, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("seq;rtt\n" + "1;1,802\n" * 3)
    with pytest.raises(ReadError, match="'1,802' may have a decimal comma, or th"):
        read_samples(path, latency_column="rtt", unit="ms")
    found = read_samples(path, latency_column="rtt", unit="ms", numbers=numbers)
    assert found.frame["latency_ns"].tolist() == [pytest.approx(1e6 * ms)] * 3


def test_a_delimiter_that_is_named_is_taken(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b c,d\n1,2 3,5\n")
    found = read_columns(
        path,
        latency_column="c,d",
        unit="ms",
        delimiter="blank",
        numbers="decimal-comma",
    )
    assert found.frame["latency_ns"].tolist() == [3.5e6]
    with pytest.raises(ValueError, match="delimiter must be comma, semicolon"):
        read_columns(path, latency_column="a", unit="ms", delimiter="x")
    with pytest.raises(ValueError, match="numbers must be decimal-comma or thousands"):
        read_columns(path, latency_column="a", unit="ms", numbers="x")


def test_rows_that_are_wrong_are_left_out_by_their_line(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "# c\nseq rtt\n1 2.5ms\n2 -1ms\n3 4 5\n4 x\n5 1us\n6 7ms\n7 8 s\n8 1\n"
    )
    found = read_samples(path, latency_column="rtt", unit="ns")
    assert found.frame["latency_ns"].tolist() == [2.5e6, 1e3, 7e6, 1.0]
    assert [(row.line, row.why) for row in found.skipped] == [
        (4, "it must be a number from 0, got '-1ms'"),
        (5, "3 fields where 2 belong"),
        (6, "it must be a number from 0, got 'x'"),
        (9, "3 fields where 2 belong"),
    ]


@pytest.mark.parametrize("option", ["--delimiter=tab", "--numbers=thousands"])
def test_options_of_a_csv_go_with_its_column(option, tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    assert run_program(OFFLINE, VERSION, ["analyze", str(path), option]) == 2
    assert "goes with --latency-column and --unit" in capsys.readouterr().err
