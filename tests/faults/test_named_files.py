"""Files that root writes for a user: beside runs of others, and of the calling user."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from failures import assert_failed
from latprof_process import run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give away")

DATA = Path(__file__).parents[1] / "data" / "run"
USER, OTHER = 4711, 4712
SUDO = os.environ | {"SUDO_UID": str(USER), "SUDO_GID": str(USER)}
# What each command writes, with `{}` for the run folder.
WRITTEN = {
    "report.html": ("report", "{}"),
    "mine.md": ("report", "{}", "--out={}/mine.md"),
    "compared.csv": ("compare", "{}", "{}/../second", "--csv={}/compared.csv"),
}


@pytest.fixture
def runs(reachable):
    """Two runs, and a file of root's to which links in the first lead."""
    for name in ("first", "second"):
        shutil.copytree(DATA, reachable / name)
    (reachable / "victim").write_text("root's")
    for name in WRITTEN:
        (reachable / "first" / name).symlink_to(reachable / "victim")
    return reachable


def belongs(folder: Path, uid: int) -> None:
    """Let a folder and all in it be a user's."""
    for path in (folder, *folder.iterdir()):
        os.lchown(path, uid, uid)


def written(runs: Path, name: str, **options):
    """Run the command that writes a file of this name into the first run."""
    words = [word.format(runs / "first") for word in WRITTEN[name]]
    return run(*words, cwd=runs, **options)


@pytest.mark.parametrize("name", WRITTEN)
def test_root_writes_nothing_beside_a_run_of_somebody_elses(runs, name):
    belongs(runs / "first", OTHER)
    before = sorted((runs / "first").iterdir())
    failed = written(runs, name, env=SUDO)

    option = "--csv" if name == "compared.csv" else "--out"
    why = f"{runs}/first belongs to user {OTHER}; use {option} FILE in a folder of your"
    assert_failed(failed, 1, f"cannot write {runs}/first/{name}: {why}")
    assert (runs / "victim").read_text() == "root's"
    assert sorted((runs / "first").iterdir()) == before


@pytest.mark.parametrize("name", WRITTEN)
def test_a_link_of_the_calling_users_is_replaced_and_not_followed(runs, name):
    belongs(runs / "first", USER)
    done = written(runs, name, env=SUDO)

    assert done.process.returncode == 0, done.err
    assert (runs / "victim").read_text() == "root's"
    assert (runs / "victim").stat().st_uid == 0
    made = runs / "first" / name
    assert made.is_file() and not made.is_symlink()
    assert {path.lstat().st_uid for path in (runs / "first").rglob("*")} == {USER}


def test_of_a_run_of_somebody_elses_root_writes_a_report_elsewhere(runs):
    belongs(runs / "first", OTHER)
    done = run("report", f"{runs}/first", f"--out={runs}/mine.html")

    assert done.process.returncode == 0, done.err
    assert (runs / "mine.html").read_text().startswith("<!doctype html>")
