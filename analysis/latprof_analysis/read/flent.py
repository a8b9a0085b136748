"""flent's data files (``.flent``, ``.flent.gz``): the pings among its series.

A series whose name or unit has ms is one of latencies. Of those that ping or fping
measured, ``raw_values`` has each; others have values on flent's own grid of time,
between which it interpolates.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from latprof_analysis.read.json_document import number, part, read_json
from latprof_analysis.read.result import (
    ReadError,
    Samples,
    Seen,
    Skipped,
    joined,
    samples_of_file,
)

LATENCY = "round trip time, as the tool that flent ran measured it"
ON_A_GRID = "round trip time on flent's grid of time, interpolated by it"
_MS = 1e6
_RUNNERS = ("PingRunner", "IrttRunner")


def matches(seen: Seen) -> bool:
    """Whether a document has what every data file has."""
    return {"metadata", "results", "x_values"} <= seen.keys


def read_flent(path: Path) -> Samples:
    """Read a data file: ``kind`` is the series."""
    document = read_json(path)
    metadata = part(path, document, "metadata", dict)
    of_series = metadata.get("SERIES_META")
    raw = document.get("raw_values")
    parts = []
    for name, on_grid in part(path, document, "results", dict).items():
        about = of_series.get(name) if isinstance(of_series, dict) else None
        about = about if isinstance(about, dict) else {}
        if "(ms)" not in name and about.get("UNITS") != "ms":
            continue
        single = raw.get(name) if isinstance(raw, dict) else None
        if single and about.get("RUNNER") in _RUNNERS:
            inner = [one.get("val") for one in single if isinstance(one, dict)]
            parts.append(_series(path, name, LATENCY, inner))
        elif isinstance(on_grid, list):
            # of a step without a value nothing is known: it is no loss
            values = [value for value in on_grid if value is not None]
            parts += [_series(path, name, ON_A_GRID, values)] if values else []
    if not parts:
        raise ReadError(path, "none of its series is of latencies in ms")
    return joined(parts)


def _series(path: Path, name: str, latency: str, values: list[Any]) -> Samples:
    skipped = Skipped(path)
    times = []
    for place, value in enumerate(values, 1):
        if (ms := number(value)) is None:
            skipped.add(place, f"no time in ms in series {name}")
        else:
            times.append(_MS * ms)
    skipped.check(len(times))
    return samples_of_file(
        skipped,
        "flent",
        {"latency": latency},
        kind=name,
        size_bytes=None,
        latency_ns=np.array(times),
    )
