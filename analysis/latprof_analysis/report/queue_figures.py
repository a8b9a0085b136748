"""Wait against the queue that was met at arrival."""

from __future__ import annotations

import numpy as np
import pandas as pd

from latprof_analysis.fits.rounds import Floats
from latprof_analysis.report.marks import (
    Scale,
    bytes_expr,
    duration_axis,
    duration_expr,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.parts import Chart, Figure, Missing, Spec
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import number, slug
from latprof_analysis.waiting import Waiting, wait_by_queue

_MOST_SCATTERED = 1200
_SEED = 1


def queue_figure(kind: str, queue: Floats, wait_ns: Floats) -> Figure | Missing:
    """Draw the wait in the receive queue against what stood there at arrival."""
    title = f"{kind}: queue at arrival against wait"
    try:
        line = wait_by_queue(queue, wait_ns)
    except ValueError as error:
        return Missing(title, str(error))
    drawn = np.arange(queue.size)
    if queue.size > _MOST_SCATTERED:
        rng = np.random.default_rng(_SEED)
        drawn = np.sort(rng.choice(queue.size, _MOST_SCATTERED, replace=False))
    data = pd.DataFrame({"queue_bytes": queue[drawn], "wait_ns": wait_ns[drawn]})
    return Figure(
        name=f"queue-{slug(kind)}",
        title=f"{kind}: {_finding(line)}",
        caption=_queue_caption(line, drawn.size),
        alt=f"Wait in the receive queue against the bytes that stood in it, {kind}: "
        f"rank correlation {line.rank_correlation:.2f}.",
        data=data,
        charts=[Chart(_queue_scales(line, float(queue.max())))],
        wide=True,
    )


def _finding(line: Waiting) -> str:
    if line.slope_low <= 0 <= line.slope_high:
        return "no evidence that a longer queue at arrival means a longer wait"
    return f"each byte in the queue at arrival adds {line.slope:.3g} ns of wait"


def _queue_caption(line: Waiting, drawn: int) -> str:
    shown = "" if drawn == line.n else f" ({number(drawn)} drawn at random are shown)"
    return (
        f"Line: median of the slopes of all pairs, {line.slope:.3g} ns a byte [95%: "
        f"{line.slope_low:.3g} to {line.slope_high:.3g}]; rank correlation "
        f"{line.rank_correlation:.2f} [{line.correlation_low:.2f} to "
        f"{line.correlation_high:.2f}], n {number(line.n)}{shown}. Intervals hold for "
        "messages that do not depend on each other."
    )


def _queue_scales(line: Waiting, longest: float) -> dict[str, Spec]:
    ends = [
        {"queue_bytes": x, "wait_ns": line.intercept + line.slope * x}
        for x in np.linspace(0, longest, 40).tolist()
    ]
    scales: tuple[Scale, ...] = ("linear", "log")
    return {scale: _queue_spec(ends, scale) for scale in scales}


def _queue_spec(ends: list[dict[str, float]], scale: Scale) -> Spec:
    label = bytes_expr("datum.value")
    x = {
        "field": "queue_bytes",
        **number_axis("bytes in the receive queue at arrival", labelExpr=label),
    }
    y = {"field": "wait_ns", **duration_axis("wait in the receive queue", scale)}
    positive = [{"filter": "datum.wait_ns > 0"}] if scale == "log" else []
    points: Spec = {
        "mark": {
            "type": "point",
            "filled": True,
            "size": 16,
            "opacity": 0.6,
            "color": colour("mark"),
            "aria": False,
        },
        "encoding": {
            "x": x,
            "y": y,
            "tooltip": tooltip({"stood": "in the queue", "wait": "wait"}),
        },
    }
    line: Spec = {
        "data": {"values": ends},
        "transform": positive,
        "mark": {"type": "line", "color": colour("mark-2"), "clip": True},
        "encoding": {"x": x, "y": y},
    }
    texts = written(
        stood=bytes_expr("datum.queue_bytes"), wait=duration_expr("datum.wait_ns")
    )
    return {"height": 260, "transform": [*positive, *texts], "layer": [points, line]}
