"""Cells of a CSV that are no latency are losses only where the file bears that."""

from __future__ import annotations

import json

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read import read_samples

WORDS = ["timeout", "-", "*", "NaN", "N/A", "-1"]


def table(tmp_path, cells, columns="seq,rtt"):
    """Write a CSV with these cells behind their numbers, or alone."""
    path = tmp_path / "a.csv"
    rows = [f"{i},{c}" if "," in columns else c for i, c in enumerate(cells)]
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def read(path, **options):
    return read_samples(path, latency_column="rtt", unit="ms", **options)


def screen(capsys, path, *words):
    given = ["analyze", str(path), "--latency-column", "rtt", "--unit", "ms", *words]
    assert run_program(OFFLINE, VERSION, given) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("first_line", ["", "# by hand\n"], ids=["blocks", "lines"])
@pytest.mark.always
def test_a_word_in_place_of_a_latency_is_a_loss_and_is_said(
    word, first_line, tmp_path, capsys
):
    path = table(tmp_path, ["1.5", word, "2.5", "3.5"] * 50)
    path.write_text(first_line + path.read_text())
    samples = read(path)
    assert samples.losses == {"rtt": (200, 50)}
    assert samples.frame["lost"].tolist() == [False, True, False, False] * 50
    assert samples.meta["not_latencies"] == [
        {"cell": word, "count": 50, "taken_as": "lost"}
    ]
    shown = screen(capsys, path)
    assert "50 of 200 lost (25.0%)" in shown
    assert f"counted as lost: 50 of 200 cells: 50 '{word}'" in shown


def test_every_word_is_named_with_its_count(tmp_path):
    cells = ["1"] * 30 + [w for n, w in enumerate(WORDS, 1) for _ in range(n)]
    samples = read(table(tmp_path, cells))
    found = {row["cell"]: row["count"] for row in samples.meta["not_latencies"]}
    assert found == {word: n for n, word in enumerate(WORDS, 1)}
    assert samples.losses == {"rtt": (51, 21)}


def test_empty_cells_are_no_losses_where_there_are_other_columns(tmp_path, capsys):
    path = table(tmp_path, ["1.5", "", "2.5", ""] * 10)
    samples = read(path)
    assert samples.losses == {}
    assert len(samples.frame) == 20
    shown = screen(capsys, path)
    assert "lost" not in shown.replace("counted as lost", "").replace("--lost-if", "")
    assert "not counted as lost: 20 of 40 cells: 20 empty" in shown
    assert "20 of 40 lost (50.0%)" in screen(capsys, path, "--lost-if", "empty")


def test_empty_cells_of_the_only_column_are_losses_but_not_lines_at_the_end(tmp_path):
    samples = read(table(tmp_path, ["1", "", "3", "", "", "6", "", ""], "rtt"))
    assert samples.losses == {"rtt": (6, 3)}
    assert samples.frame["lost"].tolist() == [False, True, False, True, True, False]
    assert "left out: 2 empty lines at the end" in samples.meta["notes"]
    quoted = read(table(tmp_path, ["1", '""', "3"], "rtt"))
    assert quoted.losses == {"rtt": (3, 1)}
    assert read(table(tmp_path, ["1", "", "3"], "rtt"), lost_if="none").losses == {}


def test_nothing_is_said_of_losses_where_all_cells_are_latencies(tmp_path, capsys):
    path = table(tmp_path, ["1", "2", "3"] * 10)
    assert read(path).losses == {}
    assert "lost" not in screen(capsys, path)
    # who says how a loss would look hears that there is none
    assert "none lost" in screen(capsys, path, "--lost-if", "timeout")


@pytest.mark.parametrize(
    ("lost_if", "lost", "kept"),
    [
        ("none", None, 3),
        ("timeout", 1, 4),
        ("TIMEOUT,empty", 2, 5),
        ("0,-1", 2, 5),
        ("*", 0, 3),
    ],
)
def test_what_is_a_loss_can_be_said(lost_if, lost, kept, tmp_path):
    cells = ["1.5", "timeout", "", "-1.0", "0"]
    samples = read(table(tmp_path, [*cells, "3.5"]), lost_if=lost_if)
    assert samples.lost == lost
    # 1.5, 3.5, and 0 unless that is a loss
    assert len(samples.frame) == kept - (lost_if == "0,-1")


def test_what_is_neither_a_latency_nor_a_known_word_is_a_wrong_row(tmp_path):
    samples = read(table(tmp_path, ["1", "2", "3", "4x", "-2", "timeout", "7"]))
    assert [(row.line, row.why) for row in samples.skipped] == [
        (5, "rtt must be a number, got '4x'"),
        (6, "rtt must be 0 or more, got -2.0"),
    ]
    assert samples.losses == {"rtt": (5, 1)}


def test_words_stand_in_the_json_of_a_study(tmp_path, capsys):
    path = table(tmp_path, ["1", "*", "3", ""])
    found = json.loads(screen(capsys, path, "--json"))
    assert found["input"]["meta"]["not_latencies"] == [
        {"cell": "*", "count": 1, "taken_as": "lost"},
        {"cell": "", "count": 1, "taken_as": "left out"},
    ]
    assert found["samples"]["kinds"]["rtt"]["lost"] == 1
    assert len(found["notes"]) == 2


@pytest.mark.parametrize("value", ["", ",", "none,timeout"])
def test_a_value_that_says_nothing_is_refused(value, tmp_path, capsys):
    path = table(tmp_path, ["1"])
    words = ["analyze", str(path), "--latency-column=rtt", "--unit=ms"]
    assert run_program(OFFLINE, VERSION, [*words, f"--lost-if={value}"]) == 2
    assert "--lost-if must be values with commas" in capsys.readouterr().err
