"""Latency over time, zoomable."""

from __future__ import annotations

import numpy as np
import pandas as pd

from latprof_analysis.fits.rounds import Floats
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


def time_figure(kinds: dict[str, tuple[Floats, Floats]], what: str) -> Figure:
    """Draw each kind's latency over time, one below the other."""
    frames = [over_time(*series) for series in kinds.values()]
    for i, (kind, frame) in enumerate(zip(kinds, frames, strict=True)):
        frame.insert(0, "kind", kind)
        frame.insert(0, "chart", i)
    data = pd.concat(frames, ignore_index=True)
    worst = data.loc[data["latency_ns"].idxmax()]
    text = (
        f"the slowest came {worst['t_s']:.3g} s after the first, "
        f"{duration_text(worst['latency_ns'])}"
    )
    return Figure(
        name="over-time",
        title=f"Over time: {text}",
        caption=f"{_how(data)} Times count from the first message of each run; more "
        "runs lie one over another.",
        alt=f"{what} over time, one figure for each kind; {text}.",
        data=data,
        charts=[
            _chart(i, kind, t_s.size, what, last=i == len(kinds) - 1)
            for i, (kind, (t_s, _)) in enumerate(kinds.items())
        ],
        zooms=True,
        wide=True,
        main=True,
    )


def _how(data: pd.DataFrame) -> str:
    if not (data["role"] == "span").any():
        return "Each point is a message."
    return (
        f"Of many messages the line is the median of {_SPANS} spans of time, shaded "
        f"from their fastest to their slowest; the {_OUTLIERS} slowest are points."
    )


def _chart(i: int, kind: str, n: int, what: str, *, last: bool) -> Chart:
    scales: tuple[Scale, ...] = ("linear", "log")
    spans = n > _MOST_POINTS
    specs: dict[str, Spec] = {
        scale: _time_spec(i, scale, what, spans=spans, last=last) for scale in scales
    }
    return Chart(specs, f"{kind}: n {number(n)}")


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


def _time_spec(chart: int, scale: Scale, what: str, *, spans: bool, last: bool) -> Spec:
    x = {
        "field": "t_s",
        **number_axis("time since the run's first message, s"),
        **({} if last else {"title": None}),
        "scale": {
            "nice": False,
            "zero": False,
            "domainMin": {"expr": "from"},
            "domainMax": {"expr": "to"},
        },
    }
    # the same room for labels, so that one time is at one place in all charts
    y = duration_axis(what, scale, minExtent=58)
    y["scale"] |= {"padding": 5}
    layers = _span_layers(x, y) if spans else []
    layers.append(_message_layer(x, y, few=spans))
    return {
        "height": 150,
        "params": [{"name": "from", "value": None}, {"name": "to", "value": None}],
        "transform": [
            {
                "filter": f"datum.chart === {chart}"
                " && (from === null || datum.t_s >= from)"
                " && (to === null || datum.t_s <= to)"
            },
            *written(
                took=duration_expr("datum.latency_ns"),
                least=duration_expr("datum.min_ns"),
                most=duration_expr("datum.max_ns"),
                when="format(datum.t_s, '.6~r') + ' s'",
            ),
        ],
        "layer": layers,
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
        "transform": [{"filter": "datum.role !== 'span'"}],
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
