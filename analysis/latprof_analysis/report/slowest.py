"""The story of the slowest message: one bar, one sentence."""

from __future__ import annotations

from typing import Any

import pandas as pd

from latprof_analysis.report.parts import Chart, Figure, Missing, Part, Spec, Text
from latprof_analysis.report.vega import (
    duration_axis,
    duration_expr,
    stage_scale,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.study.likely_cause import slowest_sentence, stage_times


def slowest_parts(
    row: dict[str, Any] | None, lab: dict[str, Any] | None = None
) -> list[Part]:
    """Tell where the slowest message spent its time, on the link of a lab if any."""
    if not row or not row.get("end_to_end_ns"):
        reason = "no message was seen from end to end"
        return [Missing("The slowest message", reason)]
    told = _sentence(row, lab)
    parts: list[Part] = [Text(told)]
    if stage_times(row):
        return [*parts, slowest_figure(row, told)]
    return [*parts, Missing("Its stages", "none of its stages is told")]


def _sentence(row: dict[str, Any], lab: dict[str, Any] | None) -> str:
    """Say why it was slow, as on a terminal but for micro."""
    text = slowest_sentence(row, lab).replace(" us", " µs")
    return f"{text[0].upper()}{text[1:]}."


def slowest_figure(row: dict[str, Any], told: str) -> Figure:
    """Draw the stages of one message in the order of its path."""
    data = pd.DataFrame(stage_times(row).items(), columns=["stage", "time_ns"])
    data["to_ns"] = data["time_ns"].cumsum()
    data["from_ns"] = data["to_ns"] - data["time_ns"]
    most = data.loc[data["time_ns"].idxmax()]
    share = f"{100 * float(most['time_ns']) / row['end_to_end_ns']:.0f}%"
    return Figure(
        name="slowest",
        title=f"The slowest message spent {share} of its time in {most['stage']}",
        caption="One message, from the first stamp to the last; its stages sum to its "
        "end to end exactly. One message, so there is no interval.",
        alt=told,
        data=data,
        charts=[Chart({"linear": _bar(list(data["stage"]))})],
        wide=True,
        main=True,
    )


def _bar(stages: list[str]) -> Spec:
    return {
        "height": 56,
        "transform": written(took=duration_expr("datum.time_ns")),
        "mark": {"type": "bar", "stroke": "var(--card)", "strokeWidth": 1},
        "encoding": {
            "x": {
                "field": "from_ns",
                **duration_axis("time since the message was made or sent", grid=False),
            },
            "x2": {"field": "to_ns"},
            "color": {
                "field": "stage",
                "type": "nominal",
                "scale": stage_scale(stages),
                "legend": top_legend(stages),
            },
            "tooltip": tooltip({"stage": "stage", "took": "time"}),
        },
    }
