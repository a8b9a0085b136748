"""sockperf's text output, and its ``--full-log`` with every round trip.

sockperf calls half of the round trip latency. So does ``latency_ns`` here, since
it is what was read; ``table`` of a full log has the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read.lines import numbered
from latprof_analysis.read.result import ReadError, Samples, Skipped, samples_frame
from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.read.table import opened, read_table

LATENCY = "half of the round trip time, as sockperf prints it"
LOG_HEADER = b"packet, txTime(sec), rxTime(sec), latency(usec)"
# The log's header stands behind some thirty lines of summary.
_HEADER_WITHIN = 1000
_US, _SECOND = 1e3, 1e9


def _backwards(numbers: Mapping[str, NDArray[Any]]) -> list[Wrong]:
    bad = numbers["rxTime(sec)"] < numbers["txTime(sec)"]
    return [(bad, lambda _: "its reply came before it was sent")] if bad.any() else []


SCHEMA = Schema(
    (
        Column("packet", "count", about="number of the message, from 0"),
        Column("txTime(sec)", "number", about="when it was sent, in s"),
        Column("rxTime(sec)", "number", about="when its reply came, in s"),
        Column("latency(usec)", "number", about="half of the time between, in us"),
    ),
    check=_backwards,
    spaced=True,
    ruler=b"---",
)

_NUMBER = r"(\d{1,12}(?:\.\d{1,9})?)"
_STATISTICS = (
    (re.compile(rf"percentile\s+{_NUMBER}\s*=\s*{_NUMBER}"), None),
    (re.compile(rf"<(MAX)> observation\s*=\s*{_NUMBER}"), "max"),
    (re.compile(rf"<(MIN)> observation\s*=\s*{_NUMBER}"), "min"),
    (re.compile(rf"(avg)-latency\s*=\s*{_NUMBER}"), "mean"),
)
_BEGINS = re.compile(r"---> |avg-latency")
_SERVER = re.compile(r"Printing statistics for Server No: (\d{1,9})")
_COUNTS = {
    "observations": re.compile(r"Total (\d{1,18}) observations"),
    "message_bytes": re.compile(r"--msg-size=(\d{1,18})"),
    "dropped_messages": re.compile(r"dropped messages = (\d{1,18})"),
    "duplicated_messages": re.compile(r"duplicated messages = (\d{1,18})"),
    "out_of_order_messages": re.compile(r"out-of-order messages = (\d{1,18})"),
}


def read_sockperf(path: Path) -> Samples:
    """Read sockperf's text output: percentiles, extremes and the mean.

    ``kind`` is "server N"; ``count`` the number of its observations. ``meta`` has
    what was dropped, duplicated and out of order of the last server.
    """
    skipped = Skipped(path)
    rows: list[tuple[str, str, float]] = []
    counts: dict[str, int] = {}
    observed: dict[str, int] = {}
    kind = "server 0"
    for line, text in _lines(path):
        if match := _SERVER.search(text):
            kind = f"server {match[1]}"
        for name, pattern in _COUNTS.items():
            if match := pattern.search(text):
                counts[name] = int(match[1])
        if "observations" in text:
            observed[kind] = counts.get("observations", 0)
        if not _BEGINS.search(text):
            continue
        if statistic := _statistic(text):
            rows.append((kind, *statistic))
        else:
            skipped.add(line, "no figure of sockperf's")
    skipped.check(len(rows))
    if not rows:
        raise ReadError(path, "sockperf printed no latency: no reply came")
    kinds, statistics, latencies = zip(*rows, strict=True)
    frame = samples_frame(
        len(rows),
        str(path),
        kind=list(kinds),
        size_bytes=counts.get("message_bytes", pd.NA),
        latency_ns=_US * np.array(latencies),
        statistic=list(statistics),
        count=[observed.get(kind) for kind in kinds],
    )
    meta = {"latency": LATENCY, **counts}
    return Samples(frame, skipped.in_order(), skipped.count, "sockperf", meta)


def _statistic(text: str) -> tuple[str, float] | None:
    for pattern, name in _STATISTICS:
        if match := pattern.search(text):
            return name or f"p{float(match[1]):g}", float(match[2])
    return None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with opened(path) as file:
        for line, raw in numbered(file):
            yield line, raw.decode("utf-8", "replace")


def read_sockperf_log(path: Path) -> Samples:
    """Read a ``--full-log``: every round trip of the valid duration.

    ``table`` has sequence, sent_ns, received_ns and rtt_ns, which is the whole
    round trip, by sockperf's clock since its start.
    """
    with opened(path) as file:
        header, size = _find_header(path, file)
    read = read_table(path, SCHEMA, header_line=header)
    skipped, log = read.skipped, read.frame
    if log.empty:
        raise ReadError(path, "its log has no round trips")
    table = pd.DataFrame(
        {
            "sequence": log["packet"],
            "sent_ns": _to_ns(log["txTime(sec)"]),
            "received_ns": _to_ns(log["rxTime(sec)"]),
        }
    )
    table["rtt_ns"] = table["received_ns"] - table["sent_ns"]
    frame = samples_frame(
        len(table),
        str(path),
        kind="ping",
        size_bytes=pd.NA if size is None else size,
        latency_ns=_US * log["latency(usec)"].to_numpy(np.float64),
    )
    meta = {"latency": LATENCY, "message_bytes": size}
    return Samples(
        frame, skipped.in_order(), skipped.count, "sockperf-log", meta, table
    )


def _find_header(path: Path, file: BinaryIO) -> tuple[int, int | None]:
    """Return the line of the log's header, and the size that stands before it."""
    size = None
    for line, raw in islice(numbered(file), _HEADER_WITHIN):
        if raw.strip() == LOG_HEADER:
            return line, size
        if match := _COUNTS["message_bytes"].search(raw.decode("utf-8", "replace")):
            size = int(match[1])
    raise ReadError(path, f"its first {_HEADER_WITHIN} lines have no log")


def _to_ns(seconds: pd.Series[float]) -> pd.Series[int]:
    return (_SECOND * seconds).round().astype("int64")
