"""histograms.csv of run folders: all traffic that was watched."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latprof_analysis.read.batches import PieceReader, pieces_of
from latprof_analysis.read.paths import HISTOGRAM_TABLE
from latprof_analysis.read.result import ReadError
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.run_folder import table_file
from latprof_analysis.read.run_schema import HISTOGRAMS
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of

_WORDS = [column.name for column in HISTOGRAMS.columns if column.kind == "text"]
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

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> header = "protocol,role,service,quantity,bucket_low_ns,count,sum_ns"
    >>> rows = ("1024,6,6300", "1056,4,")
    >>> lines = [header, *(f"tcp,server,6379,response,{row}" for row in rows)]
    >>> _ = (folder / "histograms.csv").write_text("\\n".join(lines) + "\\n")
    >>> ((key, found),) = read_histograms([folder], []).items()
    >>> tuple(key), found.count, found.sum_ns, found.quantile(0.5)
    (('tcp server 6379', 'response'), 10, 6300, 1040.0)
    """
    found: Histograms = {}
    for path in paths:
        file = table_file(path, HISTOGRAM_TABLE) if path.is_dir() else None
        skipped = 0
        for piece in pieces_of(file, HISTOGRAM_TABLE) if file else ():
            reader = PieceReader(piece, [*_WORDS, *_NUMBERS])
            for batch in reader:
                _add(found, batch, piece.path)
            reader.skipped.check(reader.rows)
            skipped += reader.skipped.count
        if skipped:
            notes.append(f"{file}: rows that were wrong and left out: {skipped}")
    return found


def _add(found: Histograms, batch: Rows, path: Path) -> None:
    index = np.column_stack([batch.texts[name][0] for name in _WORDS])
    unique, place = np.unique(index, axis=0, return_inverse=True)
    order = np.argsort(place.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(place.reshape(-1), minlength=len(unique)))
    bucket = bucket_of(batch.numbers["bucket_low_ns"])
    of_all = [batch.numbers[name] for name in _OF_ALL]
    sums, unmeasured = (np.where(each == BLANK, 0, each) for each in of_all)
    for codes, begin, end in zip(unique.tolist(), [0, *ends], ends, strict=False):
        rows = order[begin:end]
        histogram = found.setdefault(_key(batch, codes), CoarseHistogram())
        np.add.at(histogram.counts, bucket[rows], batch.numbers["count"][rows])
        histogram.sum_ns += sum(sums[rows].tolist())
        histogram.unmeasured += sum(unmeasured[rows].tolist())
    if len(found) > MOST_HISTOGRAMS:
        raise ReadError(path, f"it has more than {MOST_HISTOGRAMS} histograms")


def _key(batch: Rows, codes: list[int]) -> Histogrammed:
    words = [
        batch.texts[name][1][code] if code >= 0 else ""
        for name, code in zip(_WORDS, codes, strict=True)
    ]
    *group, quantity = words
    return Histogrammed(" ".join(filter(None, group)) or EVERYTHING, quantity)
