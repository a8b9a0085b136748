"""The run folder: new, whole lines, documents whole or not at all."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from latprof_agent.errors import StoreError, UsageError
from latprof_agent.sinks.round_trip_rows import COLUMNS, RoundTrips
from latprof_agent.sinks.run_files import RESERVED_BYTES, RunFolder
from latprof_agent.sinks.run_place import DEFAULT_PARENT, check_free
from latprof_analysis.calling_user import User


def round_trips(count: int) -> RoundTrips:
    """Round trips of `count` rows."""
    numbers = np.arange(count, dtype="i8")
    return RoundTrips("tcp", dict.fromkeys(COLUMNS[1:], numbers), 0)


ROOT = User(os.geteuid(), os.getegid())


def names_in(folder: RunFolder) -> list[str]:
    """What the folder holds."""
    return sorted(path.name for path in folder.path.iterdir())


@contextmanager
def files_limited(size: int) -> Iterator[None]:
    """Let no file grow beyond `size` bytes, as on a full disk.

    Only as long as the block: pytest writes to a file, too.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_new_folder_has_both_files_with_their_first_lines(tmp_path):
    folder = RunFolder(tmp_path / "a" / "b")
    folder.close()
    text = (tmp_path / "a" / "b" / "round_trips.csv").read_text()
    assert text == ",".join(COLUMNS) + "\n"
    assert (folder.path / "messages.csv").read_text().startswith("protocol,source")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("file", "exists already"),
        ("folder", "exists already"),
        ("dangling", "exists already"),
        ("file/below", "file is not a folder"),
    ],
)
def test_what_cannot_be_a_new_folder_is_refused_at_once_and_later(tmp_path, name, text):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(UsageError, match=text):
        check_free(tmp_path / name, ROOT)
    with pytest.raises(UsageError):
        RunFolder(tmp_path / name)


def test_folders_of_the_same_second_have_different_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_free(None, ROOT)
    made = [RunFolder(None) for _ in range(3)]
    assert len({folder.path for folder in made}) == 3
    assert {folder.path.parent for folder in made} == {DEFAULT_PARENT}


def test_a_file_that_cannot_grow_ends_with_a_whole_line(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.add_round_trips(round_trips(10))
    with files_limited(5000):
        folder.add_round_trips(round_trips(100_000))
        folder.finish_tables()
    assert "csv: file too large; what was" in str(folder.failure)
    lines = (folder.path / "round_trips.csv").read_text().splitlines(keepends=True)
    assert 11 < len(lines) < 1000
    assert all(line.endswith("\n") for line in lines)
    assert {line.count(",") for line in lines} == {len(COLUMNS) - 1}


def test_what_found_no_room_is_written_when_there_is_some(tmp_path):
    folder = RunFolder(tmp_path / "run")
    with files_limited(5000):
        for _ in range(2):
            folder.add_round_trips(round_trips(300))
    assert (folder.path / "round_trips.csv").read_text().count("\n") == 1
    folder.finish_tables()
    assert (folder.path / "round_trips.csv").read_text().count("\n") == 601
    assert "file too large" in str(folder.failure)


@pytest.mark.parametrize("name", ["messages.csv", "round_trips.csv", "exchanges.csv"])
def test_a_table_that_was_removed_is_told_of(tmp_path, name):
    folder = RunFolder(tmp_path / "run")
    assert folder.failure is None
    (folder.path / name).unlink()
    (folder.path / name).write_text("another")
    assert f"{name}: it was removed during the run, and its rows" in str(folder.failure)


def test_a_folder_that_was_removed_keeps_nothing_and_says_so(tmp_path):
    folder = RunFolder(tmp_path / "run")
    shutil.rmtree(folder.path)
    what = "run: the folder was removed during the run, and what was recorded with it"
    assert what in str(folder.failure)
    with pytest.raises(StoreError, match=what):
        folder.write_json("run.json", {})
    assert not folder.path.exists()


def test_where_there_is_no_room_from_the_start_no_folder_stays(tmp_path):
    for size in (10, 10_000):
        with (
            files_limited(size),
            pytest.raises(StoreError, match=r"run: .*; (free|raise) "),
        ):
            RunFolder(tmp_path / "run")
        assert list(tmp_path.iterdir()) == []


def test_room_for_the_documents_is_kept_until_the_end(tmp_path):
    folder = RunFolder(tmp_path / "run")

    def held() -> int:
        bytes_held = 0
        for path in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # what lists them has one, too
                name = str(path.readlink())
                if name.startswith(str(folder.path)) and name.endswith("(deleted)"):
                    bytes_held += path.stat().st_blocks * 512
        return bytes_held

    assert held() >= RESERVED_BYTES
    folder.free_logs()
    assert held() == 0
    folder.close()


def test_a_document_that_does_not_fit_leaves_the_one_before(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_json("run.json", {"state": "running"})
    cannot = pytest.raises(StoreError, match=r"cannot write .*run\.json")
    with cannot, files_limited(100):
        folder.write_json("run.json", {"text": "x" * 1000})
    assert json.loads((folder.path / "run.json").read_text()) == {"state": "running"}
    assert not [name for name in names_in(folder) if name.startswith(".")]


def test_the_generators_log_has_no_name(tmp_path):
    folder = RunFolder(tmp_path / "run")
    log = folder.new_log()
    with open(f"/proc/self/fd/{log}", "wb") as file:  # noqa: PTH123
        file.write(b"log")
    assert os.pread(log, 10, 0) == b"log"
    assert names_in(folder) == [
        *("exchanges.csv", "messages.csv"),
        *("other_turns.csv", "round_trips.csv"),
    ]
    folder.close()


def test_a_name_that_somebody_took_is_neither_followed_nor_written(tmp_path):
    folder, victim = RunFolder(tmp_path / "run"), tmp_path / "victim"
    victim.write_text("mine")
    for name in ("run.json", "messages.parquet"):
        (folder.path / name).symlink_to(victim)
    folder.write_json("run.json", {"state": "done"})
    folder.write_parquet()
    assert victim.read_text() == "mine"
    assert json.loads((folder.path / "run.json").read_text()) == {"state": "done"}
    assert not (folder.path / "messages.parquet").is_symlink()


def test_a_folder_that_was_moved_is_filled_where_it_is(tmp_path):
    folder, other = RunFolder(tmp_path / "run"), tmp_path / "other"
    folder.path.rename(tmp_path / "moved")
    other.mkdir()
    folder.path.symlink_to(other)
    folder.add_round_trips(round_trips(1))
    folder.write_json("run.json", {})
    assert list(other.iterdir()) == []
    assert (tmp_path / "moved" / "run.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
@pytest.mark.parametrize("mask", [0o022, 0o077, 0o777])
def test_all_of_a_run_is_the_calling_users_whatever_the_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        folder = RunFolder(tmp_path / "above" / "run", user=User(4711, 4712))
        folder.write_json("run.json", {})
        folder.close()
    finally:
        os.umask(before)
    above = folder.path.parent
    for path in (above, folder.path, *folder.path.iterdir()):
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (4711, 4712)
        own, folders = 0o600, 0o700
        assert status.st_mode & folders >= (folders if path.is_dir() else own)
        assert not status.st_mode & 0o022
    assert tmp_path.stat().st_uid == 0
