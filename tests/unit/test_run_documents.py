"""What run.json and summary.json say is believed as far as latprof writes it."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.read.run_folder import read_documents

RUN = Path(__file__).parent.parent / "fuzz" / "run"
DOCUMENTS = {name: json.loads((RUN / f"{name}.json").read_text())
             for name in ("run", "summary")}  # fmt: skip
NO_SHARE = {"agent_cpu_seconds": 1, "wall_seconds": 2, "agent_peak_bytes": 3}


def read(folder, **documents):
    notes: list[str] = []
    for name, document in documents.items():
        text = document if isinstance(document, str) else json.dumps(document)
        (folder / f"{name}.json").write_text(text)
    return read_documents(folder, "r", notes), notes


def spoiled(document, path, value):
    """Put a value into a copy of a document."""
    document = copy.deepcopy(document)
    inside = document
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return document


def test_what_latprof_writes_is_taken_as_it_is(tmp_path):
    found, notes = read(tmp_path, **DOCUMENTS)
    assert (found, notes) == (DOCUMENTS, [])


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("workload",), 7, "workload must be an object, got '7'"),
        (("workload", "command"), None, "workload.command must be a list, got 'None'"),
        (("workload", "command"), [None], "workload.command[0] must be a text"),
        (("workload", "attached"), {"to": 3}, "workload.attached.to must be a text"),
        (("workload", "runs", 0, "late"), "x", "runs[0].late must be a whole number"),
        (("workload", "plan", "sizes"), [1.5], "sizes[0] must be a whole number from"),
        (("workload", "plan", "reply_bytes"), 0, "must be a whole number from 1, got"),
        (("workload", "plan", "interval_ns"), True, "must be a whole number from 0"),
        (("lab", "known", "rate_bps"), 1e300, "rate_bps must be a plain value"),
        (("lab", "known", "loss"), float("nan"), "lab.known.loss must be a plain"),
        (("lab", "addresses", "a"), ["x"], "lab.addresses.a must be a text, got"),
        (("name",), {"\x1b[2J": 1}, r"name must be a text, got "),
        (("anything",), [[[float("inf")]]], ": anything[0][0][0] must be a plain"),
    ],
)
def test_of_a_run_json_that_is_wrong_only_names_are_taken(tmp_path, path, value, why):
    found, notes = read(
        tmp_path,
        run=spoiled(DOCUMENTS["run"], path, value),
        summary=DOCUMENTS["summary"],
    )
    assert set(found["run"]) <= {"name", "state", "host", "kernel", "machine", "clock"}
    assert found["run"]["host"] == "vm"
    assert found["summary"] == DOCUMENTS["summary"]
    (note,) = notes
    assert note.startswith("r: run.json is not as latprof writes it: ")
    assert why in note
    assert note.isprintable()


def test_what_is_nested_without_end_is_refused(tmp_path):
    deep = "[" * 900 + "]" * 900
    _, notes = read(tmp_path, run=f'{{"lab": {{"known": {deep}}}}}', summary="{}")
    assert "more than 20 deep" in notes[0]
    assert len(notes[0]) < 300


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (("capabilities",), [[]], "capabilities[0] must be an object"),
        (("cost",), {"agent_cpu_seconds": 1}, "cost.wall_seconds is missing"),
        (("cost",), NO_SHARE, "cost.agent_cpu_share is missing"),
        (("cost", "agent_cpu_share"), None, "agent_cpu_share must be a number from 0"),
        (("counters", "lost"), -1, "counters.lost must be a whole number from 0"),
        (("link_counters", "a", "qdiscs"), 1, "link_counters.a.qdiscs must be a list"),
        (("untraced_time",), None, "untraced_time must be an object"),
        (("warnings",), "all", "warnings must be a list"),
        (("path_devices",), [1e999], "path_devices[0] must be a plain value"),
    ],
)
def test_a_wrong_part_of_a_summary_is_left_out(tmp_path, path, value, why):
    document = spoiled(DOCUMENTS["summary"], path, value)
    found, notes = read(tmp_path, run=DOCUMENTS["run"], summary=document)
    left = {k: v for k, v in DOCUMENTS["summary"].items() if k != path[0]}
    assert found["summary"] == left
    (note,) = notes
    assert why in note
    assert note.endswith(f"; {path[0]} is left out")


@pytest.mark.parametrize("name", ["run", "summary"])
@pytest.mark.parametrize("value", [None, 7, -1, 1e300, "x", [], {}, [None], {"a": 1}])
def test_no_part_of_a_document_breaks_what_is_shown(tmp_path, capsys, name, value):
    """Each part in turn, all at once where each alone is noted."""
    document = DOCUMENTS[name]
    for path in RUN.glob("*.csv"):
        lines = path.read_text().splitlines(keepends=True)
        (tmp_path / path.name).write_text("".join(lines[:4]))
    for other, whole in DOCUMENTS.items():
        (tmp_path / f"{other}.json").write_text(json.dumps(whole))
    for part in ("workload", "lab", "capabilities", "cost", "link_counters"):
        if part in document:
            text = json.dumps(spoiled(document, (part,), value))
            (tmp_path / f"{name}.json").write_text(text)
            for words in (["analyze", "--all"], ["analyze", "--json"]):
                assert run_program(OFFLINE, VERSION, [*words, str(tmp_path)]) == 0
    capsys.readouterr()
