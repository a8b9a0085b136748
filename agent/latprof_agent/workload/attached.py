"""What runs already as the workload: processes, a cgroup, ports."""

from __future__ import annotations

import os
import select
import time
from dataclasses import asdict, dataclass
from typing import Any

from latprof_agent.errors import LatprofError, WorkloadError
from latprof_agent.filters.places import find_cgroup, find_pid, inode_of
from latprof_agent.filters.words import notices
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.process_table import comm_of
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.workload.workload import Plan, RunContext, Workload


@dataclass(frozen=True)
class Target(Plan):
    """What was asked for; all that is given must hold."""

    pids: tuple[int, ...] = ()
    comms: tuple[str, ...] = ()
    cgroup: str = ""
    ports: tuple[int, ...] = ()
    duration_seconds: float = 0.0  # 0: until Ctrl-C

    kind = "attached"
    in_lab = False

    def open(self, lab: Lab | None) -> Attached:
        """Find it; raises FilterError or WorkloadError where it is not."""
        assert not lab
        return Attached(self)

    def notice(self) -> str:
        """What whoever waits should know: no process has such a name yet."""
        told = notices(Filter(comms=self.comms)) if not self.pids else []
        return next(iter(told), "")


class Attached(Workload):
    """A target that was found to be there."""

    may_see_nothing = True

    def __init__(self, target: Target) -> None:
        """Find it; raises FilterError or WorkloadError where it is not."""
        super().__init__()
        self.target = target
        self.endless = not target.duration_seconds
        self._processes: list[int] = []
        groups = find_cgroup(target.cgroup) if target.cgroup else ()
        self._cgroups = tuple(map(inode_of, groups))
        self.result: dict[str, Any] = {}
        try:
            names = [self._find(pid) for pid in target.pids]
        except LatprofError:
            self.close()
            raise
        self.title = _title(target, names)

    def _find(self, pid: int) -> str:
        """Keep hold of a process, so that its number is not another's; its name."""
        find_pid(str(pid))
        try:
            self._processes.append(os.pidfd_open(pid))
        except ProcessLookupError as error:
            raise WorkloadError(f"process {pid} has just ended") from error
        return f"{comm_of(pid)} (pid {pid})"

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """Its sockets."""
        return Filter(
            ports=self.target.ports,
            cgroups=self._cgroups,
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

    def follow(self, scene: RunContext) -> None:
        """Record until nothing of it is left, or its time is over."""
        self.check()
        self.start(len(scene.capture.open_sockets))
        self.runs.append(self.result)
        scene.tell_running()  # who waits for it may begin
        planned = self.target.duration_seconds
        while self.running() and not scene.interrupt.seen:
            scene.recorder.step_for(STEP_SECONDS)
            elapsed = self.result["seconds"]
            scene.progress("attached", scene.sink.written, elapsed, planned)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"attached": {"to": self.title, **asdict(self.target)}}

    def close(self) -> None:
        """Close what holds the processes."""
        while self._processes:
            os.close(self._processes.pop())


def _title(target: Target, names: list[str]) -> str:
    parts = [", ".join(names)] if names else []
    if target.comms:
        parts.append(f"processes named {' or '.join(target.comms)}")
    if target.cgroup:
        parts.append(f"cgroup {target.cgroup}")
    if target.ports:
        parts.append(f"port {' or '.join(map(str, target.ports))}")
    return ", ".join(parts)
