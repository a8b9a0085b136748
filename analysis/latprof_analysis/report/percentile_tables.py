"""Tables of percentiles: every one the document's, above an interval that holds it.

The document's percentiles are of histograms that counted every message, to 0.4%;
intervals are of the rows at hand, which may be fewer. What is drawn and what the
terminal prints are the same numbers, so one figure has one value wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

SHOWN = ("p50", "p90", "p99", "p99.9")
_NONE = "-"
# Of longer series the intervals are those of as many that are evenly spread.
_MOST_IN_ORDER = 20_000


def figures_of(times: Floats) -> dict[str, Any]:
    """Count latencies as the document does, where it says nothing of them.

    Examples
    --------
    >>> figures_of(np.array([50.0] * 9))["p50_ns"]
    50
    """
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
        return Cell(_NONE, f"needs n {number(samples_needed(PERCENTILES[name]))}")
    if f"{name}_low_ns" in figures:
        low, high = (figures[f"{name}_{end}_ns"] for end in ("low", "high"))
        sure = Quantile(
            PERCENTILES[name],
            value,
            -np.inf if low is None else low,
            np.inf if high is None else high,
            figures["n"],
            0.95,
        )
    return Cell(
        duration_text(value), "" if sure is None else bounds(around(sure, value))
    )


def around(interval: Quantile, value: float) -> Quantile:
    """Widen an interval so that it holds a value of a histogram's precision.

    Examples
    --------
    >>> exact = Quantile(0.9, 6.351e6, 6.35e6, 6.352e6, 1200, 0.95)
    >>> around(exact, 6.34e6).low
    6340000.0
    """
    low, high = min(interval.low, value), max(interval.high, value)
    return replace(interval, value=value, low=low, high=high)


def percentile_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str | Cell]],
    note: str = "",
) -> Table:
    """Return a table without the percentiles that no row has enough messages for.

    Examples
    --------
    >>> few = Cell("-", "needs n 100")
    >>> percentile_table("t", ["x", "p90", "n"], [["a", few, "9"]]).columns
    ['x', 'n']
    """
    empty: dict[int, str] = {}
    for i, column in enumerate(zip(*rows, strict=True)):
        cells = [cell for cell in column if isinstance(cell, Cell)]
        if len(cells) == len(rows) and {cell.text for cell in cells} == {_NONE}:
            empty[i] = cells[0].under
    kept = [i for i in range(len(columns)) if i not in empty]
    few = "".join(f" {columns[i]} {why}." for i, why in empty.items())
    return Table(
        title,
        [columns[i] for i in kept],
        [[row[i] for i in kept] for row in rows],
        (note + few).strip(),
    )
