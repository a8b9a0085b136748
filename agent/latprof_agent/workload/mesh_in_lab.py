"""A full mesh in the lab: on each host are a responder and, for each test, a client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from latprof_analysis.study.mesh import MeshSetup
from latprof_analysis.study.setup import packets_of
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.errors import WorkloadError
from latprof_agent.executables import find_executable
from latprof_agent.lab.child import ask_to_end, last_output
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.workload.generator import LATE_SECONDS, LONGEST_GAP
from latprof_agent.workload.mesh import (
    CPU_TIMES,
    HEARTBEAT_BYTES,
    Clients,
    MeshPlan,
    MeshRuns,
    Shares,
)
from latprof_agent.workload.mesh_log import MeshEnds
from latprof_agent.workload.programs import (
    KEPT,
    STARTED,
    ProgressWatchdog,
    check_stopped,
    last_words,
    ready_words,
    traffic_of,
)
from latprof_agent.workload.workload import RunContext

# No ephemeral port, so that a flow's ports show its direction.
PORT = 7107


class _Responders:
    """The responders, one on each host, for the whole run."""

    def __init__(self, lab: Lab, plan: MeshPlan) -> None:
        load = str(find_executable("latprof-load"))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        for host in lab.hosts:
            words = plan.responder_words(lab.address_of(host), PORT)
            self._processes[host] = lab.start(host, [load, *words], **STARTED)
        for host, process in self._processes.items():
            ready_words(process, f"the responder of {host}")

    def check(self) -> None:
        """Raise WorkloadError where one of them has ended."""
        for host, process in self._processes.items():
            if process.poll() is not None:
                raise WorkloadError(last_words(process, f"the responder of {host}"))

    def watchdogs(self) -> list[ProgressWatchdog]:
        """For how long nothing comes to or leaves each host, from now on."""
        return [ProgressWatchdog(traffic_of(p.pid)) for p in self._processes.values()]

    def check_stopped(self) -> None:
        """Raise WorkloadError where somebody has stopped one of them."""
        ends = self._processes.items()
        check_stopped({f"the responder of {host}": process for host, process in ends})

    def close(self) -> dict[str, dict[str, Any]]:
        """End them; what each has counted, by host."""
        found = {}
        for process in self._processes.values():
            ask_to_end(process)
        for host, process in self._processes.items():
            text, _ = last_output(process)
            if not process.returncode and text:
                found[host] = json.loads(text.strip().splitlines()[-1])
        self._processes = {}
        return found


class _LinkMeter:
    """How busy each host's link is while a test lasts; nothing without a rate."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._before = self._read()

    def _read(self) -> dict[str, dict[str, int]]:
        link = self._lab.counters()
        ports = link.get("ports", {})
        found: dict[str, dict[str, int]] = {}
        for host in self._lab.hosts:
            sides = link[host]["interface"], ports.get(host, {}).get("interface", {})
            found[host] = {
                "up": sides[0]["tx_bytes"],
                "down": sides[1].get("tx_bytes", sides[0]["rx_bytes"]),
            }
        return found

    def shares(self, seconds: float) -> Shares:
        """Say what was busy of each; all that passed did so in these seconds."""
        capacity = self._lab.spec.rate_bps * seconds / 8
        if not capacity:
            return {}
        return {
            host: {
                side: (bytes_ - self._before[host][side]) / capacity
                for side, bytes_ in sides.items()
            }
            for host, sides in self._read().items()
        }


class MeshInLab(MeshRuns):
    """Every host sends to every other and echoes what it gets."""

    def __init__(self, plan: MeshPlan, lab: Lab) -> None:
        self._lab = lab
        addresses = {host: lab.address_of(host) for host in lab.hosts}
        setup = MeshSetup(
            tuple(lab.hosts),
            plan.reply_bytes,
            HEARTBEAT_BYTES,
            plan.heartbeat_interval_ns,
            packets_of({"addresses": addresses, "known": lab.known}, plan.protocol),
            lab.spec.rate_bps or None,
        )
        places = [(address, PORT) for address in addresses.values()]
        ends = MeshEnds(
            setup.hosts,
            responders={place: i for i, place in enumerate(places)},
            senders={address: i for i, (address, _) in enumerate(places)},
        )
        super().__init__(plan, setup, places, ends, one_clock=True)
        self._responders: _Responders | None = None
        self._still: list[ProgressWatchdog] = []
        self._counted: dict[str, Any] = {}  # by responders, by host

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """All hosts of the lab."""
        return Filter(netns=self._lab.inodes, protocols=protocols)

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"mesh": asdict(self._plan), "responders": self._counted}

    def _spawn(
        self, host: str, command: Sequence[str], **options: Any
    ) -> subprocess.Popen[str]:
        return self._lab.start(host, command, **options)

    def _meter_links(self) -> Callable[[float], Shares]:
        return _LinkMeter(self._lab).shares

    def _follow_all(self, scene: RunContext) -> None:
        self._responders = _Responders(self._lab, self._plan)
        try:
            super()._follow_all(scene)
        finally:
            self._end_responders()

    def _test_begins(self) -> None:
        assert self._responders
        self._still = self._responders.watchdogs()

    def _check(self) -> None:
        assert self._responders
        self._lab.check()
        self._responders.check()

    def _check_silence(self, clients: Clients) -> None:
        silent_seconds = min(host.seconds() for host in self._still)
        if silent_seconds > self._patience_seconds():
            assert self._responders
            clients.check_stopped()
            self._responders.check_stopped()
            why = f"no host had an answer for {silent_seconds:.0f} s"
            raise WorkloadError(f"the mesh failed: {why}; {KEPT}")

    def _patience_seconds(self) -> float:
        """How long nothing may come from any host: links, and the plan, may be slow."""
        link, plan = self._lab.spec, self._plan
        packet_bits = 8 * link.packet_bytes("veth")
        packet = packet_bits / link.rate_bps if link.rate_bps else 0.0
        gap_ns = plan.interval_ns * (LONGEST_GAP if plan.poisson else 1)
        slow_ns = 2 * link.delay_ns + gap_ns + plan.timeout_ns
        return LATE_SECONDS + 2 * packet + slow_ns / NS_PER_SECOND

    def _end_responders(self) -> None:
        responders, self._responders = self._responders, None
        if responders:
            found = responders.close()
            kept = ("connections", "messages", "bytes", "unsent", *CPU_TIMES)
            self._counted = {
                host: {name: counts[name] for name in kept if name in counts}
                for host, counts in found.items()
            }

    def close(self) -> None:
        """End what is left of it."""
        self._end_responders()
