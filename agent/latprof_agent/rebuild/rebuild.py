"""A run folder again from the recording in another one, whatever it is of."""

from __future__ import annotations

from pathlib import Path

from latprof_analysis.calling_user import calling_user
from latprof_analysis.records.recording import NAME, Recording

from latprof_agent.errors import LatprofError
from latprof_agent.live.sample_recording import KIND
from latprof_agent.rebuild.rebuild_live import rebuild_live
from latprof_agent.rebuild.rebuild_run import rebuild_run
from latprof_agent.rebuild.rebuilt import Rebuilt, check_fields, damage_in_one_line
from latprof_agent.sinks.run_place import check_free
from latprof_agent.workload.workload import Progress


def rebuild(
    run: Path, out: Path, progress: Progress, *, parquet: bool = False
) -> Rebuilt:
    """Make a run folder again from the recording in another one.

    With `parquet` its tables are written in that form, too. Raises LatprofError where
    there is none that can be read, or nothing can be written.
    """
    check_free(out, calling_user())
    if run.is_dir() and not (run / NAME).exists():
        raise LatprofError(
            f"cannot rebuild {run}: it has no {NAME}; runs without probes, with "
            "--no-recording, or of older versions have none"
        )
    recording = Recording(run / NAME)
    with damage_in_one_line(recording):
        check_fields(recording)
    rebuilds = rebuild_live if recording.header.get("kind") == KIND else rebuild_run
    return rebuilds(recording, out, progress, parquet=parquet)
