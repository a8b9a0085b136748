"""Names of run folders, and the link to the newest of them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from latprof_agent.lab.link import LinkSpec
from latprof_agent.sinks.run_files import RunFolder
from latprof_analysis.cli import main
from latprof_analysis.read.paths import expand

RUN = Path(__file__).parents[1] / "data" / "run"


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    """`runs/` of an empty working directory."""
    monkeypatch.chdir(tmp_path)
    return Path("runs")


def made(path: Path | None = None, name: str = "") -> Path:
    folder = RunFolder(path, name)
    folder.close()
    return folder.path


def test_a_name_that_is_taken_gets_a_number(runs):
    assert [made(name="a") for _ in range(3)] == [
        runs / "a",
        runs / "a-2",
        runs / "a-3",
    ]


def test_latest_leads_to_the_newest_folder(runs):
    for path, name in ((None, "a"), (None, ""), (runs / "mine", "")):
        folder = made(path, name)
        assert (runs / "latest").readlink() == Path(folder.name)
        assert (runs / "latest" / "messages.csv").samefile(folder / "messages.csv")
    assert {p.name for p in runs.iterdir() if p.name.startswith(".")} == set()


def test_a_folder_elsewhere_is_not_the_latest(runs, tmp_path):
    made(name="a")
    made(tmp_path / "elsewhere")
    assert (runs / "latest").readlink() == Path("a")
    assert not (tmp_path / "latest").exists()


def test_what_is_no_link_is_left_as_it_is(runs):
    runs.mkdir()
    (runs / "latest").write_text("mine")
    made(name="a")
    assert (runs / "latest").read_text() == "mine"
    (runs / "latest").unlink()
    (runs / "latest" / "mine").mkdir(parents=True)
    made(name="b")
    assert [p.name for p in (runs / "latest").iterdir()] == ["mine"]


def test_a_link_that_cannot_be_made_ends_no_run(runs, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "symlink", refuse)
    assert (made(name="a") / "messages.csv").exists()
    assert not (runs / "latest").is_symlink()


def test_a_link_is_not_read_beside_its_folder(runs):
    for name in ("a", "b"):
        shutil.copytree(RUN, runs / name)
    (runs / "latest").symlink_to("a")
    both = [runs / "a", runs / "b"]
    assert (
        expand("runs/*") == expand("runs") == expand(["runs/latest", "runs/b"]) == both
    )
    assert expand("runs/latest") == [runs / "a"]
    (runs / "latest").unlink()
    (runs / "latest").symlink_to("gone")
    assert expand("runs") == both


def test_reports_are_titled_by_name_command_and_link(runs, capsys):
    pytest.importorskip("vl_convert")
    shutil.copytree(RUN, runs / "a-2")
    (runs / "latest").symlink_to("a-2")
    document = json.loads((runs / "a-2/run.json").read_text())
    link = LinkSpec(rate_bps=10**8, delay_ns=10**6, loss=0.01)
    addresses = {"a": "10.203.0.1", "b": "10.203.0.2"}
    document |= {
        "name": "a",
        "workload": {"command": ["redis-benchmark", "-p", "7777"], "plan": None},
        "lab": {"known": link.known("emulator"), "addresses": addresses},
    }
    (runs / "a-2/run.json").write_text(json.dumps(document))

    assert main(["report", "runs/latest"]) == 0
    assert capsys.readouterr().out.endswith("report: runs/a-2/report.html\n")
    title = "a (a-2): redis-benchmark -p 7777 over emulator 100 Mbit/s, 1 ms, 1% loss"
    assert title in (runs / "a-2/report.html").read_text()
    assert main(["analyze", "runs/latest"]) == 0
    assert capsys.readouterr().out.startswith("a (a-2): ")
