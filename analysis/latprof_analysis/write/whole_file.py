"""Files that a user names: whole or not there, and never through somebody's link.

A report of somebody else's run would be written where that user may put links to any
file. So each is a new file in a folder that was opened and looked at, and takes its
name when it is whole: what had that name, a link too, is replaced and not followed,
and stays where a disk is full. Only what nothing can take the place of is written to
as it is: a FIFO, a device, standard output.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import BinaryIO

from latprof_analysis.calling_user import ROOT, User, calling_user
from latprof_analysis.errors import LatprofError, remedy
from latprof_analysis.write.trusted_folder import FolderError, give, open_folder

# Where the kernel's links to open files are, as /dev/stdout: they lead to no name.
_STREAMS = ("/dev", "/dev/fd", "/dev/pts", "/proc/self/fd")
_NOT_ALLOWED = (errno.EACCES, errno.EPERM)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REPLACED = (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR)
_AS_IT_IS = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Give a file that takes the name `path` when the block has ended well.

    Raises LatprofError where it cannot be written.
    """
    with _refusals(path, "name a file in a folder of your own"):
        if _is_stream(path):
            flags = os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC
            with open(os.open(path, flags), "wb") as file:  # noqa: PTH123
                yield file
            return
        folder = _open(path.parent)
        try:
            with _file(path.name, folder) as file:
                yield file
        finally:
            os.close(folder)


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; raises LatprofError."""
    with writing(path) as file:
        file.write(data)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, where there is none; raises LatprofError."""
    with _refusals(path, "name a folder in one of your own"):
        if not _is_checked():
            path.mkdir(parents=True, exist_ok=True)
        os.close(_open(path, make=True))


def check_place(path: Path, option: str) -> None:
    """Raise LatprofError where `path` could not be written, before the work is done.

    `option` is what names another place, as in `--out FILE`.
    """
    if _is_stream(path):
        return
    above = next(p for p in path.parents if p == p.parent or os.path.lexists(p))
    with _refusals(path, f"use {option} in a folder of your own"):
        folder = _open(above)
        try:
            may = os.access(".", os.W_OK | os.X_OK, dir_fd=folder)
            if not may and _is_replaced(path.name, folder):
                raise FolderError(f"{above} cannot be written")
        finally:
            os.close(folder)


@contextmanager
def replacing(
    name: str, folder: int, user: User, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Give a new file of a user's in an open folder, which takes its name when whole.

    Raises OSError; nothing is left then, and what had the name stays.
    """
    unfinished = f".latprof-{token_hex(8)}"
    descriptor = os.open(unfinished, _NEW, mode, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:  # noqa: PTH123
            give(descriptor, user)
            yield file
        os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise


def _is_stream(path: Path) -> bool:
    return str(path.absolute().parent) in _STREAMS


def _is_checked() -> bool:
    """Whether folders are looked at: only root can write what no link's owner could."""
    return sys.platform == "linux" and os.geteuid() == ROOT


def _open(path: Path, *, make: bool = False) -> int:
    if _is_checked():
        return open_folder(path, calling_user(), make=make)
    return os.open(path, _FOLDER)


def _is_replaced(name: str, folder: int) -> bool:
    """Whether a new file takes the place of what is there, if anything is."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return stat.S_IFMT(status.st_mode) in _REPLACED
    return True


def _file(name: str, folder: int) -> AbstractContextManager[BinaryIO]:
    if _is_replaced(name, folder):
        return replacing(name, folder, calling_user())
    file = open(os.open(name, _AS_IT_IS, dir_fd=folder), "wb")  # noqa: PTH123, SIM115
    # somebody may have put a file there since it was looked at
    if stat.S_IFMT(os.fstat(file.fileno()).st_mode) in _REPLACED:
        file.close()
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    return file


@contextmanager
def _refusals(path: Path, elsewhere: str) -> Iterator[None]:
    """Raise what keeps the block from writing as LatprofError.

    `elsewhere` is what to do where others' folders are in the way.
    """
    try:
        yield
    except FolderError as error:
        raise LatprofError(f"cannot write {path}: {error}; {elsewhere}") from error
    except OSError as error:
        todo = remedy(error.errno, "name another file")
        todo = elsewhere if error.errno in _NOT_ALLOWED else todo
        why = error.strerror or str(error)
        raise LatprofError(f"cannot write {path}: {why}; {todo}") from error
