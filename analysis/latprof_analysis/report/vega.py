"""From the report's figures to Vega-Lite's specifications, and to pictures.

Specifications name a colour as ``var(--name)``: the page looks it up in its style
sheet, so that a figure follows the theme without being drawn anew; `concrete` puts
the light colours into a figure that stands by itself. Stages differ in lightness as
much as in hue, also to eyes that lack a cone; the figures say names in words too.

vl-convert carries Vega and Vega-Lite with it: figures are drawn by it, or by the
scripts that it hands out for the page; nothing is fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pandas as pd

from latprof_analysis.csv_cells import csv_text
from latprof_analysis.extras import needed
from latprof_analysis.report.parts import Chart, Figure, Spec
from latprof_analysis.stages import MODEL, STAGES

# What carries text must reach 4.5 against what it stands on, a mark 3 (WCAG 2.2,
# 1.4.3 and 1.4.11).
_BLACK, _WHITE = "#0e1116", "#ffffff"
# Of the light theme, where the others carry white text; in the dark all carry black.
_CARRY_BLACK = [stage.name for stage in MODEL if stage.carries_black]
# By name: light, dark; `on-` a stage is what is written upon it.
_COLOURS: Mapping[str, tuple[str, str]] = {
    "paper": ("#f7f7f5", "#131518"),
    "card": ("#ffffff", "#1b1e24"),
    "ink": ("#1b1e23", "#e8eaee"),
    "muted": ("#565d68", "#a7b0bc"),
    "grid": ("#e6e7e9", "#31363f"),
    "edge": ("#878e99", "#75808f"),
    "link": ("#0b57ad", "#82bcff"),
    "warn": ("#8a4b00", "#f3c05c"),
    "warn-paper": ("#fff6e5", "#2c2415"),
    "mark": ("#0b62c4", "#5aa4fb"),
    "mark-2": ("#b8321f", "#ee6c55"),
    "band": ("#8cb8ea", "#3b6596"),
    **{stage.name: stage.colours for stage in MODEL},
    "merged": ("#2f3338", "#dfe3e8"),
    **{
        f"on-{stage}": (_BLACK if stage in _CARRY_BLACK else _WHITE, _BLACK)
        for stage in (*STAGES, "merged")
    },
}
LIGHT, DARK = (
    {name: both[theme] for name, both in _COLOURS.items()} for theme in (0, 1)
)
_NAMED = re.compile(r"var\(--([a-z0-9_-]+)\)")


def colour(name: str) -> str:
    """Name a colour of the theme."""
    if name not in LIGHT:
        raise KeyError(name)
    return f"var(--{name})"


def style_sheet() -> str:
    """Return the colours as CSS: light, dark where asked for, light on paper."""
    light, dark = (
        "".join(f"--{name}:{value};" for name, value in colours.items())
        for colours in (LIGHT, DARK)
    )
    return (
        f":root{{color-scheme:light;{light}}}"
        "@media screen and (prefers-color-scheme:dark){"
        f":root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}"
    )


def concrete(spec: Spec) -> Spec:
    """Return a specification with the light theme's colours in place of names."""
    text = _NAMED.sub(lambda name: LIGHT[name[1]], json.dumps(spec))
    made: Spec = json.loads(text)
    return made


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
    "not yet answered": "send_queue",
    "on CPU": "send_queue",
    "waiting for CPU again": "qdisc",
    "asleep": "application",
    "reply's way": "receive_stack",
    "server paused": "application",
    "not yet read by client": "receive_queue",
    "client waiting for CPU": "qdisc",
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


def number_axis(title: str, scale: Scale = "linear", **axis: Any) -> Spec:
    """Return title, scale and axis of an encoding of plain numbers."""
    log = scale == "log"
    return {
        "type": "quantitative",
        "title": f"{title}, log scale" if log else title,
        # bars bring their own zero; on a log scale decades are ticks enough
        "scale": {"type": scale, "nice" if log else "zero": False},
        "axis": {"tickCount": 4 if log else 5, **axis},
    }


def duration_axis(title: str, scale: Scale = "linear", **axis: Any) -> Spec:
    """Return title, scale and axis of an encoding of nanoseconds."""
    made = number_axis(title, scale, **axis)
    labels = {"labelExpr": duration_expr("datum.value")}
    return {**made, "axis": labels | made["axis"]}


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


def stage_scale(stages: Sequence[str], upon: str = "") -> Spec:
    """Return the colours of stages, or parts, in the order of the path."""
    colours = [colour(f"{upon}{_colour_name(name)}") for name in stages]
    return {"domain": list(stages), "range": colours}


def _colour_name(stage: str) -> str:
    """Name a stage's colour; the whole is drawn in ink."""
    if stage == WHOLE:
        return "ink"
    name = _LIKE.get(stage, stage)
    return name if name in STAGES else "merged"


def on_stage_scale(stages: Sequence[str]) -> Spec:
    """Return the colours of text upon stages."""
    return stage_scale(stages, "on-")


def top_legend(names: Sequence[str], symbol: str = "square") -> Spec:
    """Return a legend of these names above the figure.

    Who draws it says in the parameter `columns` for how many there is room: a legend
    that asked for the width itself would be laid out before that is known.
    """
    long = max(map(len, names), default=0) > _LONG_NAME
    columns = {"expr": f"min({LEGEND_COLUMNS}, 2)" if long else LEGEND_COLUMNS}
    return {"orient": "top", "title": None, "columns": columns, "symbolType": symbol}


VEGA_LITE = "6.4"


def converter() -> Any:
    """Return vl-convert, which carries Vega."""
    with needed("draw a report"):
        import vl_convert
    return vl_convert


def script_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, which sets vegaEmbed."""
    snippet = "window.vegaEmbed = vegaEmbed;"
    bundle = converter().javascript_bundle(snippet=snippet, vl_version=VEGA_LITE)
    return str(bundle)


def inline_data(figure: Figure) -> Spec:
    """Return a figure's table as a specification holds it: as its CSV text."""
    types = {
        str(name): "number" if pd.api.types.is_numeric_dtype(column) else "string"
        for name, column in figure.data.items()
    }
    return {
        "values": csv_text(figure.data),
        "format": {"type": "csv", "parse": types},
    }


def svg(figure: Figure, chart: Chart, width: int) -> str:
    """Draw one chart of a figure at its first scale, in the light theme's colours."""
    own = next(iter(chart.scales.values()))
    columns = {"name": LEGEND_COLUMNS, "value": legend_columns(width)}
    spec: dict[str, Any] = {
        **own,
        "width": width,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": CONFIG | {"font": "Liberation Sans, Arial, sans-serif"},
        # who draws it may have a wider font than the one that was measured with
        "padding": {"left": 16, "right": 10, "top": 2, "bottom": 2},
        "data": inline_data(figure),
        "params": [*own.get("params", ()), columns],
    }
    drawn = converter().vegalite_to_svg(
        concrete(spec), vl_version=VEGA_LITE, allowed_base_urls=[]
    )
    return str(drawn)


def layer(kind: str, encoding: Spec, only: str = "", **look: Any) -> Spec:
    """Return marks of one kind, of the rows of which the expression `only` is true."""
    kept = {"transform": [{"filter": only}]} if only else {}
    return {**kept, "mark": {"type": kind, **look}, "encoding": encoding}


def named(field: str, scale: Spec, **more: Any) -> Spec:
    """Return an encoding of names, each of which has its own look."""
    return {"field": field, "type": "nominal", "scale": scale, **more}


def stage_hues(stages: Sequence[str]) -> Spec:
    """Return an encoding of stages, or parts, by their colours, with its legend."""
    return named("stage", stage_scale(stages), legend=top_legend(stages))


def lines_apart(
    field: str,
    names: Sequence[str],
    colours: Sequence[str],
    dashes: Sequence[Sequence[int]],
) -> Spec:
    """Return encodings that set lines apart by colour, and without it by dashes."""
    legend = top_legend(names, "stroke") | {"symbolSize": 350, "symbolStrokeWidth": 2}
    return {
        "color": named(field, {"domain": names, "range": colours}, legend=legend),
        "strokeDash": named(field, {"domain": names, "range": dashes}),
    }
