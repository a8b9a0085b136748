"""Of each histogram in a window: its quantiles, its slow part, its shape.

Of all groups at once, since there may be some thousand histograms. What is shown
later needs these figures only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from latprof_analysis.stats.kernel_histogram import (
    BUCKETS,
    SUB_BUCKETS,
    CoarseHistogram,
    Counts,
    edges_ns,
    quantiles,
)
from latprof_analysis.text import percentile_name
from numpy.typing import NDArray

from latprof_agent.monitor.totals import Group, Quantity, Totals

FRACTIONS = (0.5, 0.9, 0.95, 0.99, 0.999)
NAMES = tuple(percentile_name(p) for p in FRACTIONS)
SLOW = 8.0  # times the median, and more: three octaves

# Half octaves: each 16 buckets; one more for what is shorter, one for what is longer.
_HALF = SUB_BUCKETS // 2
_STARTS = np.array([0, *range(1, BUCKETS - 1, _HALF), BUCKETS - 1])
CELLS = len(_STARTS)
_AT_ONCE = 256  # histograms: 2 MB

Shape = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Figure:
    """One quantity of one group in one window."""

    count: int  # scaled, where a part of the time was measured
    n: int  # values that it rests on
    error: float  # of the count: one standard error, as a share of it
    mean_ns: float
    quantiles_ns: tuple[float | None, ...]  # of FRACTIONS; None where too few
    # by how much longer than the median all that took over SLOW times it did, summed
    slow_ns: float
    shape: Shape  # counts by half octave, (CELLS,)

    def quantile(self, name: str) -> float | None:
        """Return one by its name: p50."""
        return self.quantiles_ns[NAMES.index(name)]


Figures = dict[Group, dict[Quantity, Figure]]


def cell_edges_ns() -> NDArray[np.float64]:
    """Return the lower edges of the half octaves."""
    edges: NDArray[np.float64] = edges_ns()[_STARTS]
    return edges


def figures_of(totals: Totals) -> Figures:
    """Compute the figures of all that has any values."""
    found: Figures = {group: {} for group in totals.groups}
    there = [
        (group, quantity, histogram)
        for group, of_group in totals.groups.items()
        for quantity, histogram in of_group.histograms.items()
    ]
    for first in range(0, len(there), _AT_ONCE):
        chosen = there[first : first + _AT_ONCE]
        computed = _of_histograms([histogram for _, _, histogram in chosen])
        for (group, quantity, _), figure in zip(chosen, computed, strict=True):
            if figure.count:
                found[group][quantity] = figure
    return found


def _of_histograms(histograms: list[CoarseHistogram]) -> list[Figure]:
    counts = np.stack([h.counts for h in histograms])
    measured = counts.sum(axis=1) - np.array([h.unmeasured for h in histograms])
    values = quantiles(counts, FRACTIONS, measured)
    slow = _slow_ns(counts, values[:, 0]).tolist()
    shapes = np.add.reduceat(counts, _STARTS, axis=1)
    totals = counts.sum(axis=1).tolist()
    return [
        Figure(
            n,
            min(n, histogram.measured),
            math.sqrt(max(0.0, histogram.variance)) / n if n else 0.0,
            histogram.sum_ns / n if n else math.nan,
            tuple(None if math.isnan(q) else q for q in row),
            slow_ns,
            shape,
        )
        for histogram, n, row, slow_ns, shape in zip(
            histograms, totals, values.tolist(), slow, shapes, strict=True
        )
    ]


def _slow_ns(counts: Counts, median: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum what slow values took beyond the median; 0 where that is not known."""
    edges = edges_ns()
    middles = np.append((edges[:-2] + edges[1:-1]) / 2, edges[-2])
    # a bucket is slow as a whole, or not: both by its middle
    beyond = np.where(middles > SLOW * median[:, None], middles - median[:, None], 0.0)
    summed: NDArray[np.float64] = np.einsum("kb,kb->k", counts, beyond)
    return summed
