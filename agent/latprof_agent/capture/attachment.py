"""Which programs are attached: what slows others only while it is needed."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from latprof_agent import _drain
from latprof_agent.capture.rings import Batch
from latprof_agent.errors import CaptureError, remedy
from latprof_agent.probes.catalogue import (
    BY_FILTER,
    HIDDEN_TASKS,
    NEW_PROCESSES,
    UDP_SENDS,
    Capability,
    Need,
)
from latprof_agent.probes.cgroup import cgroup2_mount
from latprof_agent.probes.trial import SEE_OFFER, first_line
from latprof_agent.process_table import processes_below

# What is needed sometimes is attached for so long, to see whether it is.
TRIAL_SECONDS = 1.0
IPPROTO_UDP = 17
SIDE_SENDER = 1


def _udp_sends(records: Batch) -> bool:
    flows = records["flows"]
    udp = (flows["protocol"] == IPPROTO_UDP) & (flows["side"] == SIDE_SENDER)
    return bool(udp.any())


def _tasks_are_hidden(records: Batch) -> bool:
    return len(records["hidden_spells"]) > 0


# by the records that were drained: is it needed from now on?
SIGNS: dict[Need, Callable[[Batch], bool]] = {
    UDP_SENDS: _udp_sends,
    HIDDEN_TASKS: _tasks_are_hidden,
}


def _programs_from(source: str, capabilities: list[Capability]) -> set[str]:
    return {
        program
        for capability in capabilities
        if capability.source.startswith(source)
        for program in capability.programs
    }


class Attachment:
    """The programs of one object, attached and detached by need."""

    def __init__(self, drain: _drain.Drain, capabilities: list[Capability]) -> None:
        self._drain = drain
        # what is behind the send call first: what is sent then has all stamps
        self._order = [p for c in reversed(capabilities) for p in c.programs]
        self._by_need: dict[Need, set[str]] = {}
        for capability in capabilities:
            programs = self._by_need.setdefault(capability.need, set())
            programs.update(capability.programs)
        self._open: dict[Need, float | None] = {}  # need -> when its trial ends
        self._cgroup_programs = _programs_from("cgroup/", capabilities)
        self._iterators = _programs_from("iter/", capabilities)
        self._lock = threading.Lock()
        self.programs = sorted(set().union(*self._by_need.values()))

    def attach_all(self, pids: tuple[int, ...] = ()) -> set[int]:
        """Attach everything; the trial of what may not be needed begins.

        First come the programs that choose the sockets of these processes, and of
        their descendants. Returns the sockets that are open, where one chooses.
        """
        choosing = set().union(*(self._by_need.get(n, set()) for n in BY_FILTER))
        cgroup = -1
        try:
            if self._cgroup_programs and (mount := cgroup2_mount()):
                cgroup = os.open(mount, os.O_RDONLY | os.O_DIRECTORY)
            self._attach_some(choosing - self._iterators, cgroup)
            if NEW_PROCESSES in self._by_need:
                self._follow_processes(pids)
            found = self._iterate()
            self._attach_some(set(self.programs) - choosing, cgroup)
        finally:
            if cgroup >= 0:
                os.close(cgroup)
        until = time.monotonic() + TRIAL_SECONDS
        self._open = {need: until for need in self._by_need if need in SIGNS}
        return found

    def _attach_some(self, programs: set[str], cgroup: int) -> None:
        for program in filter(programs.__contains__, self._order):
            own = cgroup if program in self._cgroup_programs else -1
            self._attach(program, own)

    def _follow_processes(self, pids: tuple[int, ...]) -> None:
        """Children that are forked from now on are followed by the probes."""
        known: set[int] = set()
        found = set(pids)
        while found - known:
            for pid in found - known:
                self._drain.put("pids", pid.to_bytes(4, sys.byteorder), b"\1")
            known = found
            found = known | processes_below(known)

    def _iterate(self) -> set[int]:
        found: set[int] = set()
        for program in self._iterators:
            try:
                addresses = self._drain.iterate(program)
            except OSError as error:
                raise CaptureError(
                    f"cannot look for open sockets: {first_line(error)}; "
                    f"{remedy(error.errno, SEE_OFFER)}"
                ) from error
            found.update(np.frombuffer(addresses, "u8").tolist())
        return found

    def _attach(self, program: str, cgroup: int = -1) -> None:
        try:
            self._drain.attach(program, cgroup)
        except OSError as error:
            raise CaptureError(
                f"cannot attach probe {program}: {first_line(error)}; "
                f"{remedy(error.errno, SEE_OFFER)}"
            ) from error

    def follow(self, records: Batch) -> None:
        """Attach what these records ask for; detach what nothing asked for."""
        with self._lock:
            for need, until in list(self._open.items()):
                if SIGNS[need](records):
                    self._keep(need)
                elif until is not None and time.monotonic() > until:
                    self._open[need] = None
                    for program in self._by_need[need]:
                        self._drain.detach(program)

    def expect(self, need: Need) -> None:
        """It will be needed: attach it now."""
        with self._lock:
            if need in self._open:
                self._keep(need)

    def _keep(self, need: Need) -> None:
        del self._open[need]
        for program in self._by_need[need]:
            # what was attached before the trial ended can be again
            with suppress(CaptureError):
                self._attach(program)

    def detach_all(self) -> None:
        """Detach everything."""
        self._open.clear()
        self._drain.detach()
