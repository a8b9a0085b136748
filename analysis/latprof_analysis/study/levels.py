"""Changes of level in a document: which of them are of any size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SMALLEST_STEP = 0.01  # of the median: smaller ones are counted


def step_ns(change: Mapping[str, Any]) -> float:
    """Return by how much a change raised or lowered the level."""
    return float(change["after"]["value"]) - float(change["before"]["value"])


def large_changes(
    levels: Mapping[str, Any], median_ns: float | None
) -> list[dict[str, Any]]:
    """Return the changes of level that are of any size beside the median.

    Examples
    --------
    >>> rise = {"before": {"value": 0.0}, "after": {"value": 5.0}}
    >>> [len(large_changes({"changes": [rise]}, median)) for median in (100, 1000)]
    [1, 0]
    """
    least = SMALLEST_STEP * (median_ns or 0)
    return [one for one in levels.get("changes", ()) if abs(step_ns(one)) >= least]


def alike(levels: Mapping[str, Any]) -> bool:
    """Whether neighbours are so alike that spells of a queue look like changes.

    Examples
    --------
    >>> alike({"inflation": 1.2}), alike({"inflation": 9.0})
    (False, True)
    """
    # variance of a mean, by dependence, over that of independent values
    return float(levels.get("inflation", 1.0)) > 2
