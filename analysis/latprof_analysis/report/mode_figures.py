"""Modes: the density of latencies on a log scale, each of its hills named."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd

from latprof_analysis.report.marks import (
    duration_axis,
    duration_expr,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.parts import Chart, Figure, Missing, Part, Spec
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import (
    bytes_text,
    duration_text,
    listed,
    number,
    slug,
)
from latprof_analysis.text import percent

_HEIGHT = 200
# Each mode's name has a row of its own above the curve, so that none meets another.
_ROW = 18
_BEGINNING: Spec = {"expr": f"datum.row * {_ROW} + 4"}


def mode_parts(kind: str, tail: dict[str, Any] | None, what: str) -> list[Part]:
    """Draw the density in which modes were found; `tail` as of `findings.tail`."""
    if not tail:
        return []
    found = tail["modes"]
    if not found.get("curve"):
        return [Missing(f"{kind}: modes", str(found["reason"]))]
    modes = found["modes"]
    data = _data(found)
    text = _told(modes)
    height = _HEIGHT + _ROW * len(modes)
    figure = Figure(
        name=f"modes-{slug(kind)}",
        title=f"{kind}: {text}",
        caption=_caption(found, tail),
        alt=f"Density of {what} of {kind} on a log scale: {text}.",
        data=data,
        charts=[Chart({"log": _spec(what, height, data)})],
        wide=True,
    )
    return [figure]


def _told(modes: list[dict[str, Any]]) -> str:
    if len(modes) == 1:
        return f"one mode, at {duration_text(modes[0]['value'])}"
    return f"{len(modes)} modes: {listed([_mode_text(mode) for mode in modes])}"


def _mode_text(mode: dict[str, Any]) -> str:
    text = f"{mode['name']} at {duration_text(mode['value'])}"
    text += f" ({percent(mode['share'])} of messages"
    longer = mode.get("longer_in")
    if longer:
        text += f", {duration_text(longer['by_ns'])} more in {longer['stage']}"
    return f"{text})"


def _caption(found: dict[str, Any], tail: dict[str, Any]) -> str:
    n, size = found["n"], tail["modes_of"]
    of = f" of {bytes_text(size)}" if size else ""
    whole = tail["modes_drawn_of"]
    drawn = f" drawn at random of {number(whole)}" if n < whole else ""
    text = (
        "Share of messages per unit of the natural logarithm of latency, n "
        f"{number(n)}{drawn}{of}, under a Gaussian kernel of "
        f"{found['bandwidth']:.2g}; the area is 1. Lines: modes. "
        f"{_sentence(found['reason'])} (Silverman's test, for messages that do not "
        "depend on each other: a queue that stood once for long may be a mode)."
    )
    stages = [
        f" Medians of {mode['name']} and the mode below it differ most in "
        f"{mode['longer_in']['stage']} (n {number(mode['longer_in']['n'])})."
        for mode in found["modes"]
        if "longer_in" in mode
    ]
    return text + "".join(stages)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _data(found: dict[str, Any]) -> pd.DataFrame:
    curve = pd.DataFrame(found["curve"], columns=["latency_ns", "density"])
    curve.insert(0, "role", "curve")
    modes = pd.DataFrame(
        {
            "role": "mode",
            "latency_ns": mode["value"],
            "mode": mode["name"],
            "share": mode["share"],
            "share_low": mode["share_low"],
            "share_high": mode["share_high"],
            "from_ns": mode["low"],
            "to_ns": mode["high"],
            "n": found["n"],
        }
        for mode in found["modes"]
    )
    return pd.concat([curve, modes], ignore_index=True)


def _sides(data: pd.DataFrame) -> dict[str, list[str]]:
    """Tell on which side of its line each mode's name has more room."""
    left = _from_middle(data) > 0
    sides = {"left": left[left], "right": left[~left]}
    return {side: list(some.index) for side, some in sides.items() if len(some)}


def _rows(data: pd.DataFrame) -> list[str]:
    """Return modes by the rows of their names: no line but an outer one is crossed."""
    return list(_from_middle(data).abs().sort_values(ascending=False).index)


def _from_middle(data: pd.DataFrame) -> pd.Series[float]:
    """Return how far each mode is from the middle of the figure."""
    ends = data["latency_ns"].min(), data["latency_ns"].max()
    modes = data[data["role"] == "mode"].set_index("mode")["latency_ns"]
    return (modes / math.sqrt(ends[0] * ends[1])).map(math.log)


def _spec(what: str, height: int, data: pd.DataFrame) -> Spec:
    x = {"field": "latency_ns", **duration_axis(what, "log")}
    y = number_axis("density")
    y["scale"] = {"zero": True, "nice": False, "range": [height, height - _HEIGHT + 4]}
    curve: Spec = {
        "transform": [{"filter": "datum.role === 'curve'"}],
        "mark": {
            "type": "area",
            "color": colour("band"),
            "line": {"color": colour("mark"), "strokeWidth": 2},
        },
        "encoding": {
            "x": x,
            "y": {"field": "density", **y},
            "tooltip": tooltip({"took": what, "dense": "density"}),
        },
    }
    texts = written(
        took=duration_expr("datum.latency_ns"),
        dense="format(datum.density, '.3~r')",
        part="format(datum.share, '.1%') + ' (' + format(datum.share_low, '.1%')"
        " + ' to ' + format(datum.share_high, '.1%') + ')'",
        row=f"indexof({_rows(data)}, datum.mode)",
        label=f"datum.mode + ': ' + {duration_expr('datum.latency_ns')}"
        " + ', ' + format(datum.share, '.1%')",
        range=f"{duration_expr('datum.from_ns')} + ' to ' + "
        + duration_expr("datum.to_ns"),
    )
    return {
        "height": height,
        "transform": texts,
        "layer": [curve, *_mode_layers(x, height, _sides(data))],
    }


def _mode_layers(x: Spec, height: int, sides: dict[str, list[str]]) -> list[Spec]:
    hover = tooltip(
        {
            "mode": "mode",
            "took": "at",
            "part": "share (95%)",
            "range": "from valley to valley",
        }
    )
    line: Spec = {
        "transform": [{"filter": "datum.role === 'mode'"}],
        "mark": {
            "type": "rule",
            "color": colour("ink"),
            "strokeWidth": 1.5,
            "strokeDash": [4, 3],
            "y": _BEGINNING,
            "y2": height,
        },
        "encoding": {"x": x, "tooltip": hover},
    }
    # a line may pass where a name stands: the first is a ground for the second
    looks = {"stroke": colour("card"), "strokeWidth": 5}, {"fill": colour("ink")}
    names = [
        _names(x, side, modes, look) for side, modes in sides.items() for look in looks
    ]
    return [line, *names]


def _names(x: Spec, side: str, modes: list[str], look: Spec) -> Spec:
    return {
        "transform": [{"filter": f"indexof({modes}, datum.mode) >= 0"}],
        "mark": {
            "type": "text",
            "align": "right" if side == "left" else "left",
            "dx": -6 if side == "left" else 6,
            "baseline": "top",
            "y": _BEGINNING,
            **look,
        },
        "encoding": {"x": x, "text": {"field": "label", "type": "nominal"}},
    }
