"""Which labs there are, so that those of dead processes can be removed.

Each lab holds a lock on a file of its own, which ends with its process however
that ends. The lock that is free marks a dead lab. The folder has a lock too: a
file that is there but not yet locked is never seen.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from latprof_agent.errors import LabError
from latprof_agent.interrupts import signals_deferred
from latprof_agent.lab import netns, processes
from latprof_agent.lab.processes import ProcessId

REGISTRY = Path("/run/latprof")

_LAB_ID = re.compile(r"[0-9a-f]{8}")


def namespaces_of(lab_id: str) -> tuple[str, str, str]:
    """Name the namespaces of a lab: its ends, and the middle that not all have."""
    return f"latprof-{lab_id}-a", f"latprof-{lab_id}-b", f"latprof-{lab_id}-w"


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        why = f"{error.strerror}; run it with sudo"
        raise LabError(f"cannot register a lab in {folder}: {why}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class Registration:
    """The file of one live lab; removes nothing but itself."""

    def __init__(self, lab_id: str, folder: Path = REGISTRY) -> None:
        """Create the file, which must not exist, and lock it."""
        self._folder = folder
        self._path = folder / f"{lab_id}.lab"
        self._bytes = 0
        own = ProcessId.of(os.getpid())
        self.content: dict[str, Any] = {
            "pid": os.getpid(),
            "start_ticks": own.start_ticks if own else 0,
            "namespaces": [
                {"name": name, "inode": None} for name in namespaces_of(lab_id)
            ],
            "processes": [],
            "cgroup": None,
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
            why = f"{error.strerror}; free some space"
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

    def set_cgroup(self, path: Path) -> None:
        """Note a cgroup that is the lab's own, to be removed when empty."""
        self.content["cgroup"] = str(path)
        self._write()

    def close(self) -> None:
        """Forget the lab, of which nothing may be left."""
        with _locked(self._folder):
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)


def remove_lab(content: dict[str, Any]) -> list[str]:
    """End a lab's processes, remove its namespaces; say what there was."""
    removed = []
    for row in content["processes"]:
        if processes.end(ProcessId(row["pid"], row["start_ticks"])):
            removed.append(f"process {row['pid']}")
    for entry in content["namespaces"]:
        name, inode = entry["name"], entry["inode"]
        try:
            same = inode is None or netns.inode(name) == inode
        except FileNotFoundError:
            continue
        if same and netns.remove(name):
            removed.append(name)
    if content["cgroup"]:
        # Not empty: somebody uses it, and its processes are not ours to end.
        with suppress(OSError):
            Path(content["cgroup"]).rmdir()
            removed.append(content["cgroup"])
    return removed


def _read(path: Path, descriptor: int) -> dict[str, Any]:
    text = os.pread(descriptor, 1 << 20, 0)
    try:
        content: dict[str, Any] = json.loads(text)
    except ValueError:
        # Died before the first write: nothing but the names is known.
        names = namespaces_of(path.stem)
        return {
            "namespaces": [{"name": name, "inode": None} for name in names],
            "processes": [],
            "cgroup": None,
        }
    return content


def _clean(path: Path) -> list[str]:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return []
    try:
        removed = remove_lab(_read(path, descriptor))
        path.unlink()
    finally:
        os.close(descriptor)
    return removed


def clean_dead_labs(registry: Path = REGISTRY) -> list[str]:
    """Remove what labs of dead processes left, and nothing else; say what."""
    if not registry.is_dir():
        return []
    removed = []
    with signals_deferred(), _locked(registry):
        for path in sorted(registry.glob("*.lab")):
            if _LAB_ID.fullmatch(path.stem):
                removed += _clean(path)
    return removed
