"""Root makes folders only where nobody else can put something in their place."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from latprof_analysis.calling_user import User
from latprof_analysis.write.trusted_folder import FolderError, new_folder, open_folder

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give away")

USER, OTHER = User(4711, 4711), 4712


def opened(path: Path, *, make: bool = False) -> Path:
    """Open a folder; where it is."""
    folder = open_folder(path, USER, make=make)
    try:
        return Path(f"/proc/self/fd/{folder}").readlink()
    finally:
        os.close(folder)


def folder(path: Path, owner: int = 0, mode: int = 0o755, group: int = 0) -> Path:
    path.mkdir()
    os.chown(path, owner, group)
    path.chmod(mode)
    return path


def link(path: Path, target: Path | str, owner: int = 0) -> Path:
    path.symlink_to(target)
    os.lchown(path, owner, owner)
    return path


@pytest.mark.parametrize("owner", [0, USER.uid])
def test_below_folders_of_roots_and_of_the_users_all_is_made(tmp_path, owner):
    above = folder(tmp_path / "a", owner)
    assert opened(above / "b" / "c", make=True) == above / "b" / "c"
    assert (above / "b").stat().st_uid == USER.uid
    assert opened(above / "b" / "none" / "none") == above / "b"


@pytest.mark.parametrize("way", ["a", "a/b", "a/../a/b", "a/none"])
def test_below_a_folder_of_somebody_elses_nothing_is_made(tmp_path, way):
    folder(folder(tmp_path / "a", OTHER) / "b")
    for make in (False, True):
        with pytest.raises(FolderError, match=f"{tmp_path}/a belongs to user {OTHER}"):
            opened(tmp_path / way, make=make)


def test_a_working_directory_of_somebody_elses_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(folder(tmp_path / "a", OTHER))
    with pytest.raises(FolderError, match=f"{tmp_path}/a belongs to"):
        opened(Path("runs"), make=True)
    assert list(Path().iterdir()) == []


def test_what_everybody_can_write_is_refused_but_sticky_folders(tmp_path):
    open_to_all = folder(tmp_path / "a", mode=0o777)
    with pytest.raises(FolderError, match="a can be written by everybody"):
        opened(open_to_all / "mine", make=True)
    open_to_all.chmod(0o1777)
    mine = opened(open_to_all / "mine", make=True)
    assert opened(mine / "below", make=True) == mine / "below"
    folder(open_to_all / "theirs", OTHER)
    with pytest.raises(FolderError, match="a/theirs belongs to"):
        opened(open_to_all / "theirs" / "run", make=True)


def test_links_of_others_are_not_followed_where_others_may_make_them(tmp_path):
    shared = folder(tmp_path / "shared", mode=0o1777)
    real = folder(tmp_path / "real")
    for owner in (0, USER.uid):
        way = link(shared / f"of{owner}", "../real", owner)
        assert opened(way / "below", make=True) == real / "below"
    theirs = link(shared / "theirs", real, OTHER)
    with pytest.raises(FolderError, match="theirs belongs to user 4712"):
        opened(theirs)


def test_a_link_that_leads_to_somebody_elses_folder_is_refused(tmp_path):
    folder(tmp_path / "theirs", OTHER)
    with pytest.raises(FolderError, match="theirs belongs to"):
        opened(link(tmp_path / "link", tmp_path / "theirs") / "run", make=True)


def test_a_link_to_itself_ends(tmp_path):
    with pytest.raises(OSError, match="symbolic link"):
        opened(link(tmp_path / "link", "link"))


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for make in (False, True):
        with pytest.raises(FolderError, match="file is not a folder"):
            opened(tmp_path / "file" / "below", make=make)


def test_a_group_may_write_if_nobody_else_is_in_it(tmp_path, monkeypatch):
    groups = {
        500: grp.struct_group(("own", "x", 500, ["user"])),
        600: grp.struct_group(("shared", "x", 600, ["user", "other"])),
        700: grp.struct_group(("primary", "x", 700, [])),
    }
    users = {
        "user": pwd.struct_passwd(("user", "x", USER.uid, 500, "", "/", "")),
        "other": pwd.struct_passwd(("other", "x", OTHER, 700, "", "/", "")),
    }
    monkeypatch.setattr(grp, "getgrgid", groups.__getitem__)
    monkeypatch.setattr(pwd, "getpwnam", users.__getitem__)
    monkeypatch.setattr(pwd, "getpwall", lambda: list(users.values()))
    for gid, refused in ((500, ""), (600, "shared"), (700, "primary"), (800, "800")):
        path = folder(tmp_path / str(gid), USER.uid, 0o775, gid)
        if not refused:
            assert opened(path) == path
            continue
        with pytest.raises(FolderError, match=f"can be written by group {refused}"):
            opened(path)


def test_an_access_list_is_looked_at(tmp_path):
    path = folder(tmp_path / "a", USER.uid)
    # version 2; owner, user 4712, group, mask and others: rwx, but others none
    entries = [(1, 7, -1), (2, 7, OTHER), (4, 7, -1), (16, 7, -1), (32, 0, -1)]
    packed = (2).to_bytes(4, "little") + b"".join(
        tag.to_bytes(2, "little")
        + permissions.to_bytes(2, "little")
        + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, permissions, who in entries
    )
    try:
        os.setxattr(path, "system.posix_acl_access", packed)
    except OSError:
        pytest.skip("this file system has no access lists")
    with pytest.raises(FolderError, match="by those in its access list"):
        opened(path)


@contextmanager
def swapping(here: Path, name: str, other: Path):
    """A process of the user's that puts another folder into the place of `name`."""
    script = (
        "import os, sys\n"
        "os.setresgid(4711, 4711, 4711); os.setresuid(4711, 4711, 4711)\n"
        "here, name, other = sys.argv[1:]\n"
        "os.chdir(here); print(flush=True)\n"
        "n = 0\n"
        "while True:\n"
        "    try:\n"
        "        os.rename(name, f'moved{n}'); n += 1\n"
        "        os.symlink(other, name)\n"
        "        os.unlink(name)\n"
        "    except OSError: pass\n"
    )
    words = ["/usr/bin/python3", "-Ic", script, str(here), name, str(other)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    try:
        assert process.stdout
        process.stdout.readline()
        yield
    finally:
        process.kill()
        process.communicate()


def test_what_is_swapped_meanwhile_is_never_written_through(reachable):
    here, victim = folder(reachable / "here", USER.uid), folder(reachable / "victim")
    parent = open_folder(here, USER)
    made = lost = 0
    until = time.monotonic() + 60
    with swapping(here, "run", victim):
        while made < 20 or not lost:
            assert time.monotonic() < until
            try:
                run = new_folder("run", USER, parent)
            except (OSError, FolderError):
                lost += 1
                continue
            made += 1
            assert not os.path.samestat(os.fstat(run), victim.stat())
            os.close(run)
    os.close(parent)
    assert victim.stat().st_uid == 0
    assert list(victim.iterdir()) == []
