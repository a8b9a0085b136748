"""The bounded folder of stories: never above its bounds, and the right ones stay."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.errors import StoreError, UsageError
from latprof_agent.story.story_folder import StoryFolder, story_id
from latprof_analysis.calling_user import User, find_user
from latprof_analysis.read.stories import read_stories

MESSAGE = {
    **dict.fromkeys(("sender_pid", "reader_pid", "sender_comm", "reader_comm")),
    **{"protocol": "tcp", "kind": "message", "sequence": 1, "size_bytes": 1},
    **{"end_to_end_ns": None, "retransmits": 0, "reader_thread": None},
}
RECORDER = {"copies": 1, "skipped": 0, "symbols": "bcc"}
FIRST_US = 1_795_000_000_000_000


def document_of(unix_us, took_us, more=""):
    """A story of a message that took so long, and its file's document."""
    stages = {"receive_queue": {"time_ns": 1000 * took_us, "parts": None}}
    story = {"id": story_id(unix_us, took_us), "message": MESSAGE, "stages": stages}
    document = {"limit_ns": None, "slow_messages": 1, "recorder": RECORDER}
    return story, document | {"stories": [story], "more": more}


def folder_at(path, **bounds):
    found = StoryFolder(path, find_user(str(os.geteuid())), **bounds)
    found.begin()
    return found


def ids(path):
    return sorted(file.stem for file in path.glob("*.json"))


def reference(took, most):
    """Written otherwise: half of them the newest, the rest the slowest before."""
    newest = most - most // 2
    before = list(enumerate(took))[: max(0, len(took) - newest)]
    slowest = sorted(before, key=lambda one: (-one[1], -one[0]))[: most // 2]
    kept = {i for i, _ in slowest} | set(range(max(0, len(took) - newest), len(took)))
    return sorted(story_id(FIRST_US + i, took[i]) for i in kept)


@given(
    took=st.lists(st.integers(0, 10**9), max_size=40),
    most=st.integers(1, 9),
)
def test_the_newest_stay_and_the_slowest_of_those_before(tmp_path_factory, took, most):
    path = tmp_path_factory.mktemp("stories") / "kept"
    folder = folder_at(path, most=most)
    for i, took_us in enumerate(took):
        folder.add(*document_of(FIRST_US + i, took_us))
        assert len(ids(path)) <= most
    assert ids(path) == reference(took, most)
    assert [kept.id for kept in folder.kept()] == ids(path)
    # the next start finds the same, and goes on so
    folder.close()
    later = folder_at(path, most=max(1, most - 1))
    assert [kept.id for kept in later.kept()] == ids(path)
    assert len(ids(path)) <= max(1, most - 1)
    later.close()


@given(
    sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=30),
    most_bytes=st.integers(600, 6000),
)
def test_it_never_has_more_bytes(tmp_path_factory, sizes, most_bytes):
    path = tmp_path_factory.mktemp("stories") / "kept"
    folder = folder_at(path, most_bytes=most_bytes)
    for i, size in enumerate(sizes):
        story, document = document_of(FIRST_US + i, i, "x" * size)
        large = len(json.dumps(document, separators=(",", ":"))) > most_bytes
        try:
            folder.add(story, document)
        except StoreError as error:
            assert large
            assert "it is larger than story_bytes" in str(error)
        assert (story["id"] in folder) is not large  # the newest is there
        on_disk = sum(file.stat().st_size for file in path.glob("*.json"))
        assert on_disk == folder.nbytes <= most_bytes
    folder.close()


def test_what_a_killed_agent_left_is_no_story(tmp_path):
    whole = document_of(FIRST_US, 7)
    folder = folder_at(tmp_path)
    folder.add(*whole)
    folder.close()
    (tmp_path / f".{story_id(FIRST_US, 9)}.json.new").write_text('{"limit_n')
    (tmp_path / f"{story_id(FIRST_US, 8)}.json").touch()
    (tmp_path / "of-others.json").write_text("{}")
    (tmp_path / f"{story_id(FIRST_US, 6)}.json").symlink_to("/etc/passwd")
    folder = folder_at(tmp_path)
    assert [kept.id for kept in folder.kept()] == [whole[0]["id"]]
    left = [whole[0]["id"], story_id(FIRST_US, 6), "of-others"]
    assert ids(tmp_path) == sorted(left)
    assert folder.read(story_id(FIRST_US, 6)) is None
    assert json.loads(folder.read(whole[0]["id"])) == whole[1]
    folder.close()


def test_a_folder_is_read_as_one_document(tmp_path):
    folder = folder_at(tmp_path / "kept")
    for i, took_us in enumerate([5, 9, 7]):
        folder.add(*document_of(FIRST_US + i, took_us))
    found = read_stories(tmp_path / "kept")
    times = [s["stages"]["receive_queue"]["time_ns"] for s in found["stories"]]
    assert times == [9000, 7000, 5000]
    assert found["slow_messages"] == found["recorder"]["copies"] == 3
    assert found["recorder"]["symbols"] == "bcc"
    one = read_stories(tmp_path / "kept" / f"{story_id(FIRST_US, 5)}.json")
    assert one["stories"] == [document_of(FIRST_US, 5)[0]]
    folder.close()


def test_a_full_disk_is_one_line_and_counted(tmp_path, monkeypatch):
    folder = folder_at(tmp_path)
    folder.add(*document_of(FIRST_US, 1))

    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(StoreError, match="no space left on device; "):
            folder.add(*document_of(FIRST_US + 1, 1))
        folder.add(*document_of(FIRST_US + 2, 1))  # said already
        assert folder.failed == 2
        assert ids(tmp_path) == [story_id(FIRST_US, 1)]  # no half of a file
    folder.add(*document_of(FIRST_US + 3, 1))
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(StoreError):  # it had been well meanwhile
            folder.add(*document_of(FIRST_US + 4, 1))
    folder.close()


def test_a_folder_that_others_may_write_is_refused(tmp_path):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match=r"story_dir: cannot use .*: .* everybody; "):
        folder_at(tmp_path / "open")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"story_dir: cannot use .*is not a folder"):
        folder_at(tmp_path / "file")


GROUP = 61_123  # that nobody is in


def modes(path):
    """Of its stories: who may read them, and which group that is."""
    found = [file.stat() for file in path.glob("*.json")]
    return {(status.st_mode & 0o7777, status.st_gid) for status in found}


def test_stories_are_for_their_user_and_his_group_alone(tmp_path):
    before = os.umask(0)
    try:
        folder = folder_at(tmp_path / "kept")
        folder.add(*document_of(FIRST_US, 1))
        own = (0o640, os.getegid())
        assert modes(tmp_path / "kept") == {own}
        # what an earlier version let everybody read
        for file in (tmp_path / "kept").iterdir():
            file.chmod(0o644)
        folder_at(tmp_path / "kept")
        assert modes(tmp_path / "kept") == {own}
    finally:
        os.umask(before)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_group_that_is_named_may_read_them_and_the_user_is_none_of_it(tmp_path):
    """As root makes the folder, and the agent's user the files."""
    path = tmp_path / "kept"
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        parent.chmod(0o755)
    user = User(61_122, 61_122, "61122")
    folder = StoryFolder(path, user, group=GROUP)
    child = os.fork()
    if not child:
        with suppress(BaseException):
            os.setgroups([])
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            folder.begin()
            folder.add(*document_of(FIRST_US, 1))
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert modes(path) == {(0o640, GROUP)}
    assert path.stat().st_mode & 0o7777 == 0o2750


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_who_is_not_in_the_group_is_refused_it(tmp_path):
    user = User(61_122, 61_122, "61122")
    child = os.fork()
    if not child:
        with suppress(UsageError):
            os.setresgid(user.gid, user.gid, user.gid)
            os.setresuid(user.uid, user.uid, user.uid)
            os.umask(0)
            made = Path(tempfile.mkdtemp(prefix="latprof-"))
            StoryFolder(made, user, group=GROUP).begin()
            os._exit(1)
        made.rmdir()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
