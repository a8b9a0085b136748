"""A control group of our own: all processes of a tree, and a way to end them all."""

from __future__ import annotations

import select
import signal
import time
from contextlib import suppress
from pathlib import Path

from latprof_agent.errors import LabError, remedy
from latprof_agent.lab import processes
from latprof_agent.lab.processes import ProcessId
from latprof_agent.probes.cgroup import cgroup2_mount

END_SECONDS = 5.0  # between killing processes and giving up on them
_POLL_MS = 100


def _mount() -> Path:
    if found := cgroup2_mount():
        return found
    raise LabError(
        "cannot follow a command's processes: cgroup v2 is not mounted; "
        "mount -t cgroup2 none /sys/fs/cgroup"
    )


class ControlGroup:
    """A new group; `close` ends its processes and removes it."""

    def __init__(self, name: str) -> None:
        """Make the group, whose name must be free."""
        self.path = _mount() / name
        try:
            self.path.mkdir()
        except OSError as error:
            raise LabError(
                f"cannot make control group {self.path}: {error.strerror}; "
                f"{remedy(error.errno, 'run as root, with cgroup v2 mounted writable')}"
            ) from error

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
        return _pids(self.path)

    def enter(self) -> None:
        """Move the calling process into the group."""
        self.members.write_text("0")

    def close(self) -> None:
        """End all members and remove the group; twice does no harm."""
        remove(self.path.name)


def _pids(group: Path) -> list[int]:
    found: list[int] = []
    for members in group.rglob("cgroup.procs"):
        with suppress(OSError):  # gone meanwhile
            found += map(int, members.read_text().split())
    return found


def remove(name: str) -> bool:
    """End a group's processes and remove it; say if it was there.

    Raises LabError where some of it stays.
    """
    path = _mount() / name
    try:
        if (kill := path / "cgroup.kill").exists():
            kill.write_text("1")
            _wait_until_empty(path)
        else:
            kill_each(path)
        below = sorted(path.rglob("*/"), key=lambda p: -len(p.parts))
        for group in [p for p in below if p.is_dir()] + [path]:
            group.rmdir()
    except FileNotFoundError:
        return False
    except OSError as error:
        why = f"{error.strerror}; see what is in its cgroup.procs"
        raise LabError(f"cannot remove control group {path}: {why}") from error
    return True


def kill_each(group: Path) -> None:
    """Kill the members by their pids until none is left, as before Linux 5.14.

    Who forks meanwhile is met the next time. Ends after END_SECONDS at the latest.
    """
    until = time.monotonic() + END_SECONDS
    while (pids := _pids(group)) and time.monotonic() < until:
        found = [process for process in map(ProcessId.of, pids) if process]
        # who is still there was there in between: the number is not another's
        still = set(_pids(group))
        for process in found:
            if process.pid in still:
                processes.send(process, signal.SIGKILL)
        time.sleep(_POLL_MS / 10_000)


def _wait_until_empty(path: Path) -> None:
    until = time.monotonic() + END_SECONDS
    with (path / "cgroup.events").open() as events:
        watch = select.poll()
        watch.register(events, select.POLLPRI)
        while "populated 1" in events.read() and time.monotonic() < until:
            watch.poll(_POLL_MS)
            events.seek(0)
