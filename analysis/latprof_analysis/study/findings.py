"""One group of latencies -> what a person would ask of it, as a document.

Times are nanoseconds. Where a figure cannot be told its place holds ``reason``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats.change_points import Changes, level_changes
from latprof_analysis.stats.distribution import (
    Piece,
    histogram_percentiles,
    percentiles,
    percentiles_in_order,
    three_pieces,
)
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.stats.loss import (
    choose_loss_model,
    compared_runs,
    loss_episodes,
    loss_pattern,
    loss_share,
)
from latprof_analysis.stats.modes import find_modes
from latprof_analysis.stats.quantiles import Quantile, samples_needed
from latprof_analysis.stats.series import DelayVariation, autocorrelation, ipdv, pdv
from latprof_analysis.stats.waiting import wait_by_queue
from latprof_analysis.study.grouped import Grouped
from latprof_analysis.study.totals import PERCENTILES, MessageTotals, TripTotals
from latprof_analysis.study.totals import percentiles as figures_of
from latprof_analysis.text import NS_PER_SECOND, percentile_name

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


def kinds_with_intervals(totals: MessageTotals) -> dict[str, Any]:
    """Return the figures by kind, with intervals of end_to_end by group.

    Beside each percentile that is told, such as ``p50_ns``, stand ``p50_low_ns`` and
    ``p50_high_ns``: 95%, distribution-free, for messages that do not depend on each
    other; None where n does not bound that side.
    """
    found = totals.as_dict()
    for name, kind in totals.kinds.items():
        told = found[name]
        for grouped, key in (
            (kind.by_hops, "by_hops"),
            (kind.by_packets, "by_packets"),
        ):
            _add(told.get(key, {}), grouped, "end_to_end")
        sizes = told.get("sizes", {})
        ends = {size: stages.get("end_to_end", {}) for size, stages in sizes.items()}
        _add(ends, kind.by_size, "end_to_end")
    return found


def trips_with_intervals(totals: TripTotals) -> dict[str, Any]:
    """Return the figures of round trips, with intervals by size, as of kinds."""
    found = totals.as_dict()
    _add(found["sizes"], totals.by_size, "rtt")
    return found


def with_intervals(told: Mapping[str, Any], histogram: Histogram) -> dict[str, Any]:
    """Return percentiles, as `totals.percentiles` has them, with intervals.

    Examples
    --------
    >>> from latprof_analysis.study.totals import percentiles
    >>> counted = Histogram()
    >>> counted.record(range(1, 101))
    >>> found = with_intervals(percentiles(counted), counted)
    >>> found["p50_ns"], found["p50_low_ns"], found["p50_high_ns"]
    (50, 40, 61)
    """
    names = [name for name in PERCENTILES if told[f"{name}_ns"] is not None]
    if not names:
        return dict(told)
    found = histogram_percentiles(histogram, [PERCENTILES[name] for name in names])
    ends = {
        f"{name}_{end}_ns": round(value) if math.isfinite(value) else None
        for name, quantile in zip(names, found, strict=True)
        for end, value in (("low", quantile.low), ("high", quantile.high))
    }
    return {**told, **ends}


def _add(told: Mapping[str, dict[str, Any]], grouped: Grouped, name: str) -> None:
    for label, histograms in grouped.in_order():
        if told.get(label) and name in histograms:
            told[label].update(with_intervals(told[label], histograms[name]))


Floats = NDArray[np.float64]

# Silverman's test resamples a density: of more values a draw is looked at.
_MOST_FOR_MODES = 2000
# Sizes sent in rounds are this near to equally many.
_NEARLY = 0.9
# A change point's place is told to so many values; longer series are thinned.
_MOST_IN_SERIES = 200_000
_SEED = 1


def tail(values: ArrayLike, size_bytes: ArrayLike) -> dict[str, Any]:
    """Describe a sample from its median to its last value.

    Parameters
    ----------
    values : array_like, shape (n,)
        Latencies in the order of time, in ns, finite.
    size_bytes : array_like, shape (n,)
        Sizes of their messages, 0 where not known.

    Returns
    -------
    dict
        ``percentiles`` with distribution-free intervals that respect dependence
        between neighbours, ``pieces`` (fastest 95%, to 99.9%, slowest 0.1%) and
        ``modes`` of the messages of one size, since each size is a mode: of all
        ``modes_drawn_of`` or of so many, drawn at random.
    """
    sample, sizes = np.asarray(values, np.float64), np.asarray(size_bytes, np.int64)
    size = most_frequent(sizes)
    of_size = sample[sizes == size]
    alike = drawn(of_size)
    return {
        "n": int(sample.size),
        "percentiles": _percentiles(sample),
        "pieces": or_reason(lambda: [_piece(p) for p in three_pieces(sample)]),
        "modes_of": size,
        "modes_drawn_of": int(of_size.size),
        "modes": or_reason(lambda: find_modes(alike).as_dict()),
    }


def most_frequent(size_bytes: ArrayLike) -> int:
    """Return the size of which there are most; of those nearly as many, the smallest.

    Examples
    --------
    >>> most_frequent([64, 1024, 64, 1024, 1024, 64, 9000])
    64
    """
    sizes, counts = np.unique(np.asarray(size_bytes, np.int64), return_counts=True)
    return int(sizes[counts >= _NEARLY * counts.max()][0]) if sizes.size else 0


def _percentiles(sample: Floats) -> Any:
    def told() -> dict[str, Any]:
        return {
            percentile_name(q.p): quantile(q)
            for q in percentiles_in_order(sample, tuple(PERCENTILES.values()))
        }

    return or_reason(told)


def by_histogram(times: Floats) -> dict[str, Any]:
    """Return percentiles in ns as a run's summary has them."""
    histogram = Histogram()
    histogram.record(np.round(times).astype(np.int64))
    return with_intervals(figures_of(histogram), histogram)


def quantile(q: Quantile) -> dict[str, Any]:
    """Return a quantile in ns for JSON; an end that is open is None.

    So is the value where there are too few samples for it, as in a run's summary.
    """
    enough = q.n >= samples_needed(q.p)
    return {
        "value_ns": finite(q.value) if enough else None,
        "low_ns": finite(q.low),
        "high_ns": finite(q.high),
        "n": q.n,
    }


def finite(value: float) -> float | None:
    """Return a number, or None for what JSON has no number for."""
    return float(value) if np.isfinite(value) else None


def _piece(piece: Piece) -> dict[str, Any]:
    return {
        "name": piece.name,
        "count": piece.count,
        "low_ns": piece.low,
        "high_ns": piece.high,
    }


def drawn(sample: Floats, most: int = _MOST_FOR_MODES) -> Floats:
    """Return a random draw of a sample that is too large, else all of it."""
    if sample.size <= most:
        return sample
    kept: Floats = np.random.default_rng(_SEED).choice(sample, most, replace=False)
    return kept


def over_time(excess: ArrayLike, when: pd.DataFrame | None = None) -> dict[str, Any]:
    """Describe how latencies follow each other.

    Parameters
    ----------
    excess : array_like, shape (n,)
        Above what is usual of their size, in ns, in the order of time.
    when : DataFrame, n rows, optional
        As in `placed_levels`.

    Returns
    -------
    dict
        ``autocorrelation`` of neighbours, ``level_changes``, and of how many values
        one is in these: ``every``.
    """
    series = np.asarray(excess, np.float64)
    step = -(-series.size // _MOST_IN_SERIES) or 1

    def correlation() -> dict[str, Any]:
        found = autocorrelation(series)
        return {
            "lag_1": float(found.value[1]),
            "band": found.band,
            "n": found.n,
            "n_effective": found.n_effective,
        }

    return {
        "every": step,
        "autocorrelation": or_reason(correlation),
        "level_changes": or_reason(
            lambda: placed_levels(level_changes(series[::step]), step, when)
        ),
    }


def delay_variation(owd: ArrayLike) -> dict[str, Any]:
    """Describe IPDV and PDV of one-way delays in ns; NaN where a packet was lost."""
    return {
        "ipdv": or_reason(lambda: _variation(ipdv(owd))),
        "pdv": or_reason(lambda: _variation(pdv(owd))),
    }


def _variation(found: DelayVariation) -> dict[str, Any]:
    values = found.value
    if not values.size:
        raise ValueError("no two packets to hold against each other")
    return {
        "selection": found.selection,
        "undefined": found.undefined,
        "percentiles": {
            percentile_name(q.p): quantile(q)
            for q in percentiles(np.abs(values), (0.5, 0.99))
        },
    }


def losses(lost: ArrayLike) -> dict[str, Any]:
    """Describe lost messages: share, episodes, distances, and a model of them.

    Parameters
    ----------
    lost : array_like of bool, shape (n,)
        In the order in which they were sent.
    """
    flags = np.asarray(lost, bool)
    share = or_reason(lambda: loss_share(flags).as_dict())
    if not flags.any():
        return {"share": share, "episodes": None, "model": None, "runs": None}
    episodes, pattern = loss_episodes(flags), loss_pattern(flags)
    choice = choose_loss_model(flags)
    lengths, distances = episodes.length, pattern.distance[pattern.distance > 0]
    return {
        "share": share,
        "episodes": {
            "count": int(lengths.size),
            "mean_length": float(lengths.mean()),
            "longest": int(lengths.max()),
            "median_distance": float(np.median(distances)) if distances.size else None,
            "noticeable_rate_99": pattern.noticeable_rate(99),
        },
        "model": choice.as_dict(),
        "runs": compared_runs(flags, choice.models),
    }


def queueing(queue_bytes: ArrayLike, wait_ns: ArrayLike) -> dict[str, Any]:
    """Describe what the queue that a message met means for its wait."""

    def told() -> dict[str, Any]:
        found = wait_by_queue(queue_bytes, wait_ns).as_dict()
        return {name: _json(value) for name, value in found.items()}

    return dict(or_reason(told))


def _json(value: Any) -> Any:
    return finite(value) if isinstance(value, float) else value


def or_reason(told: Callable[[], Any]) -> Any:
    """Return a figure, or why there is none."""
    try:
        return told()
    except ValueError as error:
        return {"reason": str(error)}
