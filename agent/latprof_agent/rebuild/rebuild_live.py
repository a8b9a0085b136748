"""A recording of `watch` again: rows of its sample, and its histograms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from latprof_analysis.calling_user import calling_user
from latprof_analysis.records.recording import Recording, Step
from latprof_analysis.stats.kernel_histogram import CoarseHistogram

from latprof_agent.live.live_folder import LiveFolder
from latprof_agent.live.recording import figures
from latprof_agent.monitor.sample_rows import SampledMessages, SampleRows
from latprof_agent.monitor.totals import Group, Quantity, Totals
from latprof_agent.monitor.totals_json import of_json
from latprof_agent.rebuild.rebuilt import (
    BREAKS_OFF,
    KILLED,
    Rebuilt,
    damage_in_one_line,
    ephemeral_ports,
    said_of,
)
from latprof_agent.workload.workload import Progress

_HISTOGRAMS = dict[tuple[Group, Quantity], CoarseHistogram]


class _Replay:
    """Takes the steps of a recording, and fills a folder with them."""

    def __init__(self, recording: Recording, folder: LiveFolder) -> None:
        self._recording = recording
        self._folder = folder
        self._sample = self._new_sample()
        self._totals: Totals | None = None  # since the start, as far as it is known
        self._run: dict[str, Any] = {}
        self._end: dict[str, Any] | None = None
        self.records = 0

    def _new_sample(self) -> SampleRows:
        recording = self._recording
        role = int(recording.header["server_role"])
        return SampleRows(recording.layout, role, ephemeral_ports(recording))

    def take(self, step: Step) -> None:
        """Do what was done in it."""
        processes: dict[int, str] = {}
        for note in step.notes:
            match note:
                case {"processes": found}:
                    processes = {int(pid): str(name) for pid, name in found}
                case {"anew": True}:
                    self._sample = self._new_sample()
                case {"finish": True}:
                    self._add_messages(self._sample.finish())
                case {"running": run}:
                    self._run = run
                case {"histograms": found, "begin_ns": begin, "end_ns": end}:
                    self._folder.add_histograms(of_json(_HISTOGRAMS, found), begin, end)
                case {"end": end}:
                    self._end = end
                case {"clock_sources": _}:  # for who joins hosts
                    pass
                case _:
                    raise ValueError(f"a note of {', '.join(note)}")
            if "totals" in note:
                self._totals = of_json(Totals, note["totals"])
        if step.drained_ns is None:
            return
        batch, sample = step.rings, self._sample
        self.records += sum(map(len, batch.values()))
        sample.name(batch, processes)
        self._add_messages(sample.messages(batch, step.drained_ns))
        if exchanged := sample.exchanges(batch):
            self._folder.add_exchanges(exchanged.rows(sample.joiner))

    def _add_messages(self, found: SampledMessages | None) -> None:
        if found:
            self._folder.add_messages(found.rows)

    def finish(self) -> dict[str, Any]:
        """Write the documents; return summary.json."""
        end = self._end or {"run": self._run | {"state": KILLED, "failure": None}}
        run = end["run"] | said_of(self._recording, self._folder.path)
        run["sampled"] = self._folder.sampled
        if self._totals and not self._end:
            run["workload"]["runs"] = [{"seconds": self._totals.own.seconds}]
        totals = replace(self._totals or Totals(), capabilities=run["capabilities"])
        more: dict[str, Any] = figures(totals) if self._totals else {}
        is_whole = self._end and not self._recording.cut_off
        warnings = [] if is_whole else [BREAKS_OFF]
        return self._folder.write(run, totals, more, end.get("cost", {}), warnings)


def rebuild_live(
    recording: Recording, out: Path, progress: Progress, *, parquet: bool
) -> Rebuilt:
    """Make the folder of `watch --record` again; see `rebuild.rebuild`."""
    folder = LiveFolder(out, calling_user())
    try:
        with damage_in_one_line(recording):
            replay = _Replay(recording, folder)
            for step in recording.steps():
                replay.take(step)
                progress("rebuilding", replay.records, recording.share(), 1)
            if folder.failure:
                raise folder.failure
            summary = replay.finish()
            if parquet:
                folder.write_parquet()
    except BaseException:
        folder.remove()
        raise
    folder.close()
    return Rebuilt(folder.path, summary, is_live=True)
