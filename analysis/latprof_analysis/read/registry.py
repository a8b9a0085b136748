"""One call for any file, folder or pattern: its format is told by its content."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from latprof_analysis.read import parquet
from latprof_analysis.read.clear import read_clear
from latprof_analysis.read.columns import read_columns
from latprof_analysis.read.iperf3 import read_iperf3
from latprof_analysis.read.irtt import read_irtt
from latprof_analysis.read.json_document import read_json
from latprof_analysis.read.paths import TABLE_FILES, expand, is_run_folder
from latprof_analysis.read.proxystore import read_proxystore
from latprof_analysis.read.result import ReadError, Samples, joined
from latprof_analysis.read.run_folder import (
    read_exchanges,
    read_messages,
    read_round_trips,
    read_runs,
)
from latprof_analysis.read.sockperf import LOG_HEADER, read_sockperf, read_sockperf_log
from latprof_analysis.read.table import (
    BYTE_ORDER_MARK,
    check_line_ends,
    column_list,
    opened,
)
from latprof_analysis.read.tmsn import read_tmsn

_LOOKED_AT_BYTES = 1 << 20

# Columns by which a CSV is known.
_HEADERS = {
    "messages": {"protocol", "kind", "size_bytes", "send_ns"},
    "round-trips": {"protocol", "sequence", "size_bytes", "rtt_ns", "lost"},
    "exchanges": {"protocol", "way", "kind", "response_ns"},
    "proxystore": {"backend", "op", "payload_size_bytes", "avg_time_ms"},
}
# In this order: a full log has the text output in it.
_LINES = (
    ("sockperf-log", LOG_HEADER),
    ("sockperf", re.compile(rb"^sockperf: ", re.MULTILINE)),
    ("tmsn", re.compile(rb"^stress perf,", re.MULTILINE)),
    ("clear", re.compile(rb"Size = \d{1,18} bytes, .{0,1000}average latency = ")),
)
FORMATS = (
    "run",
    "messages",
    "round-trips",
    "exchanges",
    "proxystore",
    "tmsn",
    "clear",
    "sockperf",
    "sockperf-log",
    "iperf3",
    "irtt",
)


def detect(path: Path | str) -> str:
    """Name the format of a file or folder; its name plays no part.

    Raises ReadError with the reason where none fits.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "any.csv"
    >>> _ = path.write_text("stress perf,1024,local,226,200,0,18,8,0,594,0,33\\n")
    >>> detect(path)
    'tmsn'
    """
    path = Path(path)
    if path.is_dir():
        if is_run_folder(path):
            return "run"
        raise ReadError(path, f"the folder has none of {', '.join(TABLE_FILES)}")
    with opened(path) as file:
        start = file.read(_LOOKED_AT_BYTES)
    start = start.removeprefix(BYTE_ORDER_MARK)
    if not start.strip():
        raise ReadError(path, "it is empty")
    if start.startswith(parquet.MAGIC):
        return _by_columns(path, parquet.column_names(path))
    if start.lstrip()[:1] in b"{[":
        return _by_keys(path, read_json(path))
    return _by_text(path, start)


def _by_keys(path: Path, document: dict[str, Any]) -> str:
    keys = document.keys()
    if {"start", "intervals", "end"} <= keys:
        return "iperf3"
    if "round_trips" in keys and "version" in keys:
        return "irtt"
    if {"format", "state", "folder"} <= keys:
        raise ReadError(path, "it describes a run; give the folder that it is in")
    raise ReadError(path, "its JSON is neither iperf3's nor irtt's")


def _by_text(path: Path, start: bytes) -> str:
    if b"\n" not in start:
        check_line_ends(path, start)
    for name, pattern in _LINES:
        if pattern.search(start):
            return name
    header = start.partition(b"\n")[0].decode("utf-8", "replace")
    names = [name.strip(' "\r') for name in header.split(",")]
    if b"\0" in start and not _known(names):
        raise ReadError(path, "it is binary, of no known format")
    return _by_columns(path, names)


def _by_columns(path: Path, names: list[str]) -> str:
    if name := _known(names):
        return name
    known = f"no known format; known are {', '.join(FORMATS)}"
    if len(names) < 2:
        raise ReadError(path, f"{known}; of any CSV --latency-column names the column")
    raise ReadError(
        path,
        f"{known}; of another CSV (its columns: {column_list(names)}) say"
        " --latency-column and --unit, and --size-column",
    )


def _known(names: list[str]) -> str | None:
    for name, needed in _HEADERS.items():
        if needed <= set(names):
            return name
    return None


_FILES = {
    "messages": read_messages,
    "round-trips": read_round_trips,
    "exchanges": read_exchanges,
    "proxystore": read_proxystore,
    "tmsn": read_tmsn,
    "clear": read_clear,
    "sockperf": read_sockperf,
    "sockperf-log": read_sockperf_log,
    "iperf3": read_iperf3,
    "irtt": read_irtt,
}


def read_samples(
    paths: Path | str | Iterable[Path | str],
    *,
    latency_column: str | None = None,
    unit: str | None = None,
    size_column: str | None = None,
) -> Samples:
    """Read files and run folders of any known format, also several together.

    Parameters
    ----------
    paths : path or str, or several
        Files, run folders, folders of run folders, or patterns with ``*``.
    latency_column, unit, size_column : str, optional
        Given, the files are CSVs with these columns, whatever they look like: see
        `read_columns`.

    Raises
    ------
    ReadError
        A ValueError whose text is one line with the file and the reason.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "result.txt"
    >>> _ = path.write_text("Size = 18 bytes, Count = 5, average latency = 0.08 ms\\n")
    >>> samples = read_samples(path)
    >>> samples.format, samples.frame["latency_ns"].tolist(), samples.skipped
    ('clear', [80000.0], [])
    """
    found = expand(paths)
    if latency_column is not None:
        if unit is None:
            raise ValueError(f"unit of column {latency_column!r} must be given")
        return joined(
            read_columns(
                path, latency_column=latency_column, unit=unit, size_column=size_column
            )
            for path in found
        )
    if unit is not None or size_column is not None:
        raise ValueError("latency_column must be given with unit and size_column")
    parts = []
    for name, group in groupby(found, detect):
        if name == "run":
            parts.append(read_runs(list(group)).samples())
        else:
            parts += [_FILES[name](path) for path in group]
    return joined(parts)
