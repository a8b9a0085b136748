"""Bulk transfers in a report: the tables, and throughput over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.report.bulk_text import bulk_page_parts, slot_text
from latprof_analysis.report.parts import Chart, Figure, Part, Section, Spec
from latprof_analysis.report.vega import (
    colour,
    layer,
    lines_apart,
    number_axis,
    tooltip,
)
from latprof_analysis.report.words import slug
from latprof_analysis.study.bulk import of_run

_ENDS = ("sent", "received")
_COLOURS = ("mark", "mark-2")
_DASHES = ((1, 0), (5, 3))


def bulk_sections(document: Mapping[str, Any]) -> list[Section]:
    """Lay out throughput, places of loss and throughput over time."""
    if not document.get("bulk"):
        return []
    parts: list[Part] = [*bulk_page_parts(document), *_pictures(document)]
    return [Section("bulk", "Bulk transfers", parts)]


def _pictures(document: Mapping[str, Any]) -> Iterator[Figure]:
    for part in document["bulk"]["parts"]:
        for direction, figures in part["directions"].items():
            data = _over_time(figures["slots"])
            if not data.empty:
                yield _picture(part, direction, data, slot_text(document))


def _over_time(slots: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each slot of each end."""
    frames = [
        pd.DataFrame(
            {
                "t_s": np.arange(len(slots[f"{end}_bps"])) * slots["slot_ns"] / 1e9,
                "end": end,
                "megabits_per_second": np.array(slots[f"{end}_bps"], "f8") / 1e6,
            }
        )
        for end in _ENDS
        if slots[f"{end}_bps"]
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _picture(
    part: Mapping[str, Any], direction: str, data: pd.DataFrame, slot: str
) -> Figure:
    protocol, channels = part["protocol"], part["channels"]
    several = "s" if channels > 1 else ""
    means = data.groupby("end")["megabits_per_second"].mean()
    text = ", ".join(f"{means[end]:.4g} Mbit/s {end}" for end in means.index)
    run = of_run(part)
    return Figure(
        name=f"throughput-{protocol}-{channels}-{direction}"
        + (run and f"-{slug(run)}"),
        title=f"{protocol}, {channels} channel{several} {direction}{run}: throughput",
        caption=f"Payload of all channels together in slots of {slot}, from when each "
        "end began. The last slot is not a whole one.",
        alt=f"Throughput over time; on average of the slots {text}.",
        data=data,
        charts=[Chart({"linear": _spec()})],
    )


def _spec() -> Spec:
    encoding = {
        "x": {"field": "t_s", **number_axis("time, s")},
        "y": {"field": "megabits_per_second", **number_axis("Mbit/s of payload")},
        **lines_apart("end", _ENDS, [colour(name) for name in _COLOURS], _DASHES),
        "tooltip": tooltip(
            {"end": "end", "t_s": "time, s", "megabits_per_second": "Mbit/s"}
        ),
    }
    return {"layer": [layer("line", encoding, interpolate="step-after")]}
