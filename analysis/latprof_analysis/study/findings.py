"""One group of latencies -> what a person would ask of it, as a document.

Times are nanoseconds. Where a figure cannot be told its place holds ``reason``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.changepoint import level_changes
from latprof_analysis.distribution import Piece, three_pieces
from latprof_analysis.histogram import Histogram
from latprof_analysis.loss import loss_episodes, loss_pattern, loss_share
from latprof_analysis.loss_models import choose_loss_model
from latprof_analysis.loss_runs import compared_runs
from latprof_analysis.modes import find_modes
from latprof_analysis.percentile import percentiles, percentiles_in_order
from latprof_analysis.quantiles import Quantile, samples_needed
from latprof_analysis.scans.kind_totals import PERCENTILES
from latprof_analysis.scans.kind_totals import percentiles as histogram_percentiles
from latprof_analysis.series import DelayVariation, autocorrelation, ipdv, pdv
from latprof_analysis.study.group_intervals import with_intervals
from latprof_analysis.study.levels import placed_levels
from latprof_analysis.text import percentile_name
from latprof_analysis.waiting import wait_by_queue

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
    return with_intervals(histogram_percentiles(histogram), histogram)


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
    """
    series = np.asarray(excess, np.float64)
    step = -(-series.size // _MOST_IN_SERIES) or 1
    thinned = series[::step]

    def correlation() -> dict[str, Any]:
        found = autocorrelation(thinned)
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
            lambda: placed_levels(level_changes(thinned), step, when)
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
