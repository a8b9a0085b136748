"""The fit D = aS + b, or two lines that meet, beside what it was made of and leaves."""

from __future__ import annotations

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
    layer,
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
        return [size_figure(protocol, points, fit)]
    rounds = rounds_of(trips["size_bytes"], trips["sent_ns"]).astype(np.float64)
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
        return [size_figure(protocol, points, fit | {"reason": few})]
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
    """Return n, p10 and median of each size in ns, both with their intervals."""
    rows = []
    for size in np.unique(sizes):
        p10, median = percentiles(latency[sizes == size], [0.1, 0.5])
        row = {"size_bytes": size, "n": p10.n}
        for name, one in (("p10", p10), ("median", median)):
            estimate = one.as_dict()
            for end, key in (("", "value"), ("_low", "low"), ("_high", "high")):
                row[f"{name}{end}_ns"] = estimate[key]
        rows.append(row)
    return pd.DataFrame(rows).astype("float64")


def line_with_band(
    low: LowDelays,
    packets: Packets,
    reply_mode: Any,
    *,
    knot_bytes: float | None = None,
) -> pd.DataFrame:
    """Return the fit's line at the measured and at other sizes, with its band.

    The band at each size holds the middle 95% of the lines through the resampled
    rounds at that size; it is no band for the whole line at once. With
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
    ends = np.quantile(lines[1:], [0.025, 0.975], axis=0)
    return pd.DataFrame(
        {
            "size_bytes": sizes,
            "line_ns": lines[0],
            "band_low_ns": np.minimum(ends[0], lines[0]),
            "band_high_ns": np.maximum(ends[1], lines[0]),
        }
    )


def _hinge_sentence(hinge: dict[str, Any]) -> str:
    """Say where two lines meet, and the rate on each side."""
    sides = []
    for side in ("below", "above"):
        slope = hinge[side]["slope_ns_per_byte"]
        text = f"{slope['value']:.3g} ns/B ({slope['low']:.3g} to {slope['high']:.3g})"
        # of the slope alone where a rate may be anything
        if found := hinge[side].get("bandwidth_bits_per_second"):
            within = rate_span(found["low"], found["high"])
            text = f"{rate(found['value'])} ({within})"
        sides.append(f"{text} {side}")
    knot, low, high = (hinge["knot_bytes"][key] for key in ("value", "low", "high"))
    return (
        f"two lines that meet at {bytes_text(knot)} (95%: {number(low)} to "
        f"{bytes_text(high)}): {' and '.join(sides)}"
    )


def _line_figure(
    protocol: str, points: pd.DataFrame, line: pd.DataFrame, fit: dict[str, Any]
) -> Figure:
    share = _percent(fit.get("unexplained_share"))
    text = f"a line D = aS + b leaves {share} of the delays' variance"
    if fit.get("hinge"):
        text = _hinge_sentence(fit["hinge"])
    return Figure(
        name=f"fit-{slug(protocol)}",
        title=f"{protocol}: {text}",
        caption="Filled: 10th percentile of each size's round trips, through which "
        "the line goes; open: median; bars: their 95% intervals. Band: 95% of the "
        "lines through resampled rounds, at each size by itself. Where bars or band "
        "cannot be seen they are narrower than the mark.",
        alt=f"Round trip time against size for {protocol}: {text}.",
        data=pd.concat([points, line], ignore_index=True),
        charts=[_by_size(_with_bars(points), line=True)],
        main=True,
    )


def _percent(share: float | None) -> str:
    if share is None:
        return "an unknown part"
    return "less than 0.01%" if share < 1e-4 else f"{100 * share:.2g}%"


def size_figure(kind: str, points: pd.DataFrame, fit: dict[str, Any]) -> Figure:
    """Draw latency against size, as `size_points` has it, without a line."""
    reason = fit.get("reason", "no fit was made")
    return Figure(
        name=f"fit-{slug(kind)}",
        title=f"{kind}, by size, without a line: {reason}",
        caption="Filled: 10th percentile of each size; open: median; bars: their 95% "
        "intervals.",
        alt=f"Latency against size for {kind}, without a line.",
        data=points,
        charts=[_by_size(_with_bars(points), line=False)],
        main=True,
    )


def _residual_figure(protocol: str, points: pd.DataFrame) -> Figure:
    worst = points.loc[points["residual_ns"].abs().idxmax()]
    share = abs(worst["residual_ns"]) / worst["line_ns"]
    text = f"the farthest size is {_percent(share)} off the line"
    x, y = _size_axis("log"), duration_axis("10th percentile less the line")
    zero = layer("rule", {"y": {"datum": 0}}, color=colour("edge"))
    layers = [zero, *_points_with_bars("residual", x, y, _with_bars(points))]
    spec: Spec = {"height": 260, "layer": layers, "transform": _texts()}
    return Figure(
        name=f"residuals-{slug(protocol)}",
        title=f"{protocol}, residuals: {text}",
        caption="What the line leaves of each size's 10th percentile; bars: the 95% "
        "interval of that percentile. A bow would say that a line is the wrong model.",
        alt=f"Residuals of the line against size for {protocol}: {text}.",
        data=points,
        charts=[Chart({"log": spec})],
        main=True,
    )


def _by_size(bars: set[str], *, line: bool) -> Chart:
    """Draw the points of each size, with the line and its band or without."""
    scales: dict[str, Spec] = {}
    for name, scale in _SCALES:
        x, y = _size_axis(scale), duration_axis("round trip time", scale)
        layers = _line_layers(x, y) if line else []
        for which in ("median", "p10"):
            layers += _points_with_bars(which, x, y, bars)
        scales[name] = {"height": 300, "layer": layers, "transform": _texts()}
    return Chart(scales)


def _texts() -> list[Spec]:
    durations = ("p10", "p10_low", "p10_high", "median", "line", "residual")
    return written(
        size=bytes_expr("datum.size_bytes"),
        **{name: duration_expr(f"datum.{name}_ns") for name in durations},
    )


def _size_axis(scale: Scale) -> Spec:
    axis: Spec = {"labelExpr": bytes_expr("datum.value")}
    if scale == "log":
        # powers of two, as sizes often are; 1, 4, 16, ...
        axis["values"] = [4**k for k in range(17)]
    across = number_axis("message size", scale, **axis)
    across["scale"] |= {"padding": 6, "nice": False}
    return {"field": "size_bytes", **across}


def _with_bars(points: pd.DataFrame) -> set[str]:
    """Name what has an interval at any size; bars of no rows have no scale."""
    return {
        name
        for name in ("p10", "median", "residual")
        if f"{name}_low_ns" in points
        and len(points[[f"{name}_low_ns", f"{name}_high_ns"]].dropna())
    }


def _line_layers(x: Spec, y: Spec) -> list[Spec]:
    there = "isValid(datum.line_ns)"
    ends = {"y": {"field": "band_low_ns", **y}, "y2": {"field": "band_high_ns"}}
    at = {"x": x, "y": {"field": "line_ns", **y}}
    return [
        layer("area", {"x": x, **ends}, there, color=colour("band"), opacity=0.6),
        layer("line", at, there, color=colour("mark"), strokeWidth=1.5),
    ]


def _points_with_bars(name: str, x: Spec, y: Spec, bars: set[str]) -> list[Spec]:
    filled = name != "median"
    ink = colour("ink" if filled else "muted")
    low, high = {"field": f"{name}_low_ns", **y}, {"field": f"{name}_high_ns"}
    bar = layer("rule", {"x": x, "y": low, "y2": high}, color=ink)
    hover = tooltip(
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
    )
    points = layer(
        "point",
        {"x": x, "y": {"field": f"{name}_ns", **y}, "tooltip": hover},
        f"isValid(datum.{name}_ns)",
        filled=filled,
        fill=ink if filled else colour("card"),
        stroke=ink,
        size=42,
        opacity=1,
    )
    return [*([bar] if name in bars else []), points]
