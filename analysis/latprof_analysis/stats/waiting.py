"""How the queue that a message met explains its wait; quantiles by group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats.change_points import mid_ranks
from latprof_analysis.stats.distribution import PERCENTILES, percentiles
from latprof_analysis.stats.quantiles import (
    Quantile,
    checked_values,
    normal_quantile,
)

Floats = NDArray[np.float64]

_FEWEST = 10
# All pairs of so many messages are two million slopes.
_MOST_PAIRED = 2000
_SEED = 1


@dataclass(frozen=True)
class Waiting:
    """Wait against queue length at arrival: a robust line, and rank correlation.

    Attributes
    ----------
    slope, slope_low, slope_high : float
        Wait per unit of queue length, with its interval.
    intercept : float
        Wait that an empty queue leaves, by the same line.
    rank_correlation, correlation_low, correlation_high : float
        Spearman's: 1 if the longer queue always meant the longer wait.
    n : int
    n_line : int
        Of them drawn at random for the line; all up to 2000.
    confidence : float
    """

    slope: float
    slope_low: float
    slope_high: float
    intercept: float
    rank_correlation: float
    correlation_low: float
    correlation_high: float
    n: int
    n_line: int
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return dict(vars(self))


def wait_by_queue(
    queue: ArrayLike, wait: ArrayLike, confidence: float = 0.95
) -> Waiting:
    """Estimate how a message's wait grows with the queue that it met.

    The slope is the median of the slopes of all pairs of messages, its interval
    that of Sen [1]_; up to 29% of the messages may be anything. The correlation is
    of ranks, its interval by Fisher's transformation with the variance of Bonett
    and Wright [2]_.

    Parameters
    ----------
    queue : array_like, shape (n,)
        What stood in the queue at arrival, in packets or bytes; at least 0.
    wait : array_like, shape (n,)
        Of the same messages, any unit; at least 0.
    confidence : float
        In (0, 1), for independent messages. Those of one busy spell are not
        independent: then both intervals are too narrow.

    References
    ----------
    .. [1] Sen (1968). Estimates of the regression coefficient based on Kendall's
       tau. JASA 63, 1379-1389.
    .. [2] Bonett and Wright (2000). Sample size requirements for estimating
       Pearson, Kendall and Spearman correlations. Psychometrika 65, 23-28.

    Examples
    --------
    >>> line = wait_by_queue(np.arange(20), 5.0 + 3.0 * np.arange(20))
    >>> line.slope, line.intercept, line.rank_correlation
    (3.0, 5.0, 1.0)
    """
    from scipy import stats  # takes long to load; few get here

    x, y = _checked_pair(queue, wait)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    drawn = np.arange(x.size)
    if x.size > _MOST_PAIRED:
        rng = np.random.default_rng(_SEED)
        drawn = rng.choice(x.size, _MOST_PAIRED, replace=False)
        if np.ptp(x[drawn]) == 0:
            raise ValueError("queue must vary; nearly all of its lengths are equal")
    line = stats.theilslopes(y[drawn], x[drawn], confidence)
    rho = _rank_correlation(x, y)
    z = normal_quantile((1 + confidence) / 2)
    half = z * math.sqrt((1 + rho**2 / 2) / (x.size - 3))
    middle = math.atanh(rho) if abs(rho) < 1 else math.copysign(math.inf, rho)
    return Waiting(
        slope=float(line.slope),
        slope_low=float(line.low_slope),
        slope_high=float(line.high_slope),
        intercept=float(np.median(y[drawn] - line.slope * x[drawn])),
        rank_correlation=rho,
        correlation_low=math.tanh(middle - half),
        correlation_high=math.tanh(middle + half),
        n=x.size,
        n_line=drawn.size,
        confidence=confidence,
    )


def percentiles_by_group(
    sample: ArrayLike,
    group: ArrayLike,
    ps: Sequence[float] = PERCENTILES,
    confidence: float = 0.95,
) -> dict[int, tuple[Quantile, ...]]:
    """Return the percentiles of each group: per hop count, number of packets, size.

    Parameters
    ----------
    sample : array_like, shape (n,)
        As in `percentiles`.
    group : array_like of int, shape (n,)
        To which group each value belongs.
    ps, confidence
        As in `percentiles`.

    Returns
    -------
    dict
        From each group, ascending, to its quantiles.

    Examples
    --------
    >>> by_hops = percentiles_by_group([5.0, 9.0, 6.0, 7.0], [1, 2, 1, 1], [0.5])
    >>> [(hops, q.value, q.n) for hops, (q,) in by_hops.items()]
    [(1, 6.0, 3), (2, 9.0, 1)]
    """
    x = checked_values("sample", sample)
    label = np.asarray(group)
    if label.shape != x.shape:
        raise ValueError(f"group must have shape {x.shape}, got {label.shape}")
    if not np.issubdtype(label.dtype, np.integer):
        raise ValueError(f"group must hold integers, got {label.dtype}")
    order = np.argsort(label, kind="stable")
    labels, first = np.unique(label[order], return_index=True)
    parts = np.split(x[order], first[1:])
    return {
        int(one): percentiles(part, ps, confidence)
        for one, part in zip(labels, parts, strict=True)
    }


def _rank_correlation(x: Floats, y: Floats) -> float:
    a, b = mid_ranks(x), mid_ranks(y)
    return min(max(float(a @ b / math.sqrt((a @ a) * (b @ b))), -1.0), 1.0)


def _checked_pair(queue: ArrayLike, wait: ArrayLike) -> tuple[Floats, Floats]:
    x, y = checked_values("sample", queue), checked_values("sample", wait)
    if x.shape != y.shape:
        raise ValueError(
            f"queue and wait must be of the same length, got {x.size} and {y.size}"
        )
    if x.size < _FEWEST:
        raise ValueError(f"queue must have at least {_FEWEST} values, got {x.size}")
    for name, values in (("queue", x), ("wait", y)):
        if values.min() < 0:
            raise ValueError(f"{name} must be at least 0, got {values.min()}")
        if np.ptp(values) == 0:
            raise ValueError(f"{name} must vary, got {values[0]} for all")
    return x, y
