"""Folders reached by a way that nobody but root and the calling user can change.

Who else can write to a folder on the way could put a link to somewhere else in a
folder's place, and root would write there. So every folder of the way is opened by
its descriptor and then looked at; what was looked at is what is used.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path

from latprof_analysis.calling_user import User

MOST_LINKS = 40  # as the kernel has it
_LOOK = getattr(os, "O_PATH", 0)  # of Linux, where alone folders are looked at
_FOLDER = _LOOK | os.O_DIRECTORY | os.O_CLOEXEC
_ACCESS_LIST = "system.posix_acl_access"


class FolderError(Exception):
    """Its text says which folder of the way, and what is wrong with it."""


def open_folder(path: Path, user: User, *, make: bool = False) -> int:
    """Open the folder at the end of a way; or as far as it is there, without `make`.

    Folders that are made on the way are given to `user`. The descriptor is for
    `dir_fd` only. Raises OSError where the way leads nowhere, FolderError where it
    leads to no folder, or somebody else could change it.
    """
    way = _Way(path, user)
    try:
        while way.left:
            way.step(make)
        way.check()
    except BaseException:
        os.close(way.folder)
        raise
    return way.folder


def new_folder(name: str, user: User, parent: int) -> int:
    """Make a folder in the one that is open, give it to `user`, and open it.

    Raises FileExistsError where there is anything of that name.
    """
    os.mkdir(name, 0o755, dir_fd=parent)
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC
    made = os.open(name, flags, dir_fd=parent)
    # whoever may write here may have put one of root's there meanwhile
    if os.listdir(made) or os.fstat(made).st_uid != os.geteuid():  # noqa: PTH208
        os.close(made)
        raise FolderError(f"somebody puts other folders in the place of {name}")
    give(made, user)
    return made


class _Way:
    def __init__(self, path: Path, user: User) -> None:
        self.user = user
        self.trusted = {0, os.geteuid(), user.uid}
        self.left: deque[str] = deque()
        self.links = 0
        self.folder = -1
        self.follow(path)

    def follow(self, path: Path) -> None:
        """Go on with this path."""
        parts = list(path.parts)
        if path.is_absolute():
            self.enter(os.open(parts.pop(0), _FOLDER))
        elif self.folder < 0:
            self.enter(os.open(".", _FOLDER))
        self.left.extendleft(reversed(parts))

    def enter(self, folder: int) -> None:
        """Stand in the next folder."""
        if self.folder >= 0:
            os.close(self.folder)
        self.folder = folder

    def here(self) -> Path:
        """Name the folder stood in, wherever it is now."""
        return Path(os.readlink(f"/proc/self/fd/{self.folder}"))  # noqa: PTH115

    def step(self, make: bool) -> None:
        """Go one name further."""
        shared = self.check()
        name = self.left.popleft()
        found = self.find(name, make)
        if found is None:
            self.left.clear()
            return
        try:
            status = os.fstat(found)
            is_link = stat.S_ISLNK(status.st_mode)
            if (shared or is_link) and status.st_uid not in self.trusted:
                raise FolderError(f"{self.here() / name} belongs to {_user(status)}")
            if is_link:
                self.links += 1
                if self.links > MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                self.follow(Path(os.readlink("", dir_fd=found)))
            elif stat.S_ISDIR(status.st_mode):
                self.enter(os.dup(found))
            else:
                raise FolderError(f"{self.here() / name} is not a folder")
        finally:
            os.close(found)

    def find(self, name: str, make: bool) -> int | None:
        """Open what has this name, not following it; None: there is nothing."""
        flags = _LOOK | os.O_NOFOLLOW | os.O_CLOEXEC
        with suppress(FileNotFoundError):
            return os.open(name, flags, dir_fd=self.folder)
        if not make:
            return None
        try:
            return new_folder(name, self.user, self.folder)
        except FileExistsError:  # somebody else made it meanwhile
            return os.open(name, flags, dir_fd=self.folder)

    def check(self) -> bool:
        """Whether others may put something here, beside what is ours."""
        status = os.fstat(self.folder)
        if status.st_uid not in self.trusted:
            raise FolderError(f"{self.here()} belongs to {_user(status)}")
        writers = self.writers(status)
        if writers and not status.st_mode & stat.S_ISVTX:
            raise FolderError(f"{self.here()} can be written by {writers}")
        return bool(writers)

    def writers(self, status: os.stat_result) -> str:
        """Who can write to the folder here, besides those who are trusted."""
        if status.st_mode & stat.S_IWOTH:
            return "everybody"
        if not status.st_mode & stat.S_IWGRP:
            return ""
        # of a folder with a list, the group's bits are those of all in the list
        with suppress(OSError):
            os.getxattr(f"/proc/self/fd/{self.folder}", _ACCESS_LIST)
            return "those in its access list"
        return "" if self.is_own(status.st_gid) else f"group {_group(status.st_gid)}"

    def is_own(self, gid: int) -> bool:
        """Whether a group has nobody in it who is not trusted."""
        try:
            named = grp.getgrgid(gid).gr_mem
            members = {pwd.getpwnam(name).pw_uid for name in named}
        except KeyError:
            return gid == 0
        members |= {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == gid}
        return members <= self.trusted


def give(descriptor: int, user: User) -> None:
    """Let a file or folder that was just made be the user's, whatever the umask.

    Where the file system has no owners it stays as it is.
    """
    mode = os.fstat(descriptor).st_mode
    own = 0o700 if stat.S_ISDIR(mode) else 0o600
    with suppress(PermissionError):
        os.fchmod(descriptor, stat.S_IMODE(mode) | own)
        if user.uid != os.geteuid():
            os.fchown(descriptor, user.uid, user.gid)


def _user(status: os.stat_result) -> str:
    try:
        return pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        return f"user {status.st_uid}"


def _group(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
