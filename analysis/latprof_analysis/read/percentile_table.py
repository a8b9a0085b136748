"""Tables of percentiles as HdrHistogram prints them: text, CSV, or vegeta's hdrplot.

           Value     Percentile TotalCount 1/(1-Percentile)
           0.023 0.500000000000         11           2.00

A row says how many values there were up to its own: what lies between two rows is a
bucket. The unit is that of whoever printed it: vegeta's is in the header, of others
the reader must be asked for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from latprof_analysis.read.buckets import Buckets
from latprof_analysis.read.paths import numbered_lines
from latprof_analysis.read.result import (
    NS_PER_UNIT,
    ReadError,
    Samples,
    Seen,
    Skipped,
    Statistic,
    samples_of_statistics,
)

LATENCY = "a histogram's percentiles, in the unit that was given"
KIND = "latency"
_HEADER = re.compile(
    rb'^\s*"?Value"?(?:\((ns|us|ms|s)\))?"?[ ,\t]+"?Percentile"?[ ,\t]+"?TotalCount"?',
    re.M,
)
_NUMBER = r"\d{1,15}(?:\.\d{1,15})?"
_ROW = re.compile(rf'^\s*"?({_NUMBER})"?[ ,\t]+"?[01]\.\d+"?[ ,\t]+"?(\d{{1,18}})"?')
_MEAN = re.compile(rf"^#\[Mean +=\s*({_NUMBER}),")
_MAX = re.compile(rf"^#\[Max +=\s*({_NUMBER}),")


def matches(seen: Seen) -> bool:
    """Whether the first lines have the header."""
    return bool(_HEADER.match(seen.start.lstrip()))


def read_percentile_table(path: Path, unit: str | None = None) -> Samples:
    """Read a table of percentiles as the histogram that it is of.

    Parameters
    ----------
    unit : {'ns', 'us', 'ms', 's'}, optional
        Of its values, where its header does not say it.
    """
    skipped = Skipped(path)
    rows: list[tuple[float, int]] = []
    statistics: list[tuple[str, float]] = []
    for line, raw in numbered_lines(path):
        text = raw.decode("utf-8", "replace")
        if header := _HEADER.match(raw.lstrip()):
            unit = header[1].decode() if header[1] else unit
        elif match := _ROW.match(text):
            rows.append((float(match[1]), int(match[2])))
        elif match := _MEAN.match(text):
            statistics.append(("mean", float(match[1])))
        elif match := _MAX.match(text):
            statistics.append(("max", float(match[1])))
        elif text.strip() and not text.startswith("#"):
            skipped.add(line, "no row of a percentile table")
    skipped.check(len(rows), "it has no row")
    if unit is None:
        raise ReadError(path, "its values have no unit; say it with --unit")
    scale = NS_PER_UNIT[unit]
    buckets = buckets_of(path, [(scale * value, count) for value, count in rows])
    return samples_of_statistics(
        skipped,
        "percentile-table",
        {"latency": f"{LATENCY}: {unit}"},
        [Statistic(KIND, name, scale * value, buckets.n) for name, value in statistics],
        histograms={KIND: buckets},
    )


def buckets_of(path: Path, rows: Sequence[tuple[float, int]]) -> Buckets:
    """Return the buckets between rows of a value and how many there are up to it.

    The first row's values are equal to it: it is the least of all.
    """
    values, up_to = (np.array(column) for column in zip(*rows, strict=True))
    if (np.diff(values) < 0).any() or (np.diff(up_to) < 0).any() or not up_to[-1]:
        raise ReadError(path, "its percentiles do not ascend")
    low = np.append(values[0], values[:-1])
    counts = np.diff(up_to, prepend=0)
    some = counts > 0
    return Buckets(
        low[some].astype(np.float64),
        values[some].astype(np.float64),
        counts[some].astype(np.int64),
    )
