"""One group of latencies -> what a person would ask of it, as a document.

Times are nanoseconds. Where a figure is not known its place holds ``reason``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.read.rows import Columns
from latprof_analysis.stages import BLANK
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
from latprof_analysis.study.totals import (
    MOST_EXACT,
    PERCENTILES,
    MessageTotals,
    TripTotals,
)
from latprof_analysis.study.totals import percentiles as figures_of
from latprof_analysis.text import NS_PER_SECOND, percentile_name

if TYPE_CHECKING:
    import pandas as pd


class Effort(IntEnum):
    """What of a study is computed: each has all of those before it."""

    SCREEN = 0  # what a screen shows
    MODES = 1  # of each distribution, too
    ALL = 2  # each stage's fit, rival estimators, the queue that messages met


class When(NamedTuple):
    """Where in time values are.

    Attributes
    ----------
    run : ndarray of int, shape (n,)
        Which of `runs`.
    runs : sequence of str
    t_s : ndarray, shape (n,)
        Seconds in it.
    """

    run: NDArray[Any]
    runs: Sequence[str]
    t_s: NDArray[np.float64]


def times_in_runs(messages: Columns) -> When | None:
    """Return when messages were read in their run; None where not all were read."""
    t_s = since_first_read(messages)
    return None if np.isnan(t_s).any() else When(*messages.texts["run"], t_s)


def since_first_read(messages: Columns | pd.DataFrame) -> NDArray[np.float64]:
    """Return seconds from the first message that each run read; NaN if not read.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = pd.DataFrame({"run": ["a", "a", "b"], "read_ns": [5e9, 7e9, 9e9]})
    >>> since_first_read(rows).tolist()
    [0.0, 2.0, 0.0]
    """
    rows = Columns.of(messages)
    read, (run, runs) = rows.numbers["read_ns"], rows.texts["run"]
    first = np.full(len(runs), np.iinfo(np.int64).max)
    known = read != BLANK
    np.minimum.at(first, run[known], read[known])
    return np.where(known, (read - first[run]) / NS_PER_SECOND, np.nan)


def placed_levels(
    found: Changes, every: int, when: When | None, usual_ns: float | None = None
) -> dict[str, Any]:
    """Return changes of level, and the levels between them, with their places.

    Parameters
    ----------
    found : Changes
        Of every `every`-th value.
    every : int
    when : When or None
        Of all values in the same order; None where only the order is known.
    usual_ns : float, optional
        Above which the values are.

    Returns
    -------
    dict
        The keys of `Changes`, and ``usual_ns`` and ``levels``, none where nothing
        changed: each has the median of a level with its interval and n, and as
        ``spans`` where it lies: ``first`` and ``last`` count all values from 0;
        ``run``, ``from_s`` and ``to_s`` where they are known. A change has its ``run``,
        ``t_s`` and, where they are of the same run, the ends ``low_s`` and ``high_s``
        of its interval.
        Of medians ``value``, ``low`` and ``high`` are ns above what is usual, and where
        `usual_ns` is known ``value_ns``, ``low_ns`` and ``high_ns`` are absolute.
    """
    placed = found.as_dict()
    bounds = [0, *(change.index for change in found.changes), found.n]
    medians = [change.before for change in found.changes]
    medians += [change.after for change in found.changes[-1:]]
    placed["usual_ns"] = usual_ns
    for change in placed["changes"]:
        for side in ("before", "after"):
            change[side] |= _absolute(change[side], usual_ns)
    placed["levels"] = [
        {
            **median.as_dict(),
            **_absolute(median.as_dict(), usual_ns),
            "spans": _spans(start * every, stop * every, when),
        }
        for median, start, stop in zip(medians, bounds, bounds[1:], strict=False)
    ]
    if when is not None:
        placed["changes"] = [
            change | _time_of(change, every, when) for change in placed["changes"]
        ]
    return placed


def _absolute(
    median: Mapping[str, Any], usual_ns: float | None
) -> dict[str, float | None]:
    """Return a median, and its interval, that is above what is usual, in ns."""
    if usual_ns is None:
        return {}
    above = {f"{end}_ns": median[end] for end in ("value", "low", "high")}
    return {k: None if ns is None else usual_ns + ns for k, ns in above.items()}


def _spans(start: int, stop: int, when: When | None) -> list[dict[str, Any]]:
    """Say from which value to which a level reaches, in each run."""
    if when is None:
        return [{"first": start, "last": stop - 1}]
    run = when.run[start:stop]
    found = []
    for number in np.unique(run).tolist():
        places = start + np.flatnonzero(run == number)
        times = when.t_s[places]
        found.append(
            {
                "first": int(places[0]),
                "last": int(places[-1]),
                "run": when.runs[number],
                "from_s": float(times.min()),
                "to_s": float(times.max()),
            }
        )
    return found


def _time_of(change: dict[str, Any], every: int, when: When) -> dict[str, Any]:
    at, low, high = (change[name] * every for name in ("index", "low", "high"))
    ends = [
        float(when.t_s[end]) if when.run[end] == when.run[at] else None
        for end in (low, high)
    ]
    return {
        "run": when.runs[when.run[at]],
        "t_s": float(when.t_s[at]),
        "low_s": ends[0],
        "high_s": ends[1],
    }


def kinds_with_intervals(totals: MessageTotals) -> dict[str, Any]:
    """Return the figures by kind, with intervals of end_to_end by group.

    Beside each percentile that is known, such as ``p50_ns``, stand ``p50_low_ns`` and
    ``p50_high_ns``: 95%, distribution-free, for messages that do not depend on each
    other; None where n does not bound that side.
    """
    found = totals.as_dict()
    for name, kind in totals.kinds.items():
        figures = found[name]
        for grouped, key in (
            (kind.by_hops, "by_hops"),
            (kind.by_packets, "by_packets"),
        ):
            _add(figures.get(key, {}), grouped, "end_to_end")
        sizes = figures.get("sizes", {})
        ends = {size: stages.get("end_to_end", {}) for size, stages in sizes.items()}
        _add(ends, kind.by_size, "end_to_end")
    return found


def trips_with_intervals(
    totals: TripTotals, times: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> dict[str, Any]:
    """Return the figures of round trips, with intervals by size, as of kinds.

    `times` as `TripTotals.as_dict` takes them.
    """
    found = totals.as_dict(times)
    _add(found["sizes"], totals.by_size, "rtt")
    return found


def with_intervals(figures: Mapping[str, Any], histogram: Histogram) -> dict[str, Any]:
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
    names = [name for name in PERCENTILES if figures[f"{name}_ns"] is not None]
    if not names:
        return dict(figures)
    found = histogram_percentiles(histogram, [PERCENTILES[name] for name in names])
    ends = {
        f"{name}_{end}_ns": round(value) if math.isfinite(value) else None
        for name, quantile in zip(names, found, strict=True)
        for end, value in (("low", quantile.low), ("high", quantile.high))
    }
    return {**figures, **ends}


def _add(groups: Mapping[str, dict[str, Any]], grouped: Grouped, name: str) -> None:
    for label, histograms in grouped.in_order():
        if groups.get(label) and name in histograms:
            groups[label].update(with_intervals(groups[label], histograms[name]))


Floats = NDArray[np.float64]

# Silverman's test resamples a density: of more values a draw is looked at.
_MOST_FOR_MODES = 2000
# Sizes sent in rounds are this near to equally many.
_NEARLY = 0.9
# A change point's place is exact up to so many values; longer series are thinned.
_MOST_IN_SERIES = 200_000
_SEED = 1


def tail(
    values: ArrayLike, size_bytes: ArrayLike, effort: Effort = Effort.MODES
) -> dict[str, Any]:
    """Describe a sample from its median to its last value.

    Parameters
    ----------
    values : array_like, shape (n,)
        Latencies in the order of time, in ns, finite.
    size_bytes : array_like, shape (n,)
        Sizes of their messages, 0 where not known.
    effort : Effort
        Whether modes are looked for.

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
    modes: dict[str, Any] = {"reason": "they were not looked for"}
    if effort >= Effort.MODES:
        modes = or_reason(lambda: find_modes(drawn(of_size)).as_dict())
    return {
        "n": int(sample.size),
        "percentiles": _percentiles(sample),
        "pieces": or_reason(lambda: [_piece(p) for p in three_pieces(sample)]),
        "modes_of": size,
        "modes_drawn_of": int(of_size.size),
        "modes": modes,
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
    def figures() -> dict[str, Any]:
        return {
            percentile_name(q.p): quantile(q)
            for q in percentiles_in_order(sample, tuple(PERCENTILES.values()))
        }

    return or_reason(figures)


def figures_of_times(times: Floats) -> dict[str, Any]:
    """Return percentiles in ns by the names that a run's summary has."""
    if 0 < times.size < MOST_EXACT:
        found = percentiles(times, tuple(PERCENTILES.values()))
        named = zip(PERCENTILES, map(quantile, found), strict=True)
        figures = {"n": int(times.size), "max_ns": round(float(times.max()))}
        return figures | _as_in_summary(dict(named))
    histogram = Histogram()
    histogram.record(np.round(times).astype(np.int64))
    return with_intervals(figures_of(histogram), histogram)


def _as_in_summary(named: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return percentiles as `with_intervals` does: no ends where there is no value."""
    found: dict[str, Any] = {}
    for name, figures in named.items():
        known = figures["value_ns"] is not None
        for end, key in (("value", ""), ("low", "_low"), ("high", "_high")):
            ns = figures[f"{end}_ns"]
            if known or not key:
                found[f"{name}{key}_ns"] = None if ns is None else round(ns)
    return found


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


def over_time(
    excess: ArrayLike, when: When | None = None, *, times: ArrayLike | None = None
) -> dict[str, Any]:
    """Describe how latencies follow each other.

    Parameters
    ----------
    excess : array_like, shape (n,)
        Above what is usual of their size, in ns, in the order of time.
    when : When, optional
        As in `placed_levels`.
    times : array_like, shape (n,), optional
        The latencies themselves; absolute levels are those of a message of median size.

    Returns
    -------
    dict
        ``autocorrelation`` of neighbours, ``level_changes``, and of how many values
        one is in these: ``every``.
    """
    series = np.asarray(excess, np.float64)
    step = -(-series.size // _MOST_IN_SERIES) or 1
    usual_ns = None
    if times is not None and series.size:
        usual_ns = float(np.median(np.asarray(times, np.float64) - series))

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
            lambda: placed_levels(level_changes(series[::step]), step, when, usual_ns)
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
    return dict(or_reason(lambda: wait_by_queue(queue_bytes, wait_ns).as_dict()))


def or_reason(figure: Callable[[], Any]) -> Any:
    """Return a figure, or why there is none."""
    try:
        return figure()
    except ValueError as error:
        return {"reason": str(error)}
