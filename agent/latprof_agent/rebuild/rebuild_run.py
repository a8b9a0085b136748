"""A run again from its recording: rows and figures, as this version makes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.read.paths import opened_as_is
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.recording import (
    PERIODS,
    Log,
    Recording,
    RecordLayout,
    Step,
)
from numpy.typing import NDArray

from latprof_agent.capture.recorded_flights import QUEUES, RecordedFlights
from latprof_agent.rebuild.rebuilt import (
    BREAKS_OFF,
    KILLED,
    Rebuilt,
    damage_in_one_line,
    ephemeral_ports,
    said_of,
)
from latprof_agent.recorder import Recorder, Source
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_description import with_counts
from latprof_agent.sinks.run_files import NAMES_MODE, TABLES, RunFolder
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.sinks.summary import summarize
from latprof_agent.story.stories import Stories
from latprof_agent.workload.generator_log import GeneratorLog
from latprof_agent.workload.measured_time import MeasuredTime
from latprof_agent.workload.mesh_log import MeshEnds, MeshLog
from latprof_agent.workload.workload import Progress

_OF_WORKLOADS = (".csv", ".log", ".txt")


class _RecordedCost:
    """When the probes' cost was measured, as far as the recording was read."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._periods: dict[int, int] = {}

    def add(self, periods: NDArray[Any]) -> None:
        """Take in new ones; the last one's end may be another now."""
        self._periods |= zip(
            periods["from_ns"].tolist(), periods["until_ns"].tolist(), strict=True
        )

    def periods(self) -> NDArray[np.int64]:
        """All of them."""
        return np.array(list(self._periods.items()), "i8").reshape(-1, 2)

    def as_dict(self) -> dict[str, float]:
        """What the run said in the end."""
        return self.figures


@dataclass
class _RecordedCapture:
    """Gives the records of one step after the other."""

    layout: RecordLayout
    ephemeral_ports: range
    cost: _RecordedCost = field(default_factory=_RecordedCost)
    drained_ns: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    batch: Batch = field(default_factory=dict)
    flight: RecordedFlights | None = None

    def read(self) -> Batch:
        """Give those of this step."""
        return self.batch

    def counters(self) -> dict[str, int]:
        """What was counted until this step."""
        return dict(self.counted)

    def check(self) -> None:
        """There is nothing that could fail."""


class _RecordedLog:
    """A log whose pieces come one by one."""

    def __init__(self) -> None:
        self.fresh = b""

    def __call__(self, _offset: int) -> bytes:
        fresh, self.fresh = self.fresh, b""
        return fresh


class _Sources:
    """Makes what knew of messages beside the probes, and gives each its logs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._sources: list[Source] = []
        self._logs: list[list[_RecordedLog]] = []

    def add(self, kind: str, **words: Any) -> None:
        """One begins to be asked."""
        logs: list[_RecordedLog] = []
        if kind == "generator":
            logs.append(_RecordedLog())
            self._begin(GeneratorLog(logs[0], **words), logs)
        elif kind == "mesh":
            places = {
                (address, port): host for address, port, host in words["responders"]
            }
            of = words["names"], places, words["senders"], words["otherwise"]
            protocol, one_clock = words["protocol"], words["one_clock"]
            self._begin(MeshLog(protocol, MeshEnds(*of), one_clock=one_clock), logs)
        elif kind == "measured time":
            self._begin(MeasuredTime(**words), logs)
        else:
            raise ValueError(f"a source of kind {kind}")

    def _begin(self, source: Source, logs: list[_RecordedLog]) -> None:
        self._sources.append(source)
        self._logs.append(logs)
        self._recorder.add_source(source)

    def call(self, number: int, name: str, *arguments: Any) -> None:
        """Say to one what was said to it then."""
        source, logs = self._sources[number], self._logs[number]
        if isinstance(source, MeshLog) and name == "begin":
            logs[:] = [_RecordedLog() for _ in range(source.hosts)]
            begin_ns, *start_ns = arguments  # of a recording of before none
            source.begin(begin_ns, logs, *start_ns)
        elif name in ("begin", "end", "counts", "is_void"):
            getattr(source, name)(*arguments)
        else:
            raise ValueError(f"a call of {name}")
        source.calls.clear()

    def put(self, logs: list[Log]) -> None:
        """Let them read this next."""
        for source, number, data in logs:
            self._logs[source][number].fresh += data


class _Replay:
    """Takes the steps of a recording, and does what the run did with them.

    `description` is what the run said of itself last, `end` what it added in the end;
    None: it came to none.
    """

    def __init__(self, recording: Recording, folder: RunFolder) -> None:
        ports = ephemeral_ports(recording)
        self.capture = _RecordedCapture(recording.layout, ports)
        self.totals = RunTotals()
        sinks = [RunTables(folder), self.totals]
        self.recorder = Recorder(self.capture, sinks, recording.header["pieces"])
        self.description: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self.stories: Stories | None = None
        header = recording.header
        if header["story_ns"] is not None:
            flights = RecordedFlights(
                recording.layout,
                header["architecture"],
                int(header["jiffy_ns"]),
                self.capture.counted,
            )
            joiner = self.recorder.joiner
            self.capture.flight = flights
            self.stories = Stories(header["story_ns"], flights, joiner)
            self.recorder.sinks.append(self.stories)
        self._sources = _Sources(self.recorder)
        self._ends = False

    def take(self, step: Step) -> None:
        """Do what was done in it."""
        for note in step.notes:
            self._take_note(note, step)
        self.capture.cost.add(step.beside[PERIODS])
        self._sources.put(step.logs)
        if step.drained_ns is not None:
            self.capture.drained_ns = step.drained_ns
            self.capture.batch = step.rings
            self.recorder.join()
        elif self._ends:
            self.recorder.end()
            self._ends = False
        else:  # also without a new line: what a source held may count from now on
            self.recorder.read_sources()

    def _take_note(self, note: dict[str, Any], step: Step) -> None:
        flights = self.capture.flight
        match note:
            case {"source": described}:
                self._sources.add(**described)
            case {"of_source": number, "call": call}:
                self._sources.call(number, *call)
            case {"round_trips": described, "loaded": loaded}:
                totals = RoundTripTotals(**described)
                self.totals.expect(totals, loaded=loaded)
            case {"counters": counted}:
                self.capture.counted |= counted
            case {"copy": _} if flights:
                flights.take_copy(note, step.rings)
            case {"asked": asked} if flights:
                flights.take_answer(*asked)
            case {"names": names} if flights:
                flights.take_names(names, step.rings[QUEUES])
            case {"running": description}:
                self.description = description
            case {"end": True}:
                self._ends = True
            case {"run": end}:
                self.end = end
            case {"clock_sources": _}:  # for who joins hosts
                pass
            case _:
                raise ValueError(f"a note of {', '.join(note)}")

    def finish(self) -> dict[str, Any]:
        """Give out what is left, and return what the run said in the end."""
        end = self.end
        if not end:
            self.recorder.end()
            end = {"link": "", "figures": {}, "cost": {}, "probe_cost": {}}
            unknown = {"failure": None, "link_counters": None}
            end["description"] = self.description | {"state": KILLED} | unknown
        self.capture.cost.figures = end["probe_cost"]
        self.recorder.end_sinks()
        return end


def rebuild_run(
    recording: Recording, out: Path, progress: Progress, *, parquet: bool
) -> Rebuilt:
    """Make the folder of `run` or `echo` again; see `rebuild.rebuild`."""
    with damage_in_one_line(recording):
        columns = {
            "round_trips": tuple(map(str, recording.header["round_trip_columns"]))
        }
    folder = RunFolder(out, tables=TABLES | columns)
    try:
        with damage_in_one_line(recording):
            replay = _Replay(recording, folder)
            for step in recording.steps():
                replay.take(step)
                progress("rebuilding", replay.recorder.records, recording.share(), 1)
            end = replay.finish()
            if folder.failure:
                raise folder.failure
            made = _write(replay, folder, end, recording)
            folder.finish_tables()
            if parquet:
                folder.write_parquet()
            return made
    except BaseException:
        folder.discard()
        raise
    finally:
        folder.close()


def _write(
    replay: _Replay, folder: RunFolder, end: dict[str, Any], recording: Recording
) -> Rebuilt:
    paths, tally = replay.recorder.joiner.path_devices, replay.totals.tally
    description = with_counts(end["description"], tally, paths, end["link"])
    description |= said_of(recording, folder.path)
    summary = summarize(replay.totals, description, end["cost"]) | end["figures"]
    if not summary["cost"]:
        del summary["cost"]  # the run did not come to say it
    if recording.cut_off or description["state"] == KILLED:
        summary["warnings"].append(BREAKS_OFF)
    folder.write_json("run.json", description)
    folder.write_json("summary.json", summary)
    if replay.stories:
        folder.write_json("stories.json", replay.stories.document(), NAMES_MODE)
    _copy_others(recording.path.parent, folder)
    return Rebuilt(folder.path, summary)


def _copy_others(run: Path, folder: RunFolder) -> None:
    """Copy what a workload wrote itself: it comes from no probe."""
    for path in sorted(run.iterdir()):
        others = path.suffix in _OF_WORKLOADS and path.is_file()
        if others and not path.is_symlink() and not (folder.path / path.name).exists():
            with opened_as_is(path) as file:
                folder.copy(path.name, file)
