"""Latency over time, zoomable, with marks where its level changed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.fit.rounds import Floats
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
from latprof_analysis.report.vega import (
    Scale,
    colour,
    duration_axis,
    duration_expr,
    number_axis,
    stage_scale,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.words import duration_text, listed, number
from latprof_analysis.study.levels import SMALLEST_STEP, alike, large_changes, step_ns
from latprof_analysis.text import percent

# More changes of level than this are counted, not told one by one.
_MOST_TOLD = 12
# Up to so many messages are drawn one by one; of more, spans of time.
_MOST_POINTS = 800
_SPANS = 300
_OUTLIERS = 150


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
    levels = _levels(figures)
    large = large_changes(levels, usual_ns(figures))
    if not large:
        return pd.DataFrame()
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
        for level in levels["levels"]
        for part in level["spans"]
    ]
    every = _every(figures)
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


def usual_ns(figures: dict[str, Any] | None) -> float | None:
    """Return the median of all messages: what levels are told above."""
    tail = (figures or {}).get("tail") or {}
    value = (tail.get("percentiles") or {}).get("p50", {}).get("value_ns")
    return None if value is None else float(value)


def _above(usual: float, end: float | None) -> float | None:
    return None if end is None else usual + end


def _levels(figures: dict[str, Any] | None) -> dict[str, Any]:
    found: dict[str, Any] = ((figures or {}).get("time") or {}).get("level_changes", {})
    return found


def _every(figures: dict[str, Any] | None) -> int:
    return int(((figures or {}).get("time") or {}).get("every", 1))


def level_parts(groups: Mapping[str, dict[str, Any] | None]) -> list[Part]:
    """Tell the changes of level of each group; those without one in one sentence."""
    parts: list[Part] = []
    steady = []
    for name, figures in groups.items():
        levels = _levels(figures)
        if "reason" in levels:
            parts.append(Missing(f"{name}: changes of level", str(levels["reason"])))
        elif large := large_changes(levels, usual_ns(figures)):
            title, table = _changes(name, large, figures or {})
            parts.append(Fold(title, [table]))
        elif levels:
            steady.append(f"{name}, n {number(levels['n'])}")
    if steady:
        told = (
            f"No evidence that the level changed by {percent(SMALLEST_STEP)} of the "
            f"median or more: {listed(steady)}."
        )
        parts.append(Text(told, quiet=True))
    return parts


def _changes(
    name: str, large: list[dict[str, Any]], figures: dict[str, Any]
) -> tuple[str, Table]:
    """Say what changed most, and list all."""
    usual, every = usual_ns(figures) or 0.0, _every(figures)
    by_step = sorted(large, key=lambda change: -abs(step_ns(change)))[:_MOST_TOLD]
    shown = sorted(by_step, key=lambda change: int(change["index"]))
    runs = {change.get("run", "") for change in shown}
    rows: list[list[str | Cell]] = [
        [
            _place(change, every, several=len(runs) > 1),
            _level(change["before"], usual),
            _level(change["after"], usual),
            Cell(_step(change), _share_of(usual, change)),
        ]
        for change in shown
    ]
    note = (
        "Percentiles of all mix these levels. Medians of the messages between two "
        "changes, each held against the median of its size and told above "
        f"{duration_text(usual)}, the median of all; below them, and below the place, "
        "95% intervals. That of the place is for small steps, and holds more often for "
        "large ones."
    )
    if alike(_levels(figures)):
        note += (
            " Neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones."
        )
    table = Table(f"{name}: levels", ["when", "from", "to", "step"], rows, note)
    return f"{name}: {_summary(large, usual)}", table


def _summary(large: list[dict[str, Any]], usual: float) -> str:
    """Say what the largest change is, and of how many."""
    first = max(large, key=lambda change: abs(step_ns(change)))
    way = "slower" if step_ns(first) > 0 else "faster"
    at = f"from {first['t_s']:.3g} s on" if "t_s" in first else "later in the file"
    text = f"{at} {duration_text(abs(step_ns(first)))} {way}"
    if share := _share_of(usual, first):
        text += f" ({share})"
    return text + (f", the largest of {len(large)} changes" if len(large) > 1 else "")


def _step(change: dict[str, Any]) -> str:
    return f"{'+' if step_ns(change) > 0 else '-'}{duration_text(abs(step_ns(change)))}"


def _share_of(usual: float, change: dict[str, Any]) -> str:
    return f"{abs(step_ns(change)) / usual:.1%} of the median" if usual else ""


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


def _level(median: dict[str, Any], usual: float) -> Cell:
    low, high = _above(usual, median["low"]), _above(usual, median["high"])
    interval = f"{duration_text(low)} to {duration_text(high)}, n {number(median['n'])}"
    return Cell(duration_text(usual + median["value"]), interval)


def level_layers(x: Spec, y: Spec, roles: Set[str]) -> list[Spec]:
    """Return the marks of levels and changes, over those of messages.

    `roles` are those of which there are rows.
    """
    levels = [_level_line(x, y)] if "level" in roles else []
    return [*levels, *(_change_layers(x) if "change" in roles else [])]


def _change_layers(x: Spec) -> list[Spec]:
    shade: Spec = {
        "mark": {
            "type": "rect",
            "color": colour("muted"),
            "opacity": 0.2,
            "clip": True,
        },
        "encoding": {"x": x | {"field": "from_s"}, "x2": {"field": "to_s"}},
    }
    seen = {"color": colour("ink"), "strokeDash": [4, 3], "strokeWidth": 1.5}
    # wider than what is seen, so that it can be pointed at
    pointed = {"strokeWidth": 12, "opacity": 0}
    rules: list[Spec] = [
        {"mark": {"type": "rule", "clip": True, **look}, "encoding": {"x": x}}
        for look in (seen, pointed)
    ]
    return [_telling(layer) for layer in (shade, *rules)]


def _telling(layer: Spec) -> Spec:
    """Let a layer of changes say what changed."""
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
    titles = {
        "when": "level changed at",
        "between": "95% interval",
        "left": "from",
        "reached": "to",
    }
    return {
        "transform": [{"filter": "datum.role === 'change'"}, *texts],
        **layer,
        "encoding": layer["encoding"] | {"tooltip": tooltip(titles)},
    }


def _level_line(x: Spec, y: Spec) -> Spec:
    return {
        "transform": [{"filter": "datum.role === 'level'"}],
        "mark": {
            "type": "rule",
            "color": colour("ink"),
            "strokeWidth": 3,
            "strokeCap": "butt",
            "clip": True,
        },
        "encoding": {
            "x": x,
            "x2": {"field": "to_s"},
            "y": {"field": "above_ns", **y},
            "tooltip": tooltip(
                {
                    "when": "level from",
                    "took": "median",
                    "least": "interval from",
                    "most": "to",
                    "messages": "messages",
                }
            ),
        },
    }


@dataclass(frozen=True)
class Series:
    """Latencies of one kind, shape (n,) each, with what took most of each if known."""

    t_s: Floats
    above_ns: Floats  # the median of its size
    latency_ns: Floats
    part: Sequence[str] = ()


def over_time(series: Series) -> pd.DataFrame:
    """Return what of a series can be drawn: each value, or spans and the slowest.

    Returns
    -------
    DataFrame
        ``role``: message, span or slow (one of those farthest above the median of
        their size). ``above_ns``, of spans the median, with ``min_ns``, ``max_ns``
        and the number of ``messages``; ``latency_ns`` and ``part`` of messages.

    Examples
    --------
    >>> few = np.array([5.0, 7.0, 6.0])
    >>> over_time(Series(np.arange(3.0), few - 6, few))["role"].tolist()
    ['message', 'message', 'message']
    >>> many = np.arange(9000.0)
    >>> drawn = over_time(Series(many, many, many))
    >>> drawn.groupby("role")["messages"].sum().to_dict()
    {'slow': 150, 'span': 9000}
    """
    t_s, above = series.t_s, series.above_ns
    if t_s.size <= _MOST_POINTS:
        return _points("message", series, np.arange(t_s.size))
    first, last = t_s.min(), t_s.max()
    width = (last - first) / _SPANS or 1.0
    span = np.minimum(((t_s - first) / width).astype(np.int64), _SPANS - 1)
    grouped = pd.Series(above).groupby(span)
    spans = grouped.agg(above_ns="median", min_ns="min", max_ns="max", messages="size")
    spans.insert(0, "t_s", first + (spans.index.to_numpy() + 0.5) * width)
    spans.insert(0, "role", "span")
    slow = np.argpartition(above, -_OUTLIERS)[-_OUTLIERS:]
    return concatenated([spans, _points("slow", series, slow)])


def _points(role: str, series: Series, at: NDArray[np.intp]) -> pd.DataFrame:
    points = pd.DataFrame(
        {
            "role": role,
            "t_s": series.t_s[at],
            "above_ns": series.above_ns[at],
            "min_ns": np.nan,
            "max_ns": np.nan,
            "messages": 1,
            "latency_ns": series.latency_ns[at],
        }
    )
    return points.assign(part=[series.part[i] for i in at]) if series.part else points


@dataclass(frozen=True)
class Order:
    """What stands along the axis: times, or places."""

    name: str
    title: str
    unit: str
    told: str
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
    kinds: Mapping[str, Series],
    what: str,
    levels: Mapping[str, pd.DataFrame] | None = None,
    order: Order = BY_TIME,
    name: str = "over-time",
) -> Figure:
    """Draw how far each kind's latencies are above the median of their size.

    Kinds stand one below the other; `levels` has by kind what `level_rows` returns.
    """
    marks = levels or {}
    data = concatenated(
        [
            _rows(i, kind, over_time(series), marks.get(kind, pd.DataFrame()))
            for i, (kind, series) in enumerate(kinds.items())
        ]
    )
    drawn = data[data["latency_ns"].notna()]
    worst = drawn.loc[drawn["above_ns"].idxmax()]
    text = _worst(worst, order, several=len(kinds) > 1)
    return Figure(
        name=name,
        title=f"{order.name}: {text}",
        caption=f"How far the {what} is above the median of those of its size, so that "
        f"sizes do not differ; 0 is that median. {_how(data)} {order.told}"
        f"{_how_levels(data)} The log scale is linear near 0.",
        alt=f"{what}, {order.name.lower()}, one figure for each kind; {text}.",
        data=data.rename(columns=order.columns),
        charts=[
            _chart(
                f"{kind}: n {number(series.t_s.size)}",
                _Marks(i, what, order, data[data["chart"] == i]),
                last=i == len(kinds) - 1,
            )
            for i, (kind, series) in enumerate(kinds.items())
        ],
        zooms=True,
        wide=True,
        main=True,
    )


def _worst(row: pd.Series, order: Order, *, several: bool) -> str:
    """Say where the one farthest above the median of its size stands."""
    when = f"came at {row['t_s']:.3g}{order.unit}"
    if order is BY_PLACE:
        when = f"is number {number(row['t_s'])}"
    of = f" ({row['kind']})" if several else ""
    part = row.get("part")
    most = f", most of it {part}" if isinstance(part, str) else ""
    return (
        f"the one farthest above the median of its size {when}{of}, "
        f"{duration_text(row['latency_ns'])}, {duration_text(row['above_ns'])} above"
        f"{most}"
    )


def _rows(
    chart: int, kind: str, messages: pd.DataFrame, marks: pd.DataFrame
) -> pd.DataFrame:
    frame = concatenated([frame for frame in (messages, marks) if len(frame)])
    frame.insert(0, "kind", kind)
    frame.insert(0, "chart", chart)
    return frame


@dataclass(frozen=True)
class _Marks:
    """What one chart shows, of what and along which axis."""

    chart: int
    what: str
    order: Order
    rows: pd.DataFrame

    @property
    def roles(self) -> set[str]:
        return set(self.rows["role"])

    @property
    def parts(self) -> list[str]:
        """Return what takes most of the messages that are drawn, commonest first."""
        if "part" not in self.rows:
            return []
        return [str(part) for part in self.rows["part"].value_counts().index]


def _how_levels(data: pd.DataFrame) -> str:
    if not (data["role"] == "level").any():
        return ""
    return (
        " Thick lines: medians of levels between changes; dashed lines: changes of "
        "level, shaded the 95% interval of their place."
    )


def _how(data: pd.DataFrame) -> str:
    part = ", in the colour of what took most of it" if "part" in data else ""
    if not (data["role"] == "span").any():
        return f"Each point is one{part}."
    return (
        f"Of many the line is the median of {_SPANS} spans of time, shaded from their "
        f"fastest to their slowest; the {_OUTLIERS} farthest above are points{part}."
    )


def _chart(title: str, marks: _Marks, *, last: bool) -> Chart:
    scales: tuple[Scale, ...] = ("log", "linear")
    return Chart({s: _time_spec(s, marks, last=last) for s in scales}, title)


def _time_spec(scale: Scale, marks: _Marks, *, last: bool) -> Spec:
    x = _along(marks.order, last=last)
    spans = "span" in marks.roles
    y = _above_axis(scale, marks.rows)
    layers = _span_layers(x, y) if spans else []
    layers.append(_message_layer(x, y, marks, few=spans))
    layers += level_layers(x, y, marks.roles)
    # A level is in sight if any of it is; changes out of sight are clipped, since a
    # layer without rows would have no scale.
    end = "(datum.role === 'level' ? datum.to_s : datum.t_s)"
    return {
        "height": 130,
        "params": [{"name": "from", "value": None}, {"name": "to", "value": None}],
        "transform": [
            *written(**{a: f"datum.{b}" for a, b in marks.order.columns.items()}),
            {
                "filter": f"datum.chart === {marks.chart} && "
                f"(datum.role === 'change' || (from === null || {end} >= from)"
                " && (to === null || datum.t_s <= to))"
            },
            *written(
                over=duration_expr("datum.above_ns"),
                took=duration_expr("datum.latency_ns"),
                least=duration_expr("datum.min_ns"),
                most=duration_expr("datum.max_ns"),
                when=f"format(datum.t_s, '.6~r') + '{marks.order.unit}'",
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
    return {
        "field": "t_s",
        **number_axis(order.title, **(labels if order is BY_PLACE else {})),
        **({} if last else {"title": None}),
        "scale": {
            "nice": False,
            "zero": False,
            "domainMin": {"expr": "from"},
            "domainMax": {"expr": "to"},
        },
    }


def _span_layers(x: Spec, y: Spec) -> list[Spec]:
    only = [{"filter": "datum.role === 'span'"}]
    told = {"when": "time", "over": "median", "least": "fastest", "most": "slowest"}
    told["messages"] = "messages"
    return [
        {
            "transform": only,
            "mark": {"type": "area", "color": colour("band"), "clip": True},
            "encoding": {
                "x": x,
                "y": {"field": "min_ns", **y},
                "y2": {"field": "max_ns"},
            },
        },
        {
            "transform": only,
            "mark": {"type": "line", "color": colour("mark"), "clip": True},
            "encoding": {
                "x": x,
                "y": {"field": "above_ns", **y},
                "tooltip": tooltip(told),
            },
        },
    ]


def _message_layer(x: Spec, y: Spec, marks: _Marks, *, few: bool) -> Spec:
    told = {"when": "time", "took": marks.what, "over": "above the median"}
    hue: Spec = {"value": colour("mark-2" if few else "mark")}
    if parts := marks.parts:
        told["part"] = "most of it"
        legend = top_legend(parts, "circle")
        hue = {"field": "part", "type": "nominal", "scale": stage_scale(parts)}
        hue["legend"] = legend
    return {
        "transform": [{"filter": "datum.role === 'message' || datum.role === 'slow'"}],
        "mark": {
            "type": "point",
            "filled": True,
            "size": 26 if few else 14,
            "opacity": 0.9 if few else 0.65,
            "shape": "diamond" if few else "circle",
            "clip": True,
            "aria": False,
        },
        "encoding": {
            "x": x,
            "y": {"field": "above_ns", **y},
            "color": hue,
            "tooltip": tooltip(told),
        },
    }
