"""Network namespaces with a name, as `ip netns` keeps them.

pyroute2 makes a namespace in a forked child and gives up on it after two
seconds, when the child may still make it; here it is a thread of our own,
which a Ctrl-C does not reach.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TypeVar

from latprof_agent.errors import LabError, remedy
from latprof_agent.process_table import PROC

NETNS_DIRECTORY = Path("/run/netns")

_CLONE_NEWNET = 0x40000000
_MS_BIND = 4096
_MS_REC = 16384
_MS_SHARED = 1 << 20
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8

_T = TypeVar("_T")
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def _mount(source: str, target: Path, flags: int) -> None:
    arguments = (source.encode(), os.fsencode(target), b"none", flags, None)
    _check(_libc.mount(*arguments), str(target))


def _share_directory() -> None:
    """Make /run/netns a mount of its own that other mount namespaces follow."""
    NETNS_DIRECTORY.mkdir(parents=True, exist_ok=True)
    try:
        _mount("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC)
    except OSError:
        _mount(str(NETNS_DIRECTORY), NETNS_DIRECTORY, _MS_BIND | _MS_REC)
        _mount("", NETNS_DIRECTORY, _MS_SHARED | _MS_REC)


def in_thread(work: Callable[[], _T]) -> _T:
    """Run `work` in a thread that ends with it, and so does its namespace."""
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as failure:  # handed to the caller
            failures.append(failure)

    thread = Thread(target=run, name="latprof-netns")
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def create(name: str) -> int:
    """Make a namespace whose name must be free, and return its inode number."""
    path = NETNS_DIRECTORY / name

    def make() -> None:
        _check(_libc.unshare(_CLONE_NEWNET), name)
        _mount("/proc/thread-self/ns/net", path, _MS_BIND)

    try:
        _share_directory()
        os.close(os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0))
        in_thread(make)
    except OSError as error:
        todo = remedy(error.errno, "see `ip netns`, and /proc")
        # that it is unshare's says its object, which no path is
        if error.errno == errno.ENOSPC and error.filename == name:
            todo = "raise `sysctl user.max_net_namespaces`, or see `ip netns`"
        why = f"{error.strerror}; {todo}"
        raise LabError(f"cannot create network namespace {name}: {why}") from error
    return inode(name)


def remove(name: str) -> bool:
    """Take the name off a namespace, which ends with its last process."""
    path = NETNS_DIRECTORY / name
    _libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW)
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        why = f"{error.strerror}; see `ip netns delete {name}`"
        raise LabError(f"cannot remove network namespace {name}: {why}") from error
    return True


def inode(name: str) -> int:
    """Return the number by which the kernel, and so a probe, knows a namespace."""
    return (NETNS_DIRECTORY / name).stat().st_ino


def every() -> list[Path]:
    """Return a file of each namespace that has a process or a name; ours is first."""
    found: dict[int, Path] = {}
    of_processes = (process / "ns/net" for process in PROC.glob("[0-9]*"))
    for path in (PROC / "self/ns/net", *of_processes, *NETNS_DIRECTORY.glob("*")):
        with suppress(OSError):  # has ended since
            found.setdefault(path.stat().st_ino, path)
    return list(found.values())


def is_bare(name: str) -> bool:
    """Whether a name has no namespace here: it was mounted elsewhere, or nowhere.

    Then it is the empty file that `create` made, which every mount namespace sees.
    """
    status = (NETNS_DIRECTORY / name).lstat()
    return (
        stat.S_ISREG(status.st_mode)
        and (status.st_size, status.st_uid) == (0, os.geteuid())
        and status.st_dev == NETNS_DIRECTORY.stat().st_dev
    )


def enter_netns(name: str | Path) -> Callable[[], None]:
    """Make a function for `preexec_fn` that puts a new process into a namespace.

    `name`: as it is kept, or the path of its file.
    """
    path = os.fsencode(NETNS_DIRECTORY / name)

    def enter() -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_libc.setns(descriptor, _CLONE_NEWNET), str(name))
        finally:
            os.close(descriptor)

    return enter


def run_in_new(work: Callable[[], _T]) -> _T:
    """Run `work` in a namespace without a name that ends with it."""

    def run() -> _T:
        _check(_libc.unshare(_CLONE_NEWNET), "network namespace")
        return work()

    return in_thread(run)


def run_in(name: str | Path, work: Callable[[], _T]) -> _T:
    """Run `work` inside a namespace and return what it returns."""
    enter = enter_netns(name)

    def run() -> _T:
        enter()
        return work()

    return in_thread(run)
