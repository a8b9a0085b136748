"""ProxyStore's remote-ops CSV: times of GET, SET, EXISTS and EVICT on a backend.

Written by psbench.benchmarks.remote_ops of proxystore/proxystore-benchmarks; a
row sums up the repetitions of one operation. Two things its column names do not
show: of three repetitions or more it drops the first and the last (not the
fastest and the slowest), so the times are of ``repeat - 2``; and
``avg_bandwidth_mbps`` counts megabytes a second.

The table that was published of such files is read, too, also from a notebook's page:

    Systems                | Op     |   Bytes   | Endpoint |  Redis
    Theta to Theta         | GET    | 1000      |    1.605 |    0.227
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Samples,
    Seen,
    Skipped,
    Statistic,
    samples_of_file,
    samples_of_statistics,
    shown,
)
from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.read.table import TableReader

LATENCY = "mean time of an operation as its client saw it"
_MS = 1e6
# Sums and quotients of floats in decimal: this share off is rounding.
_ROUNDING = 1e-6
_FEWEST_TO_DROP = 3
_MILLISECONDS = re.compile(r"\d{1,12}(?:\.\d{1,9})?")


def _disordered(numbers: Mapping[str, NDArray[Any]]) -> list[Wrong]:
    low, mean, high = (numbers[f"{name}_time_ms"] for name in ("min", "avg", "max"))
    slack = _ROUNDING * high
    bad = (low > mean + slack) | (mean > high + slack)
    return [(bad, lambda _: "its times are not min <= avg <= max")]


SCHEMA = Schema(
    (
        Column("backend", "text", about="REDIS, ENDPOINT, ..."),
        Column("op", "text", about="GET, SET, EXISTS, EVICT"),
        Column(
            "payload_size_bytes",
            "count",
            blank=True,
            about="blank for operations without a payload",
        ),
        Column("repeat", "count", about="repetitions that were asked for"),
        Column("total_time_ms", "number", about="sum of the times that were kept"),
        Column("avg_time_ms", "number", about="mean of the times that were kept"),
        Column("min_time_ms", "number", about="least of them"),
        Column("max_time_ms", "number", about="greatest of them"),
        Column(
            "avg_bandwidth_mbps",
            "number",
            needed=False,
            blank=True,
            about="payload over mean time, in 1e6 bytes a second",
        ),
    ),
    check=_disordered,
)


# The payload goes one way, as a message without a reply: a GET brings it, a SET takes
# it. EXISTS and EVICT name it only.
_REPLY_MODES = {"GET": 0, "SET": 0, "EXISTS": None, "EVICT": None}


def _reply_modes(table: pd.DataFrame) -> dict[str, int | None]:
    pairs = table[["backend", "op"]].drop_duplicates().itertuples(index=False)
    return {
        f"{backend} {op}": _REPLY_MODES[op]
        for backend, op in pairs
        if op in _REPLY_MODES
    }


_HEADER = re.compile(rb"^Systems\s+\|\s*Op\s*\|\s*Bytes\s*\|([^\n]{3,200})$", re.M)
_PRINTED = "mean time of an operation as its client saw it, as it was published"


def matches_table(seen: Seen) -> bool:
    """Whether a line is the header of the printed table."""
    return bool(_HEADER.search(seen.start))


def read_proxystore_table(path: Path) -> Samples:
    """Read the printed table: ``kind`` is system, backend and operation.

    ``table`` has system, backend, op and payload_size_bytes, a row for each mean.
    """
    skipped = Skipped(path)
    backends: list[str] = []
    rows: list[tuple[str, str, str, int | None, float]] = []
    for line, raw in numbered_lines(path):
        if match := _HEADER.match(raw.rstrip(b"\r\n")):
            names = match[1].decode("utf-8", "replace").split("|")
            backends = [name.strip().upper() for name in names]
            continue
        cells = [cell.strip() for cell in raw.decode("utf-8", "replace").split("|")]
        if not backends or len(cells) != 3 + len(backends) or not cells[1].isalpha():
            continue
        system, op, payload, *times = cells
        size = int(payload) if payload.isdigit() and len(payload) <= 18 else None
        for backend, ms in zip(backends, times, strict=True):
            if _MILLISECONDS.fullmatch(ms):
                rows.append((system, backend, op, size, _MS * float(ms)))
            else:
                skipped.add(line, f"a mean must be a number in ms, got {shown(ms)}")
    skipped.check(len(rows), "it has no row of the table")
    table = pd.DataFrame(
        rows, columns=["system", "backend", "op", "payload_size_bytes", "mean_ns"]
    )
    several = table["system"].nunique() > 1
    statistics = [
        Statistic(f"{system}: {name}" if several else name, "mean", ns, size_bytes=size)
        for system, backend, op, size, ns in rows
        for name in (f"{backend} {op}",)
    ]
    meta = {"latency": _PRINTED}
    return samples_of_statistics(
        skipped, "proxystore-table", meta, statistics, table=table
    )


def matches(seen: Seen) -> bool:
    """Whether a file's columns are those of the CSV."""
    return {"backend", "op", "payload_size_bytes", "avg_time_ms"} <= set(seen.columns)


def read_proxystore(path: Path) -> Samples:
    """Read a remote-ops CSV: ``kind`` is backend and operation, "REDIS GET".

    ``latency_ns`` is the operation's mean; ``table`` has the file's columns.
    """
    reader = TableReader(path, SCHEMA)
    table = reader.frame()
    reader.skipped.check(len(table), "it has no rows")
    repeat = table["repeat"]
    kinds = table["backend"].astype(str) + " " + table["op"].astype(str)
    return samples_of_file(
        reader.skipped,
        "proxystore",
        {
            "latency": LATENCY,
            "reply_modes": _reply_modes(table),
            "ignored_columns": reader.ignored,
        },
        table=table,
        kind=kinds.array,
        size_bytes=table["payload_size_bytes"].array,
        latency_ns=_MS * table["avg_time_ms"].to_numpy(np.float64),
        statistic="mean",
        count=repeat.where(repeat < _FEWEST_TO_DROP, repeat - 2).array,
    )
