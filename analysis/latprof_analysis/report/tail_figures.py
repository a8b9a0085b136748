"""How latencies are distributed: in three pieces, and how much is above what."""

from __future__ import annotations

import numpy as np
import pandas as pd

from latprof_analysis.distribution import Ccdf, Piece, ccdf, three_pieces
from latprof_analysis.fits.rounds import Floats
from latprof_analysis.quantiles import samples_needed
from latprof_analysis.report.marks import (
    SWITCH,
    WHOLE,
    Scale,
    duration_axis,
    duration_expr,
    number_axis,
    stage_scale,
    tooltip,
    top_legend,
    written,
)
from latprof_analysis.report.parts import Chart, Figure, Spec
from latprof_analysis.report.stage_rows import named_stages
from latprof_analysis.report.theme import colour
from latprof_analysis.report.words import duration_text, number, slug, span
from latprof_analysis.stages import STAGES

_BINS = 60
_POINTS = 60
# Below one message a bar on a log scale would have no end.
_FLOOR = 0.5
# What tells lines apart without colour; the whole is solid and thick.
_DASHES = ([1, 0], [2, 2], [8, 3, 2, 3], [6, 3], [4, 4], [10, 3], [3, 1, 1, 1])


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
