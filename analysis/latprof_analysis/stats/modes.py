"""Modes of a distribution of latencies: two queueing delays, or one?

Found in their density on a log scale, as narrow or wide as one asks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.stats import Floats, Result
from latprof_analysis.stats.quantiles import (
    check_fraction,
    checked_values,
    share_interval,
)
from latprof_analysis.stats.resolution import resolution as estimated

_CELLS = 4096
# Neighbours among the bandwidths that are tried.
_STEP = 0.95
# 95 of 100 samples of n values from a flat density have a dip below half of this
# over sqrt(n): the limit of the table of Hartigan and Hartigan (1985).
_FLAT = 1.04
# Half of a curve's points are evenly spread, half stand where most values are.
_POINTS = 160
_FEWEST = 50
_RESAMPLES = 200
_ENOUGH = 20
_MOST_MODES = 8
_SEED = 1
_NAMES = {1: ("only",), 2: ("fast", "slow"), 3: ("fast", "middle", "slow")}


@dataclass(frozen=True)
class Mode:
    """One hill of the density, from the valley before it to the one behind."""

    name: str  # "fast", "middle", "slow"; of more than three "1 of 4" and so on
    value: float  # where the density over the logarithm of latency is highest
    low: float  # the valleys, or the smallest or largest value
    high: float
    share: float  # of all values, those from `low` to `high`
    share_low: float  # 95% interval, for independent values and valleys that are known
    share_high: float


@dataclass(frozen=True)
class Modes(Result):
    """The modes that a sample shows, with the tests that found so many."""

    # Ascending; one if there is no evidence of more. None if all were equal.
    modes: tuple[Mode, ...]
    # Of Silverman's hypotheses "at most 1 mode", "at most 2" and so on, up to the
    # first that was not refused.
    p_values: tuple[float, ...]
    bandwidth: float  # of that density, in natural logarithms of latency
    n: int
    significance: float
    reason: str
    # The density at some latencies, ascending, for drawing: share of the values per
    # unit of the natural logarithm, so that the area under it is 1.
    curve: tuple[tuple[float, float], ...] = ()


def find_modes(
    sample: ArrayLike,
    resolution: float | None = None,
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
    resolution : float, optional
        Step of the clock or of rounding, in the unit of the sample; else it is
        estimated. Latencies below it are taken for it, and steps of the clock are not
        taken for modes.
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
    x = checked_values("sample", sample)
    if x.size < _FEWEST:
        raise ValueError(f"sample must have at least {_FEWEST} values, got {x.size}")
    if x.min() < 0:
        raise ValueError(f"sample must be latencies of at least 0, got {x.min()}")
    if resolution is None:
        resolution = estimated(x) or 1.0
    if not 0 < resolution < math.inf:
        raise ValueError(f"resolution must be above 0, got {resolution}")
    check_fraction("least_share", least_share)
    check_fraction("significance", significance)
    equal = x.min() == x.max()
    x = np.maximum(x, resolution)
    if x.min() == x.max():
        why = "no two values are further apart than a clock's step"
        why = "all values are equal" if equal else why
        return Modes((), (), 0.0, x.size, significance, why)

    grid = LogDensity.of(x, resolution, least_share)
    rng = np.random.default_rng(_SEED)
    p_values: list[float] = []
    for k in range(1, _MOST_MODES + 1):
        bandwidth, more = grid.critical_bandwidth(k, least_share)
        p_values.append(_p_value(grid, k, bandwidth, least_share, rng) if more else 1.0)
        if p_values[-1] > significance:
            break
    density = grid.density(grid.counts, bandwidth)
    hills = grid.supported(density, grid.tops(density, least_share))
    return Modes(
        modes=_named(grid, hills),
        p_values=tuple(p_values),
        bandwidth=bandwidth,
        n=x.size,
        significance=significance,
        reason=_reason(len(hills), p_values, significance),
        curve=grid.curve(density, bandwidth, hills),
    )


@dataclass(frozen=True)
class Hill:
    """Cells from one valley of the density to the next, and its highest cell."""

    top: int
    first: int
    last: int


@dataclass(frozen=True)
class LogDensity:
    """Counts of log latency in cells of equal width."""

    counts: Floats
    start: float
    width: float
    narrowest: float
    spread: float

    @classmethod
    def of(cls, x: Floats, resolution: float, least_share: float = 0.01) -> LogDensity:
        logs = np.log(x)
        low, high = float(logs.min()), float(logs.max())
        margin = (high - low) / 8
        width = (high - low + 2 * margin) / _CELLS
        cell = ((logs - (low - margin)) / width).astype(np.int64)
        counts = np.bincount(cell, minlength=_CELLS)[:_CELLS].astype(np.float64)
        # A clock's steps are widest, in logarithms, where latencies are least. A kernel
        # of half a step leaves of them ripples of 1.4%.
        step = resolution / float(np.exp(np.quantile(logs, least_share)))
        return cls(
            counts=counts,
            start=low - margin,
            width=width,
            narrowest=max(2 * width, step / 2),
            spread=float(logs.std()),
        )

    def latency(self, cell: int) -> float:
        return math.exp(self.start + (cell + 0.5) * self.width)

    def density(self, counts: Floats, bandwidth: float) -> Floats:
        """Return the counts under a Gaussian kernel, by its Fourier transform."""
        waves = np.fft.rfft(counts, 2 * _CELLS)
        frequency = np.fft.rfftfreq(2 * _CELLS, self.width)
        kernel = np.exp(-2 * (np.pi * bandwidth * frequency) ** 2)
        smooth: Floats = np.fft.irfft(waves * kernel, 2 * _CELLS)[:_CELLS]
        # Where nothing is, rounding leaves ripples that are no hills.
        return np.where(smooth > 1e-9 * smooth.max(), smooth, 0.0)

    def curve(
        self, density: Floats, bandwidth: float, hills: list[Hill]
    ) -> tuple[tuple[float, float], ...]:
        """Return latencies, and the density per unit of their natural logarithm.

        As far as the kernel reaches beyond the values, and at the tops of the hills.
        """
        used = np.flatnonzero(self.counts)
        reach = int(3 * bandwidth / self.width) + 1
        first, last = max(0, used[0] - reach), min(_CELLS - 1, used[-1] + reach)
        risen = np.cumsum(density[first : last + 1])
        even = np.linspace(first, last, _POINTS // 2).astype(np.int64)
        ranks = np.linspace(0, risen[-1], _POINTS // 2)
        dense = first + np.minimum(np.searchsorted(risen, ranks), last - first)
        cells = np.unique([*even, *dense, *(hill.top for hill in hills)])
        height = density / (density.sum() * self.width)
        return tuple((self.latency(int(i)), float(height[i])) for i in cells)

    def tops(self, density: Floats, least_share: float) -> list[int]:
        """Return the tops of the hills that hold enough, from valley to valley."""
        # Zeros beside it, so that it begins by rising and ends by falling.
        slope = np.sign(np.diff(density, prepend=0.0, append=0.0))
        moving = np.flatnonzero(slope)
        turns = np.flatnonzero(np.diff(slope[moving]))
        rises = slope[moving[turns]] > 0
        tops, valleys = moving[turns[rises]], moving[turns[~rises]]
        shares = np.add.reduceat(density, np.append(0, valleys)) / density.sum()
        return [int(top) for top in tops[shares >= least_share]]

    def critical_bandwidth(self, k: int, least_share: float) -> tuple[float, bool]:
        """Return the narrowest kernel with k hills, and if a narrower shows more.

        Narrowing goes on to the first kernel that shows more than k. With the same
        k hills all along, that is the kernel before it.
        """
        bandwidth = critical = self.width * _CELLS / 2
        while bandwidth >= self.narrowest:
            tops = self.tops(self.density(self.counts, bandwidth), least_share)
            if len(tops) > k:
                return critical, True
            critical = bandwidth
            bandwidth *= _STEP
        return critical, False

    def supported(self, density: Floats, tops: list[int]) -> list[Hill]:
        """Join neighbours whose valley a flat density might show by chance.

        The values in excess of the valley's height, in the lower of two hills, are
        held against what a flat density of as many values as there are in that
        hill, the valley, and as much of the higher hill would show.
        """
        # What lies between two hills is given to both, up to the lowest place there.
        valleys = [
            a + int(np.argmin(density[a : b + 1])) for a, b in itertools.pairwise(tops)
        ]
        bounds = itertools.pairwise([0, *valleys, density.size])
        left = [Hill(top, *ends) for top, ends in zip(tops, bounds, strict=True)]
        while len(left) > 1:
            excess = [self._excess(density, a, b) for a, b in itertools.pairwise(left)]
            least = int(np.argmin(excess))
            if excess[least] >= 1:
                break
            a, b = left[least : least + 2]
            top = a.top if density[a.top] >= density[b.top] else b.top
            left[least : least + 2] = [Hill(top, a.first, b.last)]
        return left

    def _excess(self, density: Floats, a: Hill, b: Hill) -> float:
        between = slice(a.top, b.top + 1)
        height = float(density[between].min())
        lower = a if density[a.top] < density[b.top] else b
        above = np.flatnonzero(density[lower.first : lower.last] > height)
        cells = lower.first + above
        inside = float(self.counts[cells].sum())
        flat = height * cells.size * self.counts.sum() / density.sum()
        valley = float(self.counts[between][density[between] <= 1.1 * height].sum())
        n = float(self.counts.sum())
        around = min(max(2 * inside + valley, 1.0), n)
        # Small hills have more places where chance may raise one.
        places = 0.5 * math.sqrt(2 * math.log(n / around))
        return float(inside - flat) / ((_FLAT + places) * math.sqrt(around))


def _p_value(
    grid: LogDensity,
    k: int,
    bandwidth: float,
    least_share: float,
    rng: np.random.Generator,
) -> float:
    """Return how often samples of the smoothed density show more than k hills.

    Drawn until so many did that it will not be refused [1]_: the share is then known
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
        more += len(grid.tops(grid.density(counts, wider), least_share)) > k
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
