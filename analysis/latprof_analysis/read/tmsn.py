"""TMSN's stress log: what each machine had received and how long echoes took.

The log of a test program; these lines of it count:

    load_size,1024,pkg_interval,50          a run begins
    start new test, 0                       a repetition begins
    stress perf,LOAD,ADDRESS,TOTAL,MSG,MSG_ECHO,HB,HB_ECHO,MSG_TIME,HB_TIME,AVG,AVG

``stress perf`` is printed once for the machine itself (address ``local``) and once
for each other, by its heartbeats. Times are sums of round trips in
microseconds over the echoes that came back. The two averages at the end are
not used: the first divides by messages received, and so by zero at most senders.

The table that was published of such logs is read, too: a CSV with the columns ``load``,
``msg_echo``, ``hb_echo``, ``avg_msg`` and ``avg_hb``, means in us over tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    Samples,
    Seen,
    Skipped,
    Statistic,
    concatenated,
    samples_frame,
    samples_of_statistics,
    shown,
)
from latprof_analysis.read.schema import Column, Schema
from latprof_analysis.read.table import TableReader

LATENCY = "mean round trip time, from sending to its echo"
COUNTS = (
    "total",
    "messages",
    "message_echoes",
    "heartbeats",
    "heartbeat_echoes",
    "message_time_us",
    "heartbeat_time_us",
)
TABLE_COLUMNS = ("run_id", "test_id", "load_bytes", "address", *COUNTS)
_FIELDS = 3 + len(COUNTS) + 2
_WHOLE = re.compile(r"\d{1,18}")
_AVERAGE = re.compile(r"inf|NaN|\d+(\.\d+)?")
_US = 1e3
# Of the published table: mean and standard deviation.
_OF_TABLE = {"message": ("avg_msg", "std_msg"), "heartbeat": ("avg_hb", "std_hb")}


def matches_table(seen: Seen) -> bool:
    """Whether a file's columns are those of the published table."""
    return {"load", *(mean for mean, _ in _OF_TABLE.values())} <= set(seen.columns)


def read_tmsn_table(path: Path) -> Samples:
    """Read the published table: ``kind`` is message or heartbeat, as of the log."""
    wanted = ["load", *(name for each in _OF_TABLE.values() for name in each)]
    schema = Schema(
        tuple(Column(n, "number", blank=True, needed=False) for n in wanted)
    )
    reader = TableReader(path, schema)
    table = reader.frame()
    rows = []
    for kind, (mean, deviation) in _OF_TABLE.items():
        figures = {"mean": table[mean]}
        if deviation in table:
            figures["standard deviation of tests"] = table[deviation]
        for statistic, column in figures.items():
            # heartbeats carry statistics, not the load
            sizes = table["load"] if kind == "message" else [None] * len(table)
            rows += [
                Statistic(
                    kind,
                    statistic,
                    _US * us,
                    size_bytes=None if load is None or np.isnan(load) else int(load),
                )
                for load, us in zip(sizes, column, strict=True)
                if not np.isnan(us)
            ]
    reader.skipped.check(len(rows), "it has no rows")
    about = {"latency": f"{LATENCY}, mean over tests"}
    return samples_of_statistics(reader.skipped, "tmsn-table", about, rows, table=table)


def matches(seen: Seen) -> bool:
    """Whether a line looks as the log's."""
    return bool(re.search(rb"^stress perf,", seen.start, re.MULTILINE))


def read_tmsn(path: Path) -> Samples:
    """Read a TMSN stress log.

    ``kind`` is message or heartbeat; a line without echoes of a kind has no sample
    of it. ``table`` has the lines: run_id, test_id, load_bytes, address and the
    counts and times as they stand.
    """
    skipped = Skipped(path)
    rows: list[list[int | str]] = []
    run = test = 0
    for line, raw in numbered_lines(path):
        if raw.startswith(b"load_size"):
            run += 1
        elif raw.startswith(b"start new test"):
            test = _number_of(raw, test, line, skipped)
        elif raw.startswith(b"stress perf"):
            fields = raw.decode("utf-8", "replace").rstrip("\r\n").split(",")
            if why := _why_wrong(fields):
                skipped.add(line, why)
            else:
                counts = [int(cell) for cell in fields[3:-2]]
                rows.append([run, test, int(fields[1]), fields[2], *counts])
    skipped.check(len(rows), "it has no line `stress perf,...`")
    table = pd.DataFrame(rows, columns=list(TABLE_COLUMNS))
    table["address"] = table["address"].astype("category")
    frame = concatenated(
        [_samples(table, kind, str(path)) for kind in ("message", "heartbeat")]
    )
    meta = {"latency": LATENCY}
    return Samples(frame, skipped.in_order(), skipped.count, "tmsn", meta, table)


def _number_of(raw: bytes, before: int, line: int, skipped: Skipped) -> int:
    digits = raw.partition(b",")[2].strip()
    if digits.isdigit() and len(digits) <= 18:
        return int(digits)
    skipped.add(line, "the test has no number")
    return before


def _why_wrong(fields: list[str]) -> str | None:
    if len(fields) != _FIELDS:
        return f"the line must have {_FIELDS} fields, got {len(fields)}"
    for name, cell in zip(("load", *COUNTS), (fields[1], *fields[3:-2]), strict=True):
        if not _WHOLE.fullmatch(cell):
            return f"{name} must be a whole number, got {shown(cell)}"
    for cell in fields[-2:]:
        if not _AVERAGE.fullmatch(cell):
            return f"an average must be a number, got {shown(cell)}"
    return None


def _samples(table: pd.DataFrame, kind: str, source: str) -> pd.DataFrame:
    echoes = table[f"{kind}_echoes"].to_numpy(np.int64)
    there = echoes > 0
    time_us = table[f"{kind}_time_us"].to_numpy(np.float64)
    # heartbeats carry statistics, not the load
    load = table["load_bytes"].to_numpy()[there] if kind == "message" else None
    return samples_frame(
        int(there.sum()),
        source,
        kind=kind,
        size_bytes=load,
        latency_ns=_US * time_us[there] / echoes[there],
        statistic="mean",
        count=echoes[there],
    )
