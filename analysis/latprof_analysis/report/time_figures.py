"""Latency over time, zoomable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fits.rounds import Floats
from latprof_analysis.report.level_parts import level_layers
from latprof_analysis.report.marks import (
    Scale,
    duration_axis,
    duration_expr,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.parts import Chart, Figure, Spec
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import duration_text, number

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
