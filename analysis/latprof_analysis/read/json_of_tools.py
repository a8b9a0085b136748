"""JSON of load generators: vegeta, k6, oha and memtier.

vegeta (``encode``) and k6 (``--out json``) write a line for each request or value;
vegeta's ``report``, k6's ``--summary-export``, oha and memtier one document with
statistics.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from latprof_analysis.read.csv_of_tools import K6_LATENCY, K6_TIMES
from latprof_analysis.read.json_document import json_lines, number, part, read_objects
from latprof_analysis.read.result import (
    Format,
    ReadError,
    Samples,
    Skipped,
    Statistic,
    samples_of_file,
    samples_of_statistics,
    shown,
)

LATENCY = "response time of a request, as its client measures it"
KIND = "request"
_MS, _SECOND = 1e6, 1e9
_PERCENTILE = re.compile(r"p?\(?(\d{1,2}(?:\.\d{1,6})?)\)?(?:th)?")
_NAMES = {
    **{"mean": "mean", "avg": "mean", "average": "mean", "Average Latency": "mean"},
    **{"min": "min", "fastest": "min", "Min Latency": "min"},
    **{"max": "max", "slowest": "max", "Max Latency": "max"},
    "med": "p50",
}
# memtier's documents have a member for each run, and one for all.
_MEMTIER = "ALL STATS"


def _statistics(
    kind: str, figures: dict[str, Any], scale: float, count: Any
) -> Iterator[Statistic]:
    """Give the statistics of an object whose members are named as tools name them."""
    for name, value in figures.items():
        found = number(value)
        percentile = _PERCENTILE.fullmatch(name)
        statistic = f"p{float(percentile[1]):g}" if percentile else _NAMES.get(name)
        if statistic and found is not None:
            n = number(count)
            yield Statistic(
                kind, statistic, scale * found, None if n is None else int(n)
            )


def _document(path: Path) -> dict[str, Any]:
    return read_objects(path).found[0]


def _given(path: Path, name: str, about: str, rows: list[Statistic]) -> Samples:
    if not rows:
        raise ReadError(path, f"it has no latencies of {name}'s")
    return samples_of_statistics(Skipped(path), name, {"latency": about}, rows)


def _read_vegeta(path: Path) -> Samples:
    skipped = Skipped(path)
    times, lost = array("d"), array("b")
    for line, row in json_lines(path, skipped):
        ns = number(row.get("latency"))
        if ns is None:
            got = shown(row.get("latency"))
            skipped.add(line, f"latency must be a number from 0, got {got}")
            continue
        failed = row.get("code") == 0
        times.append(np.nan if failed else ns)
        lost.append(failed)
    skipped.check(len(times), "it has no request")
    return samples_of_file(
        skipped,
        "vegeta-json",
        {"latency": LATENCY},
        kind=KIND,
        size_bytes=None,
        latency_ns=np.array(times),
        lost=np.array(lost, bool),
    )


def _read_vegeta_report(path: Path) -> Samples:
    document = _document(path)
    latencies = part(path, document, "latencies", dict)
    rows = list(_statistics(KIND, latencies, 1.0, document.get("requests")))
    return _given(path, "vegeta-report", LATENCY, rows)


def _read_k6(path: Path) -> Samples:
    skipped = Skipped(path)
    times, kinds = array("d"), array("q")
    numbers: dict[str, int] = {}
    is_time: dict[str, bool] = {}
    for line, row in json_lines(path, skipped):
        metric, data = str(row.get("metric")), row.get("data")
        data = data if isinstance(data, dict) else {}
        if row.get("type") == "Metric":
            is_time[metric] = data.get("contains") == "time"
        elif is_time.get(metric, bool(K6_TIMES.fullmatch(metric))):
            ms = number(data.get("value"))
            if ms is None:
                skipped.add(
                    line, f"value must be a number, got {shown(data.get('value'))}"
                )
            else:
                times.append(_MS * ms)
                kinds.append(numbers.setdefault(metric, len(numbers)))
    skipped.check(len(times), "it has no metric that is a time")
    return samples_of_file(
        skipped,
        "k6-json",
        {"latency": K6_LATENCY},
        kind=np.array(list(numbers), object)[np.array(kinds)],
        size_bytes=None,
        latency_ns=np.array(times),
    )


def _read_k6_summary(path: Path) -> Samples:
    rows: list[Statistic] = []
    for name, metric in part(path, _document(path), "metrics", dict).items():
        # of a metric by tags the tags stand behind its name
        if isinstance(metric, dict) and K6_TIMES.fullmatch(name.partition("{")[0]):
            values = metric.get("values", metric)
            rows += _statistics(
                name, values if isinstance(values, dict) else {}, _MS, None
            )
    return _given(path, "k6-summary", K6_LATENCY, rows)


def _read_oha(path: Path) -> Samples:
    document = _document(path)
    counts = document.get("statusCodeDistribution")
    codes = [number(n) for n in counts.values()] if isinstance(counts, dict) else []
    answered = sum(int(n) for n in codes if n) or None
    rows: list[Statistic] = []
    for name in ("summary", "latencyPercentiles"):
        figures = part(path, document, name, dict)
        rows += _statistics(KIND, figures, _SECOND, answered)
    return _given(path, "oha-json", LATENCY, rows)


def _read_memtier(path: Path) -> Samples:
    rows: list[Statistic] = []
    for kind, of in part(path, _document(path), _MEMTIER, dict).items():
        if not isinstance(of, dict) or not of.get("Count"):
            continue
        percentiles = of.get("Percentile Latencies")
        for figures in (of, percentiles if isinstance(percentiles, dict) else {}):
            rows += _statistics(kind, figures, _MS, of["Count"])
    return _given(path, "memtier-json", LATENCY, rows)


def _has(*keys: str) -> Any:
    return lambda seen: {*keys} <= seen.keys


TOOLS_JSON = {
    "vegeta-json": Format(_has("attack", "code", "latency", "bytes_in"), _read_vegeta),
    "vegeta-report": Format(
        _has("latencies", "bytes_in", "requests"), _read_vegeta_report
    ),
    "k6-json": Format(_has("type", "data", "metric"), _read_k6),
    "k6-summary": Format(_has("metrics", "root_group"), _read_k6_summary),
    "oha-json": Format(_has("summary", "latencyPercentiles"), _read_oha),
    "memtier-json": Format(_has("configuration", _MEMTIER), _read_memtier),
}
