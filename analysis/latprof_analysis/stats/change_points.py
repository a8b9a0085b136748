"""When the level of a series changed: robust to outliers, tails and dependence.

Its values are ranked; a series of ranks is split by seeded segmentation, and the
places of the splits are then settled one by one.
"""

from __future__ import annotations

import bisect
import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Result
from latprof_analysis.stats.distribution import percentiles_in_order
from latprof_analysis.stats.quantiles import Quantile, checked_values
from latprof_analysis.stats.series import variance_inflation

# A change is believed if its gain in -2 log(likelihood) is over 3 log(n).
PENALTY = 3.0
_ROUNDS = 5
# Longer series are searched in coarser steps, then settled value by value.
_MOST_SEARCHED = 1_000_000
_FEWEST = 30
_FEWEST_BLOCKS = 30
_MOST_CORRELATED = 0.95
# A level that is worth fewer independent values, on average, is none: with this bound
# at most 7 of 150 series that depend on themselves for long showed one (simulated).
_FEWEST_INDEPENDENT = 14
# What -2 log(likelihood) may fall to the ends of a 95% interval (Hansen, table 1).
_FALL = 7.35


@dataclass(frozen=True)
class Change(Result):
    """One change of level."""

    index: int  # of the first value at the new level
    low: int  # 95% interval of `index`
    high: int
    before: Quantile  # median of the segment before, and of the one behind
    after: Quantile
    gain: float  # in -2 log(likelihood) of the ranks; what is believed is > 3 log(n)


@dataclass(frozen=True)
class Changes(Result):
    """All changes of level in a series."""

    changes: tuple[Change, ...]  # in the order of time
    n: int
    # By what dependence between neighbours raises the variance of a mean; the gains
    # are divided by it.
    inflation: float


def level_changes(series: ArrayLike) -> Changes:
    """Find when the level of a series changed, by seeded segmentation of its ranks.

    Ranks bound what an outlier can do, whatever the distribution. Stretches of all
    lengths are searched, the short ones first, so that a short spell is not lost
    in a long run [1]_. A change is one if it gains over 3 log(n) in
    -2 log(likelihood): the price of a place and a level [2]_. Afterwards each is
    moved to where it gains most between its two neighbours, and dropped if it no
    longer gains enough there.

    Queueing makes neighbours alike, which looks like changes. So the variance is
    that of block means, times the length of the blocks, estimated from differences
    of neighbouring blocks, in which a few true changes do not show. Where what the
    levels that were found do not explain depends on itself for longer, the search is
    done again with that variance. Levels that are worth fewer than 14 independent
    values each may be such dependence: none is returned.

    Parameters
    ----------
    series : array_like, shape (n,)
        At least 30 values, in the order of time, any unit, finite. Equal steps of
        time are not needed.

    Returns
    -------
    Changes
        A slow drift appears as some changes. A segment has at least 3 log(n)
        values, or more if over half of all values are equal. The interval of a place
        [3]_ is for small steps; for large ones it holds more often than 95 times
        of 100, as one more value to each side is in it, since ranks do not show
        how far out a single value is.

        Spells of a busy queue look like changes of level, if the run is short
        against them. Of 150 chains of first order without any change, correlated by
        0.9 to 0.999, of 300 to 10,000 values, at most 7 showed one.

    References
    ----------
    .. [1] Kovacs, Buehlmann, Li and Munk (2023). Seeded binary segmentation.
       Biometrika 110, 249-256.
    .. [2] Zhang and Siegmund (2007). A modified Bayes information criterion with
       applications to the analysis of comparative genomic hybridization data.
       Biometrics 63, 22-32.
    .. [3] Hansen (2000). Sample splitting and threshold estimation. Econometrica
       68, 575-603, table 1.

    Examples
    --------
    >>> rng = np.random.default_rng(5)
    >>> delay_ns = rng.exponential(100, 3000) + np.repeat([0, 80], [1000, 2000])
    >>> found = level_changes(delay_ns)
    >>> len(found.changes), abs(found.changes[0].index - 1000) < 30
    (1, True)
    """
    x = checked_values("series", series)
    if x.size < _FEWEST:
        raise ValueError(f"series must have at least {_FEWEST} values, got {x.size}")
    if np.ptp(x) == 0:
        return Changes((), x.size, 1.0)
    ranks = mid_ranks(x)
    variance, inflation = _long_run_variance(ranks)
    shortest = _shortest(x)
    for _ in range(_ROUNDS):
        sums = np.append(0.0, np.cumsum(ranks)) / math.sqrt(variance)
        places = _settled(sums, _candidates(sums, shortest), shortest)
        if not places:
            break
        left = _beside_levels(ranks, places)
        dependence = variance_inflation(left)
        larger = float(left.var()) * dependence / variance
        if larger <= 1:
            enough = x.size / dependence >= _FEWEST_INDEPENDENT * (len(places) + 1)
            places = places if enough else []
            break
        variance, inflation = variance * larger, inflation * larger
    else:
        places = []
    return Changes(_described(x, sums, places, shortest), x.size, inflation)


def mid_ranks(x: Floats) -> Floats:
    """Return the rank of each value as a share of all, less one half.

    Equal values get the middle of their ranks. The sum is 0; all lie within -1/2
    and 1/2.
    """
    order = np.argsort(x)
    ascending = x[order]
    first = np.flatnonzero(np.diff(ascending, prepend=-np.inf))
    count = np.diff(first, append=x.size)
    ranks = np.empty(x.size)
    ranks[order] = np.repeat((first + count / 2) / x.size - 0.5, count)
    return ranks


def _gains(sums: Floats, start: int, stop: int, shortest: int) -> Floats:
    """Return what splits explain that leave `shortest` or more to each side.

    `sums` are cumulated, the first of them 0.
    """
    left = np.arange(shortest, stop - start - shortest + 1)
    return np.asarray(_gain(sums, start, stop - start, left))


def _gain(sums: Floats, start: Any, length: int, left: Any) -> Any:
    """Return what a split explains that leaves so many values to the left."""
    begin, end = sums[start], sums[start + length]
    lacking = sums[start + left] - begin - left * ((end - begin) / length)
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
        gains = _gain(every, starts[:, None], length, left) / coarse
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
            gains = _gains(sums, start, stop, shortest)
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
        gains = _gains(sums, start, stop, shortest)
        both = _gain(sums, start, stop - start, first - start)
        both += _gain(sums, first, stop - first, second - first)
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
        return float(_gains(sums, start, stop, shortest).max(initial=0))

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


def _described(
    x: Floats, sums: Floats, places: list[int], shortest: int
) -> tuple[Change, ...]:
    bounds = [0, *places, x.size]
    medians = [
        percentiles_in_order(x[start:stop], [0.5])[0]
        for start, stop in itertools.pairwise(bounds)
    ]
    changes = []
    for i, place in enumerate(places):
        start, stop = bounds[i], bounds[i + 2]
        gains = _gains(sums, start, stop, shortest)
        likely = np.flatnonzero(gains >= gains.max() - _FALL)
        first = start + shortest
        changes.append(
            Change(
                index=place,
                low=max(first + int(likely[0]) - 1, start + 1),
                high=min(first + int(likely[-1]) + 1, stop - 1),
                before=medians[i],
                after=medians[i + 1],
                gain=float(gains.max()),
            )
        )
    return tuple(changes)


def _long_run_variance(ranks: Floats) -> tuple[float, float]:
    """Return n times the variance of a mean of n, and its ratio to independence.

    The largest of several figures, so that what one does not see another may:
    neighbours as they are, neighbours as in a chain of first order, and the means
    of blocks of several lengths. All rest on differences of near values, in which
    a few changes of level do not show.
    """
    step, leap = (float(np.mean((ranks[k:] - ranks[:-k]) ** 2)) for k in (1, 2))
    # In a chain with correlation c, the mean squares are as 1 - c to 1 - c ** 2.
    c = min(max(leap / step - 1, 0.0), _MOST_CORRELATED)
    single = step / 2
    found = [single, single * (1 + c) / (1 - c) ** 2]
    length = max(2, round(math.pow(ranks.size, 1 / 3)))
    while ranks.size // length >= _FEWEST_BLOCKS:
        whole = ranks[: ranks.size // length * length]
        means = whole.reshape(-1, length).mean(axis=1)
        # Median absolute step of normal block means: 0.6745 * sqrt(2) deviations.
        step = float(np.median(np.abs(np.diff(means)))) / (0.6745 * math.sqrt(2))
        found.append(length * step**2)
        length *= 2
    return max(found), max(found) / single


def _beside_levels(ranks: Floats, places: list[int]) -> Floats:
    """Return what levels do not explain.

    Values that depend on each other for longer than the blocks of `_long_run_variance`
    look like levels; what these leave still depends on each other.
    """
    lengths = np.diff([0, *places, ranks.size])
    means = np.add.reduceat(ranks, [0, *places]) / lengths
    return np.asarray(ranks - np.repeat(means, lengths))


def _shortest(x: Floats) -> int:
    """Return the least length of a segment, so that chance outliers make none.

    Where most values are equal, only the others show the level.
    """
    bounds = np.flatnonzero(np.diff(np.sort(x), prepend=-np.inf, append=np.inf))
    distinct = 1 - float(np.diff(bounds).max()) / x.size
    fewest = PENALTY * math.log(x.size)
    return math.ceil(fewest / min(1.0, max(2 * distinct, 1 / x.size)))
