"""Where a run folder is made, and that it is a new one."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from latprof_analysis.calling_user import User
from latprof_analysis.write.trusted_folder import FolderError, new_folder, open_folder

from latprof_agent.errors import UsageError

OPTION = "--out"  # that names the folder, of `latprof run`
DEFAULT_PARENT = Path("runs")
LATEST = "latest"  # a link beside the run folders, to the newest


def check_free(path: Path | None, user: User, option: str = OPTION) -> None:
    """Raise UsageError where no run folder could be made, before anything is done.

    `option` is the one that names the folder.
    """
    if path and os.path.lexists(path):
        raise _exists(path, option)
    wanted = path or DEFAULT_PARENT / "DATE-TIME"
    above = _open(wanted, user, option, make=False)
    try:
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=above):
            where = os.readlink(f"/proc/self/fd/{above}")  # noqa: PTH115
            raise _cannot_make(wanted, f"{where} cannot be written", option)
    finally:
        os.close(above)


def make_run_folder(
    path: Path | None, name: str, user: User, option: str = OPTION
) -> tuple[Path, int, str]:
    """Make `path`, or else a folder in runs/ of this name, or of date and time.

    Returns its path, its descriptor, and where the link `latest` led before it, if
    it leads to it now; raises as `check_free` does.
    """
    stem = DEFAULT_PARENT / (name or time.strftime("%Y%m%d-%H%M%S"))
    paths = [path] if path else [stem, *(Path(f"{stem}-{n}") for n in range(2, 1000))]
    parent = _open(paths[0], user, option, make=True)
    try:
        for one in paths:
            try:
                with _refusals_of(one, option):
                    made = new_folder(one.name, user, parent)
            except FileExistsError:
                continue
            before = ""
            if one.parent == DEFAULT_PARENT:
                before = _latest(parent)
                _link_latest(one.name, parent)
            return one, made, before
    finally:
        os.close(parent)
    raise _exists(paths[-1], option)


def restore_latest(removed: Path, before: str, user: User) -> None:
    """Let `latest` lead to what it led to before a folder that was removed."""
    if removed.parent != DEFAULT_PARENT:
        return
    with suppress(OSError, FolderError):
        parent = open_folder(DEFAULT_PARENT, user)
        try:
            if _latest(parent) != removed.name:
                return
            if before:
                _link_latest(before, parent)
            else:
                os.unlink(LATEST, dir_fd=parent)
        finally:
            os.close(parent)


def _latest(parent: int) -> str:
    """Return where the link leads; empty where there is none."""
    try:
        return os.readlink(LATEST, dir_fd=parent)
    except OSError:
        return ""


def _open(wanted: Path, user: User, option: str, *, make: bool) -> int:
    with _refusals_of(wanted, option):
        return open_folder(wanted.parent, user, make=make)


@contextmanager
def _refusals_of(wanted: Path, option: str) -> Iterator[None]:
    """Say why a folder cannot be made; that there is one is the caller's."""
    try:
        yield
    except FileExistsError:
        raise
    except FolderError as error:
        raise _cannot_make(wanted, str(error), option) from error
    except OSError as error:
        why = os.strerror(error.errno or 0).lower()
        raise _cannot_make(wanted, why, option) from error


def _exists(path: Path, option: str) -> UsageError:
    return UsageError(f"{option}: {path} exists already; name another folder")


def _cannot_make(path: Path, why: str, option: str) -> UsageError:
    return UsageError(
        f"cannot make run folder {path}: {why}; use {option} DIR with another folder"
    )


def _link_latest(name: str, parent: int) -> None:
    """Let `latest` lead to the folder; where it cannot, the run goes on without.

    What stands there and is no link is somebody else's.
    """
    made = f".{LATEST}.{os.getpid()}"
    with suppress(OSError):
        with suppress(FileNotFoundError):
            there = os.lstat(LATEST, dir_fd=parent)
            if not stat.S_ISLNK(there.st_mode):
                return
        os.symlink(name, made, dir_fd=parent)
        try:
            os.replace(made, LATEST, src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(made, dir_fd=parent)
