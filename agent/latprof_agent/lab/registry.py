"""Which labs there are, so that those of dead processes can be removed.

A command without a lab counts as one, of which there is a control group only.
Each lab holds a lock on a file of its own, which ends with its process however
that ends. The lock that is free marks a dead lab. The folder has a lock too: a
file that is there but not yet locked is never seen.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from latprof_agent import netns
from latprof_agent.errors import LabError, remedy
from latprof_agent.interrupts import signals_deferred
from latprof_agent.lab import control_group, processes
from latprof_agent.lab.host import LEAST_HOSTS, MOST_HOSTS, host_names
from latprof_agent.lab.processes import ProcessId

REGISTRY = Path("/run/latprof")

_LAB_ID = re.compile(r"[0-9a-f]{8}")
_MOST_BYTES = 1 << 20
_MOST_PID = 1 << 22

Content = dict[str, Any]  # of an entry


def namespaces_of(lab_id: str, hosts: int = LEAST_HOSTS) -> tuple[str, ...]:
    """Name the namespaces of a lab: its hosts, and the middle that not all have."""
    return tuple(f"latprof-{lab_id}-{end}" for end in (*host_names(hosts), "w"))


def cgroup_of(lab_id: str) -> str:
    """Name the control group of a lab's command, or of one without a lab."""
    return f"latprof-{lab_id}"


def _content(names: Iterable[str]) -> Content:
    """Describe a lab of which only these names are known."""
    return {
        "namespaces": [{"name": name, "inode": None} for name in names],
        "processes": [],
        "cgroup": None,
    }


def _open_folder(folder: Path) -> int:
    """Open the folder of the entries, which nobody else may write or exchange."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        why = f"{error.strerror}; {remedy(error.errno, 'run it with sudo')}"
        if isinstance(error, FileExistsError | NotADirectoryError):
            why = "it is no folder, or a symbolic link; see where it is from, remove it"
        raise LabError(f"cannot register a lab in {folder}: {why}") from error
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return descriptor
    os.close(descriptor)
    raise LabError(
        f"cannot register a lab in {folder}: others than root may write or read it; "
        "see what is in it, and remove it or chmod 700 it"
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    opened = _open_folder(folder)
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open("lock", flags, 0o600, dir_fd=opened)
    except OSError as error:
        why = f"{error.strerror}; see what is there"
        raise LabError(f"cannot lock {folder}/lock: {why}") from error
    finally:
        os.close(opened)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Registration:
    """The file of one live lab, or of a command without one."""

    def __init__(
        self, lab_id: str, folder: Path = REGISTRY, hosts: int = LEAST_HOSTS
    ) -> None:
        """Create the file, which must not exist, and lock it."""
        self.id = lab_id
        self._folder = folder
        self._path = folder / f"{lab_id}.lab"
        self._bytes = 0
        own = ProcessId.of(os.getpid())
        self.content: Content = {
            "pid": os.getpid(),
            "start_ticks": own.start_ticks if own else 0,
            **_content(namespaces_of(lab_id, hosts)),
        }
        with _locked(folder):
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
            self._descriptor = os.open(self._path, flags, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._write()

    def _write(self) -> None:
        # One call, and never shorter: whoever dies here leaves the old or the new.
        text = json.dumps(self.content).encode().ljust(self._bytes)
        try:
            self._bytes = os.pwrite(self._descriptor, text, 0)
        except OSError as error:
            why = f"{error.strerror}; {remedy(error.errno, 'free some space')}"
            raise LabError(f"cannot write {self._path}: {why}") from error

    def add_namespace(self, name: str, inode: int) -> None:
        """Note that a namespace exists now."""
        for entry in self.content["namespaces"]:
            if entry["name"] == name:
                entry["inode"] = inode
        self._write()

    def add_process(self, pid: int) -> None:
        """Note a process that ends with the lab."""
        process = ProcessId.of(pid)
        if process:
            row = {"pid": process.pid, "start_ticks": process.start_ticks}
            self.content["processes"].append(row)
            self._write()

    def add_cgroup(self) -> str:
        """Note that there may be a control group from now on; its name."""
        name = self.content["cgroup"] = cgroup_of(self.id)
        self._write()
        return name

    def close(self) -> None:
        """Remove what is left of the lab, and the entry if all of it is gone.

        Raises LabError where something stays.
        """
        _, kept = _remove(self.content)
        with _locked(self._folder):
            if not kept:
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
        for why in kept:
            raise LabError(why)


def _things(content: Content) -> Iterator[tuple[str, Callable[[], bool]]]:
    """All that an entry names, and how each is removed."""
    if content["cgroup"]:
        name = content["cgroup"]
        yield f"control group {name}", partial(control_group.remove, name)
    for row in content["processes"]:
        process = ProcessId(row["pid"], row["start_ticks"])
        yield f"process {process.pid}", partial(processes.end, process)
    for entry in content["namespaces"]:
        name, inode = entry["name"], entry["inode"]
        yield name, partial(_remove_namespace, name, inode)


def _remove_namespace(name: str, inode: int | None) -> bool:
    try:
        ours = inode in (None, netns.inode(name)) or netns.is_bare(name)
    except FileNotFoundError:
        return False
    return ours and netns.remove(name)


def _remove(content: Content) -> tuple[list[str], list[str]]:
    """Remove all that an entry names; what there was, and what stays and why."""
    removed, kept = [], []
    for name, remove in _things(content):
        try:
            if remove():
                removed.append(name)
        except LabError as error:
            kept.append(str(error))
    return removed, kept


def _is_entry(content: Any, lab_id: str) -> bool:
    """Whether this is what a Registration of that id writes."""
    try:
        namespaces, cgroup = content["namespaces"], content["cgroup"]
        pids = [row["pid"] for row in content["processes"]]
        numbers = [row["start_ticks"] for row in content["processes"]]
        numbers += [e["inode"] for e in namespaces if e["inode"] is not None]
        names = tuple(entry["name"] for entry in namespaces)
    except (TypeError, KeyError):
        return False
    return (
        len(names) in range(LEAST_HOSTS + 1, MOST_HOSTS + 2)
        and names == namespaces_of(lab_id, len(names) - 1)
        and cgroup in (None, cgroup_of(lab_id))
        and all(type(number) is int and number >= 0 for number in numbers)
        and all(type(pid) is int and 1 < pid <= _MOST_PID for pid in pids)
    )


def _read(descriptor: int, lab_id: str) -> Content | None:
    """Read an entry; None where it is none that a Registration wrote."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return None
    text = os.pread(descriptor, _MOST_BYTES, 0)
    if not text:
        # died before the first write: of how many hosts it was nobody knows
        names = namespaces_of(lab_id), namespaces_of(lab_id, MOST_HOSTS)
        return _content(dict.fromkeys(chain(*names)))
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if _is_entry(content, lab_id) else None


@dataclass
class Cleaning:
    """What became of what dead processes left.

    `removed` names it; `kept` says why something stays, and so does its entry;
    `strange` are files among the entries that none of us wrote: left alone.
    """

    removed: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    strange: list[Path] = field(default_factory=list)


def _clean(path: Path, done: Cleaning) -> None:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        done.strange.append(path)
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        content = _read(descriptor, path.stem)
        if content is None or not _LAB_ID.fullmatch(path.stem):
            done.strange.append(path)
            return
        removed, kept = _remove(content)
        done.removed += removed
        done.kept += kept
        if not kept:
            path.unlink()
    except BlockingIOError:
        pass  # its process lives
    finally:
        os.close(descriptor)


def clean_dead_labs(registry: Path = REGISTRY) -> Cleaning:
    """Remove what labs and commands of dead processes left, and nothing else."""
    done = Cleaning()
    if os.path.lexists(registry):
        with signals_deferred(), _locked(registry):
            for path in sorted(registry.glob("*.lab")):
                _clean(path, done)
    return done
