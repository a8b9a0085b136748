"""Waits in which a task could run, and its control group's CPU quota was used up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.story.fields import field_text
from latprof_analysis.text import duration

QUOTA_WAITS = "quota_waits"


class Throttled(NamedTuple):
    """The part of a wait in which a quota was used up, and whose that is."""

    begin_ns: int
    end_ns: int
    what: str


def throttled(
    rings: Mapping[str, NDArray[Any]],
    thread: int,
    wait: tuple[int, int],
    from_begin: bool,
) -> Throttled | None:
    """Find the part of a wait in which a thread's group was throttled on its CPU.

    Parameters
    ----------
    rings : mapping of str to records
        As of a `Flight`; ``quota_waits`` has one of each long wait of whom a quota
        may hold.
    thread : int
    wait : tuple of int
        Begin and end, ns; at the end the thread got a CPU.
    from_begin : bool
        The group was throttled already when the wait began.

    Returns
    -------
    Throttled or None
        None: it was not, or that is not known. Where a group is throttled since before
        a wait, and its thread was not seen to begin it then, that is not known. The end
        is the last begin of a period, which gives a quota anew, or that of the wait.
    """
    begin_ns, end_ns = wait
    records = rings.get(QUOTA_WAITS)
    if records is None:  # of an older recording
        return None
    mine = (records["thread"] == thread) & (records["t_ns"] == np.uint64(end_ns))
    for record in records[mine]:
        since_ns = begin_ns if from_begin else int(record["throttled_ns"])
        if not begin_ns <= since_ns < end_ns:
            return None
        return Throttled(since_ns, _until(record, since_ns, end_ns), _words(record))
    return None


def _until(record: Any, since_ns: int, end_ns: int) -> int:
    period_ns, begins_ns = int(record["period_ns"]), int(record["period_end_ns"])
    if period_ns <= 0:
        return end_ns
    last_ns = begins_ns + (end_ns - begins_ns) // period_ns * period_ns
    return last_ns if since_ns < last_ns <= end_ns else end_ns


def _words(record: Any) -> str:
    name = field_text(record["name"])
    quota, period = (duration(int(record[f"{of}_ns"])) for of in ("quota", "period"))
    return f"by the CPU quota of control group {name}: {quota} in each {period}"
