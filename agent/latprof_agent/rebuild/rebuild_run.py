"""A run again from its recording: rows and figures, as this version makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from latprof_analysis.read.paths import opened_as_is
from latprof_analysis.records.recording import (
    PERIODS,
    Recording,
    Step,
)

from latprof_agent.capture.recorded_flights import QUEUES, RecordedFlights
from latprof_agent.rebuild.rebuilt import (
    BREAKS_OFF,
    KILLED,
    Rebuilt,
    damage_in_one_line,
    ephemeral_ports,
    said_of,
)
from latprof_agent.rebuild.recorded_run import (
    RecordedCapture,
    RecordedCost,
    RecordedSources,
)
from latprof_agent.recorder import Recorder
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_description import with_counts
from latprof_agent.sinks.run_files import NAMES_MODE, TABLES, RunFolder
from latprof_agent.sinks.run_tables import RunTables
from latprof_agent.sinks.run_totals import RunTotals
from latprof_agent.sinks.summary import summarize
from latprof_agent.story.stories import Stories
from latprof_agent.workload.workload import Progress

_OF_WORKLOADS = (".csv", ".log", ".txt")


class _Replay:
    """Takes the steps of a recording, and does what the run did with them.

    `description` is what the run said of itself last, `end` what it added in the end;
    None: it came to none.
    """

    def __init__(self, recording: Recording, folder: RunFolder) -> None:
        ports = ephemeral_ports(recording)
        self._cost = RecordedCost()
        self.capture = RecordedCapture(recording.layout, ports, self._cost)
        self.totals = RunTotals()
        sinks = [RunTables(folder), self.totals]
        self.recorder = Recorder(self.capture, sinks, recording.header["pieces"])
        self.description: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self.stories: Stories | None = None
        self._flights: RecordedFlights | None = None
        header = recording.header
        if header["story_ns"] is not None:
            flights = RecordedFlights(
                recording.layout,
                header["architecture"],
                int(header["jiffy_ns"]),
                self.capture.counted,
            )
            joiner = self.recorder.joiner
            self.capture.flight = self._flights = flights
            self.stories = Stories(header["story_ns"], flights, joiner)
            self.recorder.sinks.append(self.stories)
        self._sources = RecordedSources(self.recorder)
        self._ends = False

    def take(self, step: Step) -> None:
        """Do what was done in it."""
        for note in step.notes:
            self._take_note(note, step)
        self._cost.add(step.beside[PERIODS])
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
        flights = self._flights
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
        self._cost.figures = end["probe_cost"]
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
    passed, tally = replay.recorder.joiner.path_devices, replay.totals.tally
    said = end["description"]
    description = with_counts(said, tally, passed.as_list(), end["link"])
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
