"""What is kept apart in bounded memory: histograms by a number, totals by a way.

Each value (a size, say) has its own histograms as long as there are few of them;
else each octave has: 1024 to 2047, and so on. Each way ("tcp curl -> nginx:80") has
its own totals as long as there are few of them; else ends that were not seen are
one, whatever their addresses; else all that goes to servers is one, and all that
comes from them. Which of these it is depends on what came, not on its order, so that
parts that were counted apart merge to the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stages import BLANK
from latprof_analysis.stats.histogram import Histogram

Ints = NDArray[np.int64]
Histograms = dict[str, Histogram]

FEW = 64
UNKNOWN = "unknown"
# Values below this are found by a table of them, which is faster than sorting.
_TABLE = 1 << 20


class Grouped:
    """Histograms by name, for each group of values of a whole number.

    Parameters
    ----------
    most : int
        Distinct values that have a group each; beyond, octaves have. With 0 all are
        one group.

    Attributes
    ----------
    exact : bool
        Whether a group is one value.
    groups : dict of int to dict of str to Histogram
        By the lowest value of each group; BLANK where the value is not known.

    Examples
    --------
    >>> by_size = Grouped(most=2)
    >>> for size in (64, 1024, 1500):
    ...     by_size.of(by_size.admit(np.array([size]))[0][0], "rtt").record([size])
    >>> {by_size.label(low): h["rtt"].count for low, h in by_size.groups.items()}
    {'64-127': 1, '1024-2047': 2}
    """

    def __init__(self, most: int = FEW) -> None:
        self.most = most
        self.exact = most > 0
        self.groups: dict[int, Histograms] = {}

    def admit(self, values: Ints) -> tuple[Ints, NDArray[np.intp]]:
        """Make room for values; return their groups, and which is each value's.

        Parameters
        ----------
        values : ndarray of int64, shape (n,)
            From 0, or BLANK.

        Returns
        -------
        groups : ndarray of int64, shape (k,)
        index : ndarray of int, shape (n,)
        """
        if not self.most:
            return np.zeros(1, np.int64), np.zeros(len(values), np.intp)
        found, index = distinct(values)
        if self.exact:
            known = found[found != BLANK].tolist()
            if len({*known, *self.groups} - {BLANK}) <= self.most:
                return self._open(found), index
            self._coarsen()
        groups, which = np.unique(_octaves(found), return_inverse=True)
        return self._open(groups), which[index]

    def _open(self, groups: Ints) -> Ints:
        """Have these groups, also where nothing of them will be recorded."""
        for group in groups.tolist():
            self.groups.setdefault(group, {})
        return groups

    def of(self, group: int, name: str) -> Histogram:
        """Return a group's histogram of this name."""
        return self.groups.setdefault(int(group), {}).setdefault(name, Histogram())

    def merge(self, other: Grouped) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        if self.most != other.most:
            raise ValueError(f"most must be the same, got {self.most} and {other.most}")
        self.admit(np.array(list(other.groups), np.int64))
        if self.exact and not other.exact:
            self._coarsen()
        for low, histograms in other.groups.items():
            group = low if self.exact or not self.most else _octave(low)
            for name, histogram in histograms.items():
                self.of(group, name).merge(histogram)

    def total(self) -> Histograms:
        """Return the histograms of all groups together."""
        whole: Histograms = {}
        for histograms in self.groups.values():
            for name, histogram in histograms.items():
                whole.setdefault(name, Histogram()).merge(histogram)
        return whole

    def in_order(self) -> Iterator[tuple[str, Histograms]]:
        """Iterate over the groups by value, each with its label."""
        for low in sorted(self.groups):
            yield self.label(low), self.groups[low]

    def label(self, low: int) -> str:
        """Name the group that begins with a value."""
        if low == BLANK:
            return UNKNOWN
        return str(low) if self.exact or low < 2 else f"{low}-{2 * low - 1}"

    def _coarsen(self) -> None:
        """From now on keep octaves apart."""
        fine, self.groups, self.exact = self.groups, {}, False
        for low, histograms in fine.items():
            group = self.groups.setdefault(_octave(low), {})
            for name, histogram in histograms.items():
                group.setdefault(name, Histogram()).merge(histogram)


def _octave(value: int) -> int:
    return value if value < 1 else 1 << (value.bit_length() - 1)


def _octaves(values: Ints) -> Ints:
    return np.array([_octave(value) for value in values.tolist()], np.int64)


def distinct(values: Ints) -> tuple[Ints, NDArray[np.intp]]:
    """Return the distinct values, ascending, and which of them each one is.

    Examples
    --------
    >>> distinct(np.array([64, 18, 64]))
    (array([18, 64]), array([1, 0, 1]))
    """
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.intp)
    shifted = np.where(values == BLANK, -1, values) + 1
    if shifted.min() < 0 or shifted.max() >= _TABLE:
        found, index = np.unique(values, return_inverse=True)
        return found, index
    seen = np.zeros(int(shifted.max()) + 1, bool)
    seen[shifted] = True
    found = np.flatnonzero(seen) - 1
    return np.where(found < 0, BLANK, found), (np.cumsum(seen) - 1)[shifted]


MOST_WAYS = 24
ELSEWHERE = "elsewhere"
_COARSEST = TO_SERVERS, FROM_SERVERS, OTHER = "to servers", "from servers", "other"
# An end without a name: its address, and its port if it is a server's.
_ADDRESS = re.compile(r"(?<= )(?:\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:.]+\])(?=:\d+( |$))")
_TO_SERVER = re.compile(r":\d+$")


class _Mergeable(Protocol):
    def merge(self, other: Any) -> None: ...


Totals = TypeVar("Totals", bound=_Mergeable)


def coarser(name: str, level: int) -> str:
    """Return the group of a way, of so many ways that there are `level` steps.

    Examples
    --------
    >>> coarser("tcp curl -> 10.0.0.1:80", 1), coarser("tcp nginx:80 -> curl", 1)
    ('tcp curl -> elsewhere:80', 'tcp nginx:80 -> curl')
    >>> coarser("tcp curl -> 10.0.0.1:80", 2), coarser("tcp nginx:80 -> curl", 2)
    ('tcp to servers', 'tcp from servers')
    >>> coarser("tcp to servers", 2), coarser("tcp message", 2)
    ('tcp to servers', 'tcp other')
    """
    if level == 0:
        return name
    if level == 1:
        return _ADDRESS.sub(ELSEWHERE, name)
    protocol, _, way = name.partition(" ")
    if " -> " not in way:
        return name if way in _COARSEST else f"{protocol} {OTHER}"
    return f"{protocol} {TO_SERVERS if _TO_SERVER.search(way) else FROM_SERVERS}"


class ByWay(Generic[Totals]):
    """Totals by the name of a way; at most MOST_WAYS of them.

    Parameters
    ----------
    make : callable
        Returns totals of nothing.

    Attributes
    ----------
    totals : dict of str to totals
    level : int
        How coarse the names are, as in `coarser`.
    """

    def __init__(self, make: Callable[[], Totals]) -> None:
        self._make = make
        self.totals: dict[str, Totals] = {}
        self.level = 0

    def of(self, name: str) -> Totals:
        """Return the totals of a way, valid until another way is asked for."""
        group = coarser(name, self.level)
        if group not in self.totals:
            if len(self.totals) >= MOST_WAYS and self.level < 2:
                self._coarsen()
                return self.of(name)
            self.totals[group] = self._make()
        return self.totals[group]

    def merge(self, other: Self) -> None:
        """Add all that `other` has counted; the order makes no difference."""
        while self.level < other.level:
            self._coarsen()
        for name, totals in other.totals.items():
            self.of(name).merge(totals)

    def _coarsen(self) -> None:
        self.level += 1
        fine, self.totals = self.totals, {}
        for name, totals in fine.items():
            self.of(name).merge(totals)
