"""How latencies are distributed: in three pieces, how much is above what, and modes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import cycle
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
    layer,
    lines_apart,
    number_axis,
    stage_scale,
    tooltip,
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
from latprof_analysis.stats.distribution import Piece, ccdf, three_pieces
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
# Dashes that distinguish lines without colour; the whole is solid and thick.
_SOLID = [1, 0]
_DASHES = (_SOLID, [2, 2], [8, 3, 2, 3], [6, 3], [4, 4], [10, 3], [3, 1, 1, 1])


def mode_parts(kind: str, tail: dict[str, Any] | None, what: str) -> list[Part]:
    """Draw the density in which modes were found; `tail` as of `findings.tail`."""
    if not tail:
        return []
    found = tail["modes"]
    if not found.get("curve"):
        return [Missing(f"{kind}: modes", str(found["reason"]))]
    text = _said(found["modes"])
    data = _data(found)
    figure = Figure(
        name=f"modes-{slug(kind)}",
        title=f"{kind}: {text}",
        caption=_caption(found, tail),
        alt=f"Density of {what} of {kind} on a log scale: {text}.",
        data=data,
        charts=[Chart({"log": _spec(what, data)})],
    )
    return [figure]


def _said(modes: list[dict[str, Any]]) -> str:
    if len(modes) == 1:
        return f"one mode, at {duration_text(modes[0]['value'])}"
    texts = []
    for mode in modes:
        text = f"{mode['name']} at {duration_text(mode['value'])}"
        text += f" ({percent(mode['share'])} of messages"
        if longer := mode.get("longer_in"):
            text += f", {duration_text(longer['by_ns'])} more in {longer['stage']}"
        texts.append(f"{text})")
    return f"{len(modes)} modes: {listed(texts)}"


def _caption(found: dict[str, Any], tail: dict[str, Any]) -> str:
    n, size = found["n"], tail["modes_of"]
    of = f" of {bytes_text(size)}" if size else ""
    whole = tail["modes_drawn_of"]
    drawn = f" drawn at random of {number(whole)}" if n < whole else ""
    reason = found["reason"]
    text = (
        "Share of messages per unit of the natural logarithm of latency, n "
        f"{number(n)}{drawn}{of}, under a Gaussian kernel of "
        f"{found['bandwidth']:.2g}; the area is 1. Lines: modes. "
        f"{reason[:1].upper()}{reason[1:]} (Silverman's test, for messages that do not "
        "depend on each other: a queue that stood once for long may be a mode)."
    )
    stages = [
        f" Medians of {mode['name']} and the mode below it differ most in "
        f"{mode['longer_in']['stage']} (n {number(mode['longer_in']['n'])})."
        for mode in found["modes"]
        if "longer_in" in mode
    ]
    return text + "".join(stages)


def _data(found: dict[str, Any]) -> pd.DataFrame:
    curve = pd.DataFrame(found["curve"], columns=["latency_ns", "density"])
    names = {"value": "latency_ns", "name": "mode", "low": "from_ns", "high": "to_ns"}
    modes = pd.DataFrame(found["modes"]).rename(columns=names)
    both = [curve.assign(role="curve"), modes.assign(role="mode", n=found["n"])]
    shares = ["share", "share_low", "share_high"]
    columns = [
        "role",
        "latency_ns",
        "density",
        "mode",
        *shares,
        "from_ns",
        "to_ns",
        "n",
    ]
    return pd.concat(both, ignore_index=True)[columns]


def _spec(what: str, data: pd.DataFrame) -> Spec:
    modes = data[data["role"] == "mode"].set_index("mode")["latency_ns"]
    middle = math.sqrt(data["latency_ns"].min() * data["latency_ns"].max())
    # how far each mode is from the middle of the figure
    off = (modes / middle).map(math.log)
    # of names in this order no line but an outer one is crossed
    rows = list(off.abs().sort_values(ascending=False).index)
    height = _HEIGHT + _ROW * len(modes)
    x = {"field": "latency_ns", **duration_axis(what, "log")}
    y = number_axis("density")
    y["scale"] = {"zero": True, "nice": False, "range": [height, height - _HEIGHT + 4]}
    hover = tooltip({"took": what, "dense": "density"})
    curve = layer(
        "area",
        {"x": x, "y": {"field": "density", **y}, "tooltip": hover},
        "datum.role === 'curve'",
        color=colour("band"),
        line={"color": colour("mark"), "strokeWidth": 2},
    )
    at, low, high = (
        duration_expr(f"datum.{name}_ns") for name in ("latency", "from", "to")
    )
    texts = written(
        took=at,
        dense="format(datum.density, '.3~r')",
        part="format(datum.share, '.1%') + ' (' + format(datum.share_low, '.1%')"
        " + ' to ' + format(datum.share_high, '.1%') + ')'",
        row=f"indexof({rows}, datum.mode)",
        label=f"datum.mode + ': ' + {at} + ', ' + format(datum.share, '.1%')",
        range=f"{low} + ' to ' + {high}",
    )
    layers = [curve, *_mode_layers(x, height, off)]
    return {"height": height, "transform": texts, "layer": layers}


def _mode_layers(x: Spec, height: int, off: pd.Series[float]) -> list[Spec]:
    """Return a line for each mode, and its name on the side that has more room."""
    titles = {"mode": "mode", "took": "at", "part": "share (95%)"}
    hover = tooltip({**titles, "range": "from valley to valley"})
    line = layer(
        "rule",
        {"x": x, "tooltip": hover},
        "datum.role === 'mode'",
        color=colour("ink"),
        strokeWidth=1.5,
        strokeDash=[4, 3],
        y=_BEGINNING,
        y2=height,
    )
    sides = ("right", -6, off > 0), ("left", 6, off <= 0)
    # a line may pass where a name stands: the first is a ground for the second
    looks = {"stroke": colour("card"), "strokeWidth": 5}, {"fill": colour("ink")}
    names = [
        layer(
            "text",
            {"x": x, "text": {"field": "label", "type": "nominal"}},
            f"indexof({list(off[there].index)}, datum.mode) >= 0",
            align=align,
            dx=dx,
            baseline="top",
            y=_BEGINNING,
            **look,
        )
        for align, dx, there in sides
        if there.any()
        for look in looks
    ]
    return [line, *names]


def pieces_figure(kind: str, latency_ns: Floats, what: str) -> Figure:
    """Draw a sample's fastest 95%, the next 4.9% and its slowest 0.1%."""
    rows, charts, notes = [], [], []
    linear, log = (three_pieces(latency_ns, s, _BINS) for s in ("linear", "log"))
    for piece, on_log in zip(linear, log, strict=True):
        if not piece.count or piece.low is None or piece.high is None:
            notes.append(f"{piece.name}: too few messages to reach it")
            continue
        rows += [_piece_rows(piece), _piece_rows(on_log)]
        one = piece.low == piece.high
        where = duration_text(piece.low) if one else span(piece.low, piece.high)
        scales = {s: _piece_spec(piece.name, what, *SWITCH[s]) for s in SWITCH}
        title = f"{piece.name}: {where}, n {number(piece.count)}"
        charts.append(Chart(scales, title))
        if on_log.zeros:
            notes.append(f"{number(on_log.zeros)} of 0 ns are not on the log scale")
    titles = "; ".join(chart.title for chart in charts)
    return Figure(
        name=f"pieces-{slug(kind)}",
        title=f"{kind}: {what}, the body and the tail each on its own scale",
        caption=f"Histograms of {number(latency_ns.size)} messages, split by rank; "
        f"each piece has {_BINS} bins over its own range. "
        + ". ".join(notes)
        + ("." if notes else ""),
        alt=f"Three histograms of {what} of {kind}: {titles}.",
        data=pd.concat(rows, ignore_index=True),
        charts=charts,
    )


def _piece_rows(piece: Piece) -> pd.DataFrame:
    bins = {"from_ns": piece.edges[:-1], "to_ns": piece.edges[1:]}
    which = {"piece": piece.name, "bins": piece.scale}
    frame = pd.DataFrame({**which, **bins, "messages": piece.counts})
    return frame[frame["messages"] > 0]


def _piece_spec(piece: str, what: str, x: Scale, y: Scale) -> Spec:
    # there are no halves of messages
    whole = "datum.value % 1 ? '' : format(datum.value, '~s')"
    floor = _FLOOR if y == "log" else 0
    count = number_axis("messages", y, labelExpr=whole)
    count["scale"] |= {"domainMin": floor}
    across = duration_axis(what, x)
    across["scale"] |= {"nice": False}
    low, high = duration_expr("datum.from_ns"), duration_expr("datum.to_ns")
    bars = layer(
        "rect",
        {
            "x": {"field": "from_ns", **across},
            "x2": {"field": "to_ns"},
            "y": {"field": "messages", **count},
            "y2": {"datum": floor},
            "tooltip": tooltip({"where": what, "messages": "messages"}),
        },
        fill=colour("mark"),
        # a bar that is too narrow to see keeps its outline
        stroke=colour("mark"),
        strokeWidth=0.8,
    )
    kept = {"filter": f"datum.piece === '{piece}' && datum.bins === '{x}'"}
    texts = written(where=f"{low} + ' to ' + {high}")
    return {"height": 200, "transform": [kept, *texts], **bars}


def ccdf_figure(kind: str, messages: pd.DataFrame) -> Figure:
    """Draw for each stage the share of messages that took at least so long."""
    whole = messages["end_to_end_ns"].to_numpy("float64")
    data = _ccdf_rows(named_stages(messages) | {WHOLE: whole})
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
        charts=[_ccdf_chart(data)],
        main=True,
    )


def sample_ccdf_figure(groups: dict[str, Floats], what: str) -> Figure:
    """Draw for each group of a sample the share that took at least so long."""
    data = _ccdf_rows(groups)
    return Figure(
        name="ccdf-samples",
        title=f"{what}: how many took at least so long",
        caption="Share of latencies at or above each time, down to the slowest one.",
        alt=f"Complementary distribution of {what} of " + ", ".join(groups) + ".",
        data=data,
        charts=[_ccdf_chart(data)],
        main=True,
    )


def _ccdf_rows(groups: Mapping[str, Floats]) -> pd.DataFrame:
    frames = []
    for name, times in groups.items():
        tail = ccdf(times[~np.isnan(times)], _POINTS)
        shares = {"share": tail.share, "share_low": tail.low, "share_high": tail.high}
        columns = {"stage": name, "latency_ns": tail.value, **shares, "n": tail.n}
        frames.append(pd.DataFrame(columns))
    return pd.concat(frames, ignore_index=True)


def _slow_share(data: pd.DataFrame, n: int) -> str:
    """Say in which stage the slowest spend most, of as many as n can show."""
    for of in (100, 10):
        slow = data[data["share"] <= 1 / of].groupby("stage")["latency_ns"].min()
        slow = slow.drop(WHOLE, errors="ignore")
        if len(slow) and n >= samples_needed(1 - 1 / of):
            most = slow.idxmax()
            took = duration_text(slow[most])
            return f"1 message in {of} spends {took} or more in {most}"
    return "the share of messages that took at least so long"


def _ccdf_chart(data: pd.DataFrame) -> Chart:
    stages, least = list(dict.fromkeys(data["stage"])), float(data["share"].min())
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
        "layer": _ccdf_layers(stages, across, up),
    }


def _ccdf_layers(stages: list[str], across: Spec, up: Spec) -> list[Spec]:
    """Return the band of the whole, lines, and points that only show their values."""
    line = {"x": across, "y": {"field": "share", **up}}
    is_whole = f"datum.stage === '{WHOLE}'"
    ends = {"y": {"field": "share_low", **up}, "y2": {"field": "share_high"}}
    band = layer(
        "area",
        {"x": across, **ends},
        is_whole,
        color=colour("muted"),
        opacity=0.25,
        clip=True,
        interpolate="step-before",
    )
    hues = stage_scale(stages)["range"]
    if WHOLE not in stages:
        hues = [colour(name) for name in np.resize(STAGES[::-1], len(stages))]
    dashes = [
        _SOLID if name == WHOLE else dash
        for name, dash in zip(stages, cycle(_DASHES), strict=False)
    ]
    apart = lines_apart("stage", stages, hues, dashes)
    width = {"condition": {"test": is_whole, "value": 2.5}, "value": 1.6}
    lines = layer(
        "line", {**line, **apart, "strokeWidth": width}, interpolate="step-before"
    )
    titles = {"stage": "stage", "took": "at least", "above": "share"}
    hover = tooltip({**titles, "range": "95% interval", "n": "n"})
    points = layer("point", {**line, "tooltip": hover}, filled=True, size=60, opacity=0)
    return [*([band] if WHOLE in stages else []), lines, points]
