"""A run folder that others can get at while root fills it, and whose it is then."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest
from latprof_process import Latprof, run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to record")

SHORT = ("run", "--rate=0", "--delay=0", "--rounds=5", "--quiet", "--parquet")
LONG = ("run", "--protocol=tcp", "--duration=30", "--quiet")
USER, OTHER = 4711, 4712
SUDO = os.environ | {"SUDO_UID": str(USER), "SUDO_GID": str(USER)}

# As whoever owns the folder: into each place that a run writes to goes a link to
# root's files, and into the folder's own a link to root's folder.
ATTACK = """
import os, sys
os.setresgid(4711, 4711, 4711); os.setresuid(4711, 4711, 4711)
runs, victim = sys.argv[1:]
names = [".tcp.log", "run.json", "summary.json", "messages.csv",
         "messages.parquet", ".log.0"]
print(flush=True)
tried = 0
while True:
    try:
        here = [n for n in os.listdir(runs) if n.startswith("2")]
        for name in here:
            folder = f"{runs}/{name}"
            if os.path.islink(folder):
                continue
            unfinished = [n for n in os.listdir(folder) if n.startswith(".latprof-")]
            for inner in names + unfinished:
                try:
                    if tried % 2:
                        os.unlink(f"{folder}/{inner}")
                    os.symlink(f"{victim}/file", f"{folder}/{inner}")
                except OSError:
                    pass
            if tried % 3 == 0:
                os.rename(folder, f"{runs}/moved{tried}")
                os.symlink(victim, folder)
    except OSError:
        pass
    tried += 1
"""


@pytest.fixture
def place(reachable):
    """A folder of the user's."""
    home = reachable / "home"
    home.mkdir()
    os.chown(home, USER, USER)
    return home


def as_user(*words: str, **options):
    return subprocess.run(
        words, user=USER, group=USER, extra_groups=[], check=True, **options
    )


@pytest.mark.parametrize("words", [(), ("--out=runs/mine",), ("--out={}/a/b",)])
def test_in_somebody_elses_folder_root_writes_nothing(place, words):
    runs = place / "runs"
    runs.mkdir()
    os.chown(runs, OTHER, OTHER)
    given = [word.format(runs) for word in words]
    latprof = run(*SHORT, *given, cwd=place, env=SUDO)

    assert latprof.process.returncode == 2
    assert f"{runs} belongs to user {OTHER}; use --out DIR" in latprof.err
    assert len(latprof.err.splitlines()) == 1
    assert list(runs.iterdir()) == []
    assert latprof.left() == []


@pytest.mark.thorough
def test_links_that_the_user_puts_there_meanwhile_are_not_written_through(place):
    victim = place.parent / "victim"
    victim.mkdir()
    (victim / "file").write_text("root's")
    words = ["/usr/bin/python3", "-Ic", ATTACK, str(place / "runs"), str(victim)]
    attacker = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        attacker.stdout.readline()
        statuses = [
            run(*SHORT, cwd=place, env=SUDO).process.returncode for _ in range(4)
        ]
    finally:
        attacker.kill()
        attacker.communicate()

    assert set(statuses) <= {0, 1, 2}
    assert any((place / "runs").glob("*moved*")), "it was never tried"
    assert [path.name for path in victim.iterdir()] == ["file"]
    assert (victim / "file").read_text() == "root's"
    for path in (victim, victim / "file"):
        assert path.stat().st_uid == 0


@pytest.mark.parametrize("mask", ["022", "077"])
def test_what_the_user_measured_is_the_users(place, mask):
    before = ("sh", "-c", f'umask {mask}; exec "$@"', "sh")
    latprof = run(*SHORT, cwd=place, env=SUDO, before=before)
    assert latprof.process.returncode == 0, latprof.err

    (folder,) = (path for path in (place / "runs").iterdir() if path.name != "latest")
    found = [place / "runs", folder, *folder.iterdir()]
    assert len(found) == 2 + 4 + 2 + 4 + 1  # and the recording
    assert {(p.stat().st_uid, p.stat().st_gid) for p in found} == {(USER, USER)}
    as_user("sh", "-c", f"echo > {folder}/report.html; cat {folder}/* > /dev/null")
    as_user("rm", "-r", str(place / "runs"))


def test_root_itself_keeps_what_it_measured(tmp_path):
    latprof = run(*SHORT, f"--out={tmp_path / 'run'}")
    assert latprof.process.returncode == 0, latprof.err
    assert {p.stat().st_uid for p in (tmp_path / "run").iterdir()} == {0}


def test_a_working_directory_that_is_gone_is_told_of(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    before = ("sh", "-c", f'cd {gone}; rmdir {gone}; "$@"', "sh")
    latprof = run(*SHORT, before=before)
    assert latprof.process.returncode == 2
    (line,) = latprof.err.splitlines()
    assert line.startswith("latprof: cannot make run folder runs/")
    assert "no such file or directory; use --out DIR with another folder" in line


@pytest.mark.parametrize("name", ["messages.csv", "round_trips.csv", ""])
def test_what_is_removed_while_it_is_written_ends_the_run(tmp_path, name):
    out = tmp_path / "run"
    latprof = Latprof(*LONG, f"--out={out}")
    latprof.wait_for_rows(out / "messages.csv", 50)
    if name:
        (out / name).unlink()
    else:
        shutil.rmtree(out)
    latprof.finish()

    assert latprof.process.returncode == 1
    (line,) = latprof.err.splitlines()
    assert "was removed during the run, and" in line and str(out / name) in line
    assert ("tcp: " in latprof.out) and ("next: " in latprof.out) == bool(name)
    assert out.exists() == bool(name)
    assert latprof.left() == []


def test_a_run_that_was_moved_says_where_it_is(tmp_path):
    out = tmp_path / "run"
    latprof = Latprof(*LONG, f"--out={out}")
    latprof.wait_for_rows(out / "messages.csv", 50)
    out.rename(tmp_path / "moved")
    latprof.signal(signal.SIGINT)
    assert latprof.finish() == 0, latprof.err
    assert f"folder: {tmp_path / 'moved'}" in latprof.out
    assert (tmp_path / "moved" / "summary.json").exists()
