"""What others put where a file is read: looked at first, and not read for them."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from latprof_analysis.read import ReadError, read_runs
from latprof_analysis.read.paths import opened

DATA = Path(__file__).parent.parent / "data" / "run"
OTHER = 4712
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give away")


def bytes_of(path: Path) -> bytes:
    with opened(path) as file:
        return file.read()


@pytest.fixture
def theirs(tmp_path):
    """A run that belongs to somebody else."""
    folder = Path(shutil.copytree(DATA, tmp_path / "theirs"))
    for path in (folder, *folder.iterdir()):
        os.chown(path, OTHER, OTHER)
    return folder


def link(path: Path, target: Path) -> Path:
    """A link that belongs to whose folder it is in."""
    path.symlink_to(target)
    owner = path.parent.stat()
    os.lchown(path, owner.st_uid, owner.st_gid)
    return path


def opens(path: Path):
    """What counts how often a file was opened, by inotify."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watch, os.fsencode(path), 0x20) > 0  # IN_OPEN

    def count() -> int:
        with suppress(BlockingIOError):
            return len(os.read(watch, 4096)) // 16
        return 0

    return count


@pytest.mark.parametrize("by_link", [False, True])
def test_what_is_no_file_is_refused_and_not_opened(tmp_path, by_link):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    named = link(tmp_path / "link", fifo) if by_link else fifo
    opened_times = opens(fifo)
    with pytest.raises(ReadError, match="it is no regular file"):
        opened(named)
    assert opened_times() == 0
    fifo.unlink()


def test_a_file_that_somebody_holds_a_lease_on_is_not_waited_for(tmp_path):
    path = tmp_path / "file"
    path.write_text("a")
    with path.open("r+") as held:
        fcntl.fcntl(held, fcntl.F_SETSIG, signal.SIGURG)  # which ends nobody
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        with pytest.raises(ReadError, match="temporarily unavailable"):
            opened(path)


def test_ones_own_links_are_followed(tmp_path):
    (tmp_path / "file").write_text("a")
    assert bytes_of(link(tmp_path / "link", tmp_path / "file")) == b"a"
    assert bytes_of(link(tmp_path / "again", Path("link"))) == b"a"


# As on a system that has no O_PATH and no /proc.
NOT_LINUX = """
import os, sys
from pathlib import Path
import numpy
sys.platform = "darwin"
del os.O_PATH
from latprof_analysis.read.paths import opened
from latprof_analysis.read.result import ReadError
from latprof_analysis.write.whole_file import check_place, make_folder, write_file
folder = Path(sys.argv[1]) / "new"
make_folder(folder)
check_place(folder / "file", "--out FILE")
write_file(folder / "file", b"bytes")
assert opened(folder / "file").read() == b"bytes"
os.mkfifo(folder / "fifo")
try:
    opened(folder / "fifo")
except ReadError as error:
    print(error)
"""


def test_elsewhere_than_on_linux_files_are_read_and_written_too(tmp_path):
    words = [sys.executable, "-c", NOT_LINUX, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "it is no regular file" in done.stdout, done.stderr


@needs_root
def test_root_reads_nothing_that_a_link_of_somebody_elses_leads_to(tmp_path, theirs):
    secret = tmp_path / "secret"
    secret.write_text("root's")
    for name in ("messages.csv", "run.json"):
        (theirs / name).unlink()
        link(theirs / name, secret)
        with pytest.raises(ReadError, match="link to a file that does not belong to"):
            opened(theirs / name)
    link(theirs / "chain", Path("messages.csv"))
    with pytest.raises(ReadError, match="link to a file that does not belong to"):
        opened(theirs / "chain")


@needs_root
def test_root_reads_what_a_link_leads_to_that_is_its_owners(tmp_path, theirs):
    elsewhere = tmp_path / "elsewhere.csv"
    (theirs / "messages.csv").rename(elsewhere)
    link(theirs / "messages.csv", elsewhere)
    assert len(read_runs(theirs).messages) == len(read_runs(DATA).messages)
