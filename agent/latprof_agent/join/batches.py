"""Steps of recordings, many at a time: to join a few records takes as long as many."""

from __future__ import annotations

from collections.abc import Sequence

from latprof_analysis.records.arrays import Batch, stacked

ENOUGH = 1 << 16  # records


def together(batches: Sequence[Batch]) -> Batch:
    """Make one batch of several with the same rings."""
    return {ring: stacked(*(one[ring] for one in batches)) for ring in batches[0]}
