"""Trains beside the fit: LogGP's letters, and what trains took by size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from latprof_analysis.report.link import letters_table, prtt_table
from latprof_analysis.report.parts import Chart, Figure, Fold, Items, Part, Spec
from latprof_analysis.report.vega import (
    bytes_expr,
    colour,
    duration_axis,
    duration_expr,
    layer,
    named,
    number_axis,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.words import duration_text, slug
from latprof_analysis.text import plural, rate

_SERIES = {
    "single_ns": "one message",
    "train_ns": "a train",
    "gap_ns": "each more of a train",
}
_COLOURS = ("muted", "ink", "mark")


def train_parts(protocol: str, found: Mapping[str, Any]) -> list[Part]:
    """Draw PRTT(1) and PRTT(n) by size, and say what they say of the link."""
    parts: list[Part] = [letters_table(protocol, found)]
    if found["sizes"]:
        parts.insert(0, _figure(protocol, found))
        parts.append(Fold(f"{protocol}: trains by size", [prtt_table(protocol, found)]))
    left = [f"{plural(n, 'train')} left out: {w}" for w, n in found["left_out"].items()]
    return [*parts, Items(left)] if left else parts


def _figure(protocol: str, found: Mapping[str, Any]) -> Figure:
    n = found["messages"]
    data = pd.DataFrame(
        {
            "size_bytes": one["size_bytes"],
            "series": series,
            **{f"{end}_ns": one[name][end] for end in ("value", "low", "high")},
        }
        for one in found["sizes"]
        for name, series in _SERIES.items()
    )
    text = _finding(found)
    return Figure(
        name=f"trains-{slug(protocol)}",
        title=f"{protocol}, trains of {n}: {text}",
        caption="10th percentiles over the rounds, with their 95% intervals: from the "
        f"first send to the last reply of one message and of a train of {n}, and the "
        f"difference for each of the {n - 1} further messages, which is g + (s - 1) G.",
        alt=f"Time of single messages and trains against size for {protocol}: {text}.",
        data=data,
        charts=[Chart({"log-log": _spec(data)})],
        main=True,
    )


def _finding(found: Mapping[str, Any]) -> str:
    if goodput := found["goodput_bits_per_second"]:
        return f"they carry {rate(goodput['value'])} of payload"
    if gap := found["gap_ns"]:
        return f"{duration_text(gap['value'])} from one message to the next"
    return str(found["reason"])


def _spec(data: pd.DataFrame) -> Spec:
    axis = {"labelExpr": bytes_expr("datum.value"), "values": [4**k for k in range(17)]}
    across = number_axis("message size", "log", **axis)
    across["scale"] |= {"padding": 6, "nice": False}
    x = {"field": "size_bytes", **across}
    y = {"field": "value_ns", **duration_axis("time", "log")}
    names = list(_SERIES.values())
    scale = {"domain": names, "range": [*map(colour, _COLOURS)]}
    ink = {"color": named("series", scale, legend=top_legend(names))}
    hover = tooltip({"size": "size", "series": "of", "value": "time"})
    layers = [layer("line", {"x": x, "y": y, **ink}, strokeWidth=1.5)]
    if (data["low_ns"] > 0).all():  # else there is no place for them on this scale
        ends = {"y": {**y, "field": "low_ns"}, "y2": {"field": "high_ns"}}
        layers.append(layer("rule", {"x": x, **ends, **ink}))
    points = {"x": x, "y": y, **ink, "tooltip": hover}
    layers.append(layer("point", points, filled=True, size=42, opacity=1))
    texts = written(
        size=bytes_expr("datum.size_bytes"), value=duration_expr("datum.value_ns")
    )
    return {"height": 300, "layer": layers, "transform": texts}
