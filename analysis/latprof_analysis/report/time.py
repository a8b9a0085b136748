"""Latency over time, zoomable, with marks where its level changed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.read.result import concatenated
from latprof_analysis.report.parts import (
    Cell,
    Chart,
    Figure,
    Fold,
    Missing,
    Part,
    Spec,
    Table,
    Text,
)
from latprof_analysis.report.sentences import (
    SMALLEST_STEP,
    large_changes,
    levels_alike,
    step_ns,
)
from latprof_analysis.report.vega import (
    Scale,
    colour,
    duration_axis,
    duration_expr,
    layer,
    named,
    number_axis,
    stage_scale,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.words import duration_text, listed, number
from latprof_analysis.text import percent

# More changes of level than this are counted, not shown one by one.
_MOST_CHANGES = 12
# Up to so many messages are drawn one by one; of more, spans of time.
_MOST_POINTS = 800
_SPANS = 300
_OUTLIERS = 150


def _levels(figures: dict[str, Any]) -> tuple[dict[str, Any], float | None, int]:
    """Return what is known of levels, the median above which they are, and `every`.

    Places in levels are those of every `every`-th value.
    """
    time, tail = figures.get("time") or {}, figures.get("tail") or {}
    median = (tail.get("percentiles") or {}).get("p50", {}).get("value_ns")
    return time.get("level_changes", {}), median, int(time.get("every", 1))


def level_rows(figures: dict[str, Any] | None) -> pd.DataFrame:
    """Return levels and large changes as rows beside those of `over_time`.

    Parameters
    ----------
    figures : dict or None
        Of one kind of messages, as `message_figures` has them.

    Returns
    -------
    DataFrame
        ``role``: level or change. Of a level ``t_s`` and ``to_s`` are its ends and
        ``above_ns``, ``min_ns`` and ``max_ns`` how far its median, with its interval,
        is above that of each size; of a change ``t_s`` is its place, ``from_s`` and
        ``to_s`` the interval of that, and ``before_ns`` and ``above_ns`` are the
        levels on both sides. Where only the order is known, ``t_s`` counts values
        from 1.
        Empty where nothing changed by much.
    """
    levels, usual, every = _levels(figures or {})
    large = large_changes(levels, usual)
    rows = [
        {
            "role": "level",
            "t_s": part.get("from_s", part["first"] + 1),
            "to_s": part.get("to_s", part["last"] + 1),
            "above_ns": level["value"],
            "min_ns": level["low"],
            "max_ns": level["high"],
            "messages": level["n"],
            "run": part.get("run", ""),
        }
        for level in (levels["levels"] if large else ())
        for part in level["spans"]
    ]
    rows += [
        {
            "role": "change",
            "t_s": change.get("t_s", change["index"] * every + 1),
            "from_s": change.get("low_s", change["low"] * every + 1),
            "to_s": change.get("high_s", change["high"] * every + 1),
            "before_ns": change["before"]["value"],
            "above_ns": change["after"]["value"],
            "messages": change["before"]["n"] + change["after"]["n"],
            "run": change.get("run", ""),
        }
        for change in large
    ]
    return pd.DataFrame(rows)


def level_parts(groups: Mapping[str, dict[str, Any] | None]) -> list[Part]:
    """Show the changes of level of each group; those without one in one sentence."""
    parts: list[Part] = []
    steady = []
    for name, figures in groups.items():
        levels, usual, every = _levels(figures or {})
        if "reason" in levels:
            parts.append(Missing(f"{name}: changes of level", str(levels["reason"])))
        elif large_changes(levels, usual):
            parts.append(_changes(name, levels, usual or 0.0, every))
        elif levels:
            steady.append(f"{name}, n {number(levels['n'])}")
    if steady:
        text = (
            f"No evidence that the level changed by {percent(SMALLEST_STEP)} of the "
            f"median or more: {listed(steady)}."
        )
        parts.append(Text(text, quiet=True))
    return parts


def _changes(name: str, levels: dict[str, Any], usual: float, every: int) -> Fold:
    """Say what changed most, and list the largest."""
    large = large_changes(levels, usual)
    by_step = sorted(large, key=lambda change: -abs(step_ns(change)))[:_MOST_CHANGES]
    several = len({change.get("run", "") for change in by_step}) > 1
    rows: list[list[str | Cell]] = []
    for change in sorted(by_step, key=lambda change: int(change["index"])):
        step = f"{'+' if step_ns(change) > 0 else '-'}{_size(change)}"
        ends = (_level(change[side], usual) for side in ("before", "after"))
        place = _place(change, every, several=several)
        rows.append([place, *ends, Cell(step, _share(change, usual))])
    note = (
        "Percentiles of all mix these levels. Medians of the messages between two "
        "changes, each held against the median of its size and told above "
        f"{duration_text(usual)}, the median of all; below them, and below the place, "
        "95% intervals. That of the place is for small steps, and holds more often for "
        "large ones."
    )
    if levels_alike(levels):
        note += (
            " Neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones."
        )
    first = by_step[0]
    at = f"from {first['t_s']:.3g} s on" if "t_s" in first else "later in the file"
    text = f"{at} {_size(first)} {'slower' if step_ns(first) > 0 else 'faster'}"
    text += f" ({_share(first, usual)})" if usual else ""
    text += f", the largest of {len(large)} changes" if len(large) > 1 else ""
    table = Table(f"{name}: levels", ["when", "from", "to", "step"], rows, note)
    return Fold(f"{name}: {text}", [table])


def _size(change: dict[str, Any]) -> str:
    return duration_text(abs(step_ns(change)))


def _share(change: dict[str, Any], usual_ns: float) -> str:
    return f"{abs(step_ns(change)) / usual_ns:.1%} of the median" if usual_ns else ""


def _place(change: dict[str, Any], every: int, *, several: bool) -> Cell:
    low, at, high = (change[key] * every for key in ("low", "index", "high"))
    values = f"message {number(low + 1)} to {number(high + 1)}"
    if "t_s" not in change:
        return Cell(f"message {number(at + 1)}", values)
    text = f"{change['t_s']:.4g} s"
    if several:
        text = f"{change['run']}, {text}"
    if change["low_s"] is None or change["high_s"] is None:
        return Cell(text, f"{values}, in several runs")
    return Cell(text, f"{change['low_s']:.4g} to {change['high_s']:.4g} s; {values}")


def _level(median: dict[str, Any], usual_ns: float) -> Cell:
    value, low, high = (
        duration_text(None if median[key] is None else usual_ns + median[key])
        for key in ("value", "low", "high")
    )
    return Cell(value, f"{low} to {high}, n {number(median['n'])}")


def over_time(series: pd.DataFrame) -> pd.DataFrame:
    """Return what of a series can be drawn: each value, or spans and the slowest.

    Parameters
    ----------
    series : DataFrame, n rows
        Of one kind: ``t_s``, ``above_ns`` (the median of its size), ``latency_ns``
        and, where it is known, the ``part`` that took most of it.

    Returns
    -------
    DataFrame
        ``role``: message, span or slow (one of those farthest above the median of
        their size). ``above_ns``, of spans the median, with ``min_ns``, ``max_ns``
        and the number of ``messages``; ``latency_ns`` and ``part`` of messages.
    """
    points = series.assign(role="message", min_ns=np.nan, max_ns=np.nan, messages=1)
    first_columns = ["role", "t_s", "above_ns", "min_ns", "max_ns", "messages"]
    points = points[[*first_columns, *points.columns.difference(first_columns)]]
    if len(series) <= _MOST_POINTS:
        return points
    t_s, above = series["t_s"].to_numpy(), series["above_ns"]
    first, last = t_s.min(), t_s.max()
    width = (last - first) / _SPANS or 1.0
    span = np.minimum(((t_s - first) / width).astype(np.int64), _SPANS - 1)
    grouped = above.groupby(span)
    spans = grouped.agg(above_ns="median", min_ns="min", max_ns="max", messages="size")
    spans.insert(0, "t_s", first + (spans.index.to_numpy() + 0.5) * width)
    spans.insert(0, "role", "span")
    slow = np.argpartition(above, -_OUTLIERS)[-_OUTLIERS:]
    return concatenated([spans, points.iloc[slow].assign(role="slow")])


@dataclass(frozen=True)
class Order:
    """What stands along the axis: times, or places."""

    name: str
    title: str
    unit: str
    sentence: str
    columns: Mapping[str, str]  # of the table, by what the specification calls them


BY_TIME = Order(
    "Over time",
    "time since the run's first, s",
    " s",
    "Times count from the first of each run; more runs lie one over another.",
    {},
)
BY_PLACE = Order(
    "In the order of the file",
    "place in the file",
    "",
    "The files tell no times: latencies stand in their order.",
    {"t_s": "place", "from_s": "from_place", "to_s": "to_place"},
)


def time_figure(
    kinds: Mapping[str, pd.DataFrame],
    what: str,
    levels: Mapping[str, pd.DataFrame] | None = None,
    order: Order = BY_TIME,
    name: str = "over-time",
) -> Figure:
    """Draw how far each kind's latencies are above the median of their size.

    Kinds stand one below the other: `kinds` has what `over_time` takes, `levels` what
    `level_rows` returns.
    """
    frames, charts = [], []
    for i, (kind, series) in enumerate(kinds.items()):
        marks = (levels or {}).get(kind, pd.DataFrame())
        both = [rows for rows in (over_time(series), marks) if len(rows)]
        frames.append(concatenated(both))
        frames[-1].insert(0, "kind", kind)
        frames[-1].insert(0, "chart", i)
        x = _along(order, last=i == len(kinds) - 1)
        specs: dict[str, Spec] = {
            "log": _spec(i, x, what, order, frames[-1], "log"),
            "linear": _spec(i, x, what, order, frames[-1], "linear"),
        }
        charts.append(Chart(specs, f"{kind}: n {number(len(series))}"))
    data = concatenated(frames)
    text = _worst(data, order)
    return Figure(
        name=name,
        title=f"{order.name}: {text}",
        caption=f"How far the {what} is above the median of those of its size, so that "
        f"sizes do not differ; 0 is that median. {_how(data, order)} The log scale is "
        "linear near 0.",
        alt=f"{what}, {order.name.lower()}, one figure for each kind; {text}.",
        data=data.rename(columns=order.columns),
        charts=charts,
        zooms=True,
        main=True,
    )


def _worst(data: pd.DataFrame, order: Order) -> str:
    """Say where the one farthest above the median of its size stands."""
    drawn = data[data["latency_ns"].notna()]
    row = drawn.loc[drawn["above_ns"].idxmax()]
    when = f"came at {row['t_s']:.3g}{order.unit}"
    if order is BY_PLACE:
        when = f"is number {number(row['t_s'])}"
    of = f" ({row['kind']})" if data["kind"].nunique() > 1 else ""
    part = row.get("part")
    most = f", most of it {part}" if isinstance(part, str) else ""
    return (
        f"the one farthest above the median of its size {when}{of}, "
        f"{duration_text(row['latency_ns'])}, {duration_text(row['above_ns'])} above"
        f"{most}"
    )


def _how(data: pd.DataFrame, order: Order) -> str:
    """Say what is drawn, and along what."""
    roles = set(data["role"])
    part = ", in the colour of what took most of it" if "part" in data else ""
    text = f"Each point is one{part}."
    if "span" in roles:
        text = (
            f"Of many the line is the median of {_SPANS} spans of time, shaded from "
            f"their fastest to their slowest; the {_OUTLIERS} farthest above are "
            f"points{part}."
        )
    text += f" {order.sentence}"
    if "level" in roles:
        text += (
            " Thick lines: medians of levels between changes; dashed lines: changes of "
            "level, shaded the 95% interval of their place."
        )
    return text


def _spec(
    chart: int, x: Spec, what: str, order: Order, rows: pd.DataFrame, scale: Scale
) -> Spec:
    roles = set(rows["role"])
    y = {"field": "above_ns", **_above_axis(scale, rows)}
    layers = _span_layers(x, y) if "span" in roles else []
    # what takes most of the messages that are drawn, commonest first
    parts = [*rows["part"].value_counts().index] if "part" in rows else []
    layers.append(_message_layer(x, y, what, parts, few="span" in roles))
    layers += [_level_line(x, y)] if "level" in roles else []
    layers += _change_layers(x) if "change" in roles else []
    # A level is in sight if any of it is; changes out of sight are clipped, since a
    # layer without rows would have no scale.
    end = "(datum.role === 'level' ? datum.to_s : datum.t_s)"
    seen = (
        f"datum.chart === {chart} && "
        f"(datum.role === 'change' || (from === null || {end} >= from)"
        " && (to === null || datum.t_s <= to))"
    )
    return {
        "height": 130,
        "params": [{"name": "from", "value": None}, {"name": "to", "value": None}],
        "transform": [
            *written(**{a: f"datum.{b}" for a, b in order.columns.items()}),
            {"filter": seen},
            *written(
                over=duration_expr("datum.above_ns"),
                took=duration_expr("datum.latency_ns"),
                least=duration_expr("datum.min_ns"),
                most=duration_expr("datum.max_ns"),
                when=f"format(datum.t_s, '.6~r') + '{order.unit}'",
            ),
        ],
        "layer": layers,
    }


def _above_axis(scale: Scale, rows: pd.DataFrame) -> Spec:
    """Return an axis on both sides of 0, of decades away from it if it is log."""
    # the same room for labels, so that one time is at one place in all charts
    y = duration_axis("above the median", scale, minExtent=62)
    if scale == "linear":
        y["scale"] |= {"padding": 5}
        return y
    far = rows[["above_ns", "min_ns", "max_ns"]].abs().to_numpy("float64")
    usual = float(np.nanmedian(rows["above_ns"].abs())) or float(np.nanmax(far)) or 1.0
    near = 10 ** math.floor(math.log10(usual))
    decades = [near * 10**k for k in range(1, 12) if near * 10**k <= np.nanmax(far)]
    y["title"] = "above the median, log"
    y["scale"] = {"type": "symlog", "constant": near, "nice": False, "padding": 5}
    y["axis"] |= {"values": sorted({0.0, *decades, *(-one for one in decades)})}
    return y


def _along(order: Order, *, last: bool) -> Spec:
    # there are no halves of places
    labels: dict[str, Any] = {"labelExpr": "datum.value % 1 ? '' : datum.label"}
    ends = {"domainMin": {"expr": "from"}, "domainMax": {"expr": "to"}}
    return {
        "field": "t_s",
        **number_axis(order.title, **(labels if order is BY_PLACE else {})),
        **({} if last else {"title": None}),
        "scale": {"nice": False, "zero": False, **ends},
    }


def _span_layers(x: Spec, y: Spec) -> list[Spec]:
    spans = "datum.role === 'span'"
    fields = {"when": "time", "over": "median", "least": "fastest", "most": "slowest"}
    hover = tooltip(fields | {"messages": "messages"})
    ends = {"y": y | {"field": "min_ns"}, "y2": {"field": "max_ns"}}
    line = {"x": x, "y": y, "tooltip": hover}
    return [
        layer("area", {"x": x, **ends}, spans, color=colour("band"), clip=True),
        layer("line", line, spans, color=colour("mark"), clip=True),
    ]


def _message_layer(x: Spec, y: Spec, what: str, parts: list[str], *, few: bool) -> Spec:
    fields = {"when": "time", "took": what, "over": "above the median"}
    hue: Spec = {"value": colour("mark-2" if few else "mark")}
    if parts:
        fields["part"] = "most of it"
        legend = top_legend(parts, "circle")
        hue = named("part", stage_scale(parts), legend=legend)
    return layer(
        "point",
        {"x": x, "y": y, "color": hue, "tooltip": tooltip(fields)},
        "datum.role === 'message' || datum.role === 'slow'",
        filled=True,
        size=26 if few else 14,
        opacity=0.9 if few else 0.65,
        shape="diamond" if few else "circle",
        clip=True,
        aria=False,
    )


def _level_line(x: Spec, y: Spec) -> Spec:
    fields = {"when": "level from", "took": "median", "least": "interval from"}
    hover = tooltip({**fields, "most": "to", "messages": "messages"})
    return layer(
        "rule",
        {"x": x, "x2": {"field": "to_s"}, "y": y, "tooltip": hover},
        "datum.role === 'level'",
        color=colour("ink"),
        strokeWidth=3,
        strokeCap="butt",
        clip=True,
    )


def _change_layers(x: Spec) -> list[Spec]:
    """Mark changes of level: where each may be, where it is, and what changed."""
    between = (
        "isValid(datum.from_s) && isValid(datum.to_s) ? "
        "format(datum.from_s, '.6~r') + ' to ' + format(datum.to_s, '.6~r') : "
        "'in several runs'"
    )
    texts = written(
        left=duration_expr("datum.before_ns"),
        reached=duration_expr("datum.above_ns"),
        between=between,
    )
    fields = {"when": "level changed at", "between": "95% interval"}
    hover = tooltip({**fields, "left": "from", "reached": "to"})
    ends = {"x": x | {"field": "from_s"}, "x2": {"field": "to_s"}, "tooltip": hover}
    at = {"x": x, "tooltip": hover}
    dashed: Spec = {"color": colour("ink"), "strokeDash": [4, 3], "strokeWidth": 1.5}
    layers = (
        layer("rect", ends, color=colour("muted"), opacity=0.2, clip=True),
        layer("rule", at, clip=True, **dashed),
        # wider than what is seen, so that it can be pointed at
        layer("rule", at, clip=True, strokeWidth=12, opacity=0),
    )
    kept = {"filter": "datum.role === 'change'"}
    return [{"transform": [kept, *texts], **one} for one in layers]
