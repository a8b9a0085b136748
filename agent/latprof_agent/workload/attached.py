"""What runs already as the workload: sockets that a filter chooses."""

from __future__ import annotations

import os
import select
import time
from dataclasses import dataclass, replace
from typing import Any

from latprof_agent.errors import LatprofError, WorkloadError
from latprof_agent.filters.words import notices
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.process_table import comm_of
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.workload.workload import Plan, RunContext, Workload

# What asks who has a socket: of others that the same process uses nothing is known.
BY_OWNER = ("pid", "comm", "cgroup", "container")


@dataclass(frozen=True)
class Target(Plan):
    """Sockets that were asked for."""

    chosen: Filter
    duration_seconds: float = 0.0  # 0: until Ctrl-C
    datagrams: bool = False  # it will send some: see how from the first on

    kind = "attached"
    in_lab = False

    def open(self, lab: Lab | None) -> Attached:
        """Find its processes; raises WorkloadError where one has ended."""
        assert not lab
        return Attached(self)

    def notice(self) -> str:
        """What whoever waits should know: no process has such a name yet."""
        missing = [] if self.chosen.pids else notices(self.chosen)
        return next(iter(missing), "")


class Attached(Workload):
    """A target that was found to be there."""

    may_see_nothing = True

    def __init__(self, target: Target) -> None:
        """Find its processes; raises WorkloadError where one has ended."""
        super().__init__()
        self.target = target
        self.endless = not target.duration_seconds
        self._processes: list[int] = []
        self.result: dict[str, Any] = {}
        try:
            names = [self._find(pid) for pid in target.chosen.pids]
        except LatprofError:
            self.close()
            raise
        self.title = _title(target.chosen, names)

    def _find(self, pid: int) -> str:
        """Keep hold of a process, so that its number is not another's; its name."""
        try:
            self._processes.append(os.pidfd_open(pid))
        except ProcessLookupError as error:
            raise WorkloadError(f"process {pid} has just ended") from error
        return f"{comm_of(pid)} (pid {pid})"

    def watched(self, _protocols: tuple[str, ...]) -> Filter:
        """Its sockets, of the protocols that were asked for among the words."""
        return replace(self.target.chosen, peers=True, older=True)

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
        if self.target.datagrams:
            scene.capture.expect_udp()
        scene.say_running()  # who waits for it may begin
        planned = self.target.duration_seconds
        while self.running() and not scene.interrupt.seen:
            scene.recorder.step_for(STEP_SECONDS)
            elapsed = self.result["seconds"]
            scene.progress("attached", scene.totals.written, elapsed, planned)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        chosen = self.target.chosen
        by_owner = (word.kind in BY_OWNER and not word.negated for word in chosen.words)
        described = {
            "to": self.title,
            "filter": str(chosen),
            "by_owner": any(by_owner),
            "duration_seconds": self.target.duration_seconds,
        }
        return {"attached": described}

    def close(self) -> None:
        """Close what holds the processes."""
        while self._processes:
            os.close(self._processes.pop())


def _title(watched: Filter, names: list[str]) -> str:
    parts = [", ".join(names)] if names else []
    of_kind: dict[str, list[str]] = {}
    for word in watched.words:
        if not word.negated and word.kind != "pid":
            of_kind.setdefault(word.kind, []).append(word.text)
    for kind, values in of_kind.items():
        what = "processes named" if kind == "comm" else kind.replace("-", " ")
        parts.append(f"{what} {' or '.join(values)}")
    parts += [str(word) for word in watched.words if word.negated]
    return ", ".join(parts)
