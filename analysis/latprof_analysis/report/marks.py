"""Pieces of Vega-Lite specifications that the figures share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from latprof_analysis.report.parts import Spec
from latprof_analysis.report.theme import colour
from latprof_analysis.stages import STAGES

Scale = Literal["linear", "log"]
# Axes of x and y by the name of the switch's position.
SWITCH: Mapping[str, tuple[Scale, Scale]] = {
    "linear": ("linear", "linear"),
    "semi-log": ("linear", "log"),
    "log-log": ("log", "log"),
}
WHOLE = "end_to_end"
# A longer one, as of merged stages, needs the room of two.
_LONG_NAME = 16
# Parts of exchanges have the colours of the stages that are most like them.
_LIKE = {
    "request's way": "transit",
    "server": "send_queue",
    "not yet read": "receive_queue",
    "waiting for CPU": "qdisc",
    "at work": "send_queue",
    "reply's way": "receive_stack",
    "server paused": "application",
}
LEGEND_COLUMNS = "columns"
# In a figure of fewer pixels than the first a legend has the second's columns.
LEGEND_ROOM = ((400, 2), (760, 3), (100_000, 7))
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif"

CONFIG: Spec = {
    "background": "transparent",
    "font": _FONT,
    "padding": 2,
    "view": {"stroke": None},
    "axis": {
        "labelColor": colour("muted"),
        "titleColor": colour("muted"),
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "gridColor": colour("grid"),
        "domainColor": colour("edge"),
        "tickColor": colour("edge"),
        "labelOverlap": "greedy",
        "labelSeparation": 8,
        "labelLimit": 120,
    },
    "legend": {
        "labelColor": colour("ink"),
        "titleColor": colour("muted"),
        "labelFontSize": 12,
        "titleFontWeight": "normal",
        "symbolSize": 110,
        "labelLimit": 150,
        "offset": 8,
    },
    "text": {"font": _FONT, "fontSize": 12, "fill": colour("ink")},
    "bar": {"discreteBandSize": {"band": 0.72}},
}


def duration_expr(value: str) -> str:
    """Return a Vega expression that writes nanoseconds with the unit that fits.

    Four digits, as for people elsewhere; trailing zeros away.
    """
    steps = "".join(
        f"abs({value}) >= {size} ? format({value} / {size}, '.4~r') + ' {unit}' : "
        for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3))
    )
    return f"(!isValid({value}) ? 'not told' : {steps}format({value}, '.4~r') + ' ns')"


def bytes_expr(value: str) -> str:
    """Return a Vega expression that writes a number of bytes."""
    return (
        f"({value} >= 1e6 ? format({value} / 1e6, '.3~r') + ' MB' : "
        f"{value} >= 1e4 ? format({value} / 1e3, '.3~r') + ' kB' : "
        f"format({value}, '.4~r') + ' B')"
    )


def duration_axis(title: str, scale: Scale = "linear", **axis: Any) -> Spec:
    """Return title, scale and axis of an encoding of nanoseconds."""
    return {
        "type": "quantitative",
        "title": f"{title}{', log scale' if scale == 'log' else ''}",
        "scale": scale_of(scale),
        "axis": {"labelExpr": duration_expr("datum.value"), **ticks(scale), **axis},
    }


def number_axis(title: str, scale: Scale = "linear", **axis: Any) -> Spec:
    """Return title, scale and axis of an encoding of plain numbers."""
    return {
        "type": "quantitative",
        "title": f"{title}{', log scale' if scale == 'log' else ''}",
        "scale": scale_of(scale),
        "axis": {**ticks(scale), **axis},
    }


def scale_of(scale: Scale) -> Spec:
    """Return a scale that fits its data; bars on it bring their own zero."""
    if scale == "log":
        return {"type": scale, "nice": False}
    return {"type": scale, "zero": False}


def ticks(scale: Scale) -> Spec:
    """Return how many ticks an axis has; on a log scale decades are enough."""
    return {"tickCount": 5} if scale == "linear" else {"tickCount": 4}


def tooltip(fields: Mapping[str, str]) -> list[Spec]:
    """Return a tooltip of fields by their titles."""
    return [
        {"field": field, "title": title, "type": "nominal"}
        for field, title in fields.items()
    ]


def written(**expressions: str) -> list[Spec]:
    """Return transforms that add columns of texts."""
    return [
        {"calculate": expression, "as": name}
        for name, expression in expressions.items()
    ]


def legend_columns(width: int) -> int:
    """Return how many columns a legend has in a figure of so many pixels.

    Examples
    --------
    >>> [legend_columns(width) for width in (340, 500, 1000)]
    [2, 3, 7]
    """
    return next(columns for room, columns in LEGEND_ROOM if width < room)


def stage_scale(stages: Sequence[str]) -> Spec:
    """Return the colours of stages, or parts, in the order of the path."""
    return {"domain": list(stages), "range": [stage_colour(name) for name in stages]}


def stage_colour(stage: str) -> str:
    """Name a stage's colour; the whole is drawn in ink."""
    return colour("ink" if stage == WHOLE else _colour_name(stage))


def _colour_name(stage: str) -> str:
    name = _LIKE.get(stage, stage)
    return name if name in STAGES else "merged"


def on_stage_scale(stages: Sequence[str]) -> Spec:
    """Return the colours of text upon stages."""
    return {
        "domain": list(stages),
        "range": [colour(f"on-{_colour_name(name)}") for name in stages],
    }


def top_legend(names: Sequence[str], symbol: str = "square") -> Spec:
    """Return a legend of these names above the figure.

    Who draws it says in the parameter `columns` for how many there is room: a legend
    that asked for the width itself would be laid out before that is known.
    """
    long = max(map(len, names), default=0) > _LONG_NAME
    columns = {"expr": f"min({LEGEND_COLUMNS}, 2)" if long else LEGEND_COLUMNS}
    return {"orient": "top", "title": None, "columns": columns, "symbolType": symbol}
