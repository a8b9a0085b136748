"""Values in the order of time as places among their levels, which are counted.

Of a few values the levels are these values. Of millions they are buckets, one for all
latencies that differ by at most 0.05%: two bytes a value, and every figure of order
follows from counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import BLANK
from latprof_analysis.stats import Floats, Ints

Codes = NDArray[np.uint16]
# Below 2**11 ns a bucket is one nanosecond, from there on 2**11 are in each octave.
_BITS = 11
_LINEAR = 1 << _BITS
_DOUBLE_BIAS = 1023
# The last code is of what is missing; what takes longer than those before, which is
# 73 minutes, counts as that.
NO_VALUE = 2**16 - 1
LONGEST_NS = (1 << 42) - (1 << 30) - 1
# Values whose scores are looked up at once.
_CHUNK = 1 << 20


def packed(ns: Ints) -> Codes:
    """Return the bucket of each latency, at most 0.025% from its middle.

    Parameters
    ----------
    ns : ndarray of int64, shape (n,)
        From 0; BLANK where there is none, whose code is NO_VALUE.

    Examples
    --------
    >>> codes = packed(np.array([5, 1_000_000, BLANK]))
    >>> int(codes[2]) == NO_VALUE, levels_ns()[codes[:2]].tolist()
    (True, [5.0, 1000063.5])
    """
    # a double's octave, and the upper bits of where in it
    bits = np.minimum(ns, LONGEST_NS).astype(np.float64).view(np.int64) >> (52 - _BITS)
    bits -= ((_DOUBLE_BIAS + _BITS) << _BITS) - _LINEAR
    codes = np.where(ns < _LINEAR, ns, bits).astype(np.uint16)
    codes[ns == BLANK] = NO_VALUE
    return codes


@cache
def levels_ns() -> Floats:
    """Return the middle of each bucket of `packed`."""
    code = np.arange(NO_VALUE)
    octave = np.maximum(0, code // _LINEAR - 1)
    low = (code - octave * _LINEAR) * 2.0**octave
    # their values are whole nanoseconds
    return np.asarray(low + (2.0**octave - 1) / 2)


@dataclass(frozen=True)
class Ranked:
    """Values in the order of time.

    Attributes
    ----------
    levels : ndarray of float64, shape (k,)
        Ascending; not all need be taken.
    places : ndarray of int, shape (n,)
        The level of each value, in the order of time.
    """

    levels: Floats
    places: NDArray[Any]

    @classmethod
    def of(cls, values: Floats) -> Ranked:
        """Rank values, whose levels they are."""
        levels, places = np.unique(values, return_inverse=True)
        return cls(levels, places)

    @classmethod
    def of_packed(cls, codes: Codes) -> Ranked:
        """Take latencies as `packed` gives them, none missing, one or more."""
        first, last = int(codes.min()), int(codes.max())
        return cls(levels_ns()[first : last + 1], codes - np.uint16(first))

    @property
    def size(self) -> int:
        """Return how many values there are."""
        return self.places.size

    @cached_property
    def counts(self) -> Ints:
        """Return how many values each level has, shape (k,)."""
        parts = range(0, self.size, _CHUNK)
        found = np.zeros(self.levels.size, np.int64)
        for i in parts:
            found += np.bincount(self.places[i : i + _CHUNK], minlength=found.size)
        return found

    @cached_property
    def upto(self) -> Ints:
        """Return how many values are up to each level, shape (k,)."""
        return np.cumsum(self.counts)

    def at_rank(self, rank: int) -> float:
        """Return the value of a rank, from 1."""
        return float(self.levels[np.searchsorted(self.upto, rank)])

    def between_ranks(self, rank: float) -> float:
        """Return what lies at a rank, from 1 on, between those of two values."""
        at = min(max(rank, 1.0), float(self.size))
        low = int(at)
        below = self.at_rank(low)
        above = self.at_rank(min(low + 1, self.size))
        return below + (at - low) * (above - below)

    def shares(self, value: float) -> tuple[float, float]:
        """Return which share of the values is below a value, and up to it."""
        all_upto = np.append(0, self.upto)
        places = (np.searchsorted(self.levels, value, end) for end in ("left", "right"))
        below, upto = (float(all_upto[place]) / self.size for place in places)
        return below, upto

    def block_means(self, scores: Floats, block: int) -> Floats:
        """Return the mean score of each `block` values that follow each other.

        `scores` are of the levels; values that are no whole block are left out.
        """
        count = self.size // block
        at_once = max(1, _CHUNK // block)
        parts = [
            scores[self.places[i * block : min(i + at_once, count) * block]]
            .reshape(-1, block)
            .mean(axis=1)
            for i in range(0, count, at_once)
        ]
        return np.concatenate(parts)

    def moments(self, scores: Floats) -> tuple[float, float]:
        """Return mean and variance of the scores of all values."""
        # not by @, whose threads wait for each other on a busy machine
        mean = float((self.counts * scores).sum()) / self.size
        return mean, float((self.counts * (scores - mean) ** 2).sum()) / self.size
