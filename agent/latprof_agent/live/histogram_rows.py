"""Histograms of live traffic as the rows of histograms.csv."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields

import numpy as np
from latprof_analysis.csv_cells import cell_of
from latprof_analysis.read.schema import HISTOGRAMS
from latprof_analysis.records.message_rows import Ints, Rows, Text
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, edges_ns

from latprof_agent.monitor.totals import Group, Quantity

GROUP_COLUMNS = tuple(field.name for field in fields(Group))
COLUMNS = HISTOGRAMS.names

Histograms = Mapping[tuple[Group, Quantity], CoarseHistogram]


class HistogramRows(Rows):
    """Rows of histograms.csv: one for each bucket that holds something."""

    COLUMNS = COLUMNS


def histogram_rows(found: Histograms, begin_ns: int, end_ns: int) -> HistogramRows:
    """Make rows of what came from `begin_ns` to `end_ns`, by CLOCK_MONOTONIC."""
    used = [np.flatnonzero(histogram.counts) for histogram in found.values()]
    bucket = np.concatenate([*used, np.empty(0, np.intp)])
    lengths = np.array([len(each) for each in used], np.intp)
    number = np.repeat(np.arange(len(used)), lengths)
    counts = [h.counts[at] for h, at in zip(found.values(), used, strict=True)]
    edges = np.append(edges_ns()[:-1].astype(np.int64), BLANK)
    there = lengths > 0
    first = (np.cumsum(lengths) - lengths)[there]

    def whole(of: Callable[[CoarseHistogram], int]) -> Ints:
        """Put values of a whole histogram into the row of its lowest bucket."""
        values = np.full(len(bucket), BLANK)
        values[first] = np.array([of(h) for h in found.values()], np.int64)[there]
        return values

    def text(of: Callable[[Group, Quantity], str]) -> Text:
        return _column([of(*key) for key in found], number)

    return HistogramRows(
        {
            "begin_ns": np.full(len(bucket), begin_ns),
            "end_ns": np.full(len(bucket), end_ns),
            "bucket_low_ns": edges[bucket],
            "bucket_high_ns": edges[bucket + 1],
            "count": np.concatenate([*counts, np.empty(0, np.int64)]),
            "sum_ns": whole(lambda histogram: histogram.sum_ns),
            "unmeasured": whole(lambda histogram: histogram.unmeasured),
        },
        {
            **{name: text(_word(name)) for name in GROUP_COLUMNS},
            "quantity": text(lambda _, quantity: quantity.value),
        },
    )


def _word(name: str) -> Callable[[Group, Quantity], str]:
    return lambda group, _: str(getattr(group, name))


def _column(words: list[str], number: Ints) -> Text:
    """Name each row by the histogram it is of; blank where there is no word."""
    # a name may be no UTF-8
    cells = [cell_of(word.encode("utf-8", "replace").decode()) for word in words]
    places = [-1 if not word else i for i, word in enumerate(words)]
    return np.array(places, np.int32)[number], cells
