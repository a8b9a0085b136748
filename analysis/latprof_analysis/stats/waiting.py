"""How the queue that a message met explains its wait."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Result
from latprof_analysis.stats.change_points import mid_ranks
from latprof_analysis.stats.quantiles import (
    check_fraction,
    checked_values,
    normal_quantile,
)

_FEWEST = 10
# All pairs of so many messages are two million slopes.
_MOST_PAIRED = 2000
_SEED = 1


@dataclass(frozen=True)
class Waiting(Result):
    """Wait against queue length at arrival: a robust line, and rank correlation."""

    slope: float  # wait per unit of queue length
    slope_low: float
    slope_high: float
    intercept: float  # wait that an empty queue leaves, by the same line
    rank_correlation: float  # Spearman's: 1 if the longer queue always waited longer
    correlation_low: float
    correlation_high: float
    n: int
    n_line: int  # of them drawn at random for the line; all up to 2000
    confidence: float


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
    check_fraction("confidence", confidence)
    drawn = np.arange(x.size)
    if x.size > _MOST_PAIRED:
        rng = np.random.default_rng(_SEED)
        drawn = rng.choice(x.size, _MOST_PAIRED, replace=False)
        if np.ptp(x[drawn]) == 0:
            raise ValueError("queue must vary; nearly all of its lengths are equal")
    line = stats.theilslopes(y[drawn], x[drawn], confidence)
    a, b = mid_ranks(x), mid_ranks(y)
    rho = min(max(float(a @ b / math.sqrt((a @ a) * (b @ b))), -1.0), 1.0)
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
