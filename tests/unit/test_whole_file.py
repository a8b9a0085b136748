"""What a user names is written whole or not at all, and through nobody's link."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from latprof_analysis.errors import LatprofError
from latprof_analysis.write.whole_file import (
    check_place,
    make_folder,
    write_file,
    writing,
)

USER, OTHER = 4711, 4712
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give away")


@pytest.fixture
def victim(tmp_path):
    """A file that no writer was asked for."""
    path = tmp_path / "victim"
    path.write_text("mine")
    return path


@pytest.fixture
def calling(monkeypatch):
    """Root is called by the user, as by sudo."""
    monkeypatch.setenv("SUDO_UID", str(USER))
    monkeypatch.setenv("SUDO_GID", str(USER))


def folder_of(path: Path, owner: int, mode: int = 0o755) -> Path:
    path.mkdir()
    os.chown(path, owner, owner)
    path.chmod(mode)
    return path


def names_in(path: Path) -> list[str]:
    return sorted(inner.name for inner in path.iterdir())


@contextmanager
def umask(mask: int):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_a_link_is_replaced_and_not_followed(tmp_path, victim):
    link = tmp_path / "link"
    link.symlink_to(victim)
    write_file(link, b"new")
    assert victim.read_text() == "mine"
    assert not link.is_symlink()
    assert link.read_bytes() == b"new"


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_the_mode_is_that_of_the_umask(tmp_path, mask):
    with umask(mask):
        write_file(tmp_path / "new", b"")
    assert (tmp_path / "new").stat().st_mode & 0o777 == 0o666 & ~mask


def test_what_fails_halfway_leaves_the_file_before(tmp_path, victim):
    with pytest.raises(ZeroDivisionError), writing(victim) as file:
        file.write(b"half")
        file.flush()
        assert victim.read_text() == "mine"
        1 / 0  # noqa: B018
    assert victim.read_text() == "mine"
    assert names_in(tmp_path) == ["victim"]


def test_a_file_that_does_not_fit_leaves_the_one_before(tmp_path, victim):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(LatprofError, match=r"cannot write .*; raise `ulimit -f`"):
            write_file(victim, bytes(1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert victim.read_text() == "mine"
    assert names_in(tmp_path) == ["victim"]


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(LatprofError, match=r"cannot write .*: Is a directory; "):
        write_file(tmp_path, b"")
    assert names_in(tmp_path) == []


def test_a_fifo_is_written_to_and_stays(tmp_path):
    fifo, read = tmp_path / "fifo", []
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    check_place(fifo, "--out FILE")
    write_file(fifo, b"bytes")
    reader.join()
    assert read == [b"bytes"]
    assert fifo.is_fifo()


def test_a_device_is_written_to_and_stays():
    write_file(Path("/dev/null"), b"bytes")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("to_file", [False, True], ids=["pipe", "file"])
def test_standard_output_is_written_to(tmp_path, name, to_file):
    script = (
        "import sys; from pathlib import Path\n"
        "from latprof_analysis.write.whole_file import check_place, write_file\n"
        "check_place(Path(sys.argv[1]), '')\n"
        "write_file(Path(sys.argv[1]), b'bytes')"
    )
    out = tmp_path / "out"
    with out.open("wb") as file:
        done = subprocess.run(
            [sys.executable, "-c", script, name],
            stdout=file if to_file else subprocess.PIPE,
            check=True,
        )
    assert (out.read_bytes() if to_file else done.stdout) == b"bytes"
    assert names_in(tmp_path) == ["out"]


def test_folders_are_made_where_there_are_none(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b")
    check_place(tmp_path / "a" / "b" / "c" / "file", "--out FILE")
    assert names_in(tmp_path / "a") == ["b"]
    assert names_in(tmp_path / "a" / "b") == []


@needs_root
def test_root_writes_nothing_into_a_folder_of_somebody_elses(tmp_path, victim):
    theirs = folder_of(tmp_path / "theirs", OTHER)
    link = theirs / "report.html"
    link.symlink_to(victim)
    why = f"{theirs} belongs to user {OTHER}; "
    for write in (write_file, lambda path, _: make_folder(path / "new")):
        with pytest.raises(LatprofError, match=why):
            write(link.with_name("other"), b"new")
    with pytest.raises(LatprofError, match=why):
        write_file(link, b"new")
    with pytest.raises(LatprofError, match=f"{why}use --out FILE in a folder of your"):
        check_place(link, "--out FILE")
    assert names_in(theirs) == ["report.html"]
    assert victim.read_text() == "mine"


@needs_root
def test_root_writes_nothing_where_everybody_may(tmp_path):
    theirs = folder_of(tmp_path / "theirs", 0, 0o777)
    with pytest.raises(LatprofError, match="theirs can be written by everybody; name"):
        write_file(theirs / "new", b"new")
    theirs.chmod(0o1777)
    write_file(theirs / "new", b"new")
    assert (theirs / "new").read_bytes() == b"new"


@needs_root
@pytest.mark.usefixtures("calling")
def test_what_root_writes_for_a_user_is_the_users(tmp_path, victim):
    home = folder_of(tmp_path / "home", USER)
    (home / "report.html").symlink_to(victim)
    make_folder(home / "new")
    for path in (home / "report.html", home / "new" / "report.html"):
        write_file(path, b"new")
        assert path.lstat().st_uid == path.parent.stat().st_uid == USER
    assert victim.read_text() == "mine"
    assert victim.stat().st_uid == 0


# As whoever owns the folder: puts a link to root's file in the place of whatever is
# there, the file that is not whole yet, too.
ATTACK = """
import os, sys
os.setresgid(4711, 4711, 4711); os.setresuid(4711, 4711, 4711)
here, victim = sys.argv[1:]
os.chdir(here); print(flush=True)
while True:
    for name in ["report.html", *os.listdir()]:
        try:
            os.symlink(victim, "link"); os.rename("link", name)
        except OSError: pass
"""


@needs_root
@pytest.mark.usefixtures("calling")
def test_a_link_that_comes_meanwhile_is_not_written_through(reachable):
    home, victim = folder_of(reachable / "home", USER), reachable / "victim"
    victim.write_text("mine")
    words = ["/usr/bin/python3", "-Ic", ATTACK, str(home), str(victim)]
    attacker = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert attacker.stdout
        attacker.stdout.readline()
        written = linked = 0
        until = time.monotonic() + 60
        while written < 200 or not linked:
            assert time.monotonic() < until, "no link was seen"
            write_file(home / "report.html", b"new")
            written += 1
            linked += (home / "report.html").is_symlink()
    finally:
        attacker.kill()
        attacker.communicate()
    assert victim.read_text() == "mine"
    assert victim.stat().st_uid == 0
