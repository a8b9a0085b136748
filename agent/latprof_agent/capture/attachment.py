"""Which programs are attached: what slows others only while it is needed."""

from __future__ import annotations

import os
import struct
import threading
import time
from contextlib import suppress

import numpy as np
from latprof_analysis.records.arrays import Batch

from latprof_agent import _drain, netns
from latprof_agent.errors import CaptureError, remedy
from latprof_agent.probes.catalogue import (
    BY_FILTER,
    CLOCK_HERTZ,
    COVERED,
    HIDDEN_TASKS,
    IDLE_EXCHANGES,
    LIVE_ONLY,
    LOSSES,
    QUEUES,
    RENAMES,
    STORIES,
    UDP_READS,
    UDP_SENDS,
    Capability,
    Need,
)
from latprof_agent.probes.cgroup import widest_mount
from latprof_agent.probes.filter import FACTS, Filter
from latprof_agent.probes.layout import Layout
from latprof_agent.probes.trial import SEE_OFFER, first_line
from latprof_agent.process_table import processes_below

# Iterators that pass the entries of one of our maps: not once, but as asked for.
MAPS_PASSED = {
    "on_stream_idle": "streams",
    "on_datagram_idle": "datagram_turns",
    "on_listener": "listeners",
}
# Iterators that pass the sockets of one network namespace each.
OF_NETNS = ("on_open_tcp", "on_open_udp")
# What is needed sometimes is attached for so long, to see whether it is.
TRIAL_SECONDS = 1.0


# Variables of the probes which show that a need has begun.
SIGNS: dict[Need, tuple[str, ...]] = {
    UDP_SENDS: ("udp_sends",),
    QUEUES: ("queues_used", "udp_sends"),
}


def _programs_from(source: str, capabilities: list[Capability]) -> set[str]:
    return {
        program
        for capability in capabilities
        if capability.source.startswith(source)
        for program in capability.programs
    }


def _unmarked_below(bits: dict[int, int]) -> dict[int, int]:
    """Descendants that lack bits which a process above them has."""
    found: dict[int, int] = {}
    for bit in FACTS["pids", False], FACTS["pids", True]:
        above = {pid for pid, has in bits.items() if has & bit}
        for pid in processes_below(above) if above else ():
            found[pid] = found.get(pid, 0) | bit
    return found


class Attachment:
    """The programs of one object, attached and detached by need."""

    def __init__(
        self,
        drain: _drain.Drain,
        capabilities: list[Capability],
        layout: Layout,
        *,
        live: bool = False,
    ) -> None:
        self._drain = drain
        self._signs = layout.signs
        self._on_trial = frozenset(SIGNS) | {HIDDEN_TASKS}
        if not live:
            self._on_trial -= LIVE_ONLY
        # what is behind the send call first: what is sent then has all stamps
        every = [p for c in reversed(capabilities) for p in c.programs]
        covered = {COVERED[p] for p in every if p in COVERED}
        self._order = [p for p in every if p not in covered]
        self._by_need: dict[Need, set[str]] = {}
        for capability in capabilities:
            programs = self._by_need.setdefault(capability.need, set())
            programs.update(set(capability.programs) - covered)
        self._open: dict[Need, float | None] = {}  # need -> when its trial ends
        self._cgroup_programs = _programs_from("cgroup/", capabilities)
        self._iterators = _programs_from("iter/", capabilities)
        self._clocks = _programs_from("perf event ", capabilities)
        self._idle = self._by_need.get(IDLE_EXCHANGES, set())
        self._lock = threading.Lock()
        self._paused = False
        self._watches_udp = True
        self._choosing: set[str] = set()  # attached
        self.programs = sorted(set().union(*self._by_need.values()))
        # kept, as it may be in a place that another user cannot look at later
        mount = widest_mount()
        self._group = os.open(mount, os.O_RDONLY | os.O_DIRECTORY) if mount else -1

    def attach_all(self, watched: Filter, notes: int) -> set[int]:
        """Attach everything; the trial of what may not be needed begins.

        First come the programs that choose. Returns what `choose` does.
        """
        found = self.choose(watched, notes)
        self._watches_udp = "udp" in watched.protocols
        self._attach_some(
            set(self.programs)
            - self._programs_for(BY_FILTER)
            - self._iterators
            - self._unused()
        )
        until = time.monotonic() + TRIAL_SECONDS
        self._open = {need: until for need in self._by_need if need in self._on_trial}
        return found

    def choose(self, watched: Filter, notes: int) -> set[int]:
        """Note whose sockets are whose, from now on and of those that are open.

        The probes have the filter's terms by now. Returns the sockets that are open,
        where it asks for them.
        """
        wanted = self._programs_for(watched.needs & BY_FILTER)
        with self._lock:
            self._attach_some(wanted - self._iterators - self._choosing)
        self._follow_processes(watched.followed, notes)
        found = self._iterate(wanted & self._iterators)
        with self._lock:
            for program in self._choosing - wanted:
                self._drain.detach(program)
        self._choosing = wanted - self._iterators
        return found

    def watch_protocols(self, watched: Filter) -> None:
        """Attach what reads of UDP need, where that is watched from now on."""
        with self._lock:
            before = self._unused()
            self._watches_udp = "udp" in watched.protocols
            if not self._paused:
                self._attach_some(before - self._unused())
                for program in self._unused() - before:
                    self._drain.detach(program)

    def _unused(self) -> set[str]:
        """What the filter makes needless."""
        return set() if self._watches_udp else self._by_need.get(UDP_READS, set())

    def _programs_for(self, needs: frozenset[Need]) -> set[str]:
        return set().union(*(self._by_need.get(need, set()) for need in needs))

    def _attach_some(self, programs: set[str]) -> None:
        for program in filter(programs.__contains__, self._order):
            own = self._group if program in self._cgroup_programs else -1
            self._attach(program, own)

    def _follow_processes(self, asked: dict[int, int], notes: int) -> None:
        """Children that are forked from now on are followed by the probes.

        Those that are there get the bits of all above them, as they would then.
        """
        bits: dict[int, int] = {}
        fresh = asked
        while fresh:
            for pid, more in fresh.items():
                bits[pid] = bits.get(pid, 0) | more
                value = struct.pack("=II", notes, bits[pid])
                self._drain.put("pids", struct.pack("=I", pid), value)
            fresh = _unmarked_below(bits)

    def _iterate(self, programs: set[str]) -> set[int]:
        try:  # whose they are is known before what follows from that
            found = [self._drain.iterate(p) for p in programs.difference(OF_NETNS)]
            for place in netns.every() if programs.intersection(OF_NETNS) else ():
                with suppress(FileNotFoundError):  # has ended since
                    found += netns.run_in(place, self._iterate_netns)
        except OSError as error:
            raise CaptureError(
                f"cannot look for open sockets: {first_line(error)}; "
                f"{remedy(error.errno, SEE_OFFER)}"
            ) from error
        return set(np.frombuffer(b"".join(found), "u8").tolist())

    def _iterate_netns(self) -> list[bytes]:
        return [self._drain.iterate(program) for program in OF_NETNS]

    def _attach(self, program: str, cgroup: int = -1) -> None:
        try:
            if program in self._clocks:
                self._drain.attach_clock(program, CLOCK_HERTZ)
            else:
                self._drain.attach(program, cgroup)
        except OSError as error:
            raise CaptureError(
                f"cannot attach probe {program}: {first_line(error)}; "
                f"{remedy(error.errno, SEE_OFFER)}"
            ) from error

    def follow(self, records: Batch) -> None:
        """Attach what these records ask for; detach what nothing asked for."""
        with self._lock:
            if self._paused:
                return
            variables = self._drain.globals() if self._open else b""
            for need, until in list(self._open.items()):
                if self._is_needed(need, records, variables):
                    self._keep(need)
                elif until is not None and time.monotonic() > until:
                    self._open[need] = None
                    for program in self._by_need[need]:
                        self._drain.detach(program)

    def _is_needed(self, need: Need, records: Batch, variables: bytes) -> bool:
        if need == HIDDEN_TASKS:
            return len(records["untraced_periods"]) > 0
        return any(variables[self._signs[sign]] for sign in SIGNS[need])

    def pause(self) -> None:
        """Detach what packets pass, until `resume`; the choice of sockets goes on."""
        with self._lock:
            self._paused = True
            for program in self._packet_programs():
                self._drain.detach(program)

    def resume(self) -> None:
        """Attach it again, but for what nothing asked for."""
        with self._lock:
            self._paused = False
            idle = {
                program
                for need, until in self._open.items()
                if until is None
                for program in self._by_need[need]
            }
            packets = self._packet_programs() - idle - self._unused()
            for program in filter(packets.__contains__, self._order):
                self._attach(program)

    def _packet_programs(self) -> set[str]:
        chosen = set().union(*(self._by_need.get(need, set()) for need in BY_FILTER))
        chosen |= self._by_need.get(LOSSES, set())  # rare, and no sample of them
        chosen |= self._by_need.get(STORIES, set())  # they explain what came before
        chosen |= self._by_need.get(RENAMES, set())  # rare; a name stays until then
        return set(self.programs) - chosen - self._cgroup_programs - self._iterators

    def steady_programs(self) -> set[str]:
        """Those that `pause` leaves."""
        return set(self.programs) - self._packet_programs()

    def end_idle_exchanges(self) -> bytes:
        """Count those whose client has read a reply, and nothing for a while.

        Return records of the requests that wait for one.
        """
        return self._pass_maps(self._idle)

    def look_at_listeners(self) -> None:
        """Count the connections that they have refused since the last time."""
        self._pass_maps(self._by_need.get(LOSSES, set()) & self._iterators)

    def missed(self) -> dict[str, int]:
        """How often the kernel skipped a probe that ran already on that CPU."""
        losses = self._by_need.get(LOSSES, set())
        return {
            "missed_losses": sum(map(self._drain.misses, losses)),
            "missed_runs": sum(map(self._drain.misses, {*self.programs} - losses)),
        }

    def _pass_maps(self, programs: set[str]) -> bytes:
        found = b""
        for program in programs:
            # refused for a moment: the next time will do
            with suppress(OSError):
                found += self._drain.iterate(program, MAPS_PASSED[program])
        return found

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
        self._choosing.clear()
        self._drain.detach()

    def close(self) -> None:
        """Close what programs are attached to; twice does no harm."""
        if self._group >= 0:
            os.close(self._group)
            self._group = -1
