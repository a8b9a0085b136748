"""Where packages of an extra lack: one line with the command that brings them."""

from __future__ import annotations

import importlib.abc
import sys
import tomllib
from pathlib import Path

import pytest
from latprof_agent.cli import SUBCOMMANDS, main
from latprof_analysis import extras

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
# By the name that pip knows it by.
DISTRIBUTIONS = {"vl_convert": "vl-convert-python", "distributed": "dask"}


class NotInstalled(importlib.abc.MetaPathFinder):
    """As where these are not: nothing finds them."""

    def __init__(self, names):
        self.names = names

    def find_spec(self, name, *_):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


@pytest.fixture
def without(monkeypatch):
    """Take packages away, by name."""

    def take(*names):
        for loaded in [m for m in sys.modules if m.partition(".")[0] in names]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setattr(sys, "meta_path", [NotInstalled(names), *sys.meta_path])
        monkeypatch.setattr(
            extras, "find_spec", lambda name: None if name in names else object()
        )

    return take


def test_every_extras_packages_are_those_of_the_project():
    wanted = PROJECT["project"]["optional-dependencies"]
    for extra, names in extras.EXTRAS.items():
        of_project = {
            word.partition(">")[0].partition("[")[0] for word in wanted[extra]
        }
        ours = {DISTRIBUTIONS.get(name, name) for name in names}
        assert of_project - {"latprof"} == ours, extra


@pytest.mark.parametrize(
    "words",
    [
        ("analyze", "x"),
        ("compare", "x", "y"),
        ("report", "x"),
        ("join", "x", "y"),
        ("rebuild", "x"),
        ("fleet", "h:1"),
    ],
)
def test_a_command_that_cannot_do_without_says_so_first(words, without, capsys):
    without("pandas", "scipy")
    assert main(words) == 1
    assert capsys.readouterr() == (
        "",
        f"latprof: latprof {words[0]} needs pandas, scipy, which are not installed; "
        f"run `{sys.executable} -m pip install 'latprof[analysis]'`\n",
    )


def test_its_help_needs_nothing(without, capsys):
    without(*(name for names in extras.EXTRAS.values() for name in names))
    for name in SUBCOMMANDS:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("option", [("--parquet",), ("--train", "4")])
def test_an_option_that_cannot_says_so_before_anything_is_measured(
    option, without, capsys, tmp_path
):
    without("pyarrow")
    assert main(["run", *option, "--out", str(tmp_path / "run")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        f"latprof: {option[0]} needs pyarrow, which is not installed; "
    )
    assert not (tmp_path / "run").exists()


def test_what_is_missed_on_the_way_is_one_line_too(monkeypatch, capsys):
    def fail(_):
        raise ModuleNotFoundError(
            "No module named 'scipy.optimize'", name="scipy.optimize"
        )

    monkeypatch.setattr("latprof_agent.cli.lab_clean.run", fail)
    assert main(["lab", "clean"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(
        "latprof: cannot go on: scipy.optimize is not installed; run `"
    )


def test_a_module_of_nobodys_is_a_bug_of_a_checkout(monkeypatch, tmp_path):
    """Of an installation its files are not whole."""
    here = str(tmp_path / "installation.py")
    monkeypatch.setattr("latprof_analysis.cli.installation.__file__", here)

    def fail(_):
        raise ModuleNotFoundError(
            "No module named 'latprof_agent.x'", name="latprof_agent.x"
        )

    monkeypatch.setattr("latprof_agent.cli.lab_clean.run", fail)
    with pytest.raises(ModuleNotFoundError):
        main(["lab", "clean"])


def test_who_packaged_it_has_another_command(monkeypatch, tmp_path):
    words = tmp_path / "share" / "latprof"
    words.mkdir(parents=True)
    (words / "add-analysis").write_text("run `apt install latprof-analysis`\n")
    (words / "add-others").write_text("the package has it not\n")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    assert extras.how_to_add("analysis") == "run `apt install latprof-analysis`"
    assert extras.how_to_add("dask") == "the package has it not"
