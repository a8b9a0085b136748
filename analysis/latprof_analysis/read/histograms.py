"""histograms.csv of run folders: all traffic that was watched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latprof_analysis.read.parquet import is_parquet
from latprof_analysis.read.paths import HISTOGRAM_TABLE
from latprof_analysis.read.result import ReadError
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.run_folder import table_file
from latprof_analysis.read.run_schema import HISTOGRAMS
from latprof_analysis.read.table import TableReader
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of

_WORDS = HISTOGRAMS.texts
_OF_ALL = ("sum_ns", "unmeasured")  # in the row of the lowest bucket
_NUMBERS = ("bucket_low_ns", "count", *_OF_ALL)
# Of each watched host there are at most 257 groups; 8 kB for each of their quantities.
MOST_HISTOGRAMS = 50_000
EVERYTHING = "all traffic"  # of which no group was told apart


class Histogrammed(NamedTuple):
    """What a histogram is of."""

    group: str
    quantity: str


Histograms = dict[Histogrammed, CoarseHistogram]


def read_histograms(paths: Iterable[Path], notes: list[str]) -> Histograms:
    """Sum up the histograms of run folders over all their intervals.

    Folders without any, as of older versions and of `latprof run`, add nothing. What
    is left out is told in `notes`.

    Raises
    ------
    ReadError
        Where a file is no table of histograms, or most of its rows are wrong.
    """
    found: Histograms = {}
    for path in paths:
        file = table_file(path, HISTOGRAM_TABLE) if path.is_dir() else None
        if not file:
            continue
        reader = TableReader(
            file,
            HISTOGRAMS,
            [*_WORDS, *_NUMBERS],
            parquet=is_parquet(file),
            threads=False,
        )
        for batch in reader:
            _add(found, batch)
            if len(found) > MOST_HISTOGRAMS:
                raise ReadError(file, f"it has more than {MOST_HISTOGRAMS} histograms")
        reader.skipped.check(reader.rows)
        if skipped := reader.skipped.count:
            notes.append(f"{file}: rows that were wrong and left out: {skipped}")
    return found


def _add(found: Histograms, batch: Rows) -> None:
    bucket = bucket_of(batch.numbers["bucket_low_ns"])
    of_all = [batch.numbers[name] for name in _OF_ALL]
    sums, unmeasured = (np.where(each == BLANK, 0, each) for each in of_all)
    for words, rows in batch.split(*_WORDS):
        *group, quantity = (word or "" for word in words)
        key = Histogrammed(" ".join(filter(None, group)) or EVERYTHING, quantity)
        histogram = found.setdefault(key, CoarseHistogram())
        np.add.at(histogram.counts, bucket[rows], batch.numbers["count"][rows])
        histogram.sum_ns += sum(sums[rows].tolist())
        histogram.unmeasured += sum(unmeasured[rows].tolist())
