"""One call for any file, folder or pattern."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from latprof_analysis.readers.clear import read_clear
from latprof_analysis.readers.columns import read_columns
from latprof_analysis.readers.detection import detect
from latprof_analysis.readers.iperf3 import read_iperf3
from latprof_analysis.readers.irtt import read_irtt
from latprof_analysis.readers.paths import expand
from latprof_analysis.readers.proxystore import read_proxystore
from latprof_analysis.readers.result import Samples, joined
from latprof_analysis.readers.run_folder import (
    read_exchanges,
    read_messages,
    read_round_trips,
    read_runs,
)
from latprof_analysis.readers.sockperf import read_sockperf, read_sockperf_log
from latprof_analysis.readers.tmsn import read_tmsn

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


def read(
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
    >>> samples = read(path)
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
