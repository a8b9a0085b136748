"""Modes of a distribution of latencies: two queueing delays, or one?"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.log_density import Hill, LogDensity
from latprof_analysis.quantiles import (
    check_fraction,
    checked_values,
    share_interval,
)

Floats = NDArray[np.float64]

_FEWEST = 50
_RESAMPLES = 200
_ENOUGH = 20
_MOST_MODES = 8
_SEED = 1
_NAMES = {1: ("only",), 2: ("fast", "slow"), 3: ("fast", "middle", "slow")}


@dataclass(frozen=True)
class Mode:
    """One hill of the density, from the valley before it to the one behind.

    Attributes
    ----------
    name : str
        "fast", "middle", "slow"; of more than three "1 of 4" and so on.
    value : float
        Where the density over the logarithm of latency is highest.
    low, high : float
        The valleys, or the smallest or largest value.
    share : float
        Of all values, those from `low` to `high`.
    share_low, share_high : float
        95% interval of that, for independent values and valleys that are known.
    """

    name: str
    value: float
    low: float
    high: float
    share: float
    share_low: float
    share_high: float


@dataclass(frozen=True)
class Modes:
    """The modes that a sample shows, with the tests that found so many.

    Attributes
    ----------
    modes : tuple of Mode
        Ascending; one if there is no evidence of more. None if all were equal.
    p_values : tuple of float
        Of Silverman's hypotheses "at most 1 mode", "at most 2" and so on, up to
        the first that was not refused.
    bandwidth : float
        Of the density that `modes` describes, in natural logarithms of latency.
    n : int
    significance : float
    reason : str
    curve : tuple of (float, float)
        That density at some latencies, ascending, for drawing: share of the values
        per unit of the natural logarithm, so that the area under it is 1.
    """

    modes: tuple[Mode, ...]
    p_values: tuple[float, ...]
    bandwidth: float
    n: int
    significance: float
    reason: str
    curve: tuple[tuple[float, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        modes = [dict(vars(mode)) for mode in self.modes]
        return {**vars(self), "modes": modes, "curve": [list(at) for at in self.curve]}


def find_modes(
    sample: ArrayLike,
    resolution: float = 1.0,
    least_share: float = 0.01,
    significance: float = 0.05,
) -> Modes:
    """Find the modes of latencies, each only as far as a test supports it.

    Silverman's test [1]_: the narrowest kernel that still shows k modes makes the
    smoothest density that could have given these data with k modes only; if few
    samples from that density show more modes under this kernel, k are too few.
    Only hills of at least `least_share` count, so that single outliers, each of
    which is a hill of its own, neither add modes nor widen the kernel. The test is
    known to refuse one mode too seldom rather than too often.

    Works on logarithms of latency, where one delay with an exponential or
    lognormal wait behind it has one mode, in 4096 cells, so that ten million
    values take hardly longer than their logarithms.

    Parameters
    ----------
    sample : array_like, shape (n,)
        At least 50 latencies of at least 0, finite, any unit, of which the results
        are too. Independent: a queue that stood once for long may be a mode.
    resolution : float
        Step of the clock, in the unit of the sample. Latencies below it are taken
        for it, and steps of the clock are not taken for modes.
    least_share : float
        In (0, 1).
    significance : float
        In (0, 1): of samples with one mode, at most about so many show two.

    References
    ----------
    .. [1] Silverman (1981). Using kernel density estimates to investigate
       multimodality. J. Royal Statistical Society B 43, 97-99.
    .. [2] Mueller and Sawitzki (1991). Excess mass estimates and tests for
       multimodality. JASA 86, 738-746.
    .. [3] Hartigan and Hartigan (1985). The dip test of unimodality. Annals of
       Statistics 13, 70-84.

    Examples
    --------
    >>> rng = np.random.default_rng(3)
    >>> waits_us = np.append(rng.gamma(9, 30, 9000), 7000 + rng.gamma(4, 50, 1000))
    >>> found = find_modes(waits_us)
    >>> [(mode.name, round(mode.share, 2)) for mode in found.modes]
    [('fast', 0.9), ('slow', 0.1)]
    """
    x = _checked(sample, resolution)
    check_fraction("least_share", least_share)
    check_fraction("significance", significance)
    if x.min() == x.max():
        return Modes((), (), 0.0, x.size, significance, "all values are equal")

    grid = LogDensity.of(x, resolution)
    rng = np.random.default_rng(_SEED)
    p_values: list[float] = []
    for k in range(1, _MOST_MODES + 1):
        bandwidth, more = grid.critical_bandwidth(k, least_share)
        p_values.append(_p_value(grid, k, bandwidth, least_share, rng) if more else 1.0)
        if p_values[-1] > significance:
            break
    density = grid.density(grid.counts, bandwidth)
    hills = grid.supported(density, grid.hills(density, least_share))
    return Modes(
        modes=_named(grid, hills),
        p_values=tuple(p_values),
        bandwidth=bandwidth,
        n=x.size,
        significance=significance,
        reason=_reason(len(hills), p_values, significance),
        curve=grid.curve(density, bandwidth, hills),
    )


def _p_value(
    grid: LogDensity,
    k: int,
    bandwidth: float,
    least_share: float,
    rng: np.random.Generator,
) -> float:
    """Return how often samples of the smoothed density show more than k hills.

    Drawn until so many did that it will not be refused [1]_: the share is then told
    well enough.

    References
    ----------
    .. [1] Besag and Clifford (1991). Sequential Monte Carlo p-values. Biometrika
       78, 301-304.
    """
    density = grid.density(grid.counts, bandwidth)
    # The smoothed density is wider than the sample; instead of shrinking what
    # is drawn from it, as Silverman does, the kernel is widened alike.
    wider = bandwidth * math.hypot(1, bandwidth / grid.spread)
    n = int(grid.counts.sum())
    drawn = rng.multinomial(n, density / density.sum(), size=_RESAMPLES)
    more = 0
    for i, counts in enumerate(drawn, start=1):
        more += len(grid.hills(grid.density(counts, wider), least_share)) > k
        if more == _ENOUGH:
            return more / i
    return (more + 1) / (_RESAMPLES + 1)


def _named(grid: LogDensity, hills: list[Hill]) -> tuple[Mode, ...]:
    k = len(hills)
    names = _NAMES.get(k) or tuple(f"{i} of {k}" for i in range(1, k + 1))
    used, n = np.flatnonzero(grid.counts), int(grid.counts.sum())
    found = []
    for name, hill in zip(names, hills, strict=True):
        held = int(grid.counts[hill.first : hill.last].sum())
        low, high = share_interval(held, n)
        found.append(
            Mode(
                name=name,
                value=grid.latency(hill.top),
                low=grid.latency(max(hill.first, int(used[0]))),
                high=grid.latency(min(hill.last, int(used[-1]))),
                share=held / n,
                share_low=low,
                share_high=high,
            )
        )
    return tuple(found)


def _reason(count: int, p_values: list[float], significance: float) -> str:
    if count <= 1 and p_values[0] <= significance:
        return "no valley is deeper than a flat density shows by chance"
    if count <= 1:
        return f"no evidence of more than one mode (p = {p_values[0]:.2g})"
    refused = max((p for p in p_values if p <= significance), default=0.0)
    return f"fewer than {count} modes are refused (p at most {refused:.2g})"


def _checked(sample: ArrayLike, resolution: float) -> Floats:
    x = checked_values("sample", sample)
    if x.size < _FEWEST:
        raise ValueError(f"sample must have at least {_FEWEST} values, got {x.size}")
    if x.min() < 0:
        raise ValueError(f"sample must be latencies of at least 0, got {x.min()}")
    if not 0 < resolution < math.inf:
        raise ValueError(f"resolution must be above 0, got {resolution}")
    return np.maximum(x, resolution)
