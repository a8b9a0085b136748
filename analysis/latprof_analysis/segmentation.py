"""Where a series of ranks splits: seeded segmentation, then settled place by place."""

from __future__ import annotations

import bisect
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# A change is believed if its gain in -2 log(likelihood) is over 3 log(n).
PENALTY = 3.0
_ROUNDS = 5
# Longer series are searched in coarser steps, then settled value by value.
_MOST_SEARCHED = 1_000_000


def places_of_change(sums: Floats, shortest: int) -> list[int]:
    """Return where the level changes; `sums` are cumulated, the first of them 0."""
    return _settled(sums, _candidates(sums, shortest), shortest)


def gains_of(sums: Floats, start: int, stop: int, shortest: int) -> Floats:
    """Return what splits explain that leave `shortest` or more to each side."""
    left = np.arange(shortest, stop - start - shortest + 1)
    return np.asarray(_gain(sums, start, stop, left))


def _gain(sums: Floats, start: int, stop: int, left: Any) -> Any:
    """Return what a split explains that leaves so many values to the left."""
    length = stop - start
    lacking = sums[start + left] - sums[start]
    lacking = lacking - left * ((sums[stop] - sums[start]) / length)
    return lacking**2 * (length / (left * (length - left)))


def _candidates(sums: Floats, at_least: int) -> list[int]:
    """Return places of change, each found in the shortest stretch that shows it.

    All stretches of one length, half a length apart, are searched at once; lengths
    grow by a half up to the whole. A stretch in which a change was found before is
    left out. Of very long series every so many values are one.
    """
    coarse = -(-sums.size // _MOST_SEARCHED)
    every = sums[::coarse]
    n = every.size - 1
    least = PENALTY * math.log(sums.size - 1)
    shortest = -(-at_least // coarse)
    places: list[int] = []
    length = 2 * shortest
    while n >= length:
        starts = np.unique(np.append(np.arange(0, n - length, length // 2), n - length))
        left = np.arange(shortest, length - shortest + 1)
        begin, end = every[starts], every[starts + length]
        lacking = every[starts[:, None] + left] - begin[:, None]
        lacking -= left * ((end - begin) / length)[:, None]
        gains = lacking**2 * (length / (left * (length - left)) / coarse)
        gain, at = gains.max(axis=1), gains.argmax(axis=1)
        for i in sorted(np.flatnonzero(gain > least), key=lambda i: -gain[i]):
            start = int(starts[i])
            if bisect.bisect(places, start) == bisect.bisect_left(
                places, start + length
            ):
                bisect.insort(places, start + int(left[at[i]]))
        length = n if length < n < length * 3 // 2 else length * 3 // 2
    return [place * coarse for place in places]


def _settled(sums: Floats, places: list[int], shortest: int) -> list[int]:
    """Drop weak changes and move the others, until nothing moves."""
    for _ in range(_ROUNDS):
        kept = _strong(sums, _united(sums, places, shortest), shortest)
        places = kept.copy()
        for i in range(len(places)):
            start, stop = ([0, *places, sums.size - 1][j] for j in (i, i + 2))
            gains = gains_of(sums, start, stop, shortest)
            if gains.size:
                places[i] = start + shortest + int(np.argmax(gains))
        if places == kept:
            break
    return _strong(sums, places, shortest)


def _united(sums: Floats, places: list[int], shortest: int) -> list[int]:
    """Put one change for two neighbours that gain too little more than it does.

    A stretch that is too short to be split where the level changed is split beside
    it, and another one to the other side: neither could move past the other.
    """
    least = PENALTY * math.log(sums.size - 1)
    bounds = [0, *places, sums.size - 1]
    i = 1
    while i + 2 < len(bounds):
        start, first, second, stop = bounds[i - 1 : i + 3]
        gains = gains_of(sums, start, stop, shortest)
        both = _gain(sums, start, stop, first - start)
        both += _gain(sums, first, stop, second - first)
        if gains.size and both - gains.max() <= least:
            bounds[i : i + 2] = [start + shortest + int(np.argmax(gains))]
            i = max(1, i - 1)
        else:
            i += 1
    return bounds[1:-1]


def _strong(sums: Floats, places: list[int], shortest: int) -> list[int]:
    """Drop the weakest change between its neighbours, until none is too weak."""

    def most(i: int) -> float:
        start, stop = ([0, *left, n][j] for j in (i, i + 2))
        return float(gains_of(sums, start, stop, shortest).max(initial=0))

    n = sums.size - 1
    left = places.copy()
    found = [most(i) for i in range(len(left))]
    while left and min(found) <= PENALTY * math.log(n):
        weakest = int(np.argmin(found))
        del left[weakest], found[weakest]
        # Only its neighbours now stand between others.
        for i in (weakest - 1, weakest):
            if 0 <= i < len(left):
                found[i] = most(i)
    return left
