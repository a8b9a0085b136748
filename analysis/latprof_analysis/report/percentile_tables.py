"""Tables of percentiles: every one the document's, above an interval that holds it.

The document's percentiles are of histograms that counted every message, to 0.4%;
intervals are of the rows at hand, which may be fewer. What is drawn and what the
terminal prints are the same numbers, so one figure has one value wherever it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from latprof_analysis.fit.rounds import Floats
from latprof_analysis.report.parts import Cell, Table
from latprof_analysis.report.words import bounds, duration_text, number
from latprof_analysis.stats.distribution import percentiles_in_order
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.stats.quantiles import Quantile, samples_needed
from latprof_analysis.study.totals import PERCENTILES
from latprof_analysis.study.totals import percentiles as counted
from latprof_analysis.text import percent

SHOWN = ("p50", "p90", "p99", "p99.9")
# What else a column may hold: which of the figures, and how it is written.
_OTHERS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "slowest": ("max_ns", duration_text),
    "mean": ("mean_ns", duration_text),
    "share": ("share", percent),
    "n": ("n", number),
}
# Of longer series the intervals are those of as many that are evenly spread.
_MOST_IN_ORDER = 20_000
# What names a row, its figures, and its values in the order of time, if they are known.
Row = tuple[Sequence[str], Mapping[str, Any], Floats | None]


def figures_of(times: Floats) -> dict[str, Any]:
    """Count latencies in ns as the document does, where it says nothing of them."""
    histogram = Histogram()
    histogram.record(times.astype(np.int64))
    return counted(histogram)


def percentile_cells(
    figures: Mapping[str, Any], series: Floats | None = None
) -> list[Cell]:
    """Write percentiles, each over its interval.

    Parameters
    ----------
    figures : mapping
        ``n``, ``p50_ns`` and so on, as `totals.percentiles` has them; where they have
        ``p50_low_ns`` and ``p50_high_ns``, these are the interval.
    series : ndarray, shape (m,), optional
        In the order of time: of these is the interval, else.

    Examples
    --------
    >>> p50, p90, *_ = percentile_cells(
    ...     {"n": 9, "p50_ns": 5, "p50_low_ns": 3, "p50_high_ns": 7, "p90_ns": None}
    ... )
    >>> p50, p90
    (Cell(text='5 ns', under='3 to 7 ns'), Cell(text='-', under='needs n 100'))
    """
    known = {}
    if series is not None and series.size:
        step = -(-series.size // _MOST_IN_ORDER)
        ps = [PERCENTILES[name] for name in SHOWN]
        known = dict(zip(SHOWN, percentiles_in_order(series[::step], ps), strict=True))
    return [_cell(name, figures, known.get(name)) for name in SHOWN]


def _cell(name: str, figures: Mapping[str, Any], sure: Quantile | None) -> Cell:
    value = figures.get(f"{name}_ns")
    if value is None:
        return Cell("-", _needs(name))
    if f"{name}_low_ns" in figures:
        low, high = (figures[f"{name}_{end}_ns"] for end in ("low", "high"))
        low, high = -np.inf if low is None else low, np.inf if high is None else high
        sure = Quantile(PERCENTILES[name], value, low, high, figures["n"], 0.95)
    if sure is None:
        return Cell(duration_text(value))
    # the middle of a bucket may lie beside an interval that is narrower than it
    low, high = min(sure.low, value), max(sure.high, value)
    return Cell(duration_text(value), bounds(replace(sure, low=low, high=high)))


def _needs(name: str) -> str:
    return f"needs n {number(samples_needed(PERCENTILES[name]))}"


def percentile_table(
    title: str, columns: Sequence[str], rows: Sequence[Row], note: str = ""
) -> Table:
    """Return a table without the percentiles that no row has enough messages for.

    `columns` are first those of the names, then `SHOWN`, then any of slowest, mean,
    share and n, of the figures ``max_ns``, ``mean_ns``, ``share`` and ``n``.

    Examples
    --------
    >>> few = {"n": 9, "p50_ns": 5}
    >>> percentile_table("t", ["x", *SHOWN, "n"], [(["a"], few, None)]).columns
    ['x', 'p50', 'n']
    """
    all_figures = [figures for _, figures, _ in rows]
    few = [
        p
        for p in SHOWN
        if rows and all(one.get(f"{p}_ns") is None for one in all_figures)
    ]
    others = [_OTHERS[name] for name in columns if name in _OTHERS]
    texts: list[list[str | Cell]] = []
    for names, figures, series in rows:
        cells = zip(SHOWN, percentile_cells(figures, series), strict=True)
        kept = [cell for name, cell in cells if name not in few]
        rest = [write(figures[key]) for key, write in others]
        texts.append([*names, *kept, *rest])
    note += "".join(f" {name} {_needs(name)}." for name in few)
    head = [name for name in columns if name not in few]
    return Table(title, head, texts, note.strip())
