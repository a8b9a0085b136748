"""Where the levels between changes lie in the runs, and which changes are large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.changepoint import Changes
from latprof_analysis.text import NS_PER_SECOND

SMALLEST_STEP = 0.01  # of the median: smaller ones are counted


def since_first_read(messages: pd.DataFrame) -> pd.Series[Any]:
    """Return seconds from the first message that each run read; NaN if not read.

    Examples
    --------
    >>> rows = pd.DataFrame({"run": ["a", "a", "b"], "read_ns": [5e9, 7e9, 9e9]})
    >>> since_first_read(rows).tolist()
    [0.0, 2.0, 0.0]
    """
    read = messages["read_ns"]
    first = read.groupby(messages["run"], observed=True).transform("min")
    return ((read - first) / NS_PER_SECOND).astype("float64")


def placed_levels(
    found: Changes, every: int, when: pd.DataFrame | None
) -> dict[str, Any]:
    """Return changes of level, and the levels between them, with their places.

    Parameters
    ----------
    found : Changes
        Of every `every`-th value.
    every : int
    when : DataFrame or None
        Of all values in the same order: ``run``, and seconds ``t_s`` in it. None
        where only the order is known.

    Returns
    -------
    dict
        The keys of `Changes`, and ``levels``, none where nothing changed: each has
        the median of a level with its interval and n, and as ``spans`` where it
        lies: ``first`` and ``last`` count all values from 0; ``run``, ``from_s`` and
        ``to_s`` where they are known. A change has its ``run``, ``t_s`` and, where
        they are of the same run, the ends ``low_s`` and ``high_s`` of its interval.
    """
    told = found.as_dict()
    bounds = [0, *(change.index for change in found.changes), found.n]
    medians = [change.before for change in found.changes]
    medians += [change.after for change in found.changes[-1:]]
    told["levels"] = [
        median.as_dict() | {"spans": _spans(start * every, stop * every, when)}
        for median, start, stop in zip(medians, bounds, bounds[1:], strict=False)
    ]
    if when is not None:
        told["changes"] = [
            change | _time_of(change, every, when) for change in told["changes"]
        ]
    return told


def _spans(start: int, stop: int, when: pd.DataFrame | None) -> list[dict[str, Any]]:
    """Tell from which value to which a level reaches, in each run."""
    if when is None:
        return [{"first": start, "last": stop - 1}]
    part = when.iloc[start:stop]
    place = pd.Series(np.arange(start, start + len(part)), index=part.index)
    return [
        {
            "first": int(place[times.index[0]]),
            "last": int(place[times.index[-1]]),
            "run": str(run),
            "from_s": float(times.min()),
            "to_s": float(times.max()),
        }
        for run, times in part.groupby("run", observed=True)["t_s"]
    ]


def _time_of(change: dict[str, Any], every: int, when: pd.DataFrame) -> dict[str, Any]:
    runs, times = when["run"], when["t_s"]
    at, low, high = (change[name] * every for name in ("index", "low", "high"))
    ends: list[float | None] = [
        float(times.iloc[end]) if runs.iloc[end] == runs.iloc[at] else None
        for end in (low, high)
    ]
    return {
        "run": str(runs.iloc[at]),
        "t_s": float(times.iloc[at]),
        "low_s": ends[0],
        "high_s": ends[1],
    }


def step_ns(change: dict[str, Any]) -> float:
    """Return by how much a change raised or lowered the level."""
    return float(change["after"]["value"]) - float(change["before"]["value"])


def large_changes(
    levels: dict[str, Any], median_ns: float | None
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


def alike(levels: dict[str, Any]) -> bool:
    """Whether neighbours are so alike that spells of a queue look like changes.

    Examples
    --------
    >>> alike({"inflation": 1.2}), alike({"inflation": 9.0})
    (False, True)
    """
    # variance of a mean, by dependence, over that of independent values
    return float(levels.get("inflation", 1.0)) > 2
