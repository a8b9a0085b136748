"""Latency over time, zoomable, with marks where its level changed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.report.parts import Cell, Chart, Figure, Part, Spec, Table, Text
from latprof_analysis.report.vega import (
    Scale,
    colour,
    duration_axis,
    duration_expr,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.words import duration_text, number
from latprof_analysis.study.findings import SMALLEST_STEP, alike, large_changes, step_ns
from latprof_analysis.text import percent, plural

# More changes of level than this are counted, not told one by one.
_MOST_TOLD = 12


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
        ``latency_ns``, ``min_ns`` and ``max_ns`` its median with its interval, above
        the median of all messages; of a change ``t_s`` is its place, ``from_s`` and
        ``to_s`` the interval of that, and ``before_ns`` and ``latency_ns`` are the
        levels on both sides. Where only the order is known, ``t_s`` counts values
        from 1.
        Empty where nothing changed by much.
    """
    levels = _levels(figures)
    large = large_changes(levels, usual_ns(figures))
    if not large:
        return pd.DataFrame()
    usual = usual_ns(figures) or 0.0
    rows = [
        {
            "role": "level",
            "t_s": part.get("from_s", part["first"] + 1),
            "to_s": part.get("to_s", part["last"] + 1),
            "latency_ns": usual + level["value"],
            "min_ns": _above(usual, level["low"]),
            "max_ns": _above(usual, level["high"]),
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
            "before_ns": usual + change["before"]["value"],
            "latency_ns": usual + change["after"]["value"],
            "messages": change["before"]["n"] + change["after"]["n"],
            "run": change.get("run", ""),
        }
        for change in large
    ]
    return pd.DataFrame(rows)


def usual_ns(figures: dict[str, Any] | None) -> float | None:
    """Return the median of all messages: what levels are drawn above."""
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
    """Tell the changes of level of each group, or that there were none."""
    parts: list[Part] = []
    for name, figures in groups.items():
        if figures and _levels(figures):
            parts += _of_group(name, figures)
    return parts


def _of_group(name: str, figures: dict[str, Any]) -> list[Part]:
    levels = _levels(figures)
    if "changes" not in levels:
        text = f"{name}: changes of level not told: {levels['reason']}."
        return [Text(text, quiet=True)]
    large = large_changes(levels, usual_ns(figures))
    small = len(levels["changes"]) - len(large)
    told = []
    if not levels["changes"]:
        told.append(f"no evidence that the level changed, n {number(levels['n'])}")
    if small:
        told.append(
            f"{plural(small, 'change')} of level below {percent(SMALLEST_STEP)} of the "
            "median"
        )
    if large and alike(levels):
        told.append(
            "neighbours are alike here (a queue), which looks like changes of level: "
            "believe the large ones"
        )
    quiet = [Text(f"{name}: {'; '.join(told)}.", quiet=True)] if told else []
    return [*([_table(name, large, figures)] if large else []), *quiet]


def _table(name: str, large: list[dict[str, Any]], figures: dict[str, Any]) -> Table:
    usual, every = usual_ns(figures) or 0.0, _every(figures)
    by_step = sorted(large, key=lambda change: -abs(step_ns(change)))[:_MOST_TOLD]
    shown = sorted(by_step, key=lambda change: int(change["index"]))
    runs = {change.get("run", "") for change in shown}
    rows: list[list[str | Cell]] = [
        [
            _place(change, every, several=len(runs) > 1),
            _level(change["before"], usual),
            _level(change["after"], usual),
            f"{'+' if step_ns(change) > 0 else '-'}"
            f"{duration_text(abs(step_ns(change)))}",
        ]
        for change in shown
    ]
    more = ""
    if len(shown) < len(large):
        more = f", the {len(shown)} largest of {len(large)}"
    note = (
        "Medians of the messages between two changes, each held against the median of "
        f"its size and told above {duration_text(usual)}, the median of all; below "
        "them, and below the place, 95% intervals. That of the place is for small "
        "steps, and holds more often for large ones."
    )
    title = f"{name}: {plural(len(large), 'change')} of level{more}"
    return Table(title, ["when", "from", "to", "step"], rows, note)


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
        reached=duration_expr("datum.latency_ns"),
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
            "y": {"field": "latency_ns", **y},
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


# Up to so many messages are drawn one by one; of more, spans of time.
_MOST_POINTS = 800
_SPANS = 300
_OUTLIERS = 150


def over_time(t_s: Floats, latency_ns: Floats) -> pd.DataFrame:
    """Return what of a series can be drawn: each value, or spans and the slowest.

    Parameters
    ----------
    t_s, latency_ns : ndarray, shape (n,)

    Returns
    -------
    DataFrame
        ``role``: message, span or slow (one of the slowest). Of spans ``latency_ns``
        is the median, with ``min_ns``, ``max_ns`` and the number of ``messages``.

    Examples
    --------
    >>> over_time(np.arange(3.0), np.array([5.0, 7.0, 6.0]))["role"].tolist()
    ['message', 'message', 'message']
    >>> many = over_time(np.arange(9000.0), np.arange(9000.0))
    >>> many.groupby("role")["messages"].sum().to_dict()
    {'slow': 150, 'span': 9000}
    """
    if t_s.size <= _MOST_POINTS:
        return _points("message", t_s, latency_ns)
    first, last = t_s.min(), t_s.max()
    width = (last - first) / _SPANS or 1.0
    span = np.minimum(((t_s - first) / width).astype(np.int64), _SPANS - 1)
    grouped = pd.Series(latency_ns).groupby(span)
    spans = grouped.agg(
        latency_ns="median", min_ns="min", max_ns="max", messages="size"
    )
    spans.insert(0, "t_s", first + (spans.index.to_numpy() + 0.5) * width)
    spans.insert(0, "role", "span")
    slow = np.argpartition(latency_ns, -_OUTLIERS)[-_OUTLIERS:]
    slowest = _points("slow", t_s[slow], latency_ns[slow])
    return pd.concat([spans, slowest], ignore_index=True)


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
    "time since the run's first message, s",
    " s",
    "Times count from the first message of each run; more runs lie one over another.",
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
    kinds: dict[str, tuple[Floats, Floats]],
    what: str,
    levels: dict[str, pd.DataFrame] | None = None,
    order: Order = BY_TIME,
) -> Figure:
    """Draw each kind's latency over time, one below the other.

    `levels` has by kind what `level_rows` returns.
    """
    marks = levels or {}
    data = pd.concat(
        [
            _rows(i, kind, over_time(*of), marks.get(kind, pd.DataFrame()))
            for i, (kind, of) in enumerate(kinds.items())
        ],
        ignore_index=True,
    )
    drawn = data[~data["role"].isin(("level", "change"))]
    worst = drawn.loc[drawn["latency_ns"].idxmax()]
    when = f"came {worst['t_s']:.3g}{order.unit} after the first"
    if order is BY_PLACE:
        when = f"is number {number(worst['t_s'])}"
    text = f"the slowest {when}, {duration_text(worst['latency_ns'])}"
    return Figure(
        name="over-time",
        title=f"{order.name}: {text}",
        caption=f"{_how(data)} {order.told}{_how_levels(data)}",
        alt=f"{what}, {order.name.lower()}, one figure for each kind; {text}.",
        data=data.rename(columns=order.columns),
        charts=[
            _chart(
                i,
                f"{kind}: n {number(t_s.size)}",
                _Marks(what, order, set(data["role"][data["chart"] == i])),
                last=i == len(kinds) - 1,
            )
            for i, (kind, (t_s, _)) in enumerate(kinds.items())
        ],
        zooms=True,
        wide=True,
        main=True,
    )


def _rows(
    chart: int, kind: str, messages: pd.DataFrame, marks: pd.DataFrame
) -> pd.DataFrame:
    both = [frame for frame in (messages, marks) if len(frame)]
    frame = pd.concat(both, ignore_index=True)
    frame.insert(0, "kind", kind)
    frame.insert(0, "chart", chart)
    return frame


@dataclass(frozen=True)
class _Marks:
    """What one chart shows along which axis."""

    what: str
    order: Order
    roles: set[str]


def _how_levels(data: pd.DataFrame) -> str:
    levels = data[data["role"] == "level"]
    if levels.empty:
        return ""
    return (
        " Thick lines: levels between changes, the median of how far messages are "
        "above the median of their size, drawn above the median of all; dashed lines: "
        "changes of level, shaded the 95% interval of their place."
    )


def _how(data: pd.DataFrame) -> str:
    if not (data["role"] == "span").any():
        return "Each point is a message."
    return (
        f"Of many messages the line is the median of {_SPANS} spans of time, shaded "
        f"from their fastest to their slowest; the {_OUTLIERS} slowest are points."
    )


def _chart(i: int, title: str, marks: _Marks, *, last: bool) -> Chart:
    scales: tuple[Scale, ...] = ("linear", "log")
    return Chart({s: _time_spec(i, s, marks, last=last) for s in scales}, title)


def _points(role: str, t_s: Floats, latency_ns: Floats) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "role": role,
            "t_s": t_s,
            "latency_ns": latency_ns,
            "min_ns": np.nan,
            "max_ns": np.nan,
            "messages": 1,
        }
    )


def _time_spec(chart: int, scale: Scale, marks: _Marks, *, last: bool) -> Spec:
    x = _along(marks.order, last=last)
    spans = "span" in marks.roles
    # the same room for labels, so that one time is at one place in all charts
    y = duration_axis(marks.what, scale, minExtent=58)
    y["scale"] |= {"padding": 5}
    layers = _span_layers(x, y) if spans else []
    layers.append(_message_layer(x, y, few=spans))
    layers += level_layers(x, y, marks.roles)
    # A level is in sight if any of it is; changes out of sight are clipped, since a
    # layer without rows would have no scale.
    end = "(datum.role === 'level' ? datum.to_s : datum.t_s)"
    return {
        "height": 150,
        "params": [{"name": "from", "value": None}, {"name": "to", "value": None}],
        "transform": [
            *written(**{a: f"datum.{b}" for a, b in marks.order.columns.items()}),
            {
                "filter": f"datum.chart === {chart} && (datum.role === 'change' ||"
                f" (from === null || {end} >= from)"
                " && (to === null || datum.t_s <= to))"
            },
            *written(
                took=duration_expr("datum.latency_ns"),
                least=duration_expr("datum.min_ns"),
                most=duration_expr("datum.max_ns"),
                when=f"format(datum.t_s, '.6~r') + '{marks.order.unit}'",
            ),
        ],
        "layer": layers,
    }


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
                "y": {"field": "latency_ns", **y},
                "tooltip": tooltip(
                    {
                        "when": "time",
                        "took": "median",
                        "least": "fastest",
                        "most": "slowest",
                        "messages": "messages",
                    }
                ),
            },
        },
    ]


def _message_layer(x: Spec, y: Spec, *, few: bool) -> Spec:
    return {
        "transform": [{"filter": "datum.role === 'message' || datum.role === 'slow'"}],
        "mark": {
            "type": "point",
            "filled": True,
            "size": 26 if few else 14,
            "opacity": 0.9 if few else 0.65,
            "color": colour("mark-2" if few else "mark"),
            "shape": "diamond" if few else "circle",
            "clip": True,
            "aria": False,
        },
        "encoding": {
            "x": x,
            "y": {"field": "latency_ns", **y},
            "tooltip": tooltip({"when": "time", "took": "latency"}),
        },
    }
