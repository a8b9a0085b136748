"""One run: a workload, mostly in a lab, and a recorder that fills the run folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from latprof_analysis.study.setup import overloads

from latprof_agent.calling_user import User, calling_user
from latprof_agent.capture.capture import Capture, open_capture
from latprof_agent.capture.cost import AgentCost
from latprof_agent.errors import LatprofError, WorkloadError, refusals_told
from latprof_agent.interrupts import Interrupt
from latprof_agent.join.joiner import UNREAD_AT_CLOSE
from latprof_agent.join.path_devices import PathDevices, with_last_devices
from latprof_agent.lab import netns
from latprof_agent.lab.interface import check_congestion
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.probes import catalogue
from latprof_agent.probes.catalogue import PROBES, Capability, Probe
from latprof_agent.probes.filter import Filter
from latprof_agent.recorder import STEP_SECONDS, Recorder
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_description import described
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.sinks.run_place import check_free
from latprof_agent.sinks.run_sink import RunSink
from latprof_agent.sinks.summary import summarize
from latprof_agent.workload.attached import Attached, Target
from latprof_agent.workload.generator import Generator, PingPong
from latprof_agent.workload.generator_log import GeneratorLog
from latprof_agent.workload.user_command import Command

Progress = Callable[[str, int, float, float], None]  # what, messages, done, planned

Notice = Callable[[str], None]  # what the user should know before the run is over

SETTLE_SECONDS = 0.1  # for packets on the way when the generator ends
# By which messages that are over have been told of, and are in the totals.
TOLD_SECONDS = 0.3


@dataclass(frozen=True)
class RunOptions:
    """What `latprof run` was asked for, checked."""

    link: LinkSpec
    plan: PingPong
    protocols: tuple[str, ...]
    command: tuple[str, ...] = ()
    server_command: str = ""
    user: User | None = None  # whom the commands run as; None: as we do
    target: Target | None = None  # attach to it, instead of running something
    in_lab: bool = True
    ports: tuple[int, ...] = ()
    record: bool = True  # False: the same run without probes, to compare with
    pieces: bool = False  # a row for each send call of the generator
    ring_bytes: int | None = None
    out: Path | None = None
    name: str = ""
    parquet: bool = False
    arguments: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a run found, and what stopped it if something did."""

    folder: Path
    summary: dict[str, Any]
    failure: LatprofError | None = None


def run(
    options: RunOptions,
    progress: Progress,
    interrupt: Interrupt,
    table: tuple[Probe, ...] = PROBES,
    *,
    notice: Notice = lambda _text: None,
) -> Outcome:
    """Do one run; raises LatprofError only where nothing was recorded."""
    user = calling_user()
    check_free(options.out, user)
    if options.plan.congestion:
        netns.run_in_new(partial(check_congestion, options.plan.congestion))
    with ExitStack() as stack:
        attached = Attached(options.target) if options.target else None
        if attached:
            stack.callback(attached.close)
        capabilities = _capabilities(options, attached, table)
        interrupt.check()
        lab = stack.enter_context(Lab(options.link)) if options.in_lab else None
        interrupt.check()
        session = _Session(options, capabilities, interrupt, progress, lab, attached)
        for text in session.overloads():
            notice(text)
        return session.run(table)


def _capabilities(
    options: RunOptions, attached: Attached | None, table: tuple[Probe, ...]
) -> list[Capability]:
    if not options.record:
        return []
    needs = attached.filter(options.protocols).needs if attached else frozenset()
    found = catalogue.capabilities(options.protocols, table, needs)
    catalogue.require_both_halves(found)
    return found


class _Session:
    def __init__(
        self,
        options: RunOptions,
        capabilities: list[Capability],
        interrupt: Interrupt,
        progress: Progress,
        lab: Lab | None,
        attached: Attached | None,
    ) -> None:
        self.options = options
        self._attached = attached
        self.capabilities = capabilities
        self.lab = lab
        self.interrupt = interrupt
        self._progress = progress
        self._cost = AgentCost()
        self._runs: list[dict[str, Any]] = []

    def run(self, table: tuple[Probe, ...]) -> Outcome:
        """Record all workloads, then sum up, whatever happens between."""
        self._command = self._make_command()
        if self.lab and not self._command:
            self.lab.place_emulator(self.options.plan.cpu_of_both)
        try:
            with open_capture(
                self._watched(), self.capabilities, table, self.options.ring_bytes
            ) as capture:
                self.capabilities = capture.capabilities
                folder = RunFolder(self.options.out, self.options.name)
                try:
                    return self._record(capture, folder)
                except BaseException:
                    self._tell_end(folder)
                    raise
                finally:
                    folder.close()
        finally:
            if self._command:
                self._command.close()

    def _tell_end(self, folder: RunFolder) -> None:
        """Let nobody believe that a run without a summary still goes on."""
        state = "interrupted" if self.interrupt.seen else "failed"
        with suppress(LatprofError):
            folder.write_json("run.json", self._describe(folder, state))

    def overloads(self) -> list[str]:
        """Say what is known to go wrong before anything is sent."""
        told = {"workload": self._workload(), "lab": self._lab()}
        return list(overloads(told, self.options.protocols))

    def _watched(self) -> Filter:
        protocols = self.options.protocols if self.options.record else ()
        if self._attached:
            return self._attached.filter(protocols)
        return Filter(
            netns=self.lab.inodes if self.lab else (),
            ports=self.options.ports,
            cgroups=(self._command.cgroup_id,)
            if self._command and not self.lab
            else (),
            peers=bool(self._command and not self.lab),
            protocols=protocols,
        )

    def _make_command(self) -> Command | None:
        if not self.options.command:
            return None
        words, server = self.options.command, self.options.server_command
        return Command(words, server, self.lab, self.options.user)

    def _record(self, capture: Capture, folder: RunFolder) -> Outcome:
        sink = RunSink(folder)
        recorder = Recorder(capture, sink, self.options.pieces)
        failure: LatprofError | None = None
        try:
            with refusals_told("cannot record"):
                folder.write_json("run.json", self._describe(folder, "running"))
                capture.start()
                self._workloads(recorder, sink)
                recorder.step_for(SETTLE_SECONDS)
        except LatprofError as error:
            failure = error
        try:
            with refusals_told("cannot finish the recording"):
                capture.stop()
                recorder.finish()
                sent = any(trips.sent for trips in sink.round_trips.values())
                seen = recorder.records or sent or self._attached
                if self.interrupt.seen and not seen:
                    self.interrupt.check()
        except LatprofError as error:
            failure = failure or error
        return self._sum_up(sink, recorder.joiner.path_devices, failure)

    def _sum_up(
        self, sink: RunSink, paths: PathDevices, failure: LatprofError | None
    ) -> Outcome:
        folder, counters = sink.folder, None
        folder.free_logs()
        failure = failure or folder.failure
        try:
            with refusals_told("cannot read the link's counters"):
                counters = self.lab.counters() if self.lab else None
        except LatprofError as error:
            # a workload whose link is gone can but fail, whatever it says
            no_link = failure is None or isinstance(failure, WorkloadError)
            failure = error if no_link else failure
        state = "failed" if failure else "done"
        unmatched = dict(sink.tally.unmatched)
        unread = unmatched.pop(UNREAD_AT_CLOSE, 0)
        if self.interrupt.seen and not failure and not self._endless():
            state = "interrupted"
        told, passed = self._describe(folder, state), paths.as_list()
        link = self.lab.interface if self.lab else ""
        description = told | {
            "failure": str(failure) if failure else None,
            "counters": sink.tally.counters,
            "unmatched": unmatched,
            "unread_at_close": unread,
            "path_devices": passed,
            "capabilities": with_last_devices(told["capabilities"], passed, link),
            "link_counters": counters,
        }
        self._progress("summing up", 0, 0, 0)
        summary = summarize(sink, description, self._cost.as_dict())
        try:
            folder.write_json("run.json", description)
            folder.write_json("summary.json", summary)
            folder.finish_tables()  # last, or it might leave no room for the others
            if self.options.parquet:
                folder.write_parquet()
        except LatprofError as error:
            failure = failure or error
            summary["failure"] = str(failure)
        return Outcome(folder.path, summary, failure)

    def _endless(self) -> bool:
        """Whether Ctrl-C is how such a run ends."""
        target = self.options.target
        return target is not None and not target.duration_seconds

    def _workloads(self, recorder: Recorder, sink: RunSink) -> None:
        if self._attached:
            self._follow_attached(self._attached, recorder, sink)
            return
        if self._command:
            self._follow_command(self._command, recorder, sink)
            return
        assert self.lab
        for protocol in self.options.protocols:
            if not self.interrupt.seen:
                self._follow_generator(self.lab, protocol, recorder, sink)

    def _follow_generator(
        self, lab: Lab, protocol: str, recorder: Recorder, sink: RunSink
    ) -> None:
        plan, log = self.options.plan, sink.folder.new_log()
        open_loop = plan.interval_ns > 0
        generator = Generator(lab, plan, protocol, log)
        totals = RoundTripTotals(protocol, len(plan.sizes), open_loop)
        sink.round_trips[protocol] = totals
        port = generator.port
        recorder.add_source(GeneratorLog(log, protocol, port, open_loop=open_loop))
        if protocol == "udp":
            recorder.capture.expect_udp()
        generator.start()
        try:
            while generator.running():
                if self.interrupt.seen:
                    generator.stop()
                lab.check()
                generator.check()
                recorder.step_for(STEP_SECONDS)
                self._show_progress(plan, totals)
        finally:
            generator.stop()
            self._finish_generator(generator, sink.folder)

    def _show_progress(self, plan: PingPong, totals: RoundTripTotals) -> None:
        protocol, sent = totals.protocol, totals.sent
        if plan.rounds:
            self._progress(protocol, sent, sent, plan.rounds * len(plan.sizes))
            return
        gone = totals.seconds_since_first()
        self._progress(protocol, sent, gone, plan.duration_seconds)
        if gone > plan.duration_seconds + TOLD_SECONDS:
            self._progress(f"{protocol}: what is late, and its replies", 0, 0, 0)

    def _finish_generator(self, generator: Generator, folder: RunFolder) -> None:
        try:
            generator.finish()
        except WorkloadError as error:
            raise folder.explain(error) from error
        finally:
            self._runs.append({"protocol": generator.protocol, **generator.result})

    def _follow_command(
        self, command: Command, recorder: Recorder, sink: RunSink
    ) -> None:
        def drain() -> None:
            self.interrupt.check()
            recorder.step_for(STEP_SECONDS)

        command.start(meanwhile=drain)
        try:
            while command.running():
                if self.interrupt.seen:
                    command.stop()
                if self.lab:
                    self.lab.check()
                recorder.step_for(STEP_SECONDS)
                self._progress("command", sink.written, 0, 0)
            command.finish()
        finally:
            self._runs.append(command.result)

    def _follow_attached(
        self, attached: Attached, recorder: Recorder, sink: RunSink
    ) -> None:
        attached.check()
        attached.start(len(recorder.capture.open_sockets))
        self._runs.append(attached.result)
        # who waits for it may begin
        sink.folder.write_json("run.json", self._describe(sink.folder, "running"))
        planned = attached.target.duration_seconds
        while attached.running() and not self.interrupt.seen:
            recorder.step_for(STEP_SECONDS)
            elapsed = attached.result["seconds"]
            self._progress("attached", sink.written, elapsed, planned)

    def _describe(self, folder: RunFolder, state: str) -> dict[str, Any]:
        return described(
            folder,
            state,
            name=self.options.name,
            arguments=self.options.arguments,
            workload=self._workload(),
            lab=self._lab(),
            capabilities=[c.as_dict() for c in self.capabilities],
        )

    def _workload(self) -> dict[str, Any]:
        own = not self.options.command and not self._attached
        return {
            "plan": asdict(self.options.plan) if own else None,
            "command": list(self.options.command),
            "server_command": self.options.server_command,
            "user": self.options.user.name if self.options.user else None,
            "attached": self._attached and self._attached.as_dict(),
            "runs": self._runs,
        }

    def _lab(self) -> dict[str, Any] | None:
        if not self.lab:
            return None
        return {
            "link": asdict(self.options.link),
            "known": self.lab.known,
            "settings": self.lab.settings,
            "addresses": {"a": self.lab.a_address, "b": self.lab.b_address},
        }
