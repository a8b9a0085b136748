"""Bulk flows beside a workload: their processes, and how full they make queues."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGINT
from statistics import median
from typing import Any

from latprof_agent.errors import WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import ask_to_end, last_output
from latprof_agent.lab.lab import Lab
from latprof_agent.workload.load_plan import Load
from latprof_agent.workload.programs import (
    KEPT,
    STARTED,
    check_stopped,
    last_words,
    ready_words,
)
from latprof_agent.workload.responder import limits_of_bulk

# A flow that was asked to end sends what its buffers hold first.
_END_SECONDS = 30.0
# Of a qdisc's backlog: one reading takes about 6 ms of a CPU.
SAMPLE_SECONDS = 0.2
_HOSTS = {"a": "request", "b": "reply"}
_WAYS = {"ab": "request", "ba": "reply"}


class Flows:
    """Bulk flows of a lab, between end a and a responder of their own at end b.

    `busy` are CPUs that they leave to others, where there are more.
    """

    def __init__(
        self,
        lab: Lab,
        loads: Sequence[Load],
        congestion: str | None,
        busy: frozenset[int],
    ) -> None:
        self._lab = lab
        self._loads = loads
        self._load = str(find_executable("latprof-load"))
        offered = frozenset(os.sched_getaffinity(0))
        self._cpus = offered - busy or offered
        self._ending = False
        self._asked: set[int] = set()  # pids of those that ran when they were
        # the last is a file of what each says: for a pipe it may be too much
        self._running: list[tuple[Load, subprocess.Popen[str], int]] = []
        limits = limits_of_bulk(sum(load.flows for load in loads))
        echo = ["echo", "--address", lab.b_address, "--die-with-parent"]
        echo += limits.words()
        if congestion and any(load.protocol == "tcp" for load in loads):
            echo += ["--congestion", congestion]  # it sends what goes down
        self._responder = self._start("b", echo, subprocess.PIPE)
        try:
            port, *_ = self._ready()
            for load in loads:
                words = [*load.words(congestion), "--die-with-parent"]
                words += ["--address", lab.b_address, "--port", port]
                output = os.memfd_create("load")
                self._running.append((load, self._start("a", words, output), output))
        except BaseException:
            self.kill()
            raise

    def _start(self, end: str, words: list[str], output: Any) -> subprocess.Popen[str]:
        return self._lab.start(
            end,
            [self._load, *words],
            partial(os.sched_setaffinity, 0, self._cpus),
            **STARTED | {"stdout": output},
        )

    def _ready(self) -> list[str]:
        try:
            return ready_words(self._responder, "its responder")
        except WorkloadError as error:
            raise WorkloadError(_failed(str(error))) from error

    def _failure(self, process: subprocess.Popen[str], who: str) -> str:
        return _failed(last_words(process, who))

    def check(self) -> None:
        """Raise WorkloadError where one has ended that was not asked to, or is stopped.

        What does not move is no load, so nothing is waited for.
        """
        if self._ending:
            return
        ends = [(str(load), process) for load, process, _ in self._running]
        for end in (*ends, ("its responder", self._responder)):
            try:
                check_stopped(dict([end]))
            except WorkloadError as error:
                raise WorkloadError(f"the load failed: {error}") from error
        for load, process, _ in self._running:
            if process.poll() is not None:
                raise WorkloadError(self._failure(process, str(load)))
        if self._responder.poll() is not None:
            raise WorkloadError(self._failure(self._responder, "its responder"))

    def end(self) -> None:
        """Ask them to end: they send what their buffers hold, and get their results."""
        if self._ending:
            return  # twice would leave the results
        self._ending = True
        self._responder.send_signal(SIGCONT)  # or they would wait for its half
        for _, process, _ in self._running:
            if process.poll() is None:
                self._asked.add(process.pid)
                ask_to_end(process, SIGINT)

    def stop(self, wait: Callable[[], None]) -> list[dict[str, Any]]:
        """End them, `wait` until they have; return what they say of both ends."""
        self.end()
        until = time.monotonic() + _END_SECONDS
        while any(process.poll() is None for _, process, _ in self._running):
            if time.monotonic() > until:
                break
            wait()
        found = [self._said(*one) for one in self._running]
        self.kill()
        return found

    def _said(
        self, load: Load, process: subprocess.Popen[str], output: int
    ) -> dict[str, Any]:
        found: dict[str, Any] = {
            "load": str(load),
            "protocol": load.protocol,
            "direction": load.direction,
            "flows": load.flows,
            "rate_bps": load.rate_bps or None,
            "up": None,
            "down": None,
            "failure": None,
        }
        result: dict[str, Any] = {}
        with suppress(ValueError):
            result = json.loads(Path(f"/proc/self/fd/{output}").read_bytes())
        if not result and process.poll() is not None and process.pid in self._asked:
            return found | {"failure": f"{load}: ended before it had begun"}
        if not result:
            return found | {"failure": self._failure(process, str(load))}
        for way in ("up", "down"):
            if result[way]:
                found[way] = {k: v for k, v in result[way].items() if k != "channels"}
                first = result[way]["channels"][0]
                found["congestion"] = first.get("congestion")
        return found

    def kill(self) -> None:
        """End what is left of them."""
        for process in (*(process for _, process, _ in self._running), self._responder):
            if process.poll() is None:
                process.kill()
            last_output(process)
        while self._running:
            os.close(self._running.pop()[2])


def _failed(why: str) -> str:
    kept = "" if why.endswith(KEPT) else f"; {KEPT}"
    return f"the load failed: {why}{kept}"


class QueueSamples:
    """How full the queues of a lab's link were, from time to time."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._due = 0.0
        self._taken: dict[tuple[str, ...], list[int]] = {}

    def sample(self) -> None:
        """Look, if it is time."""
        if time.monotonic() < self._due:
            return
        self._due = time.monotonic() + SAMPLE_SECONDS
        counters = self._lab.counters()
        for host, way in _HOSTS.items():
            self._take_qdiscs(counters[host], way, host, self._lab.interface)
        for name, way in _WAYS.items():
            if "emulator" in counters:
                queued = counters["emulator"][name]["queued_bytes"]
                self._take(queued, way, "emulator", name, "emulator", "", "")
            if "netem" in counters:
                self._take_qdiscs(counters["netem"][name], way, "netem", name)

    def _take_qdiscs(
        self, counted: dict[str, Any], way: str, place: str, interface: str
    ) -> None:
        for qdisc in counted["qdiscs"]:
            of = (qdisc[name] for name in ("kind", "handle", "parent"))
            self._take(qdisc["backlog_bytes"], way, place, interface, *of)

    def _take(self, queued_bytes: int, *key: str) -> None:
        self._taken.setdefault(key, []).append(queued_bytes)

    def as_list(self) -> list[dict[str, Any]]:
        """Median and maximum in bytes, and what these take at the link's rate."""
        rate = self._lab.spec.rate_bps
        names = ("way", "place", "interface", "kind", "handle", "parent")
        found = []
        for key, taken in self._taken.items():
            ends = {"median": median(taken), "max": max(taken)}
            figures: dict[str, Any] = {f"{name}_bytes": n for name, n in ends.items()}
            figures |= {
                f"{name}_ns": 8e9 * n / rate if rate else None
                for name, n in ends.items()
            }
            found.append(
                dict(zip(names, key, strict=True)) | {"n": len(taken)} | figures
            )
        return found
