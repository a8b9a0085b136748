"""Latency under load on a page: both distributions, stages, queues and flows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from latprof_analysis.report.load_text import (
    flow_text,
    load_notes,
    load_sentence,
    phase_table,
    protocols_of,
    queue_text,
)
from latprof_analysis.report.parts import (
    Chart,
    Figure,
    Items,
    Part,
    Section,
    Spec,
    Text,
)
from latprof_analysis.report.vega import (
    colour,
    duration_axis,
    duration_expr,
    layer,
    lines_apart,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.words import number, slug
from latprof_analysis.stages import IDLE, LOADED

_PHASES = (IDLE, LOADED)


def load_sections(document: Mapping[str, Any]) -> list[Section]:
    """Lay out each protocol without and beside the load."""
    parts: list[Part] = []
    rate_bps = (document.get("load") or {}).get("rate_bps")
    for protocol, phases in protocols_of(document).items():
        text = load_sentence(protocol, phases, rate_bps)
        curves = _curves(phases) if phases["loaded"] else None
        if curves is None or curves.empty:  # no round trip came back
            parts.append(Text(text))
        else:
            parts.append(_figure(protocol, phases, text, curves))
        if phases["loaded"]:
            parts.append(phase_table(protocol, phases, everything=True))
        items = [*map(flow_text, phases["flows"]), *map(queue_text, phases["queues"])]
        parts += [Items(items)] if items else []
    parts += [Text(f"{note}.", quiet=True) for note in load_notes(document)]
    return [Section("load", "Latency under load", parts)] if parts else []


def _curves(phases: Mapping[str, Any]) -> pd.DataFrame:
    rows = [(phase, *point) for phase in _PHASES for point in phases[phase]["curve"]]
    return pd.DataFrame(rows, columns=["phase", "share", "rtt_ns"])


def _figure(
    protocol: str, phases: Mapping[str, Any], text: str, data: pd.DataFrame
) -> Figure:
    n = {phase: number(phases[phase]["rtt"]["n"]) for phase in _PHASES}
    return Figure(
        name=f"load-{slug(protocol)}",
        title=text,
        caption="Share of round trips that were over within a time: idle, before the "
        f"flows of the load (n {n[IDLE]}), and beside them (n {n[LOADED]}).",
        alt=f"Distribution of {protocol} round trips, idle and loaded. {text}.",
        data=data,
        charts=[Chart({"semi-log": _spec(data)})],
        main=True,
    )


def _spec(data: pd.DataFrame) -> Spec:
    shown = [phase for phase in _PHASES if (data["phase"] == phase).any()]
    colours = [*map(colour, ("mark", "mark-2"))][: len(shown)]
    dashes = [[1, 0], [6, 3]][: len(shown)]
    encoding = {
        "x": {"field": "rtt_ns", **duration_axis("round trip time", "log")},
        "y": {"field": "share", **number_axis("share of round trips", format="%")},
        "order": {"field": "share"},
        **lines_apart("phase", shown, colours, dashes),
    }
    hover = tooltip({"phase": "phase", "of": "share", "time": "within"})
    encoding["tooltip"] = hover
    texts = written(
        of="format(datum.share, '.3~p')", time=duration_expr("datum.rtt_ns")
    )
    line = layer("line", encoding, strokeWidth=2)
    return {"height": 260, "layer": [line], "transform": texts}
