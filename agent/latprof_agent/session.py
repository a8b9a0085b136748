"""One run: a workload, mostly in a lab, and a recorder that fills the run folder."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from latprof_analysis.calling_user import calling_user
from latprof_analysis.study.setup import overloads
from latprof_analysis.study.ways import other_hosts

from latprof_agent import netns
from latprof_agent.capture.capture import Capture, open_capture
from latprof_agent.capture.cost import AgentCost
from latprof_agent.capture.recorded_flights import Flights, WitnessedFlights
from latprof_agent.capture.recording_writer import (
    RecordingWriter,
    recording_header,
    rings_of,
)
from latprof_agent.errors import (
    LatprofError,
    WorkloadError,
    close_after,
    refusals_in_one_line,
)
from latprof_agent.interrupts import Interrupt
from latprof_agent.lab.interface import check_congestion
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from latprof_agent.probes import catalogue
from latprof_agent.probes.catalogue import (
    PROBES,
    STORIES,
    Capability,
    Need,
    Probe,
)
from latprof_agent.probes.flight_probes import FLIGHT_PROBES
from latprof_agent.recorder import Recorder
from latprof_agent.sinks.run_description import described, with_counts
from latprof_agent.sinks.run_files import NAMES_MODE, TABLE_MODE, TABLES, RunFolder
from latprof_agent.sinks.run_place import check_free
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.sinks.sink import Sink
from latprof_agent.sinks.summary import OTHER_RECORDINGS, summarize
from latprof_agent.story.stories import Stories
from latprof_agent.workload.other_halves import fetch_halves
from latprof_agent.workload.workload import Plan, Progress, RunContext, Workload

Notice = Callable[[str], None]  # what the user should know before the run is over

SETTLE_SECONDS = 0.1  # for packets on the way when the generator ends


@dataclass(frozen=True)
class RunOptions:
    """What `latprof run` was asked for, checked."""

    link: LinkSpec
    plan: Plan
    protocols: tuple[str, ...]
    record: bool = True  # False: the same run without probes, to compare with
    recording: bool = True  # keep what it was made from
    pieces: bool = False  # a row for each send call of the generator
    ring_bytes: int | None = None
    responder_bytes: int = 1 << 30  # of what another host recorded, at most
    out: Path | None = None
    name: str = ""
    parquet: bool = False
    # messages that take as long get stories; 0: above the running p99.9; None: none
    story_ns: int | None = None
    arguments: tuple[str, ...] = ()


@dataclass
class Outcome:
    """What a run found, and what stopped it if something did."""

    folder: Path
    summary: dict[str, Any]
    failure: LatprofError | None = None


def check(options: RunOptions) -> None:
    """Refuse what this host cannot do, or write, before anything is made."""
    check_free(options.out, calling_user())
    options.plan.check_host()
    if options.link.congestion:
        netns.run_in_new(partial(check_congestion, options.link.congestion))


def run(
    options: RunOptions,
    progress: Progress,
    interrupt: Interrupt,
    table: tuple[Probe, ...] = PROBES,
    *,
    notice: Notice = lambda _text: None,
) -> Outcome:
    """Do one run; raises LatprofError only where nothing was recorded."""
    check(options)
    if options.story_ns is not None:
        table = (*table, *FLIGHT_PROBES)
    with ExitStack() as stack:
        in_lab = options.plan.in_lab
        # what runs already is looked for first
        workload = None if in_lab else _open(options, None, stack)
        if workload:
            workload.make_ready(interrupt, progress)
        capabilities = _capabilities(options, workload, table)
        interrupt.check()
        lab = stack.enter_context(_lab_of(options)) if in_lab else None
        interrupt.check()
        workload = workload or _open(options, lab, stack)
        session = _Session(options, capabilities, interrupt, progress, lab, workload)
        for text in session.overloads():
            notice(text)
        return session.run(table)


def _lab_of(options: RunOptions) -> Lab:
    return Lab(options.link, hosts=options.plan.hosts)


def _open(options: RunOptions, lab: Lab | None, stack: ExitStack) -> Workload:
    workload = options.plan.open(lab)
    stack.push(lambda _kind, error, _trace: close_after(error, workload.close))
    return workload


def _capabilities(
    options: RunOptions, workload: Workload | None, table: tuple[Probe, ...]
) -> list[Capability]:
    if not options.record:
        return []
    needs: frozenset[Need] = frozenset(() if options.story_ns is None else {STORIES})
    if workload:
        needs |= workload.watched(options.protocols).needs
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
        workload: Workload,
    ) -> None:
        self.options = options
        self.capabilities = capabilities
        self.lab = lab
        self.interrupt = interrupt
        self._workload = workload
        self._progress = progress
        self._cost = AgentCost()
        self._halves: dict[str, Any] = {name: [] for name in OTHER_RECORDINGS}

    def run(self, table: tuple[Probe, ...]) -> Outcome:
        """Record the workload, then sum up, whatever happens between."""
        protocols = self.options.protocols if self.options.record else ()
        with open_capture(
            self._workload.watched(protocols),
            self.capabilities,
            table,
            self.options.ring_bytes,
            story_ns=self.options.story_ns,
        ) as capture:
            self.capabilities = capture.capabilities
            trips = {"round_trips": self.options.plan.round_trip_columns}
            folder = RunFolder(
                self.options.out, self.options.name, tables=TABLES | trips
            )
            try:
                return self._record(capture, folder)
            except BaseException:
                self._say_end(folder)
                raise
            finally:
                folder.close()

    def _say_end(self, folder: RunFolder) -> None:
        """Let nobody believe that a run without a summary still goes on."""
        state = "interrupted" if self.interrupt.seen else "failed"
        with suppress(LatprofError):
            folder.write_json("run.json", self._describe(folder, state))

    def overloads(self) -> list[str]:
        """Say what is known to go wrong before anything is sent."""
        plan = {"workload": self._described_workload(), "lab": self._lab()}
        return list(overloads(plan, self.options.protocols))

    def _record(self, capture: Capture, folder: RunFolder) -> Outcome:
        totals = RunTotals()
        sinks: list[Sink] = [RunTables(folder), totals]
        recording = self._open_recording(capture, folder)
        recorder = Recorder(capture, sinks, self.options.pieces, recording)
        stories = witness = None
        if capture.flight and self.options.story_ns is not None:
            flights: Flights = capture.flight
            if recording:
                flights = witness = WitnessedFlights(capture.flight, recording)
            stories = Stories(self.options.story_ns, flights, recorder.joiner)
            recorder.sinks.append(stories)
        failure: LatprofError | None = None
        try:
            with refusals_in_one_line("cannot record"):
                self._say_running(recorder, folder)
                capture.start()
                self._workload.follow(self._scene(capture, recorder, folder, totals))
                recorder.step_for(SETTLE_SECONDS)
        except LatprofError as error:
            failure = error
        try:
            with refusals_in_one_line("cannot finish the recording"):
                capture.stop()
                recorder.finish()
                sent = any(trips.sent for trips in totals.round_trips.values())
                seen = recorder.records or sent or self._workload.may_see_nothing
                if self.interrupt.seen and not seen:
                    self.interrupt.check()
        except LatprofError as error:
            failure = failure or error
        if failure and not self._measured(totals):
            folder.discard()
            raise failure
        self._fetch_halves(folder)
        document = stories.document() if stories else None
        if witness:
            witness.finish()
        return self._sum_up(folder, totals, recorder, failure, document)

    def _open_recording(
        self, capture: Capture, folder: RunFolder
    ) -> RecordingWriter | None:
        """Begin the recording, if there is to be one."""
        options = self.options
        if not (options.record and options.recording):
            return None
        header = recording_header(
            capture.layout,
            self.capabilities,
            capture.ephemeral_ports,
            watched=str(self._workload.watched(options.protocols)),
            pieces=options.pieces,
            story_ns=options.story_ns,
            jiffy_ns=capture.flight.jiffy_ns if capture.flight else None,
            round_trip_columns=options.plan.round_trip_columns,
        )
        stories = capture.flight is not None
        rings = rings_of(capture.layout, stories=stories)
        write = folder.open_recording(NAMES_MODE if stories else TABLE_MODE)
        return RecordingWriter(write, rings, header)

    def _fetch_halves(self, folder: RunFolder) -> None:
        """Ask the other ends for what they recorded, to be joined with our recording.

        Before the room that is reserved for our own documents is given back.
        """
        ends = self._workload.other_ends()
        if ends and self.options.record and self.options.recording:
            self._halves = fetch_halves(
                ends,
                folder,
                self.options.responder_bytes,
                TABLE_MODE if self.options.story_ns is None else NAMES_MODE,
                lambda _bytes: self._progress("other hosts' recordings", 0, 0, 0),
            )

    def _measured(self, totals: RunTotals) -> bool:
        """Whether a host that should answer did: a run without is no measurement."""
        if not other_hosts(self._workload.as_dict()):
            return True
        figures = self._workload.figures()
        return bool(
            totals.messages.kinds
            or any(trips.sent for trips in totals.round_trips.values())
            or figures.get("bulk", {}).get("parts")
            or figures.get("ops", {}).get("cells")
        )

    def _sum_up(
        self,
        folder: RunFolder,
        totals: RunTotals,
        recorder: Recorder,
        failure: LatprofError | None,
        stories: dict[str, Any] | None,
    ) -> Outcome:
        counters = None
        folder.free_logs()
        failure = failure or folder.failure
        try:
            with refusals_in_one_line("cannot read the link's counters"):
                counters = self.lab.counters() if self.lab else None
        except LatprofError as error:
            # a workload whose link is gone can but fail, whatever it says
            no_link = failure is None or isinstance(failure, WorkloadError)
            failure = error if no_link else failure
        state = "failed" if failure else "done"
        if self.interrupt.seen and not failure and not self._workload.endless:
            state = "interrupted"
        written = self._describe(folder, state) | {
            "failure": str(failure) if failure else None,
            "link_counters": counters,
            **self._halves,
        }
        link = self.lab.interface if self.lab else ""
        figures, cost = self._workload.figures(), self._cost.as_dict()
        end = {"link": link, "description": written, "figures": figures, "cost": cost}
        recorder.end_recording(**end)
        description = with_counts(
            written, totals.tally, recorder.joiner.path_devices.as_list(), link
        )
        self._progress("summing up", 0, 0, 0)
        summary = summarize(totals, description, cost) | figures
        try:
            folder.write_json("run.json", description)
            folder.write_json("summary.json", summary)
            self._workload.write(folder)
            if stories:
                folder.write_json("stories.json", stories, NAMES_MODE)
            folder.finish_tables()  # last, or it might leave no room for the others
            if self.options.parquet:
                folder.write_parquet()
        except LatprofError as error:
            failure = failure or error
            summary["failure"] = str(failure)
        return Outcome(folder.path, summary, failure)

    def _scene(
        self,
        capture: Capture,
        recorder: Recorder,
        folder: RunFolder,
        totals: RunTotals,
    ) -> RunContext:
        return RunContext(
            capture,
            recorder,
            folder,
            totals,
            self.options.protocols,
            self.lab,
            self.interrupt,
            self._progress,
            partial(self._say_running, recorder, folder),
        )

    def _say_running(self, recorder: Recorder, folder: RunFolder) -> None:
        description = self._describe(folder, "running")
        recorder.note(running=description)
        folder.write_json("run.json", description)

    def _describe(self, folder: RunFolder, state: str) -> dict[str, Any]:
        return described(
            folder,
            state,
            name=self.options.name,
            arguments=self.options.arguments,
            workload=self._described_workload(),
            lab=self._lab(),
            capabilities=[c.as_dict() for c in self.capabilities],
        )

    def _described_workload(self) -> dict[str, Any]:
        return {
            "kind": self.options.plan.kind,
            "plan": None,
            "command": [],
            "server_command": "",
            "user": None,
            "attached": None,
            "mesh": None,
            **self._workload.as_dict(),
            "runs": self._workload.runs,
        }

    def _lab(self) -> dict[str, Any] | None:
        if not self.lab:
            return None
        return {
            "link": asdict(self.options.link),
            "known": self.lab.known,
            "settings": self.lab.settings,
            "addresses": {host: self.lab.address_of(host) for host in self.lab.hosts},
        }
