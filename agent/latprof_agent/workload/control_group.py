"""A control group of our own: all processes of a tree, and a way to end them all.

Its folder is locked while its owner lives, so that what a dead process left can be
told and removed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import select
from contextlib import suppress
from pathlib import Path

from latprof_agent.errors import WorkloadError
from latprof_agent.probes.cgroup import cgroup2_mount

PREFIX = "latprof-"
POLL_MS = 100


def _mount() -> Path:
    if found := cgroup2_mount():
        return found
    raise WorkloadError(
        "cannot follow a command's processes: cgroup v2 is not mounted; "
        "mount -t cgroup2 none /sys/fs/cgroup"
    )


def _lock(path: Path) -> int | None:
    """Lock a group's folder; None where somebody has it, or it is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # who had the lock before may have removed the folder meanwhile
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


class ControlGroup:
    """A new group; `close` ends its processes and removes it."""

    def __init__(self, mount: Path | None = None) -> None:
        """Make and lock the group; raises WorkloadError where that is refused."""
        parent = mount or _mount()
        lock = None
        while lock is None:  # who cleans up may take a group that is not locked yet
            self.path = parent / f"{PREFIX}{secrets.token_hex(4)}"
            try:
                self.path.mkdir()
            except OSError as error:
                raise WorkloadError(
                    f"cannot make control group {self.path}: {error.strerror}; "
                    "run as root"
                ) from error
            lock = _lock(self.path)
        self._lock = lock

    @property
    def id(self) -> int:
        """What the kernel calls the group: its inode number."""
        return self.path.stat().st_ino

    @property
    def members(self) -> Path:
        """The file that takes and lists the members' pids."""
        return self.path / "cgroup.procs"

    def pids(self) -> list[int]:
        """The members, those of groups below too."""
        found: list[int] = []
        for members in self.path.rglob("cgroup.procs"):
            with suppress(FileNotFoundError, OSError):
                found += map(int, members.read_text().split())
        return found

    def close(self) -> None:
        """End all members and remove the group; twice does no harm."""
        if self.path.is_dir():
            _remove(self.path)
            os.close(self._lock)


def _remove(path: Path) -> None:
    (path / "cgroup.kill").write_text("1")
    _wait_until_empty(path)
    below = sorted(path.rglob("*/"), key=lambda p: -len(p.parts))
    for group in [p for p in below if p.is_dir()] + [path]:
        group.rmdir()


def _wait_until_empty(path: Path) -> None:
    with (path / "cgroup.events").open() as events:
        watch = select.poll()
        watch.register(events, select.POLLPRI)
        while "populated 1" in events.read():
            watch.poll(POLL_MS)
            events.seek(0)


def clean_dead_groups(mount: Path | None = None) -> list[str]:
    """End and remove what runs of dead processes left; say what."""
    removed = []
    for path in sorted((mount or _mount()).glob(f"{PREFIX}*")):
        lock = _lock(path)
        if lock is None:
            continue
        try:
            _remove(path)
            removed.append(str(path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EBUSY):
                raise
        finally:
            os.close(lock)
    return removed
