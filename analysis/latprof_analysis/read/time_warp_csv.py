"""Four stamps a message, as Bellenot (1988) took them under Time Warp: a CSV.

    stamp_1,stamp_2,stamp_3,stamp_4,hops,queue

Stamps are of one clock: created, handed to the transport, received by its interrupt
routine, delivered; a message within a node has neither the second nor the third. Their
unit may end their names (``stamp_1_us``, ``t1_ns``); else it must be said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.lines import read_header
from latprof_analysis.read.paths import opened
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    ReadError,
    Samples,
    Seen,
    samples_of_file,
)
from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.read.table import TableReader

LATENCY = "difference of two of a message's four stamps"
# Between which stamps.
_TIMES = {
    "A, end to end": (0, 3),
    "B, until it was sent": (0, 1),
    "C, under way": (1, 2),
    "D, in the receive queue": (2, 3),
}
_STAMP = re.compile(r"(?:time_?)?(?:stamp|ts|t)_?([1-4])(?:_(ns|us|ms|s))?", re.I)
_SIZES = ("size_bytes", "bytes", "size", "length")


def _stamps(columns: Sequence[str]) -> tuple[list[str], str | None] | None:
    """Return the names of the four columns and their unit; None without them."""
    found = {
        match[1]: (name, match[2])
        for name in columns
        if (match := _STAMP.fullmatch(name.strip()))
    }
    units = {unit for _, unit in found.values()}
    if len(found) != 4 or len(units) != 1:
        return None
    return [found[number][0] for number in "1234"], units.pop()


def matches(seen: Seen) -> bool:
    """Whether four columns are stamps."""
    return _stamps(seen.columns) is not None


def read_time_warp_csv(path: Path, unit: str | None = None) -> Samples:
    """Read stamps: ``kind`` is the paper's letter of a time, ``table`` the file.

    Parameters
    ----------
    unit : {'ns', 'us', 'ms', 's'}, optional
        Of stamps whose names do not say it.
    """
    with opened(path) as file:
        names = read_header(path, file, Schema(()))
    if (found := _stamps(names)) is None:
        raise ReadError(path, "its columns have no four stamps")
    stamps, said = found
    if (unit := said or unit) is None:
        raise ReadError(path, "its stamps have no unit; say it with --unit")

    def backwards(numbers: Mapping[str, NDArray[Any]]) -> list[Wrong]:
        bad = np.zeros(len(numbers[stamps[0]]), bool)
        for early, late in _TIMES.values():
            bad |= numbers[stamps[late]] < numbers[stamps[early]]
        return [(bad, lambda _: "its stamps run backwards")]

    middle = {*stamps[1:3]}
    sizes = [name for name in names if name.lower() in _SIZES][:1]
    columns = [Column(name, "number", blank=name in middle) for name in stamps]
    columns += [Column(name, "count", blank=True) for name in sizes]
    reader = TableReader(path, Schema((*columns,), check=backwards))
    table = reader.frame()
    reader.skipped.check(len(table), "it has no rows")
    parts = []
    for kind, (early, late) in _TIMES.items():
        times = table[stamps[late]] - table[stamps[early]]
        there = times.notna()
        part = pd.DataFrame({"kind": kind, "ns": NS_PER_UNIT[unit] * times[there]})
        part["size"] = table.loc[there, sizes[0]] if sizes else pd.NA
        parts.append(part)
    rows = pd.concat(parts, ignore_index=True)
    return samples_of_file(
        reader.skipped,
        "time-warp",
        {"latency": f"{LATENCY}, in {unit}"},
        table=table,
        kind=rows["kind"].to_numpy(object),
        size_bytes=rows["size"].array,
        latency_ns=rows["ns"].to_numpy(np.float64),
    )
