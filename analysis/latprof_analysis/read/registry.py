"""One call for any file, folder or pattern: its format is found by its content."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from pathlib import Path

from latprof_analysis.errors import UsageError
from latprof_analysis.read import (
    capture,
    clear,
    flent,
    fping,
    hdr_log,
    iperf3,
    iperf_text,
    irtt,
    log2_histogram,
    mtr,
    owping,
    percentile_table,
    ping,
    proxystore,
    sockperf,
    time_warp_csv,
    tmsn,
)
from latprof_analysis.read.columns import read_columns
from latprof_analysis.read.csv_of_tools import TOOLS_CSV
from latprof_analysis.read.json_document import first_keys
from latprof_analysis.read.json_of_tools import TOOLS_JSON
from latprof_analysis.read.lines import check_line_ends
from latprof_analysis.read.parquet import MAGIC, opened_parquet
from latprof_analysis.read.paths import (
    BYTE_ORDER_MARK,
    TABLE_FILES,
    expand,
    is_run_folder,
    opened,
)
from latprof_analysis.read.result import Format, ReadError, Samples, Seen, joined
from latprof_analysis.read.run_folder import TABLE_FORMATS, read_runs
from latprof_analysis.read.table import column_list
from latprof_analysis.read.text_summaries import SUMMARIES

_COLUMNS = "columns"
_KNOWN = "`latprof analyze --help` names those that are"
_LOOKED_AT_BYTES = 1 << 20
_BEHIND_TEXT = re.compile(rb"^[ \t]*\{\s*[\"}]", re.M)
_FILES = {
    **TABLE_FORMATS,
    "proxystore": Format(proxystore.matches, proxystore.read_proxystore),
    "tmsn": Format(tmsn.matches, tmsn.read_tmsn),
    "proxystore-table": Format(
        proxystore.matches_table, proxystore.read_proxystore_table
    ),
    "tmsn-table": Format(tmsn.matches_table, tmsn.read_tmsn_table),
    "time-warp": Format(
        time_warp_csv.matches, time_warp_csv.read_time_warp_csv, wants_unit=True
    ),
    "clear": Format(clear.matches, clear.read_clear),
    "sockperf": Format(sockperf.matches_text, sockperf.read_sockperf),
    "sockperf-log": Format(sockperf.matches_log, sockperf.read_sockperf_log),
    "iperf3": Format(iperf3.matches, iperf3.read_iperf3),
    "irtt": Format(irtt.matches, irtt.read_irtt),
    "ping": Format(ping.matches, ping.read_ping),
    "fping": Format(fping.matches, fping.read_fping),
    "mtr": Format(mtr.matches, mtr.read_mtr),
    **TOOLS_CSV,
    **TOOLS_JSON,
    **SUMMARIES,
    "percentile-table": Format(
        percentile_table.matches,
        percentile_table.read_percentile_table,
        wants_unit=True,
    ),
    "capture": Format(capture.matches, capture.read_capture),
    "flent": Format(flent.matches, flent.read_flent),
    "owping": Format(owping.matches, owping.read_owping),
    "iperf-text": Format(iperf_text.matches, iperf_text.read_iperf_text),
    "hdr-log": Format(hdr_log.matches, hdr_log.read_hdr_log, wants_unit=True),
    "log2-histogram": Format(
        log2_histogram.matches, log2_histogram.read_log2_histogram
    ),
}
FORMATS = ("run", *_FILES)


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
    seen = Seen()
    for seen in _looks(path):
        for name, form in _FILES.items():
            if form.matches(seen):
                return name
    raise ReadError(path, _why_unknown(seen))


def _looks(path: Path) -> Iterator[Seen]:
    """Give what a file may be seen as: JSON or text, then JSON behind text."""
    with opened(path) as file:
        start = file.read(_LOOKED_AT_BYTES).removeprefix(BYTE_ORDER_MARK)
    if not start.strip():
        raise ReadError(path, "it is empty")
    if start.startswith(MAGIC):
        with opened_parquet(path) as file:
            yield Seen(columns=file.schema_arrow.names)
        return
    first = start.lstrip()[:1]
    if first != b"{":
        yield _text_seen(path, start)
    if first in b"{[":
        yield Seen(keys=first_keys(path, start))
    elif behind := _BEHIND_TEXT.search(start):
        with suppress(ReadError):  # the braces may be of anything
            yield Seen(keys=first_keys(path, start[behind.start() :]))
        yield _text_seen(path, start)


def _text_seen(path: Path, start: bytes) -> Seen:
    if b"\n" not in start:
        check_line_ends(path, start)
    header = start.partition(b"\n")[0].decode("utf-8", "replace")
    return Seen(start, columns=[name.strip(' "\r') for name in header.split(",")])


def _why_unknown(seen: Seen) -> str:
    if {"format", "state", "folder"} <= seen.keys:
        return "it describes a run; give the folder that it is in"
    if not seen.columns:
        return f"its JSON is of no known format; {_KNOWN}"
    if b"\0" in seen.start:
        return "it is binary, of no known format"
    known = f"no known format; {_KNOWN}"
    if len(seen.columns) < 2:
        return f"{known}; of any CSV --latency-column names the column"
    return (
        f"{known}; of another CSV (its columns: {column_list(seen.columns)}) say"
        " --latency-column and --unit, and --size-column"
    )


def read_samples(
    paths: Path | str | Iterable[Path | str],
    *,
    latency_column: str | None = None,
    unit: str | None = None,
    size_column: str | None = None,
    delimiter: str | None = None,
    numbers: str | None = None,
    lost_if: str | None = None,
    where: Sequence[str] = (),
) -> Samples:
    """Read files and run folders of any known format, also several together.

    Parameters
    ----------
    paths : path or str, or several
        Files, run folders, folders of run folders, or patterns with ``*``.
    latency_column, size_column, delimiter, numbers, lost_if, where : optional
        With a column the files are CSVs with it, whatever they look like, unless they
        are histograms; the rest is as in `read_columns`.
    unit : str, optional
        Of that column, or of a histogram whose file does not say it: ns, us, ms or s.

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
    if latency_column is not None and unit is None:
        raise ValueError(f"unit of column {latency_column!r} must be given")
    if latency_column is None and any(
        (size_column, delimiter, numbers, lost_if, where)
    ):
        raise ValueError("latency_column must be given with unit and size_column")
    names = [_form_of(path, latency_column) for path in found]
    if unit is not None and not any(map(_wants_unit, names)):
        raise UsageError(
            "a unit goes with a latency column, or with histograms that have none:"
            " these files say theirs"
        )
    parts = []
    for name, group in groupby(found, dict(zip(found, names, strict=True)).__getitem__):
        if name == _COLUMNS:
            assert latency_column is not None
            assert unit is not None
            parts += [
                read_columns(
                    path,
                    latency_column=latency_column,
                    unit=unit,
                    size_column=size_column,
                    delimiter=delimiter,
                    numbers=numbers,
                    lost_if=lost_if,
                    where=where,
                )
                for path in group
            ]
        elif name == "run":
            parts.append(read_runs(list(group)).samples())
        elif _wants_unit(name):
            parts += [_FILES[name].read(path, unit) for path in group]
        else:
            parts += [_FILES[name].read(path) for path in group]
    return joined(parts)


def _wants_unit(name: str) -> bool:
    return name == _COLUMNS or (name in _FILES and _FILES[name].wants_unit)


def _form_of(path: Path, latency_column: str | None) -> str:
    """Name the format; with a column that was named it is a CSV, or a histogram's."""
    if latency_column is None:
        return detect(path)
    with suppress(ReadError):
        if not path.is_dir() and _wants_unit(found := detect(path)):
            return found
    return _COLUMNS
