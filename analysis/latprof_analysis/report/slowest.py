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
from latprof_analysis.report.words import bytes_text, duration_text, listed
from latprof_analysis.study.likely_cause import stage_times
from latprof_analysis.text import plural


def slowest_parts(row: dict[str, Any] | None) -> list[Part]:
    """Tell where the slowest message spent its time."""
    if not row or not row.get("end_to_end_ns"):
        reason = "no message was seen from end to end"
        return [Missing("The slowest message", reason)]
    parts: list[Part] = [Text(slowest_sentence(row))]
    if stage_times(row):
        return [*parts, slowest_figure(row)]
    return [*parts, Missing("Its stages", "none of its stages is told")]


def slowest_sentence(row: dict[str, Any]) -> str:
    """Say in one sentence where the slowest message spent its time."""
    parts = sorted(stage_times(row).items(), key=lambda part: -part[1])
    where = listed([f"{duration_text(ns)} in {name}" for name, ns in parts[:3]])
    spent = f", of which {where}" if where else ""
    number = row.get("sequence")
    again, wakeup = row.get("retransmits"), row.get("wakeup_ns")
    lost = f"; {plural(again, 'segment')} of it sent again" if again else ""
    slept = f"; its reader waited {duration_text(wakeup)} for a CPU" if wakeup else ""
    return (
        f"The slowest message was {row['protocol']} {row['kind']} "
        f"{'without a number' if number is None else number} of "
        f"{bytes_text(row['size_bytes'])}: {duration_text(row['end_to_end_ns'])}"
        f"{spent}{slept}{lost}."
    )


def slowest_figure(row: dict[str, Any]) -> Figure:
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
        alt=slowest_sentence(row),
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
