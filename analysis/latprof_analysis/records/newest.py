"""Bounded tables: what was put in first goes."""

from __future__ import annotations

from itertools import islice
from typing import Any


def drop_oldest(kept: dict[Any, Any], most: int) -> None:
    """Leave the newest so many of a table, by when their keys came first.

    Examples
    --------
    >>> table = dict.fromkeys("abcde")
    >>> drop_oldest(table, 3)
    >>> [*table]
    ['c', 'd', 'e']
    >>> drop_oldest(table, 5)
    >>> len(table)
    3
    """
    for key in [*islice(kept, max(0, len(kept) - most))]:
        del kept[key]
