"""Runs of several set-ups: each is studied by itself, unless they are to be pooled."""

from __future__ import annotations

import copy
import json

import pytest
from latprof_analysis.cli import OFFLINE, VERSION
from latprof_analysis.cli.program import run_program
from latprof_analysis.report.build import build_report
from latprof_analysis.study.analysis import analyze
from run_folders import write_run
from test_comparison_rates import bulk_run


@pytest.fixture
def runs(tmp_path):
    """Two runs of full echoes, and one whose replies have 18 bytes."""
    for name, reply in (("a", "echo"), ("b", 18), ("c", "echo")):
        write_run(tmp_path / name, reply=reply, host=name, seed=ord(name))
    return tmp_path


def plain(document):
    """A document without the order of what it was made from."""
    return json.loads(json.dumps(document))


def test_each_setup_is_studied_as_if_it_were_alone(runs):
    found = analyze(runs)
    echo, short = found.document["setups"]
    assert [*echo["runs"]] == ["a", "c"]
    assert [*short["runs"]] == ["b"]
    assert plain(echo) == plain(analyze([runs / "a", runs / "c"]).document)
    assert plain(short) == plain(analyze(runs / "b").document)
    assert (echo["fit"]["reply_mode"], short["fit"]["reply_mode"]) == ("echo", 18)
    assert "differ in" not in str(echo["warnings"] + short["warnings"])
    assert [setup.document for setup in found.setups] == [echo, short]


def test_runs_that_are_pooled_have_one_table_and_no_fit(runs):
    document = analyze(runs, pool=True).document
    assert [*document["runs"]] == ["a", "b", "c"]
    assert document["fit"] is None
    assert any("no fit over all runs" in text for text in document["warnings"])


@pytest.mark.parametrize(
    "change",
    [
        lambda run: run["workload"]["plan"].update(interval_ns=1_000_000),
        lambda run: run["workload"]["plan"].update(sizes=[64]),
        lambda run: run["workload"].update(command=["redis-benchmark"]),
        lambda run: run["lab"]["settings"].update(congestion_control="bbr"),
        lambda run: run["lab"]["known"].update(delay_ns=5),
        lambda run: run.pop("lab"),
    ],
)
def test_what_was_asked_for_tells_setups_apart(runs, change):
    path = runs / "c" / "run.json"
    run = json.loads(path.read_text())
    changed = copy.deepcopy(run)
    change(changed)
    path.write_text(json.dumps(changed))
    document = analyze([runs / "a", runs / "c"]).document
    assert [[*setup["runs"]] for setup in document["setups"]] == [["a"], ["c"]]


def test_meshes_are_apart_by_their_setup_but_not_by_seed_or_results(runs):
    for seed, name in enumerate("abc"):
        path = runs / name / "run.json"
        run = json.loads(path.read_text())
        mesh = {"protocol": "tcp", "hosts": 3, "interval_ns": 1000, "seed": seed}
        if name == "b":
            mesh["hosts"] = 4
        results = {"responders": {"a": {"messages": seed}}}
        run["workload"] = {"plan": None, "command": [], "mesh": mesh} | results
        path.write_text(json.dumps(run))
    document = analyze(runs).document
    assert [[*setup["runs"]] for setup in document["setups"]] == [["a", "c"], ["b"]]


def test_a_run_that_does_not_tell_its_setup_is_apart(runs):
    (runs / "b" / "run.json").unlink()
    document = analyze(runs).document
    assert [[*setup["runs"]] for setup in document["setups"]] == [["a", "c"], ["b"]]


def test_the_terminal_and_the_report_tell_every_setup(runs, capsys):
    assert run_program(OFFLINE, VERSION, ["analyze", str(runs)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "set-up 1 of 2" in told
    assert "set-up 2 of 2" in told
    assert "runs of 2 set-ups, each studied by itself; --pool takes them" in told
    assert run_program(OFFLINE, VERSION, ["analyze", str(runs), "--pool"]) == 0
    assert "set-up 1" not in capsys.readouterr().out
    page = build_report(analyze(runs), "runs")
    names = [section.name for section in page.sections]
    assert len(set(names)) == len(names)
    assert {name.split("-")[1] for name in names} == {"1", "2"}
    figures = [figure.name for figure in page.figures()]
    assert len(set(figures)) == len(figures)


@pytest.mark.parametrize("ending", ["html", "md"])
def test_a_report_of_several_setups_is_written(runs, ending):
    out = runs / f"all.{ending}"
    words = ["report", *(str(runs / name) for name in "abc"), "--out", str(out)]
    assert run_program(OFFLINE, VERSION, words) == 0
    assert "set-up 2" in out.read_text()


@pytest.mark.parametrize("pool", [False, True])
def test_transfers_of_several_runs_are_each_told(tmp_path, pool, capsys):
    for name, lost in (("a", 100), ("b", 300)):
        bulk_run(tmp_path / name, 1e9, lost)
    if pool:
        path = tmp_path / "b" / "run.json"
        path.write_text(path.read_text().replace('"channels": [4]', '"channels": [8]'))
    found = analyze(tmp_path, pool=pool).document["bulk"]["parts"]
    assert [(part["run"], part["balance"]["received"]) for part in found] == [
        ("a", 9900),
        ("b", 9700),
    ]
    words = ["--pool"] if pool else []
    run_program(OFFLINE, VERSION, ["analyze", str(tmp_path), *words])
    out = capsys.readouterr().out
    assert "400 of 20,000 datagrams lost" in out
    assert "udp 4, run b" in out
