"""The fit D = aS + b, or two lines that meet, beside what it was made of and leaves."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.fit.line import FEWEST_ROUND_TRIPS, fit_line
from latprof_analysis.fit.rounds import Floats, LowDelays, low_delays
from latprof_analysis.fit.slopes import fit_sides
from latprof_analysis.fit.trips import rounds_of
from latprof_analysis.fit.wire import Crossing, Packets
from latprof_analysis.report.parts import Chart, Figure, Part, Spec
from latprof_analysis.report.vega import (
    Scale,
    bytes_expr,
    colour,
    duration_axis,
    duration_expr,
    number_axis,
    tooltip,
    written,
)
from latprof_analysis.report.words import bytes_text, number, slug
from latprof_analysis.stats.distribution import percentiles
from latprof_analysis.text import rate, rate_span

_GRID = 60
_RESAMPLES = 400
_SEED = 1
_SCALES: tuple[tuple[str, Scale], ...] = (("linear", "linear"), ("log-log", "log"))


def fit_parts(
    protocol: str, trips: pd.DataFrame, fit: dict[str, Any], packets: Packets
) -> list[Part]:
    """Draw the round trips of a protocol, with the line or the two that the fit has."""
    sizes = trips["size_bytes"].to_numpy("float64")
    rtt = trips["rtt_ns"].to_numpy("float64")
    points = size_points(sizes, rtt)
    knot = (fit.get("hinge") or {}).get("knot_bytes")
    if fit.get("model") != "line" and not knot:
        return [_points_figure(protocol, points, fit)]
    rounds = rounds_of(trips["size_bytes"], trips["sent_ns"]).to_numpy("float64")
    some = (sizes > 0) & (rtt > 0)  # as the fit takes them
    low = low_delays(
        sizes[some],
        rtt[some],
        rounds[some],
        fewest=FEWEST_ROUND_TRIPS,
        resamples=_RESAMPLES,
        seed=_SEED,
    )
    if low.size_bytes.size < 2:
        few = "too few of the fit's sizes are drawn"
        return [_points_figure(protocol, points, fit | {"reason": few})]
    line = line_with_band(
        low, packets, fit["reply_mode"], knot_bytes=knot["value"] if knot else None
    )
    # of sizes too rare for the fit there is no residual
    points = points.merge(line[["size_bytes", "line_ns"]], "left", on="size_bytes")
    points["residual_ns"] = points["p10_ns"] - points["line_ns"]
    for end in ("low", "high"):
        points[f"residual_{end}_ns"] = points[f"p10_{end}_ns"] - points["line_ns"]
    return [
        _line_figure(protocol, points, line, fit),
        _residual_figure(protocol, points.dropna(subset=["line_ns"])),
    ]


def size_points(sizes: Floats, latency: Floats) -> pd.DataFrame:
    """Return n, p10 and median of each size, both with their intervals.

    Examples
    --------
    >>> points = size_points(np.repeat([64.0, 128.0], 20), np.arange(40.0))
    >>> points[["size_bytes", "n", "p10_ns", "median_ns"]].to_numpy().tolist()
    [[64.0, 20.0, 1.0, 9.0], [128.0, 20.0, 21.0, 29.0]]
    """
    rows = []
    for size in np.unique(sizes):
        p10, median = percentiles(latency[sizes == size], [0.1, 0.5])
        row = {"size_bytes": size, "n": p10.n}
        for name, one in (("p10", p10), ("median", median)):
            row[f"{name}_ns"] = one.value
            row[f"{name}_low_ns"] = one.as_dict()["low"]
            row[f"{name}_high_ns"] = one.as_dict()["high"]
        rows.append(row)
    return pd.DataFrame(rows).astype("float64")


def line_with_band(
    low: LowDelays,
    packets: Packets,
    reply_mode: Any,
    confidence: float = 0.95,
    *,
    knot_bytes: float | None = None,
) -> pd.DataFrame:
    """Return the fit's line at the measured and at other sizes, with its band.

    The band at each size holds the middle `confidence` of the lines through the
    resampled rounds at that size; it is no band for the whole line at once. With
    `knot_bytes` there is a line on each side of it, as `fit_round_trips` has them.
    """
    x = Crossing.round_trip(low.size_bytes, packets, reply_mode).wire_bytes
    first, last = low.size_bytes[[0, -1]]
    between = np.rint(np.geomspace(max(first, 1), last, _GRID))
    knots = [] if knot_bytes is None else [round(knot_bytes)]
    sizes = np.unique(np.concatenate([low.size_bytes, between, knots]))
    crossing = Crossing.round_trip(sizes, packets, reply_mode).wire_bytes
    if knot_bytes is None:
        line = fit_line(x, low)
        lines = line.slopes[:, None] * crossing + line.intercepts_ns[:, None]
    else:
        delays = np.vstack([low.delay_ns, low.resampled_ns])
        split = int((low.size_bytes <= knot_bytes).sum())
        below, above = (
            slopes[:, None] * crossing + intercepts_ns[:, None]
            for slopes, intercepts_ns in fit_sides(x, delays, split)
        )
        lines = np.where(sizes <= knot_bytes, below, above)
    tail = (1 - confidence) / 2
    ends = np.quantile(lines[1:], [tail, 1 - tail], axis=0)
    return pd.DataFrame(
        {
            "size_bytes": sizes,
            "line_ns": lines[0],
            "band_low_ns": np.minimum(ends[0], lines[0]),
            "band_high_ns": np.maximum(ends[1], lines[0]),
        }
    )


def hinge_sentence(hinge: dict[str, Any]) -> str:
    """Say where two lines meet, and the rate on each side.

    Examples
    --------
    >>> knot = {"value": 8000, "low": 4000, "high": 9000}
    >>> rate = {"value": 1e8, "low": 9.9e7, "high": 1.01e8}
    >>> side = {"bandwidth_bits_per_second": rate}
    >>> hinge_sentence({"knot_bytes": knot, "below": side, "above": side})[:46]
    'two lines that meet at 8,000 B (95%: 4,000 to '
    """
    knot = hinge["knot_bytes"]
    ends = f"{number(knot['low'])} to {bytes_text(knot['high'])}"
    sides = [f"{_rate_of(hinge[side])} {side}" for side in ("below", "above")]
    return (
        f"two lines that meet at {bytes_text(knot['value'])} (95%: {ends}): "
        f"{' and '.join(sides)}"
    )


def _rate_of(side: dict[str, Any]) -> str:
    """Write the rate of one side, or its slope where a rate may be anything."""
    found = side.get("bandwidth_bits_per_second")
    if found:
        return f"{rate(found['value'])} ({rate_span(found['low'], found['high'])})"
    slope = side["slope_ns_per_byte"]
    ends = f"{slope['low']:.3g} to {slope['high']:.3g}"
    return f"{slope['value']:.3g} ns/B ({ends})"


def _line_figure(
    protocol: str, points: pd.DataFrame, line: pd.DataFrame, fit: dict[str, Any]
) -> Figure:
    share = _percent(fit.get("unexplained_share"))
    text = f"a line D = aS + b leaves {share} of the delays' variance"
    if fit.get("hinge"):
        text = hinge_sentence(fit["hinge"])
    return Figure(
        name=f"fit-{slug(protocol)}",
        title=f"{protocol}: {text}",
        caption="Filled: 10th percentile of each size's round trips, through which "
        "the line goes; open: median; bars: their 95% intervals. Band: 95% of the "
        "lines through resampled rounds, at each size by itself. Where bars or band "
        "cannot be seen they are narrower than the mark.",
        alt=f"Round trip time against size for {protocol}: {text}.",
        data=pd.concat([points, line], ignore_index=True),
        charts=[_switch(partial(_line_layers, _with_bars(points)))],
        wide=True,
        main=True,
    )


def _percent(share: float | None) -> str:
    if share is None:
        return "an untold part"
    return "less than 0.01%" if share < 1e-4 else f"{100 * share:.2g}%"


def size_figure(
    kind: str, sizes: Floats, latency: Floats, fit: dict[str, Any]
) -> Figure:
    """Draw latency against size, without a line."""
    return _points_figure(kind, size_points(sizes, latency), fit)


def _points_figure(kind: str, points: pd.DataFrame, fit: dict[str, Any]) -> Figure:
    reason = fit.get("reason", "no fit was made")
    return Figure(
        name=f"fit-{slug(kind)}",
        title=f"{kind}, by size, without a line: {reason}",
        caption="Filled: 10th percentile of each size; open: median; bars: their 95% "
        "intervals.",
        alt=f"Latency against size for {kind}, without a line.",
        data=points,
        charts=[_switch(partial(_point_layers, _with_bars(points)))],
        wide=True,
        main=True,
    )


def _residual_figure(protocol: str, points: pd.DataFrame) -> Figure:
    worst = points.loc[points["residual_ns"].abs().idxmax()]
    share = abs(worst["residual_ns"]) / worst["line_ns"]
    text = f"the farthest size is {_percent(share)} off the line"
    x = _size_axis("log")
    y = duration_axis("10th percentile less the line")
    zero: Spec = {
        "mark": {"type": "rule", "color": colour("edge")},
        "encoding": {"y": {"datum": 0}},
    }
    layers = [zero, *_points_with_bars("residual", x, y, _with_bars(points))]
    return Figure(
        name=f"residuals-{slug(protocol)}",
        title=f"{protocol}, residuals: {text}",
        caption="What the line leaves of each size's 10th percentile; bars: the 95% "
        "interval of that percentile. A bow would say that a line is the wrong model.",
        alt=f"Residuals of the line against size for {protocol}: {text}.",
        data=points,
        charts=[Chart({"log": {"height": 260, "layer": layers, **_texts()}})],
        wide=True,
        main=True,
    )


def _switch(layers: Callable[[Scale], list[Spec]]) -> Chart:
    return Chart(
        {
            name: {"height": 300, "layer": layers(scale), **_texts()}
            for name, scale in _SCALES
        }
    )


def _texts() -> Spec:
    return {
        "transform": written(
            size=bytes_expr("datum.size_bytes"),
            **{
                name: duration_expr(f"datum.{name}_ns")
                for name in ("p10", "p10_low", "p10_high", "median", "line", "residual")
            },
        )
    }


def _size_axis(scale: Scale) -> Spec:
    axis: Spec = {"labelExpr": bytes_expr("datum.value")}
    if scale == "log":
        # powers of two, as sizes often are; 1, 4, 16, ...
        axis["values"] = [4**k for k in range(17)]
    across = number_axis("message size", scale, **axis)
    across["scale"] |= {"padding": 6, "nice": False}
    return across


def _with_bars(points: pd.DataFrame) -> set[str]:
    """Name what has an interval at any size; bars of no rows have no scale."""
    return {
        name
        for name in ("p10", "median", "residual")
        if f"{name}_low_ns" in points
        and len(points[[f"{name}_low_ns", f"{name}_high_ns"]].dropna())
    }


def _line_layers(bars: set[str], scale: Scale) -> list[Spec]:
    x = {"field": "size_bytes", **_size_axis(scale)}
    y = duration_axis("round trip time", scale)
    band: Spec = {
        "mark": {"type": "area", "color": colour("band"), "opacity": 0.6},
        "encoding": {
            "x": x,
            "y": {"field": "band_low_ns", **y},
            "y2": {"field": "band_high_ns"},
        },
    }
    line: Spec = {
        "mark": {"type": "line", "color": colour("mark"), "strokeWidth": 1.5},
        "encoding": {"x": x, "y": {"field": "line_ns", **y}},
    }
    drawn = {"transform": [{"filter": "isValid(datum.line_ns)"}]}
    return [drawn | band, drawn | line, *_point_layers(bars, scale)]


def _point_layers(bars: set[str], scale: Scale) -> list[Spec]:
    x, y = _size_axis(scale), duration_axis("round trip time", scale)
    return [
        *_points_with_bars("median", x, y, bars),
        *_points_with_bars("p10", x, y, bars),
    ]


def _points_with_bars(name: str, x: Spec, y: Spec, bars: set[str]) -> list[Spec]:
    filled = name != "median"
    ink = colour("ink" if filled else "muted")
    across = {"x": {"field": "size_bytes", **x}}
    bar: Spec = {
        "mark": {"type": "rule", "color": ink},
        "encoding": {
            **across,
            "y": {"field": f"{name}_low_ns", **y},
            "y2": {"field": f"{name}_high_ns"},
        },
    }
    return [
        *([bar] if name in bars else []),
        {
            "transform": [{"filter": f"isValid(datum.{name}_ns)"}],
            "mark": {
                "type": "point",
                "filled": filled,
                "fill": ink if filled else colour("card"),
                "stroke": ink,
                "size": 42,
                "opacity": 1,
            },
            "encoding": {
                **across,
                "y": {"field": f"{name}_ns", **y},
                "tooltip": tooltip(
                    {
                        "size": "size",
                        "n": "n",
                        "p10": "10th percentile",
                        "p10_low": "from (95%)",
                        "p10_high": "to (95%)",
                        "median": "median",
                        "line": "line",
                        "residual": "residual",
                    }
                ),
            },
        },
    ]
