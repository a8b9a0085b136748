"""What a reader slept for, and who ended that: a lock's holder, a process, a disk."""

from __future__ import annotations

import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from fuse import fuse_flags, wait_for_mount
from told_stories import first_parts, told_of

pytestmark = pytest.mark.timed

MS = 1_000_000
SLOW_MS, EVERY, TIMES = 20, 3, 20
HERE = Path(__file__).parent
OWN = "asleep", "on a timer (clock_nanosleep)"


def compiled(folder, name, *flags):
    built = folder / name
    words = ["-O1", "-Wall", "-Wextra", "-Werror", "-fno-omit-frame-pointer"]
    source = HERE / f"{name}.c"
    subprocess.run(["gcc", *words, source, "-o", built, *flags], check=True)
    return built


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("reader"), "slow_reader", "-lpthread")


def slowly(reader, how, *file):
    """The reader, before all others, so that it waits for what it says and no CPU."""
    return "chrt", "--fifo", "10", reader, how, EVERY * TIMES, EVERY, SLOW_MS, *file


def by_of(out):
    """Process and thread that it waited for, as the reader says."""
    (line,) = [line for line in out.splitlines() if line.startswith("by ")]
    return tuple(map(int, line.split()[1:]))


def check_waker(parts, by, comm, did):
    """Nearly all were ended by this thread, which did this most of the time."""
    first = [part["who"][0] for part in parts if part["who"]]
    right = [one for one in first if (one["pid"], one["thread"]) == by]
    assert len(right) >= TIMES - 1, first
    assert {one["comm"] for one in right} == {comm}
    doings = [one["did"][0] for one in right]
    same = [d["time_ns"] for d in doings if (d["kind"], d["what"]) == did]
    assert len(same) >= TIMES - 1, doings
    assert 0.8 * SLOW_MS * MS < np.median(same) <= np.median(times_of(parts))


def times_of(parts):
    return [part["time_ns"] for part in parts]


@pytest.mark.parametrize(
    ("how", "what", "comm", "did"),
    [
        ("held", "for a lock (mutex)", "slow_reader", ("busy", "hold_the_door")),
        ("lock", "for a lock (mutex)", "slow_reader", OWN),
        ("inherit", "for a lock (priority-inheriting mutex)", "slow_reader", OWN),
        (
            "signal",
            "for another thread (condition variable or the like, futex)",
            *("slow_reader", OWN),
        ),
        # of which the kernel sees what it sees of a mutex, but for the wake
        ("barrier", "for another thread (futex)", "slow_reader", OWN),
        ("pipe", "in read (", "storage", ("busy", "count_the_stars")),
    ],
)
def test_a_sleep_is_told_with_who_ended_it_and_did_what(
    reader, tmp_path, how, what, comm, did
):
    document, out = told_of(tmp_path / "run", *slowly(reader, how))
    parts = first_parts(document)
    right = [p for p in parts if p["kind"] == "asleep" and p["what"].startswith(what)]
    assert len(right) >= TIMES - 1, parts
    assert all("pipe_read" in p["what"] for p in right if how == "pipe")
    check_waker(right, by_of(out), comm, did)
    own_ns = [
        int(words[1]) - int(words[0])
        for line in out.splitlines()
        if len(words := line.split()) == 2 and words[0].isdecimal()
    ]
    assert len(own_ns) == TIMES
    assert np.median(times_of(right)) <= np.median(own_ns)
    assert np.median(times_of(right)) > 0.9 * SLOW_MS * MS
    for part in right:  # where it slept for all of the time, but for what is short
        inside = sum(stack["time_ns"] for stack in part["stacks"])
        assert 0.99 * part["time_ns"] <= inside <= part["time_ns"]
        assert part["stacks"][0]["frames"][-1].endswith("(kernel)")


def test_of_a_readers_sleep_the_stack_is_told_and_no_older_one(reader, tmp_path):
    """But where it waits as readers do for what comes next, as in poll()."""
    document, _ = told_of(tmp_path / "run", *slowly(reader, "turns"))
    found = [
        [f for f in stack["frames"] if not f.endswith("(kernel)")]
        for part in first_parts(document)
        for stack in part["stacks"]
    ]
    sleeps = [own for own in found if "nanosleep" in own[-1]]
    polls = [own for own in found if "poll" in own[-1]]
    callers = ["main", "sleep_or_poll", "sleep_long", "sleep_ns", "..."]
    told = [own for own in sleeps if own[-6:-1] == callers]
    assert len(told) >= TIMES // 2 - 1, sleeps
    assert len(polls) >= TIMES // 2 - 1, found
    assert all(len(own) == 1 for own in polls), polls


@contextmanager
def slow_files(program, folder):
    """A file system whose reads take so long, and its process."""
    folder.mkdir()
    words = ["chrt", "--fifo", "10", program, str(SLOW_MS), folder]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for_mount(process, folder / "direct")
            yield process.pid
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    flags = fuse_flags()
    folder = tmp_path_factory.mktemp("files")
    program = compiled(folder, "slow_files", *flags)
    with slow_files(program, folder / "mounted") as pid:
        yield folder / "mounted", pid


@pytest.mark.parametrize(
    ("how", "file", "what"),
    [
        ("file", "direct", "for a disk or file system (pread64; fuse_simple_request)"),
        # of a page that was asked for ahead: the file system's frames are gone
        ("file", "cached", "for a disk or file system (pread64; "),
        ("map", "cached", "for a page (page fault; "),
    ],
)
def test_a_slow_file_system_is_told_with_the_process_that_serves_it(
    reader, files, tmp_path, how, file, what
):
    folder, pid = files
    document, _ = told_of(tmp_path / "run", *slowly(reader, how, folder / file))
    parts = first_parts(document)
    right = [p for p in parts if p["kind"] == "asleep" and p["what"].startswith(what)]
    assert len(right) >= TIMES - 1, parts
    check_waker(right, (pid, pid), "slow_files", OWN)


@pytest.mark.parametrize("how", ["busy", "sleep"])
def test_a_reader_that_waits_for_nobody_is_told_of_nobody(reader, tmp_path, how):
    document, _ = told_of(tmp_path / "run", *slowly(reader, how))
    parts = [
        part
        for story in document["stories"]
        for part in story["stages"]["receive_queue"]["parts"]
        if part["kind"] == "asleep"
    ]
    of_others = [p for p in parts if not p["what"].startswith("on a timer")]
    assert sum(times_of(of_others)) < 0.01 * len(document["stories"]) * SLOW_MS * MS
    assert not any(part["who"] for part in parts if part not in of_others)
