"""How latencies are distributed: in three pieces, how much is above what, and modes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.report.parts import Chart, Figure, Missing, Part, Spec
from latprof_analysis.report.stage_parts import named_stages
from latprof_analysis.report.vega import (
    SWITCH,
    WHOLE,
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
from latprof_analysis.report.words import (
    bytes_text,
    duration_text,
    listed,
    number,
    slug,
    span,
)
from latprof_analysis.stages import STAGES
from latprof_analysis.stats.distribution import Ccdf, Piece, ccdf, three_pieces
from latprof_analysis.stats.quantiles import samples_needed
from latprof_analysis.text import percent

_HEIGHT = 200
# Each mode's name has a row of its own above the curve, so that none meets another.
_ROW = 18
_BEGINNING: Spec = {"expr": f"datum.row * {_ROW} + 4"}
_BINS = 60
_POINTS = 60
# Below one message a bar on a log scale would have no end.
_FLOOR = 0.5
# What tells lines apart without colour; the whole is solid and thick.
_DASHES = ([1, 0], [2, 2], [8, 3, 2, 3], [6, 3], [4, 4], [10, 3], [3, 1, 1, 1])


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


def pieces_figure(kind: str, latency_ns: Floats, what: str) -> Figure:
    """Draw a sample's fastest 95%, the next 4.9% and its slowest 0.1%."""
    rows, charts, told = [], [], []
    linear, log = (three_pieces(latency_ns, s, _BINS) for s in ("linear", "log"))
    for piece, on_log in zip(linear, log, strict=True):
        if not piece.count or piece.low is None or piece.high is None:
            told.append(f"{piece.name}: too few messages to reach it")
            continue
        rows += [_piece_rows(piece), _piece_rows(on_log)]
        where = span(piece.low, piece.high)
        if piece.low == piece.high:
            where = duration_text(piece.low)
        title = f"{piece.name}: {where}, n {number(piece.count)}"
        charts.append(Chart(_piece_scales(piece, what), title))
        if on_log.zeros:
            told.append(f"{number(on_log.zeros)} of 0 ns are not on the log scale")
    n = latency_ns.size
    return Figure(
        name=f"pieces-{slug(kind)}",
        title=f"{kind}: {what}, the body and the tail each on its own scale",
        caption=f"Histograms of {number(n)} messages, split by rank; each piece has "
        f"{_BINS} bins over its own range. " + ". ".join(told) + ("." if told else ""),
        alt=f"Three histograms of {what} of {kind}: "
        + "; ".join(chart.title for chart in charts)
        + ".",
        data=pd.concat(rows, ignore_index=True),
        charts=charts,
        wide=True,
    )


def ccdf_figure(kind: str, messages: pd.DataFrame) -> Figure:
    """Draw for each stage the share of messages that took at least so long."""
    rows = []
    whole = messages["end_to_end_ns"].to_numpy("float64")
    for name, times in (named_stages(messages) | {WHOLE: whole}).items():
        rows.append(_ccdf_rows(name, ccdf(times[~np.isnan(times)], _POINTS)))
    data = pd.concat(rows, ignore_index=True)
    text = _slow_share(data, len(messages))
    return Figure(
        name=f"ccdf-{slug(kind)}",
        title=f"{kind}: {text}",
        caption="Share of messages at or above each time, by stage, down to the slowest"
        f" one, thinned to {_POINTS} points each. Shaded: 95% interval of end_to_end "
        "at each time by itself, for messages that do not depend on each other; those "
        "of a busy link do.",
        alt=f"Complementary distribution of each stage of {kind}: {text}.",
        data=data,
        charts=[_ccdf_chart(list(dict.fromkeys(data["stage"])), data["share"].min())],
        wide=True,
        main=True,
    )


def sample_ccdf_figure(groups: dict[str, Floats], what: str) -> Figure:
    """Draw for each group of a sample the share that took at least so long."""
    rows = [_ccdf_rows(name, ccdf(values, _POINTS)) for name, values in groups.items()]
    data = pd.concat(rows, ignore_index=True)
    return Figure(
        name="ccdf-samples",
        title=f"{what}: how many took at least so long",
        caption="Share of latencies at or above each time, down to the slowest one.",
        alt=f"Complementary distribution of {what} of " + ", ".join(groups) + ".",
        data=data,
        charts=[_ccdf_chart(list(groups), data["share"].min())],
        wide=True,
        main=True,
    )


def _piece_rows(piece: Piece) -> pd.DataFrame:
    ends = piece.edges
    frame = pd.DataFrame(
        {"from_ns": ends[:-1], "to_ns": ends[1:], "messages": piece.counts}
    )
    frame = frame[frame["messages"] > 0]
    frame.insert(0, "bins", piece.scale)
    frame.insert(0, "piece", piece.name)
    return frame


def _piece_scales(piece: Piece, what: str) -> dict[str, Spec]:
    return {name: _piece_spec(piece, what, x, y) for name, (x, y) in SWITCH.items()}


def _piece_spec(piece: Piece, what: str, x: Scale, y: Scale) -> Spec:
    keep = f"datum.piece === '{piece.name}' && datum.bins === '{x}'"
    # there are no halves of messages
    whole = "datum.value % 1 ? '' : format(datum.value, '~s')"
    count = number_axis("messages", y, labelExpr=whole)
    count["scale"] |= {"domainMin": _FLOOR if y == "log" else 0}
    across = duration_axis(what, x)
    across["scale"] |= {"nice": False}
    return {
        "height": 200,
        "transform": [
            {"filter": keep},
            *written(
                where=f"{duration_expr('datum.from_ns')} + ' to ' + "
                + duration_expr("datum.to_ns")
            ),
        ],
        "mark": {
            "type": "rect",
            "fill": colour("mark"),
            # a bar that is too narrow to see keeps its outline
            "stroke": colour("mark"),
            "strokeWidth": 0.8,
        },
        "encoding": {
            "x": {"field": "from_ns", **across},
            "x2": {"field": "to_ns"},
            "y": {"field": "messages", **count},
            "y2": {"datum": _FLOOR if y == "log" else 0},
            "tooltip": tooltip({"where": what, "messages": "messages"}),
        },
    }


def _ccdf_rows(stage: str, tail: Ccdf) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "stage": stage,
            "latency_ns": tail.value,
            "share": tail.share,
            "share_low": tail.low,
            "share_high": tail.high,
            "n": tail.n,
        }
    )


def _ccdf_chart(stages: list[str], least: float) -> Chart:
    # log-log first: a tail is what this figure is for
    order = ("log-log", "semi-log", "linear")
    return Chart({name: _ccdf_spec(stages, least, *SWITCH[name]) for name in order})


def _ccdf_spec(stages: list[str], least: float, x: Scale, y: Scale) -> Spec:
    across = {"field": "latency_ns", **duration_axis("time", x)}
    share_format = "~%" if y == "linear" else ".4~%"
    up = number_axis("share that took at least so long", y, format=share_format)
    up["scale"] |= {"domain": [least / 2 if y == "log" else 0, 1]}
    texts = written(
        took=duration_expr("datum.latency_ns"),
        above="format(datum.share, '.4~%')",
        range="format(datum.share_low, '.3~%') + ' to ' + "
        "format(datum.share_high, '.3~%')",
    )
    positive = [{"filter": "datum.latency_ns > 0"}] if x == "log" else []
    return {
        "height": 320,
        "transform": [*positive, *texts],
        "layer": [
            *([_whole_band(across, up)] if WHOLE in stages else []),
            _ccdf_lines(stages, across, up),
            _hover_points(across, up),
        ],
    }


def _slow_share(data: pd.DataFrame, n: int) -> str:
    """Say in which stage the slowest of as many as n can tell spend most."""
    for of in (100, 10):
        slow = data[data["share"] <= 1 / of].groupby("stage")["latency_ns"].min()
        slow = slow.drop(WHOLE, errors="ignore")
        if len(slow) and n >= samples_needed(1 - 1 / of):
            most = slow.idxmax()
            took = duration_text(slow[most])
            return f"1 message in {of} spends {took} or more in {most}"
    return "the share of messages that took at least so long"


def _ccdf_lines(stages: list[str], across: Spec, up: Spec) -> Spec:
    colours = stage_scale(stages) if WHOLE in stages else _plain_scale(stages)
    legend = top_legend(stages, "stroke") | {"symbolSize": 350, "symbolStrokeWidth": 2}
    stage = {"field": "stage", "type": "nominal"}
    thick = {"test": f"datum.stage === '{WHOLE}'", "value": 2.5}
    return {
        "mark": {"type": "line", "interpolate": "step-before"},
        "encoding": {
            "x": across,
            "y": {"field": "share", **up},
            "color": {**stage, "scale": colours, "legend": legend},
            "strokeDash": {
                **stage,
                "scale": {"domain": stages, "range": _dashes(stages)},
            },
            "strokeWidth": {"condition": thick, "value": 1.6},
        },
    }


def _whole_band(across: Spec, up: Spec) -> Spec:
    return {
        "transform": [{"filter": f"datum.stage === '{WHOLE}'"}],
        "mark": {
            "type": "area",
            "color": colour("muted"),
            "opacity": 0.25,
            "clip": True,
            "interpolate": "step-before",
        },
        "encoding": {
            "x": across,
            "y": {"field": "share_low", **up},
            "y2": {"field": "share_high"},
        },
    }


def _hover_points(across: Spec, up: Spec) -> Spec:
    """Return points that are not seen, but tell their values."""
    return {
        "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0},
        "encoding": {
            "x": across,
            "y": {"field": "share", **up},
            "tooltip": tooltip(
                {
                    "stage": "stage",
                    "took": "at least",
                    "above": "share",
                    "range": "95% interval",
                    "n": "n",
                }
            ),
        },
    }


def _dashes(names: list[str]) -> list[list[int]]:
    cycle = [list(_DASHES[i % len(_DASHES)]) for i in range(len(names))]
    return [
        [1, 0] if name == WHOLE else dash
        for name, dash in zip(names, cycle, strict=True)
    ]


def _plain_scale(names: list[str]) -> Spec:
    colours = [colour(name) for name in np.resize(STAGES[::-1], len(names))]
    return {"domain": names, "range": colours}
