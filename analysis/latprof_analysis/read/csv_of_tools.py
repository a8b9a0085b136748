"""CSV and TSV that tools write with columns of their own: a row of a table for each.

JMeter, hey (``-o csv``), ab (``-g``: a row for each request, sorted by time; ``-e``),
k6 (``--out csv``: a row for each value of each metric), vegeta (``encode --to csv``:
without a header), redis-benchmark (``--csv``) and netperf (``-o``).
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.buckets import Buckets
from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    YEARS_NS,
    Format,
    Samples,
    Seen,
    Skipped,
    Statistic,
    losses_of,
    samples_of_file,
    samples_of_statistics,
    shown,
)

_REQUEST = "response time of a request, as its client measures it"
_NUMBER = re.compile(r"\d{1,19}(?:\.\d{0,19})?(?:[eE][+-]?\d{1,2})?")
# Of k6 those metrics that are times, which its CSV has in ms.
K6_TIMES = re.compile(
    r"http_req_(?!failed)\w+|iteration_duration|group_duration|grpc_req_duration|"
    r"ws_(?:connecting|session_duration|ping)|browser_\w+_(?:fcp|lcp|ttfb|inp|fid|duration)"
)
K6_LATENCY = "times of k6's metrics"


@dataclass(frozen=True)
class _Each:
    """Files with a row for each latency.

    Attributes
    ----------
    columns : tuple of str
        Names in the first line of such a file, among others.
    latency, unit : str
        Column of latencies, and its unit.
    kind : str
        Column of what was timed, or if there is none of this name, that.
    wants : pattern or None
        Of kinds whose values are latencies.
    failed : callable or None
        Whether no answer came, of a row by column. None: the file has none of these.
    header : tuple of str
        Of files without one.
    ordered : bool
        Whether rows stand in the order of time; else they are a histogram.
    about : str
    """

    columns: tuple[str, ...]
    latency: str
    unit: str
    kind: str = "request"
    wants: re.Pattern[str] | None = None
    failed: Callable[[dict[str, str]], bool] | None = None
    header: tuple[str, ...] = ()
    ordered: bool = True
    about: str = _REQUEST


@dataclass(frozen=True)
class _Given:
    """Files with a row of statistics for each kind, by column; `count` is how many."""

    columns: tuple[str, ...]
    statistics: dict[str, str]
    unit: str
    kind: str
    about: str = _REQUEST


_VEGETA = re.compile(rb"\A\d{16,19},\d{1,3},\d{1,18},\d{1,18},\d{1,18},")
_FORMS: dict[str, _Each | _Given] = {
    "jmeter": _Each(
        ("timeStamp", "elapsed", "label", "success"),
        *("elapsed", "ms", "label"),
        about="elapsed time of a sample, as JMeter measures it",
    ),
    "hey-csv": _Each(
        ("response-time", "DNS+dialup", "Response-delay"), "response-time", "s"
    ),
    "ab-gnuplot": _Each(
        ("starttime", "seconds", "ctime", "dtime", "ttime", "wait"),
        *("ttime", "ms"),
        ordered=False,
        about=f"{_REQUEST}; ab sorts them, so that they have no order",
    ),
    "k6-csv": _Each(
        ("metric_name", "timestamp", "metric_value"),
        *("metric_value", "ms", "metric_name", K6_TIMES),
        about=K6_LATENCY,
    ),
    "vegeta-csv": _Each(
        (),
        *("latency", "ns"),
        failed=lambda row: row["code"] == "0",
        header=("timestamp", "code", "latency", "bytes_out", "bytes_in", "error"),
    ),
    "redis-benchmark-csv": _Given(
        ("test", "rps", "avg_latency_ms", "p50_latency_ms"),
        {
            "mean": "avg_latency_ms",
            "min": "min_latency_ms",
            "max": "max_latency_ms",
            **{p: f"{p}_latency_ms" for p in ("p50", "p95", "p99")},
        },
        *("ms", "test"),
    ),
    "netperf-csv": _Given(
        ("Mean Latency Microseconds",),
        {
            "mean": "Mean Latency Microseconds",
            "min": "Minimum Latency Microseconds",
            "max": "Maximum Latency Microseconds",
            **{f"p{p}": f"{p}th Percentile Latency Microseconds" for p in (50, 90, 99)},
        },
        *("us", "transaction"),
        about="round trip time of a transaction, as netperf measures it",
    ),
}


def _header_of(name: str, start: bytes) -> tuple[int, list[str], str] | None:
    """Return the line of a form's header, its names, and what cuts them."""
    form = _FORMS[name]
    if isinstance(form, _Each) and form.header:
        found = _VEGETA.match(start)
        return (0, list(form.header), ",") if found else None
    # netperf writes what it does before
    for line, raw in enumerate(start.split(b"\n", 3)[:3], 1):
        text = raw.decode("utf-8", "replace").strip("\r\n\ufeff")
        for delimiter in ",\t;|":
            names = [cell.strip(' "') for cell in text.split(delimiter)]
            if set(form.columns) <= set(names):
                return line, names, delimiter
    return None


def _matches(name: str, seen: Seen) -> bool:
    return _header_of(name, seen.start) is not None


def _rows(
    path: Path, name: str, skipped: Skipped
) -> Iterator[tuple[int, dict[str, str]]]:
    """Give the rows by column; vegeta's and those of k6 have more than are named."""
    start = b"".join(
        raw for (_, raw), _ in zip(numbered_lines(path), "123", strict=False)
    )
    found = _header_of(name, start)
    assert found is not None
    header, names, delimiter = found
    for line, raw in numbered_lines(path):
        if line <= header or not raw.strip():
            continue
        text = raw.decode("utf-8", "replace").rstrip("\r\n")
        try:
            cells = next(csv.reader([text], delimiter=delimiter), [])
        except csv.Error as error:
            skipped.add(line, str(error))
            continue
        if len(cells) < len(names):
            skipped.add(line, f"{len(cells)} fields where {len(names)} belong")
        else:
            yield line, dict(zip(names, cells, strict=False))


def _ns(cell: str, unit: str) -> float | None:
    if not _NUMBER.fullmatch(cell):
        return None
    ns = NS_PER_UNIT[unit] * float(cell)
    return ns if ns <= YEARS_NS else None


def _read_each(name: str, form: _Each, path: Path) -> Samples:
    skipped = Skipped(path)
    times, kinds, lost = array("d"), array("q"), array("b")
    numbers: dict[str, int] = {}
    others: dict[str, None] = {}
    for line, row in _rows(path, name, skipped):
        kind = row.get(form.kind, form.kind) or form.kind
        if form.wants and not form.wants.fullmatch(kind):
            others[kind] = None
            continue
        ns = _ns(row[form.latency], form.unit)
        if ns is None:
            got = shown(row[form.latency])
            skipped.add(line, f"{form.latency} must be a number from 0, got {got}")
            continue
        failed = form.failed is not None and form.failed(row)
        times.append(np.nan if failed else ns)
        lost.append(failed)
        kinds.append(numbers.setdefault(kind, len(numbers)))
    skipped.check(len(times), "it has no latency")
    meta: dict[str, Any] = {"latency": form.about}
    if others:
        names = ", ".join(shown(other)[1:-1] for other in list(others)[:8])
        meta["notes"] = [f"left out, since no times that are known: {names}"]
    if not form.ordered:
        return _as_histogram(skipped, name, meta, np.array(times))
    samples = samples_of_file(
        skipped,
        name,
        meta,
        losses={},
        kind=np.array(list(numbers), object)[np.array(kinds)],
        size_bytes=None,
        latency_ns=np.array(times),
        lost=np.array(lost, bool),
    )
    if form.failed is not None:
        samples.losses = losses_of(samples.frame)
    return samples


def _as_histogram(
    skipped: Skipped, name: str, meta: dict[str, Any], times: NDArray[np.float64]
) -> Samples:
    """Return latencies without an order, each value a bucket of its own."""
    values, counts = np.unique(times, return_counts=True)
    ends = ("min", times.min()), ("mean", times.mean()), ("max", times.max())
    return samples_of_statistics(
        skipped,
        name,
        meta,
        [Statistic("request", of, float(ns), times.size) for of, ns in ends],
        histograms={"request": Buckets(values, values, counts)},
    )


def _read_given(name: str, form: _Given, path: Path) -> Samples:
    skipped = Skipped(path)
    statistics = []
    for line, row in _rows(path, name, skipped):
        kind = row.get(form.kind, form.kind)
        for statistic, column in form.statistics.items():
            if column not in row:
                continue
            if (ns := _ns(row[column], form.unit)) is None:
                skipped.add(
                    line, f"{column} must be a number, got {shown(row[column])}"
                )
            else:
                statistics.append(Statistic(kind, statistic, ns))
    skipped.check(len(statistics), "it has no latency")
    return samples_of_statistics(skipped, name, {"latency": form.about}, statistics)


def _read(name: str, path: Path) -> Samples:
    form = _FORMS[name]
    if isinstance(form, _Each):
        return _read_each(name, form, path)
    return _read_given(name, form, path)


TOOLS_CSV = {
    name: Format(partial(_matches, name), partial(_read, name)) for name in _FORMS
}
