"""Clocks of several hosts in a report: their matrix, and their course over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.report.clock_words import clock_tables, clock_warnings, clocks_of
from latprof_analysis.report.parts import Chart, Figure, Items, Part, Section, Spec
from latprof_analysis.report.vega import (
    colour,
    duration_axis,
    layer,
    number_axis,
    tooltip,
)
from latprof_analysis.report.words import duration_text, slug

_MOST_PAIRS = 6
_MOST_POINTS = 600  # of a way's delays
_NS_PER_SECOND = 1e9


def clock_sections(
    document: Mapping[str, Any], messages: pd.DataFrame
) -> list[Section]:
    """Lay out what is known of hosts' clocks; none of one host alone."""
    clocks = list(clocks_of(document))
    if not clocks:
        return []
    parts: list[Part] = [*clock_tables(document)]
    if unknown := list(clock_warnings(document)):
        parts.append(Items(unknown))
    for one in clocks:
        for pair in one["pairs"][:_MOST_PAIRS]:
            parts += [*_offset_figure(pair), *_delay_figure(pair, messages)]
    return [Section("clocks", "The hosts' clocks", parts)]


def _offset_figure(pair: Mapping[str, Any]) -> Iterator[Figure]:
    """Draw how far two wall clocks are apart, less a straight line, with its band."""
    course = pair["over_time"]
    data = pd.DataFrame(
        {
            "t_s": np.array(course["t_s"], "f8"),
            **{
                name: np.array([np.nan if x is None else x for x in course[name]], "f8")
                for name in ("offset_ns", "low_ns", "high_ns")
            },
            "state": course["state"],
        }
    )
    if len(data) < 2:
        return
    slope, start = np.polyfit(data["t_s"], data["offset_ns"], 1)
    for name in ("offset_ns", "low_ns", "high_ns"):
        data[name] -= start + slope * data["t_s"]
    one, other = pair["hosts"]
    width = data["high_ns"] - data["low_ns"]
    text = "its interval is not known"
    if width.notna().any():
        text = f"its interval is {duration_text(width.median())} wide at the median"
    yield Figure(
        name=f"offset-{slug(f'{one}-{other}')}",
        title=f"{other}'s clock against {one}'s over time: {text}",
        caption="How far the wall clock is ahead, less the straight line of "
        f"{duration_text(abs(slope))} a second; the band is where it may truly be.",
        alt=f"Offset of two clocks over time with its interval; {text}.",
        data=data,
        charts=[Chart({"linear": _offset_spec()})],
    )


def _offset_spec() -> Spec:
    x = {"field": "t_s", **number_axis("time, s")}
    y = {"field": "offset_ns", **duration_axis("ahead, less its line")}
    ends = {"y": {**y, "field": "low_ns"}, "y2": {"field": "high_ns"}}
    known = "isValid(datum.low_ns) && isValid(datum.high_ns)"
    tips = tooltip({"t_s": "time, s", "offset_ns": "ns", "state": "state"})
    return {
        "layer": [
            layer("area", {"x": x, **ends}, known, color=colour("band"), opacity=0.6),
            layer("line", {"x": x, "y": y, "tooltip": tips}, color=colour("mark")),
        ]
    }


def _delay_figure(pair: Mapping[str, Any], messages: pd.DataFrame) -> Iterator[Figure]:
    """Draw transit both ways with its interval."""
    one, other = pair["hosts"]
    frames = []
    for ends in ((one, other), (other, one)):
        rows = _way(messages, *ends)
        if len(rows):
            frames.append(rows)
    if not frames:
        return
    data = pd.concat(frames, ignore_index=True)
    data["t_s"] -= data["t_s"].min()
    ways = list(dict.fromkeys(data["direction"]))
    medians = data.groupby("direction", sort=False)["transit_ns"].median()
    text = ", ".join(f"{way} {duration_text(medians[way])}" for way in ways)
    yield Figure(
        name=f"transit-{slug(f'{one}-{other}')}",
        title=f"One-way delay between {one} and {other}: {text} at the median",
        caption=f"Transit of messages, evenly taken, at most {_MOST_POINTS} of a way. "
        "The bars are where it may truly be, alike for all of one time: what both ways "
        "differ by is known no better, what each of them varies by is.",
        alt=f"One-way delays both ways over time with intervals; medians: {text}.",
        data=data,
        charts=[
            Chart({"linear": _delay_spec(way, i == len(ways) - 1)}, way)
            for i, way in enumerate(ways)
        ],
        zooms=True,
    )


def _way(messages: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Return some messages of one way, in the order of time."""
    if "sender_host" not in messages:
        return pd.DataFrame()
    mine = (messages["sender_host"] == one) & (messages["reader_host"] == other)
    columns = ["xmit_ns", "transit_ns", "transit_low_ns", "transit_high_ns"]
    rows = messages.loc[mine, columns].dropna(subset=["transit_ns"])
    rows = rows.sort_values("xmit_ns").iloc[:: len(rows) // _MOST_POINTS + 1]
    found = rows.astype("f8").rename(
        columns={"transit_low_ns": "low_ns", "transit_high_ns": "high_ns"}
    )
    found.insert(0, "direction", f"{one} -> {other}")
    found.insert(1, "t_s", found.pop("xmit_ns") / _NS_PER_SECOND)
    return found


def _delay_spec(way: str, last: bool) -> Spec:
    x = {"field": "t_s", **number_axis("time, s" if last else "")}
    y = {"field": "transit_ns", **duration_axis("transit")}
    ends = {"y": {**y, "field": "low_ns"}, "y2": {"field": "high_ns"}}
    tips = tooltip({"t_s": "time, s", "transit_ns": "ns"})
    known = "isValid(datum.low_ns) && isValid(datum.high_ns)"
    return {
        "transform": [{"filter": {"field": "direction", "equal": way}}],
        "layer": [
            layer("rule", {"x": x, **ends}, known, color=colour("band"), opacity=0.5),
            layer(
                "point",
                {"x": x, "y": y, "tooltip": tips},
                color=colour("mark"),
                filled=True,
                size=12,
            ),
        ],
    }
