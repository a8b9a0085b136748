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
    monkeypatch.delenv("LATPROF_BIN", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python3"))
    monkeypatch.chdir(tmp_path)


def test_the_folder_that_is_named_comes_first(tmp_path, monkeypatch):
    on_path, named = program(tmp_path / "path"), program(tmp_path / "named")
    monkeypatch.setenv("PATH", str(on_path.parent))
    assert executables.find_executable("latprof-none") == on_path
    monkeypatch.setenv("LATPROF_BIN", str(named.parent))
    assert executables.find_executable("latprof-none") == named


@pytest.mark.parametrize("path", ["", ":", ".", "here", "/nowhere::./here"])
def test_the_working_directory_is_never_looked_into(tmp_path, monkeypatch, path):
    program(tmp_path / "here")
    program(tmp_path / "latprof" / "x").rename(tmp_path / "latprof-none")
    monkeypatch.setenv("PATH", path)
    with pytest.raises(LatprofError, match="cannot find latprof-none"):
        executables.find_executable("latprof-none")
