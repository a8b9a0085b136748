"""Values in the order of time: how alike neighbours are, and how delay varies."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Ints, Result
from latprof_analysis.stats.quantiles import (
    check_fraction,
    checked_values,
    normal_quantile,
)

_FEWEST = 10
# Correlations of farther lags say nothing that the nearer ones did not.
_LAG_SHARE = 4
# More values take seconds to correlate.
_MOST_CORRELATED = 1_000_000


@dataclass(frozen=True)
class Autocorrelation(Result):
    """How values depend on those before them."""

    lag: Ints  # shape (k,), from 0
    value: Floats  # shape (k,), correlation at each lag; 1 at lag 0
    # Of white noise `confidence` of the values, but for lag 0, lie within +- this.
    band: float
    n: int
    n_effective: float  # how many independent values would estimate the mean as well
    confidence: float


@dataclass(frozen=True)
class DelayVariation(Result):
    """Variation of one-way delay, with the function that selected its packets."""

    value: Floats  # shape (k,), in the unit of the delays
    index: Ints  # shape (k,), the packet to which each belongs
    selection: str  # which were held against which, as both RFCs ask to be stated
    # Packets without a value, since one of their pair was lost; the first packet,
    # which has none before it, is not among them.
    undefined: int


def autocorrelation(
    series: ArrayLike, lags: int = 100, confidence: float = 0.95
) -> Autocorrelation:
    """Estimate the autocorrelation of a series, and how many values it is worth.

    The estimate divides by n at each lag, the band is Bartlett's for white noise
    [1]_. `n_effective` is n over 1 + 2 * (sum of correlations), summed as far as
    those of two neighbouring lags together stay positive [2]_; it is never above
    n.

    Heavy tails hide dependence: of such a series pass the ranks.

    Parameters
    ----------
    series : array_like, shape (n,)
        At least 10 values at equal steps, in the order of time, any unit, finite
        and not all equal.
    lags : int
        Largest lag to return; at most n - 1 are.
    confidence : float
        In (0, 1).

    References
    ----------
    .. [1] Brockwell and Davis (1991). Time Series: Theory and Methods, 2nd ed.,
       section 7.2.
    .. [2] Geyer (1992). Practical Markov chain Monte Carlo. Statistical Science 7,
       473-483.

    Examples
    --------
    >>> saw = autocorrelation([1.0, 2.0] * 50, lags=2)
    >>> saw.value.round(2).tolist(), round(saw.band, 3)
    ([1.0, -0.99, 0.98], 0.196)
    """
    x = checked_values("series", series)
    if lags < 1:
        raise ValueError(f"lags must be at least 1, got {lags}")
    check_fraction("confidence", confidence)
    if x.size < _FEWEST or np.ptp(x) == 0:
        raise ValueError(
            f"series must have at least {_FEWEST} values that are not all equal,"
            f" got {x.size}"
        )
    lag = np.arange(min(lags, x.size - 1) + 1)
    rho = _correlations(x, max(lag[-1], x.size // _LAG_SHARE))
    return Autocorrelation(
        lag=lag,
        value=rho[lag],
        band=normal_quantile((1 + confidence) / 2) / math.sqrt(x.size),
        n=x.size,
        n_effective=x.size / _inflation(rho[: x.size // _LAG_SHARE + 1]),
        confidence=confidence,
    )


def variance_inflation(x: Floats) -> float:
    """Return by what the variance of the mean exceeds that of independent values.

    Up to a million values from their correlations, as in `autocorrelation`; of
    more, from the means of blocks of n ** (2/3) values, which are then long against
    any queue, and take a tenth of the time. At least 1; 1 for fewer than 10 values,
    or if all are equal.
    """
    if x.size < _FEWEST or np.ptp(x) == 0:
        return 1.0
    if x.size <= _MOST_CORRELATED:
        return _inflation(_correlations(x, x.size // _LAG_SHARE))
    length = round(math.pow(x.size, 2 / 3))
    means = x[: x.size // length * length].reshape(-1, length).mean(axis=1)
    return max(1.0, length * float(means.var(ddof=1)) / float(x.var()))


def ipdv(owd: ArrayLike) -> DelayVariation:
    """Return the difference in delay of each packet from the one before it.

    Selection function in the terms of RFC 3393 [1]_: consecutive packets, in the
    order of sending, as RFC 5481 has it for IPDV [2]_. Undefined unless both
    arrived; statistics of what is left are conditional on that. A clock that is
    wrong by a constant does not matter.

    Parameters
    ----------
    owd : array_like, shape (n,)
        One-way delays in the order of sending, any unit, of which the result is
        too. NaN for a packet that was lost. May be negative, since two clocks are
        in them.

    References
    ----------
    .. [1] RFC 3393, sections 2.4 (definition), 2.5 (selection) and 4.1 (loss).
    .. [2] RFC 5481, section 4.1.

    Examples
    --------
    >>> variation = ipdv([10.0, 12.0, float("nan"), 11.0, 11.5])
    >>> variation.value.tolist(), variation.index.tolist(), variation.undefined
    ([2.0, 0.5], [1, 4], 2)
    """
    delay = _checked_delays(owd)
    difference = np.diff(delay)
    defined = np.isfinite(difference)
    return DelayVariation(
        value=difference[defined],
        index=np.flatnonzero(defined) + 1,
        selection="consecutive packets as sent, both arrived (RFC 3393)",
        undefined=int(difference.size - defined.sum()),
    )


def pdv(owd: ArrayLike) -> DelayVariation:
    """Return how much each packet took longer than the fastest one.

    Selection function in the terms of RFC 5481 [1]_: each packet that arrived,
    against the packet of least delay among all given. A clock that is wrong by a
    constant does not matter; one that drifts does.

    Parameters
    ----------
    owd : array_like, shape (n,)
        As in `ipdv`.

    References
    ----------
    .. [1] RFC 5481, sections 4.2 and, of clocks, 6.3.

    Examples
    --------
    >>> pdv([10.0, 12.0, float("nan"), 11.0]).value.tolist()
    [0.0, 2.0, 1.0]
    """
    delay = _checked_delays(owd)
    arrived = np.flatnonzero(~np.isnan(delay))
    value = delay[arrived]
    return DelayVariation(
        value=value - value.min() if value.size else value,
        index=arrived,
        selection="packets that arrived, against the one of least delay (RFC 5481)",
        undefined=int(delay.size - arrived.size),
    )


def _correlations(x: Floats, farthest: int) -> Floats:
    """Return the correlations at lags 0, 1, ... up to the farthest."""
    y = x - x.mean()
    # Zeros behind the series, so that it does not meet itself going round.
    length = 1 << (x.size + int(farthest) - 1).bit_length()
    products: Floats = np.fft.irfft(np.abs(np.fft.rfft(y, length)) ** 2, length)
    rho: Floats = products[: farthest + 1] / products[0]
    return rho


def _inflation(rho: Floats) -> float:
    pairs = rho[0 : rho.size - 1 : 2] + rho[1::2]
    ends = np.flatnonzero(pairs <= 0)
    positive = pairs[: ends[0]] if ends.size else pairs
    return max(1.0, float(2 * positive.sum() - 1))


def _checked_delays(owd: ArrayLike) -> Floats:
    delay = np.asarray(owd, dtype=np.float64)
    if delay.ndim != 1 or not delay.size:
        raise ValueError(f"owd must have shape (n,) with n >= 1, got {delay.shape}")
    if np.isinf(delay).any():
        raise ValueError("owd must be finite or, for a lost packet, NaN; got inf")
    return delay
