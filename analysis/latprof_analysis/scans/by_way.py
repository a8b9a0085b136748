"""Totals by who sent to whom, in bounded memory.

Each way ("tcp curl -> nginx:80") has its own as long as there are few of them; else
ends that were not seen are one, whatever their addresses; else all that goes to
servers is one, and all that comes from them. Which of these it is depends on what
came, not on its order, so that parts that were counted apart merge to the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar

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
