"""Messages kept apart: by size, packets and hops end to end, by the queue they met."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.report.parts import Chart, Figure, Fold, Missing, Part, Spec
from latprof_analysis.report.percentile_tables import SHOWN, percentile_table
from latprof_analysis.report.vega import (
    SWITCH,
    Scale,
    bytes_expr,
    colour,
    duration_axis,
    duration_expr,
    layer,
    lines_apart,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.words import duration_text, listed, number, slug
from latprof_analysis.stats.waiting import Waiting, wait_by_queue
from latprof_analysis.study.totals import PERCENTILES

_LOOKS: Mapping[str, tuple[str, list[int]]] = {
    "p50": ("ink", [1, 0]),
    "p90": ("transit", [8, 3]),
    "p95": ("receive_stack", [6, 2, 2, 2]),
    "p99": ("receive_queue", [4, 3]),
    "p99.9": ("mark-2", [2, 2]),
}
# Up to so many groups, each has its value written at the axis.
_MOST_TICKS = 10
_WHOLE = "datum.value % 1 ? '' : format(datum.value, ',')"
_MOST_SCATTERED = 1200
_SEED = 1


@dataclass(frozen=True)
class _Grouping:
    """By what messages are kept apart, and how its values are written."""

    name: str
    title: str
    unit: str
    label: str  # Vega expression of datum.value
    scales: tuple[str, ...] = ("log-log", "semi-log", "linear")


_BY_SIZE = _Grouping("size", "size of the message", "B", bytes_expr("datum.value"))
_BY_PACKETS = _Grouping("packets", "packets of the message", "packets", _WHOLE)
# 0 hops have no place on a log scale
_BY_HOPS = _Grouping(
    "hops", "routers on the way", "hops", _WHOLE, ("linear", "semi-log")
)


def group_parts(kind: str, of_kind: dict[str, Any] | None) -> list[Part]:
    """Draw percentiles of end_to_end by size, packets and hops.

    `of_kind` are figures of one kind of messages, as `KindTotals.as_dict` has them.
    """
    of_kind = of_kind or {}
    sizes = {
        size: stages["end_to_end"]
        for size, stages in (of_kind.get("sizes") or {}).items()
        if "end_to_end" in stages
    }
    every = {
        _BY_SIZE: sizes,
        _BY_PACKETS: of_kind.get("by_packets") or {},
        _BY_HOPS: of_kind.get("by_hops") or {},
    }
    figures: list[Part] = []
    tables: dict[str, Part] = {}
    for by, of in every.items():
        if drawn := _figure(kind, by, of, "end to end"):
            figures += drawn
            tables[by.name] = percentile_table(
                f"{kind}: end to end by {by.name}",
                [by.name, *SHOWN, "slowest", "n"],
                [
                    ([f"{at} {by.unit}"], one, None)
                    for at, one in of.items()
                    if one["n"]
                ],
                "Of histograms, to 0.4%; below them 95% intervals, distribution-free, "
                "for messages that do not depend on each other.",
            )
    if not figures:
        return []
    title = f"{kind}: end to end by {listed([*tables])}, as a table"
    return [*figures, Fold(title, [*tables.values()])]


def sizes_figure(kind: str, sizes: Mapping[str, Any], what: str) -> list[Part]:
    """Draw percentiles by size of other tools' latencies, where there are several."""
    return _figure(kind, _BY_SIZE, sizes, what)


def _figure(
    kind: str, by: _Grouping, groups: Mapping[str, Any], what: str
) -> list[Part]:
    """Draw percentiles of groups, where there are several."""
    data = _rows(groups)
    if data["at"].nunique() < 2:
        return []
    median = data[data["percentile"] == "p50"].sort_values("at")["latency_ns"]
    text = f"{what} by {by.name}"
    if len(median) > 1:
        ends = f"{duration_text(median.iloc[0])} to {duration_text(median.iloc[-1])}"
        text += f": p50 from {ends}"
    n = data.drop_duplicates("group")["n"]
    octaves = ""
    if data["group"].str.contains("-").any():
        octaves = f" There are many values of {by.name}: each point is an octave."
    figure = Figure(
        name=f"by-{by.name}-{slug(kind)}",
        title=f"{kind}: {text}",
        caption=f"All messages are counted, n {number(n.sum())} in {len(n)} groups of "
        f"{number(n.min())} to {number(n.max())}; percentiles are those of histograms, "
        "to 0.4%, and left out where n is too small. Bars: 95% intervals, for messages "
        f"that do not depend on each other.{octaves}",
        alt=f"Percentiles of {what} of {kind} by {by.name}; {text}.",
        data=data,
        charts=[Chart({name: _spec(by, what, name, data) for name in by.scales})],
    )
    return [figure]


def _rows(groups: Mapping[str, Any]) -> pd.DataFrame:
    """Return percentiles by group with their intervals, where n is large enough.

    ``at`` is the value of a group, of an octave its geometric middle.
    """
    rows = [
        (
            label,
            _middle(label),
            name,
            *(figures.get(f"{name}{end}_ns") for end in ("", "_low", "_high")),
            figures["n"],
        )
        for label, figures in groups.items()
        for name in PERCENTILES
        if label[0].isdigit() and figures.get(f"{name}_ns") is not None
    ]
    columns = ["group", "at", "percentile", "latency_ns", "low_ns", "high_ns", "n"]
    return pd.DataFrame(rows, columns=columns)


def _middle(label: str) -> float:
    low, _, high = label.partition("-")
    return math.sqrt(int(low) * int(high)) if high else float(low)


def _spec(by: _Grouping, what: str, scale: str, data: pd.DataFrame) -> Spec:
    across, up = SWITCH[scale]
    values = sorted(data["at"].unique())
    ticks = {"values": values} if len(values) <= _MOST_TICKS else {}
    x = {"field": "at", **number_axis(by.title, across, labelExpr=by.label, **ticks)}
    y = {"field": "latency_ns", **duration_axis(what, up)}
    for axis in (x, y):
        axis["scale"] |= {"padding": 8}
    kept = [{"filter": "datum.at > 0"}] if across == "log" else []
    texts = written(
        took=duration_expr("datum.latency_ns"),
        least=duration_expr("datum.low_ns"),
        most=duration_expr("datum.high_ns"),
        which=f"datum.group + ' {by.unit}'",
    )
    return {
        "height": 260,
        "transform": [*kept, *texts],
        "layer": _layers(x, y, by, what, data),
    }


def _layers(
    x: Spec, y: Spec, by: _Grouping, what: str, data: pd.DataFrame
) -> list[Spec]:
    names = list(dict.fromkeys(data["percentile"]))
    hues, dashes = zip(*(_LOOKS[name] for name in names), strict=True)
    apart = lines_apart("percentile", names, [*map(colour, hues)], dashes)
    titles = {"which": by.name, "percentile": "percentile", "took": what}
    ends = {"least": "from (95%)", "most": "to (95%)"}
    hover = tooltip({**titles, **ends, "n": "n"})
    low, high = y | {"field": "low_ns"}, {"field": "high_ns"}
    hue = {"color": apart["color"]}
    line = layer("line", {"x": x, "y": y, **apart}, strokeWidth=1.8)
    bar = layer("rule", {"x": x, "y": low, "y2": high, **hue}, strokeWidth=1.2)
    at = {"x": x, "y": y, **hue, "tooltip": hover}
    points = layer("point", at, filled=True, size=46, opacity=1)
    bars = len(data[["low_ns", "high_ns"]].dropna()) > 0
    return [line, *([bar] if bars else []), points]


def queue_figure(kind: str, queue: Floats, wait_ns: Floats) -> Figure | Missing:
    """Draw the wait in the receive queue against what stood there at arrival."""
    title = f"{kind}: queue at arrival against wait"
    try:
        line = wait_by_queue(queue, wait_ns)
    except ValueError as error:
        return Missing(title, str(error))
    if line.slope_low <= 0 <= line.slope_high:
        reason = "no evidence that a longer queue at arrival means a longer wait"
        return Missing(title, f"{reason}, n {number(line.n)}")
    data = pd.DataFrame({"queue_bytes": queue, "wait_ns": wait_ns})
    shown = ""
    if line.n > _MOST_SCATTERED:
        rng = np.random.default_rng(_SEED)
        drawn = np.sort(rng.choice(line.n, _MOST_SCATTERED, replace=False))
        data = data.iloc[drawn]
        shown = f" ({number(_MOST_SCATTERED)} drawn at random are shown)"
    scales: tuple[Scale, ...] = ("linear", "log")
    return Figure(
        name=f"queue-{slug(kind)}",
        title=f"{kind}: each byte in the queue at arrival adds {line.slope:.3g} ns of "
        "wait",
        caption=f"Line: median of the slopes of all pairs, {line.slope:.3g} ns a byte "
        f"[95%: {line.slope_low:.3g} to {line.slope_high:.3g}]; rank correlation "
        f"{line.rank_correlation:.2f} [{line.correlation_low:.2f} to "
        f"{line.correlation_high:.2f}], n {number(line.n)}{shown}. Intervals hold for "
        "messages that do not depend on each other.",
        alt=f"Wait in the receive queue against the bytes that stood in it, {kind}: "
        f"rank correlation {line.rank_correlation:.2f}.",
        data=data,
        charts=[Chart({s: _queue_spec(line, float(queue.max()), s) for s in scales})],
    )


def _queue_spec(line: Waiting, longest: float, scale: Scale) -> Spec:
    axis = number_axis("bytes queued at arrival", labelExpr=bytes_expr("datum.value"))
    x = {"field": "queue_bytes", **axis}
    y = {"field": "wait_ns", **duration_axis("wait in the receive queue", scale)}
    positive = [{"filter": "datum.wait_ns > 0"}] if scale == "log" else []
    texts = written(
        stood=bytes_expr("datum.queue_bytes"), wait=duration_expr("datum.wait_ns")
    )
    hover = tooltip({"stood": "in the queue", "wait": "wait"})
    points = layer(
        "point",
        {"x": x, "y": y, "tooltip": hover},
        filled=True,
        size=16,
        opacity=0.6,
        color=colour("mark"),
        aria=False,
    )
    drawn = {
        "data": {
            "values": [
                {"queue_bytes": at, "wait_ns": line.intercept + line.slope * at}
                for at in np.linspace(0, longest, 40).tolist()
            ]
        },
        "transform": positive,
        **layer("line", {"x": x, "y": y}, color=colour("mark-2"), clip=True),
    }
    return {"height": 260, "transform": [*positive, *texts], "layer": [points, drawn]}
