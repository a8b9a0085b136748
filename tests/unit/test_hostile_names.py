"""Names of others, in files and of files, are text wherever they are told."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from run_folders import write_run

EXCHANGES = Path(__file__).parent.parent / "fuzz" / "run" / "exchanges.csv"
ESCAPES = "\x1b[2J\x1b]0;t\x07\x9b1m\r\b\u202e\u200b\u2066\ufeff\x7f"
MARKUP = "[red]a[/][/b] :smile:</script><b>`x`|*_#$(1)"
NAME = f"=1{MARKUP}{ESCAPES}"
EM_SPACE = "\u2003"  # our own, between figures
LINES = NAME + "\nb"


@pytest.fixture
def latprof(capsys, monkeypatch):
    """Run an offline command; returns its status, stdout and stderr."""
    monkeypatch.setenv("COLUMNS", "400")

    def latprof(*words):
        status = run_program(OFFLINE, VERSION, [str(word) for word in words])
        return status, *capsys.readouterr()

    return latprof


def assert_plain(*texts):
    for text in texts:
        odd = {c for c in text.replace("\n", "") if not c.isprintable()}
        assert not odd


def renamed(path, columns):
    """Put a hostile name into columns of text, and name a column by it."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row |= {name: LINES for name in columns if name in row}
        row[NAME] = "1"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(
            file, list(rows[0]), lineterminator="\n", quoting=csv.QUOTE_ALL
        )
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture
def run(tmp_path):
    """A run folder whose every name is hostile, its own included."""
    folder = tmp_path / (NAME.replace("/", "") + "\udcff")  # a byte that is no UTF-8
    write_run(folder)
    texts = ["way", "sender_comm", "reader_comm", "source_address", "kind"]
    renamed(folder / "messages.csv", texts)
    renamed(folder / "round_trips.csv", ["protocol"])
    shutil.copy(EXCHANGES, folder)
    renamed(folder / "exchanges.csv", ["way", "client_comm", "server_comm"])
    for name in ("run.json", "summary.json"):
        document = json.loads((folder / name).read_text())
        document |= dict.fromkeys(("host", "kernel", "clock", "name", "state"), LINES)
        document["warnings"] = [LINES]
        if "workload" in document:
            document["workload"] |= {"command": [LINES], "plan": None}
        (folder / name).write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("more", [(), ("--all",)])
def test_analyze_tells_hostile_names_as_text(latprof, run, more):
    status, out, err = latprof("analyze", run, *more)
    assert status == 0, err
    assert MARKUP in out
    assert_plain(out, err)


def test_compare_tells_hostile_names_as_text(latprof, run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    csv_file = tmp_path / "out.csv"
    status, out, err = latprof("compare", run, other, "--all", "--csv", csv_file)
    assert status == 0, err
    assert MARKUP.split("<", maxsplit=1)[0].replace("/", "")[-10:] in out
    assert_plain(out, err)
    with csv_file.open(newline="", encoding="utf-8") as file:
        cells = [cell for row in csv.reader(file) for cell in row]
    assert any(MARKUP in cell for cell in cells)
    assert not [cell for cell in cells if cell.startswith(("=", "+", "@", "\t", "\r"))]


@pytest.mark.parametrize("ending", ["html", "md"])
def test_report_tells_hostile_names_as_text(latprof, run, tmp_path, ending):
    out_file = tmp_path / f"page.{ending}"
    status, out, err = latprof("report", run, "--out", out_file)
    assert status == 0, err
    page = out_file.read_text(encoding="utf-8").replace(EM_SPACE, "")
    assert_plain(out, err, page)


def test_errors_tell_hostile_names_as_text(latprof, tmp_path):
    name = NAME.replace("/", "")
    for content in (b"", f'"{name}",b\n1,2\n'.encode(), b"\x1f\x8b"):
        path = tmp_path / name
        path.write_bytes(content)
        status, out, err = latprof("analyze", path)
        assert (status, out) == (1, "")
        assert err.startswith("latprof: cannot read ")
        assert err.count("\n") == 1
        assert_plain(err)
    status, _, err = latprof("analyze", path, "--latency-column", LINES, "--unit", "ms")
    assert (status, err.count("\n")) == (1, 1)
    assert_plain(err)


@pytest.mark.parametrize(
    "words",
    [
        (LINES,),
        (f"--{LINES}",),
        ("analyze", "x", f"--{LINES}"),
        ("analyze", "x", "--unit", LINES),
        ("analyze", "x", "--reply", LINES),
        ("compare", "x", "y", "--only", LINES),
        ("compare", "x", "y", "--smallest", LINES),
        ("report", "x", "--out", f"x.{LINES}"),
        ("completion", LINES),
    ],
)
def test_wrong_usage_tells_hostile_words_as_text(latprof, capsys, words):
    try:
        status, out, err = latprof(*words)
    except SystemExit as end:
        status, (out, err) = end.code, capsys.readouterr()
    assert (status in (1, 2), out) == (True, "")
    assert err.startswith("latprof: ")
    assert err.count("\n") == 1
    assert_plain(err)


def test_a_json_document_is_ascii(latprof, run):
    status, out, _ = latprof("analyze", run, "--json")
    assert (status, out.isascii()) == (0, True)
    assert_plain(out)
    assert json.loads(out)["runs"]
