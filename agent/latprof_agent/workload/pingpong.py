"""The workload `pingpong`: the generator over one protocol after the other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from latprof_agent.errors import WorkloadError
from latprof_agent.lab.lab import Lab
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import STEP_SECONDS
from latprof_agent.sinks.clear_result import clear_result
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.workload.generator import Client, Generator, PingPong
from latprof_agent.workload.generator_log import GeneratorLog, log_in
from latprof_agent.workload.workload import RunContext, Workload

# Its experiment is over TCP.
CLEAR_RESULTS = {"tcp": "clear_result.txt", "udp": "clear_result_udp.txt"}
# After so long, messages that are over are in the totals.
REPORTED_SECONDS = 0.3


class PingPongRuns(Workload):
    """The generator's ping-pong, over one protocol after the other."""

    _one_clock = True  # for both ends

    def __init__(self, plan: PingPong) -> None:
        super().__init__()
        self._plan = plan
        self._totals: list[RoundTripTotals] = []

    def as_dict(self) -> dict[str, Any]:
        """For run.json."""
        return {"plan": asdict(self._plan)}

    def write(self, folder: RunFolder) -> None:
        """Leave CLEAR's result text, where it is CLEAR's wire format."""
        if self._plan.wire != "clear":
            return
        for totals in self._totals:
            if totals.sent:
                text = clear_result(*totals.arrays()[:2])
                folder.write_text(CLEAR_RESULTS[totals.protocol], text)

    def _client(self, plan: PingPong, protocol: str, log: int, port: int) -> Client:
        """Whoever is to send over this protocol; port 0: its responder's is any."""
        raise NotImplementedError

    def follow(self, scene: RunContext) -> None:
        """Run each of them to its end."""
        for protocol in scene.protocols:
            if not scene.interrupt.seen:
                self._follow(protocol, scene)

    def _totals_of(self, protocol: str) -> RoundTripTotals:
        plan = self._plan
        return RoundTripTotals(
            protocol, len(plan.sizes), plan.messages_per_round, plan.interval_ns > 0
        )

    def _follow(self, protocol: str, scene: RunContext) -> None:
        totals = self._totals_of(protocol)
        scene.expect(totals)
        self._totals.append(totals)
        self._measure(self._plan, totals, scene)

    def _measure(
        self,
        plan: PingPong,
        totals: RoundTripTotals,
        scene: RunContext,
        phase: str = "",
        port: int = 0,
        look: Callable[[Client], None] = lambda _client: None,
        start_at_ns: int = 0,
    ) -> None:
        """Run it over one protocol, and `look` at something else meanwhile."""
        log, recorder = scene.folder.new_log(), scene.recorder
        protocol = totals.protocol
        client = self._client(plan, protocol, log, port)
        client.start_at_ns = start_at_ns
        source = GeneratorLog(
            log_in(log),
            protocol,
            client.port,
            open_loop=totals.open_loop,
            agreed=plan.wire == "latprof",
            trains=plan.train_messages > 0,
            one_clock=self._one_clock,
            phase=phase,
        )
        recorder.add_source(source)
        if protocol == "udp":
            scene.capture.expect_udp()
        client.start()
        phase_times = {"phase": phase, "begin_ns": time.monotonic_ns()} if phase else {}
        try:
            while client.running():
                if scene.interrupt.seen:
                    client.stop()
                client.check()
                look(client)
                recorder.step_for(STEP_SECONDS)
                self._show_progress(totals, scene)
        finally:
            client.stop()
            if phase:
                phase_times["end_ns"] = time.monotonic_ns()
            self._finish(client, scene, phase_times)

    def _show_progress(self, totals: RoundTripTotals, scene: RunContext) -> None:
        plan, protocol, sent = self._plan, totals.protocol, totals.sent
        if plan.rounds:
            scene.progress(protocol, sent, sent, plan.rounds * plan.messages_per_round)
            return
        gone = totals.seconds_since_first()
        scene.progress(protocol, sent, gone, plan.duration_seconds)
        if gone > plan.duration_seconds + REPORTED_SECONDS:
            scene.progress(f"{protocol}: what is late, and its replies", 0, 0, 0)

    def _finish(
        self, client: Client, scene: RunContext, phase_times: dict[str, Any]
    ) -> None:
        try:
            client.finish()
        except WorkloadError as error:
            raise scene.folder.explain(error) from error
        finally:
            protocol = {"protocol": client.protocol}
            self.runs.append(protocol | phase_times | client.result)


class PingPongInLab(PingPongRuns):
    """Between the two ends of a lab."""

    def __init__(self, plan: PingPong, lab: Lab) -> None:
        super().__init__(plan)
        self._lab = lab
        lab.place_emulator(plan.cpu_of_both)

    def watched(self, protocols: tuple[str, ...]) -> Filter:
        """All of the lab."""
        return Filter(netns=self._lab.inodes, protocols=protocols)

    def _client(self, plan: PingPong, protocol: str, log: int, port: int) -> Client:
        return Generator(self._lab, plan, protocol, log, port)
