"""The run folder: new, whole lines, documents whole or not at all."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from latprof_agent.errors import StoreError, UsageError
from latprof_agent.sinks import run_files
from latprof_agent.sinks.round_trip_rows import COLUMNS, RoundTrips
from latprof_agent.sinks.run_files import RunFolder, check_free


def round_trips(count: int) -> RoundTrips:
    """Round trips of `count` rows."""
    numbers = np.arange(count, dtype="i8")
    return RoundTrips("tcp", dict.fromkeys(COLUMNS[1:], numbers), 0)


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
        check_free(tmp_path / name)
    with pytest.raises(UsageError):
        RunFolder(tmp_path / name)


def test_folders_of_the_same_second_have_different_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_free(None)
    made = [RunFolder(None) for _ in range(3)]
    assert len({folder.path for folder in made}) == 3
    assert {folder.path.parent for folder in made} == {run_files.DEFAULT_PARENT}


def test_a_file_that_cannot_grow_ends_with_a_whole_line(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.add_round_trips(round_trips(10))
    too_large = pytest.raises(StoreError, match=r"cannot write .*csv: file too")
    with too_large, files_limited(5000):
        folder.add_round_trips(round_trips(100_000))
    lines = (folder.path / "round_trips.csv").read_text().splitlines(keepends=True)
    assert 11 < len(lines) < 1000
    assert all(line.endswith("\n") for line in lines)
    assert {line.count(",") for line in lines} == {len(COLUMNS) - 1}
    folder.add_round_trips(round_trips(1))  # says no more of it
    assert len((folder.path / "round_trips.csv").read_text().splitlines()) == len(lines)


def test_a_document_that_does_not_fit_leaves_the_one_before(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.write_json("run.json", {"state": "running"})
    cannot = pytest.raises(StoreError, match=r"cannot write .*run\.json")
    with cannot, files_limited(100):
        folder.write_json("run.json", {"text": "x" * 1000})
    assert json.loads((folder.path / "run.json").read_text()) == {"state": "running"}
    assert ".run.json.partial" not in names_in(folder)


def test_the_generators_log_does_not_stay(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.log_path("tcp").write_text("log")
    folder.close()
    assert names_in(folder) == ["exchanges.csv", "messages.csv", "round_trips.csv"]
