"""Why one message took long, as far as its own row tells.

The story of the slowest message: one bar, one sentence.
"""

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
from latprof_analysis.stages import STAGES, STAMPS, merged_name
from latprof_analysis.text import duration, plural

_WAITED = {
    "application": "was made {} before its send call",
    "send_queue": "waited {} in its sender's socket (send buffer, windows, pacing)",
    "qdisc": "waited {} in its sender's qdisc",
    "transit": "took {} between the drivers",
    "receive_stack": "waited {} in its receiver's stack, as behind a missing segment",
    "receive_queue": "its receiver had not read for {}",
    "wakeup": "its reader waited {} for a CPU",
    "own": "its own bytes and the delay take {} on this link",
    "link": "waited {} on the link beside its own bytes and the delay",
}
# What took less of a message's time did not make it slow.
_LITTLE = 0.1


def stage_times(row: dict[str, Any]) -> dict[str, int]:
    """Return the times of the stages that took any, by the names of `merged_name`.

    Examples
    --------
    >>> stage_times({"send_ns": 2, "queue_ns": 9, "read_ns": 9, "send_queue_ns": 7})
    {'send_queue': 7}
    """
    there = {name: bool(row.get(f"{name}_ns")) for name in STAMPS}
    there["created"] = True  # before it there is nothing to stand for
    return {
        merged_name(stage, there): int(row[f"{stage}_ns"])
        for stage in STAGES
        if row.get(f"{stage}_ns")
    }


def likely_cause(row: dict[str, Any], known_ns: float | None = None) -> str:
    """Say what took most of a message's time.

    Parameters
    ----------
    row : dict
        A row of messages.csv by column, None where blank.
    known_ns : float or None
        How long its bytes and the delay take on the link, where that is known.

    Examples
    --------
    >>> row = {"qdisc_ns": 12_000_000, "transit_ns": 1_500_000, "retransmits": 0}
    >>> row |= dict.fromkeys(("send_ns", "queue_ns", "xmit_ns", "arrive_ns"), 1)
    >>> likely_cause(row)
    "waited 12 ms in its sender's qdisc"
    """
    waits = stage_times(row)
    if known_ns and "transit" in waits:
        own = min(waits["transit"], round(known_ns))
        waits |= {"own": own, "link": waits.pop("transit") - own}
    wakeup = min(row.get("wakeup_ns") or 0, waits.get("receive_queue", 0))
    if wakeup:
        waits |= {"wakeup": wakeup, "receive_queue": waits["receive_queue"] - wakeup}
    if again := row.get("retransmits"):
        late = sum(waits.pop(n, 0) for n in ("transit", "link", "receive_stack"))
        waits["sent again"] = late
    if not waits:
        return "no part of its time is known"
    whole, own_ns = sum(waits.values()), waits.pop("own", 0)
    name = max(waits, key=lambda part: waits[part], default="own")
    if own_ns and waits.get(name, 0) < _LITTLE * whole:
        waits, name = {"own": own_ns}, "own"
    if name == "sent again":
        segments = plural(again or 0, "segment")
        return f"{segments} sent again, whole {duration(late)} later"
    return _WAITED.get(name, "took {} in " + name).format(duration(waits[name]))


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
