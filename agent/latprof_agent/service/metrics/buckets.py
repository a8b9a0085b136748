"""Buckets as Prometheus has them, counted from those of the probes.

Classic ones: a line each. An edge that is none of ours lies inside a bucket of at most
1/32 of its width, of which the part below counts as below.

Native ones: schema 4, 16 to an octave of seconds, each 4.4% wide: the finest that is
nowhere narrower than ours, so that no empty ones stand between. A bucket of ours goes
whole into the one that holds its middle: what a native bucket says to be in it is
between 1/64 below and 1/64 above. What is shorter than 64 ns is in the zero bucket,
what is longer than 68.7 s in the bucket after.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from latprof_analysis.stats.histogram import FIRST_OCTAVE
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, edges_ns
from latprof_analysis.text import NS_PER_SECOND
from numpy.typing import NDArray

SCHEMA = 4
ZERO_THRESHOLD_SECONDS = (1 << FIRST_OCTAVE) / NS_PER_SECOND
_ROWS_AT_ONCE = 128  # 1 MB of counts

Counts = NDArray[np.int64]


def stacked(histograms: Sequence[CoarseHistogram]) -> Iterator[Counts]:
    """Give counts of shape (up to 128, BUCKETS), in order."""
    for first in range(0, len(histograms), _ROWS_AT_ONCE):
        part = histograms[first : first + _ROWS_AT_ONCE]
        yield np.stack([histogram.counts for histogram in part])


def steps(low_ns: int, high_ns: int, to_an_octave: int) -> tuple[int, ...]:
    """Give times from `low_ns` up to below `high_ns`, of three digits each.

    Examples
    --------
    >>> steps(10_000, 20_000, 4)
    (10000, 11900, 14100, 16800)
    """
    count = math.ceil(math.log2(high_ns / low_ns) * to_an_octave)
    exact = (low_ns * 2 ** (i / to_an_octave) for i in range(count))
    return tuple(int(float(f"{ns:.3g}")) for ns in exact)


@dataclass(frozen=True)
class ClassicBuckets:
    """Upper edges in nanoseconds, ascending; the last bucket, +Inf, is not named."""

    upper_ns: tuple[int, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Give what `le` says: seconds."""
        return (*(repr(ns / NS_PER_SECOND) for ns in self.upper_ns), "+Inf")

    @cached_property
    def _place(self) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Give the bucket each edge is in, and which part of it is below."""
        edges = edges_ns()
        upper = np.asarray(self.upper_ns, float)
        bucket = np.searchsorted(edges, upper, "right") - 1
        width = edges[bucket + 1] - edges[bucket]
        return bucket, (upper - edges[bucket]) / width

    def cumulative(self, counts: Counts) -> list[list[int]]:
        """Count what is at or below each edge, and all; one row per histogram."""
        bucket, share = self._place
        starts = np.unique(np.append(0, bucket))
        below = np.cumsum(np.add.reduceat(counts, starts, axis=1), axis=1)
        before = np.pad(below, ((0, 0), (1, 0)))[:, np.searchsorted(starts, bucket)]
        # of an edge's own bucket a part is below, too
        inside = np.floor(counts[:, bucket] * share).astype(np.int64)
        rows: list[list[int]] = np.hstack([before + inside, below[:, -1:]]).tolist()
        return rows

    def holding(self, ns: int) -> int:
        """Give the number of the bucket that a time is in."""
        return int(np.searchsorted(self.upper_ns, ns, "left"))


class NativeBuckets(NamedTuple):
    """Filled buckets of some histograms, as runs of neighbours.

    `delta`, `row` and `run` have one entry per filled bucket; `gap`, `length` and
    `run_row` one per run.
    """

    zero: Counts  # one per histogram
    delta: Counts  # to the filled bucket before, in its histogram
    row: NDArray[np.intp]
    gap: Counts  # empty buckets before a run, or the index of a histogram's first
    length: Counts
    run_row: NDArray[np.intp]


def _native_index() -> NDArray[np.int64]:
    """Give the native bucket of each of ours but the first; i ends at 2**(i/16) s."""
    edges = edges_ns()
    middle = (edges[1:-2] + edges[2:-1]) / 2
    last = edges[-2] * (1 + 2.0 ** -(SCHEMA + 3))
    seconds = np.append(middle, last) / NS_PER_SECOND
    index: NDArray[np.int64] = np.ceil(np.log2(seconds) * (1 << SCHEMA)).astype("i8")
    return index


_INDEX = _native_index()
_LEAST = int(_INDEX[0])
_SPAN = int(_INDEX[-1]) - _LEAST + 1
# Of each of our buckets in a stack: the native ones of its rows, one after the other.
_PLACES = np.arange(_ROWS_AT_ONCE)[:, None] * _SPAN + np.append(0, _INDEX - _LEAST)
_PLACES[:, 0] = -1  # the zero bucket is none of them
_PLACES = _PLACES.ravel()


def native(counts: Counts) -> NativeBuckets:
    """Count a stack of histograms into native buckets."""
    filled = np.flatnonzero(counts != 0)
    place = _PLACES[filled]
    value = counts.ravel()[filled][place >= 0]
    place = place[place >= 0]
    begins = np.flatnonzero(np.diff(place, prepend=-1))
    value = np.add.reduceat(value, begins) if len(begins) else value
    return _runs(counts[:, 0], place[begins], value)


def _runs(zero: Counts, place: NDArray[np.intp], value: Counts) -> NativeBuckets:
    """Find runs of neighbours in each row."""
    row, column = np.divmod(place, _SPAN)
    first = np.diff(row, prepend=-1) != 0
    delta = np.diff(value, prepend=0)
    delta[first] = value[first]
    gap = np.diff(column, prepend=0) - 1
    gap[first] = column[first] + _LEAST
    begins = np.flatnonzero(first | (gap > 0))
    length = np.diff(begins, append=len(row))
    return NativeBuckets(zero, delta, row, gap[begins], length, row[begins])
