"""Our native programs are found where root or the user put them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from latprof_agent import executables
from latprof_agent.errors import LatprofError


def program(folder: Path, name: str = "latprof-none") -> Path:
    folder.mkdir(parents=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    monkeypatch.chdir(tmp_path)


def test_beside_the_interpreter_comes_first_then_what_path_names(tmp_path, monkeypatch):
    on_path = program(tmp_path / "path")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert executables.find_executable("latprof-none") == on_path
    beside = program(tmp_path / "bin")
    assert executables.find_executable("latprof-none") == beside


def test_no_variable_of_the_environment_comes_before(tmp_path, monkeypatch):
    beside, other = program(tmp_path / "bin"), program(tmp_path / "other")
    monkeypatch.setenv("LATPROF_BIN", str(other.parent))
    monkeypatch.setenv("PATH", str(other.parent))
    assert executables.find_executable("latprof-none") == beside


def test_an_editable_install_has_them_in_its_build_folder(tmp_path, monkeypatch):
    built = program(tmp_path / "build" / "editable" / "agent" / "native" / "none")
    module = tmp_path / "agent" / "latprof_agent" / "executables.py"
    monkeypatch.setattr(executables, "__file__", str(module))
    monkeypatch.setenv("PATH", "/nowhere")
    assert executables.find_executable("latprof-none") == built


@pytest.mark.parametrize("path", ["", ":", ".", "here", "/nowhere::./here"])
def test_the_working_directory_is_never_looked_into(tmp_path, monkeypatch, path):
    program(tmp_path / "here")
    program(tmp_path / "latprof" / "x").rename(tmp_path / "latprof-none")
    monkeypatch.setenv("PATH", path)
    with pytest.raises(LatprofError, match="cannot find latprof-none"):
        executables.find_executable("latprof-none")
