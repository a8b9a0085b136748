"""What runs already as the workload: processes, a cgroup, ports."""

from __future__ import annotations

import difflib
import os
import select
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from latprof_agent.errors import UsageError, WorkloadError
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_agent.probes.filter import COMM_BYTES, Filter
from latprof_agent.process_table import stat_fields

PROC = Path("/proc")
HOST_PID_NAMESPACE = 0xEFFFFFFC  # its inode number, the same in every kernel
PF_KTHREAD = 0x00200000


@dataclass(frozen=True)
class Target:
    """What was asked for; all that is given must hold."""

    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    cgroup: str = ""
    ports: tuple[int, ...] = ()
    duration_seconds: float = 0.0  # 0: until Ctrl-C

    def notice(self) -> str:
        """What whoever waits should know: no process has such a name yet."""
        if self.pids:
            return ""
        there = {_comm(int(p.name)) for p in PROC.glob("[0-9]*")} - {""}
        missing = [c for c in self.comms if _cut(c) not in there]
        if not missing:
            return ""
        near = difflib.get_close_matches(missing[0], there, n=3, cutoff=0.7)
        nearest = f" (there is {', '.join(near)})" if near else ""
        return f"no process is named {missing[0]} yet{nearest}; waiting for one"


class Attached:
    """A target that was found to be there."""

    def __init__(self, target: Target) -> None:
        """Find it; raises WorkloadError where it is not."""
        self.target = target
        self._processes: list[int] = []
        namespace = (PROC / "self/ns/pid").stat().st_ino
        if target.pids and namespace != HOST_PID_NAMESPACE:
            raise UsageError(
                "--pid: latprof runs in a pid namespace of its own, where processes "
                "have other numbers; use --comm, --cgroup or --port"
            )
        self._cgroup = _cgroup_id(target.cgroup) if target.cgroup else 0
        self.result: dict[str, Any] = {}
        try:
            names = [self._find(pid) for pid in target.pids]
        except WorkloadError:
            self.close()
            raise
        self.title = _title(target, names)

    def _find(self, pid: int) -> str:
        """Keep hold of a process, so that its number is not another's; its name."""
        owner, kernels = _owner_of(pid), _is_kernel_thread(pid)
        if owner and owner != pid:
            raise WorkloadError(
                f"{pid} is a thread of process {owner}; use --pid {owner}"
            )
        if kernels:
            raise WorkloadError(
                f"pid {pid} is a thread of the kernel ({_comm(pid)}), which has no "
                "sockets of its own; use --port"
            )
        try:
            self._processes.append(os.pidfd_open(pid))
        except ProcessLookupError as error:
            raise WorkloadError(
                f"there is no process with pid {pid}; `pidof NAME` tells one"
            ) from error
        return f"{_comm(pid)} (pid {pid})"

    def filter(self, protocols: tuple[str, ...]) -> Filter:
        """Its sockets."""
        return Filter(
            ports=self.target.ports,
            cgroup=self._cgroup,
            pids=self.target.pids,
            comms=self.target.comms,
            peers=True,
            older=True,
            protocols=protocols,
        )

    def check(self) -> None:
        """Raise WorkloadError where nothing of it is left before it was watched."""
        if self._ended():
            raise WorkloadError(f"{self.title} ended before the run began")

    def start(self, open_sockets: int) -> None:
        """It is watched from now on."""
        self._started = time.monotonic()
        self.result = {"open_sockets": open_sockets, "seconds": 0.0}

    def running(self) -> bool:
        """Whether there may be more to see."""
        elapsed = self.result["seconds"] = time.monotonic() - self._started
        planned = self.target.duration_seconds
        return not self._ended() and (not planned or elapsed < planned)

    def _ended(self) -> bool:
        """Whether all of the processes have."""
        ended = [bool(select.select([p], [], [], 0)[0]) for p in self._processes]
        return bool(ended) and all(ended)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"to": self.title, **asdict(self.target)}

    def close(self) -> None:
        """Let go of the processes."""
        while self._processes:
            os.close(self._processes.pop())


def _cut(comm: str) -> str:
    return comm.encode()[: COMM_BYTES - 1].decode(errors="replace")


def _comm(pid: int) -> str:
    with suppress(OSError):
        return (PROC / str(pid) / "comm").read_text(errors="replace").strip()
    return ""


def _owner_of(thread: int) -> int:
    """The process that has this thread; 0 there is no such thread."""
    with suppress(OSError):
        for line in (PROC / str(thread) / "status").read_text().splitlines():
            if line.startswith("Tgid:"):
                return int(line.split()[1])
    return 0


def _is_kernel_thread(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields and int(fields[6]) & PF_KTHREAD)


def _cgroup_id(name: str) -> int:
    """The kernel's number of a cgroup: by its path, or as systemd and docker tell."""
    mount = cgroup2_mount()
    if not mount:
        raise WorkloadError(
            "--cgroup: cgroup v2 is not mounted; use --pid, --comm or --port"
        )
    for path in (Path(name), mount / name.lstrip("/")):
        found = path.resolve()
        if found.is_relative_to(mount) and found.is_dir():
            return found.stat().st_ino
    groups = [str(p.relative_to(mount)) for p in mount.rglob("*/") if p.is_dir()]
    near = difflib.get_close_matches(name.lstrip("/"), groups, n=1)
    nearest = f"did you mean {near[0]}" if near else "systemd-cgls lists all"
    raise WorkloadError(f"there is no cgroup {name} below {mount}; {nearest}")


def _title(target: Target, names: list[str]) -> str:
    parts = [", ".join(names)] if names else []
    if target.comms:
        parts.append(f"processes named {' or '.join(target.comms)}")
    if target.cgroup:
        parts.append(f"cgroup {target.cgroup}")
    if target.ports:
        parts.append(f"port {' or '.join(map(str, target.ports))}")
    return ", ".join(parts)
