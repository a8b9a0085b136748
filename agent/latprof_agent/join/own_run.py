"""A run joined at its end with what other hosts recorded of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from latprof_analysis.records.recording import NAME
from latprof_analysis.text import plural

from latprof_agent.errors import LatprofError
from latprof_agent.join.join import JoinOptions, join
from latprof_agent.sinks.summary import OTHER_RECORDINGS
from latprof_agent.workload.workload import Progress

JOINED = "joined"  # a run folder in the run's own


def joined_with_others(
    folder: Path,
    summary: dict[str, Any],
    progress: Progress,
    warn: Callable[[str], object],
) -> dict[str, Any]:
    """Join a run with the recordings of others that it was given; return its summary.

    That is the run's own, where there are none or they cannot be joined, which `warn`
    says then: nothing of the run is lost by it.
    """
    others = [
        folder / one["file"]
        for name in OTHER_RECORDINGS
        for one in summary.get(name) or ()
        if one["file"]
    ]
    if not others:
        return summary
    own = folder / NAME
    options = JoinOptions(reference=str(own), one_boot=True)
    try:
        made = join([own, *others], folder / JOINED, progress, options)
    except LatprofError as error:
        what = plural(len(others), "other host")
        warn(f"the recording of {what} is kept, and not joined: {error}")
        return summary
    warnings = [*summary["warnings"], *made.summary["warnings"]]
    return made.summary | {
        "cost": summary["cost"],
        "warnings": list(dict.fromkeys(warnings)),
        **{name: summary.get(name) or [] for name in OTHER_RECORDINGS},
    }
