"""Values that a column of names tells apart are not taken together unasked."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import ReadError, read_columns, read_samples

MS = np.random.default_rng(1).lognormal(1, 0.5, 200).round(3)


def long_table(tmp_path, header="metric,value", names=("rtt", "load"), first=""):
    """Write rows of each name in turn: latencies of the first, 1 of the others."""
    path = tmp_path / "long.csv"
    rows = [f"{name},{1 if i else ms}" for ms in MS for i, name in enumerate(names)]
    path.write_text(first + "\n".join([header, *rows]) + "\n")
    return path


def read(path, column="value", *where):
    return read_samples(path, latency_column=column, unit="ms", where=where)


@pytest.mark.parametrize(
    "header",
    ["metric,value", "metric_name,ms", "Series,rtt", "name,rtt", "who,metric_value"],
)
@pytest.mark.parametrize("first", ["", "# by hand\n"], ids=["blocks", "lines"])
@pytest.mark.always
def test_a_long_table_is_asked_about_with_its_names_and_counts(header, first, tmp_path):
    path = long_table(tmp_path, header, first=first)
    name, value = header.split(",")
    with pytest.raises(ReadError, match=r"2 names.*'rtt' \(200\), 'load' \(200\); say"):
        read(path, value)
    found = read(path, value, f"{name}=rtt")
    assert found.frame["latency_ns"].tolist() == pytest.approx((1e6 * MS).tolist())
    assert not any("taken together" in note for note in found.meta["notes"])
    both = read(path, value, f"{name}=rtt", f"{name}=load")
    assert len(both.frame) == 400
    assert "'rtt' (200), 'load' (200)" in both.meta["notes"][0]
    assert len(read(path, value, f"{name}=*").frame) == 400


def test_names_that_come_late_in_a_file_are_found(tmp_path):
    path = tmp_path / "sorted.csv"
    rows = [f"a,{i % 7}" for i in range(3000)] + ["b,5"] * 3000
    path.write_text("\n".join(["metric,ms", *rows]) + "\n")
    with pytest.raises(ReadError, match=r"'a' \(3,000\), 'b' \(3,000\)"):
        read(path, "ms")


def test_values_far_apart_are_asked_about_whatever_the_column_is_called(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("host,rtt\n" + "".join(f"x,{ms}\ny,{30 * ms}\n" for ms in MS))
    with pytest.raises(ReadError, match="column host has 2 names"):
        read(path, "rtt")


def test_values_that_are_alike_are_taken_together_and_that_is_said(tmp_path, capsys):
    path = tmp_path / "a.csv"
    path.write_text("host,rtt\n" + "".join(f"x,{ms}\ny,{ms}\n" for ms in MS))
    assert len(read(path, "rtt").frame) == 400
    words = ["analyze", str(path), "--latency-column=rtt", "--unit=ms"]
    assert run_program(OFFLINE, VERSION, words) == 0
    shown = capsys.readouterr().out
    assert "taken together: of column host 'x' (200), 'y' (200)" in shown
    assert run_program(OFFLINE, VERSION, [*words, "--where", "host=y"]) == 0
    shown = capsys.readouterr().out
    assert "200 latencies" in shown
    assert "taken together" not in shown


def test_rows_that_are_not_meant_cannot_be_wrong(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("metric,value\n" + "rtt,1.5\nstate,up\n" * 9 + "rtt,x1\nrtt,-\n")
    found = read(path, "value", "metric=rtt")
    assert [row.line for row in found.skipped] == [20]
    assert found.losses == {"value": (10, 1)}


def test_several_columns_choose_together(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{m},{h},{m}{h}\n" for m in (1, 2) for h in (3, 4) for _ in range(5)]
    path.write_text("m,h,ms\n" + "".join(rows))
    assert set(read(path, "ms", "m=1", "h=4").frame["latency_ns"]) == {14e6}


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (["metric=x"], "no row has metric=x"),
        (["other=x"], "column other missing; it has metric, value"),
        (["metric"], "where must be COLUMN=TEXT, got 'metric'"),
        (["value=1"], "where and latency_column or size_column must differ"),
    ],
)
def test_a_choice_that_cannot_be_is_refused(where, why, tmp_path):
    path = long_table(tmp_path)
    with pytest.raises(ValueError, match=why):
        read_columns(path, latency_column="value", unit="ms", where=where)


def test_mixed_units_in_cells_are_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("rtt\n" + "1.5ms\n800us\n700us\n2\n" * 10)
    found = read(path, "rtt")
    assert found.frame["latency_ns"].tolist() == [1.5e6, 8e5, 7e5, 2e6] * 10
    assert found.meta["notes"][0] == (
        "mixed units in cells, each taken as it says: 20 in us, 10 in ms, "
        "10 without, taken as --unit says"
    )
