"""The stage model: stamps of a message and the stages between them.

A stamp that could not be taken is missing. Then two stages become one: its
time stands in the later of the two, the earlier is blank, so the stages that
are there always sum to end_to_end, to the nanosecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

STAMPS = ("created", "send", "queue", "xmit", "arrive", "ready", "read")
STAGES = (
    "application",
    "send_queue",
    "qdisc",
    "transit",
    "receive_stack",
    "receive_queue",
)
BLANK = np.iinfo(np.int64).min
# Column: 1 where a message may have met the measuring of latprof's own cost, which
# makes it slower. It counts as any other, but is in no percentile and no fit.
PROBE_STATISTICS = "probe_statistics"

Stamps = dict[str, NDArray[np.int64]]


def stages_of(stamps: Stamps) -> dict[str, NDArray[np.int64]]:
    """Compute all stages and end_to_end from stamps, 0 where missing.

    Parameters
    ----------
    stamps : dict of name to array, shape (n,)
        One array per name in STAMPS, CLOCK_MONOTONIC in ns.

    Returns
    -------
    dict of name to array, shape (n,)
        STAGES and ``end_to_end`` in ns, BLANK where there is none.
    """
    stages: dict[str, NDArray[np.int64]] = {}
    since = stamps["created"]
    first = since
    for stage, stamp in zip(STAGES, STAMPS[1:], strict=True):
        until = stamps[stamp]
        stages[stage] = np.where((since > 0) & (until > 0), until - since, BLANK)
        since = np.where(until > 0, until, since)
        first = np.where(first > 0, first, until)
    read = stamps["read"]
    whole = (read > 0) & (first > 0) & ((stamps["created"] > 0) | (stamps["send"] > 0))
    stages["end_to_end"] = np.where(whole, read - first, BLANK)
    return stages


def merged_name(stage: str, stamps: dict[str, bool]) -> str:
    """Name a stage by those it stands for: all since the last stamp present."""
    last = STAGES.index(stage)
    start = last
    while start > 0 and not stamps[STAMPS[start]]:
        start -= 1
    return "+".join(STAGES[start : last + 1])


def missing_code(stamps: Stamps) -> NDArray[np.uint8]:
    """One bit per missing stamp, so that rows can be grouped by what they lack."""
    code: Any = 0
    for bit, stamp in enumerate(STAMPS):
        code = code | ((stamps[stamp] <= 0).astype(np.uint8) << bit)
    return np.asarray(code, np.uint8)
