"""The percentiles of each stage, with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fits.rounds import Floats
from latprof_analysis.percentile import percentiles_in_order
from latprof_analysis.quantiles import Quantile, samples_needed
from latprof_analysis.report.parts import Cell, Table
from latprof_analysis.report.stage_rows import named_stages
from latprof_analysis.report.words import bounds, duration_text, number
from latprof_analysis.text import percent

_PERCENTILES = (0.5, 0.9, 0.99, 0.999)
# Of longer series the intervals are those of as many that are evenly spread.
_MOST_IN_ORDER = 20_000


def stage_table(
    kind: str, messages: pd.DataFrame, told: dict[str, Any] | None, *, thinned: bool
) -> Table:
    """Tell each stage's percentiles, its slowest, its share and its n.

    `told` are the figures of all messages, where the rows are a part of them.
    """
    whole = messages["end_to_end_ns"].to_numpy("float64")
    times = named_stages(messages)
    for name in ("wakeup", "end_to_end"):
        times[name] = messages[f"{name}_ns"].to_numpy("float64", na_value=np.nan)
    figures = (told or {}).get("stages") or {}
    rows = [
        _row(name, some[~np.isnan(some)], figures.get(name) or {}, float(whole.sum()))
        for name, some in times.items()
        if not np.isnan(some).all()
    ]
    part = " Intervals are those of the messages that are drawn." if thinned else ""
    n = number((told or {}).get("messages") or len(messages))
    return Table(
        f"{kind}: {n} messages",
        ["stage", "p50", "p90", "p99", "p99.9", "slowest", "share", "n"],
        rows,
        "Below each percentile its 95% interval, which allows for messages that depend "
        f"on their neighbours.{part} wakeup is part of receive_queue.",
    )


def _row(
    stage: str, values: Floats, figures: dict[str, Any], whole_ns: float
) -> list[str | Cell]:
    step = -(-values.size // _MOST_IN_ORDER)
    found = percentiles_in_order(values[::step], _PERCENTILES)
    n = figures.get("n") or values.size
    slowest = figures.get("max_ns") or values.max()
    share = figures.get("share_of_end_to_end")
    if share is None and whole_ns > 0:
        share = float(values.sum()) / whole_ns
    return [
        f"of which {stage}" if stage == "wakeup" else stage,
        *(_cell(one, figures.get(f"p{100 * one.p:g}_ns"), n) for one in found),
        duration_text(float(slowest)),
        percent(share),
        number(n),
    ]


def _cell(one: Quantile, told_ns: float | None, n: int) -> Cell:
    needed = samples_needed(one.p)
    if n < needed:
        return Cell("-", f"needs n {number(needed)}")
    return Cell(duration_text(one.value if told_ns is None else told_ns), bounds(one))
