"""The ping-pong without a load, and then beside one: latency under load."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from latprof_analysis.records.message_rows import (
    LOADED,
    LOADED_REPLY,
    REPLY,
    REQUEST,
    Messages,
)
from latprof_analysis.stages import IDLE
from latprof_analysis.stages import LOADED as LOADED_PHASE
from latprof_analysis.study.load import load_figures, phase_figures, stage_rows
from latprof_analysis.study.totals import MessageTotals
from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.sink import Sink
from latprof_agent.workload.generator import LATE_SECONDS, Client, PingPong
from latprof_agent.workload.load import Flows, QueueSamples
from latprof_agent.workload.pingpong import PingPongInLab
from latprof_agent.workload.workload import RunContext

# Behind a full queue most of what is small is dropped, so that both ends agree before
# there is one. A machine that is busy takes its time to start a program.
AGREE_SECONDS = 1.0
# For slow start, and what follows the first loss, to fill a queue.
FILL_SECONDS = 2.0
# Beside a load a round trip takes its time, and all is awake.
_WARMUP = 1
# Fixed, so that the filter can name them: the namespaces of a lab are empty, and these
# are below the ports that the kernel chooses.
_FIRST_PORT = 7101
_PROTOCOLS = ("tcp", "udp")
_PHASES = (IDLE, LOADED_PHASE)


def _port(protocol: str, phase: str) -> int:
    place = len(_PHASES) * _PROTOCOLS.index(protocol) + _PHASES.index(phase)
    return _FIRST_PORT + place


class LoadedMessages(Sink):
    """Stages of the messages beside a load, which no other total has."""

    def __init__(self) -> None:
        self.totals = MessageTotals(most=0)

    def add_messages(self, rows: Messages) -> None:
        """Sum them up as the requests and replies that they are."""
        kinds, words = rows.texts["kind"]
        at = np.flatnonzero((kinds == LOADED) | (kinds == LOADED_REPLY))
        if len(at):
            taken = rows.take(at)
            named = np.where(kinds[at] == LOADED, REQUEST, REPLY).astype(np.int32)
            taken.texts["kind"] = named, words
            self.totals.add(taken)


@dataclass
class _Protocol:
    """What one protocol's turn has left."""

    idle: RoundTripTotals
    loaded: RoundTripTotals | None = None
    queues: list[dict[str, Any]] = field(default_factory=list)
    flows: list[dict[str, Any]] = field(default_factory=list)


class _Load:
    """The flows, which begin when the ping-pong's ends have agreed."""

    def __init__(self, lab: Lab, plan: PingPong) -> None:
        self._lab, self._plan = lab, plan
        self.queues = QueueSamples(lab)
        self.flows: Flows | None = None

    def begin(self, client: Client) -> None:
        """Begin them if it is time."""
        if not client.connected():
            return
        plan = self._plan
        cpus = {plan.client_cpu, plan.server_cpu}
        busy = frozenset(cpu for cpu in cpus if cpu is not None)
        self.flows = Flows(self._lab, plan.load, plan.congestion, busy)

    def check(self) -> None:
        """Raise WorkloadError where one has ended, LabError where the link has."""
        self._lab.check()
        if self.flows:
            self.flows.check()

    def stop(self, wait: Callable[[], None]) -> list[dict[str, Any]]:
        """End them; what they say."""
        return self.flows.stop(wait) if self.flows else []


class LoadedRuns(PingPongInLab):
    """The ping-pong over each protocol: idle, then beside the flows of the load."""

    def __init__(self, plan: PingPong, lab: Lab) -> None:
        super().__init__(plan, lab)
        self._seen = LoadedMessages()
        self._protocols: dict[str, _Protocol] = {}
        self._scene: RunContext | None = None

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """The ping-pong's ports: a mass of data would cost a mass of records."""
        ports = tuple(_port(p, phase) for p in protocols for phase in _PHASES)
        return Filter(netns=self._lab.inodes, ports=ports, protocols=protocols)

    def follow(self, scene: RunContext) -> None:
        """Run both phases of each protocol."""
        self._scene = scene
        scene.recorder.sinks.append(self._seen)
        super().follow(scene)

    def _follow(self, protocol: str, scene: RunContext) -> None:
        idle = self._totals_of(protocol)
        scene.expect(idle)
        self._protocols[protocol] = _Protocol(idle)
        self._measure(self._plan, idle, scene, IDLE, _port(protocol, IDLE))
        if not scene.interrupt.seen:
            self._follow_loaded(protocol, scene)

    def _follow_loaded(self, protocol: str, scene: RunContext) -> None:
        phases, plan = self._protocols[protocol], self._plan
        load = _Load(self._lab, plan)
        totals = self._totals_of(protocol)
        plan = replace(plan, warmup_rounds=min(plan.warmup_rounds, _WARMUP))
        begin = time.monotonic() + AGREE_SECONDS + FILL_SECONDS
        late = plan.duration_seconds + LATE_SECONDS
        scene.expect(totals, loaded=True)

        def look(client: Client) -> None:
            now = time.monotonic()
            if not load.flows:
                load.begin(client)
            elif plan.duration_seconds and totals.seconds_since_first() > late:
                load.flows.end()  # so that the queue drains, and what is late comes
            elif now > begin:
                load.queues.sample()
            if now < begin:
                left = max(0.0, begin - now)
                gone = FILL_SECONDS - min(FILL_SECONDS, left)
                scene.progress("the load fills the queue", 0, gone, FILL_SECONDS)
            load.check()

        try:
            port, at_ns = _port(protocol, LOADED_PHASE), round(begin * NS_PER_SECOND)
            self._measure(plan, totals, scene, LOADED_PHASE, port, look, at_ns)
        finally:
            phases.loaded = totals if totals.sent else None
            phases.queues = load.queues.as_list()
            phases.flows = load.stop(lambda: scene.recorder.step_for(STEP_SECONDS))
            self.runs[-1]["flows"] = phases.flows

    def figures(self) -> dict[str, Any]:
        """Idle and loaded side by side."""
        assert self._scene
        kinds = self._scene.totals.messages.kinds, self._seen.totals.kinds
        protocols = {}
        for protocol, phases in self._protocols.items():
            idle, loaded = _figures_of(phases.idle), None
            if phases.loaded:
                loaded = _figures_of(phases.loaded)
            stages = stage_rows(protocol, *kinds) if loaded else []
            protocols[protocol] = load_figures(idle, loaded, stages) | {
                "queues": phases.queues,
                "flows": phases.flows,
            }
        asked = [str(load) for load in self._plan.load]
        rate = self._lab.spec.rate_bps or None
        section = {"open_loop": self._plan.interval_ns > 0, "protocols": protocols}
        return {"load": {"asked": asked, "rate_bps": rate, **section}}


def _figures_of(trips: RoundTripTotals) -> dict[str, Any]:
    return phase_figures(trips.rtt, **trips.counts)
