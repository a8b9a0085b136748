"""The density of latencies on a log scale, as narrow or wide as one asks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CELLS = 4096
# Neighbours among the bandwidths that are tried.
_STEP = 0.95
# 95 of 100 samples of n values from a flat density have a dip below half of this
# over sqrt(n): the limit of the table of Hartigan and Hartigan (1985).
_FLAT = 1.04
# Half of a curve's points are evenly spread, half stand where most values are.
_POINTS = 160


@dataclass(frozen=True)
class Hill:
    """Cells from one valley of the density to the next, and its highest cell."""

    top: int
    first: int
    last: int
    share: float


@dataclass(frozen=True)
class LogDensity:
    """Counts of log latency in cells of equal width."""

    counts: Floats
    start: float
    width: float
    narrowest: float
    spread: float

    @classmethod
    def of(cls, x: Floats, resolution: float) -> LogDensity:
        logs = np.log(np.maximum(x, resolution))
        low, high = float(logs.min()), float(logs.max())
        margin = (high - low) / 8
        width = (high - low + 2 * margin) / _CELLS
        cell = ((logs - (low - margin)) / width).astype(np.int64)
        counts = np.bincount(cell, minlength=_CELLS)[:_CELLS].astype(np.float64)
        # A clock's steps are widest, in logarithms, where latencies are least.
        step = resolution / float(np.exp(np.quantile(logs, 0.05)))
        return cls(
            counts=counts,
            start=low - margin,
            width=width,
            narrowest=max(2 * width, step),
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

    def hills(self, density: Floats, least_share: float) -> list[Hill]:
        """Return the hills that hold enough of the density, valley to valley."""
        # Zeros beside it, so that it begins by rising and ends by falling.
        slope = np.sign(np.diff(density, prepend=0.0, append=0.0))
        moving = np.flatnonzero(slope)
        turns = np.flatnonzero(np.diff(slope[moving]))
        rises = slope[moving[turns]] > 0
        tops, valleys = moving[turns[rises]], moving[turns[~rises]]
        bounds = np.concatenate([[0], valleys, [density.size]])
        shares = np.add.reduceat(density, bounds[:-1]) / density.sum()
        found = zip(tops, bounds[:-1], bounds[1:], shares, strict=True)
        return [
            Hill(int(top), int(first), int(last), float(share))
            for top, first, last, share in found
            if share >= least_share
        ]

    def critical_bandwidth(self, k: int, least_share: float) -> tuple[float, bool]:
        """Return the narrowest kernel with k hills, and if a narrower shows more.

        Narrowing goes on to the first kernel that shows more than k. With the same
        k hills all along, that is the kernel before it.
        """
        bandwidth = critical = self.width * _CELLS / 2
        while bandwidth >= self.narrowest:
            hills = self.hills(self.density(self.counts, bandwidth), least_share)
            if len(hills) > k:
                return critical, True
            critical = bandwidth
            bandwidth *= _STEP
        return critical, False

    def supported(self, density: Floats, hills: list[Hill]) -> list[Hill]:
        """Join neighbours whose valley a flat density might show by chance.

        The values in excess of the valley's height, in the lower of two hills, are
        held against what a flat density of as many values as there are in that
        hill, the valley, and as much of the higher hill would show.
        """
        left = _side_by_side(density, hills)
        while len(left) > 1:
            excess = [self._excess(density, a, b) for a, b in itertools.pairwise(left)]
            least = int(np.argmin(excess))
            if excess[least] >= 1:
                break
            left[least : least + 2] = [_joined(density, *left[least : least + 2])]
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


def _joined(density: Floats, a: Hill, b: Hill) -> Hill:
    top = a.top if density[a.top] >= density[b.top] else b.top
    return Hill(top=top, first=a.first, last=b.last, share=a.share + b.share)


def _side_by_side(density: Floats, hills: list[Hill]) -> list[Hill]:
    """Give what lies between two hills to both, as far as the lowest place there."""
    inner = [
        a.top + int(np.argmin(density[a.top : b.top + 1]))
        for a, b in itertools.pairwise(hills)
    ]
    bounds = [0, *inner, density.size]
    whole = float(density.sum())
    return [
        Hill(hill.top, first, last, float(density[first:last].sum()) / whole)
        for hill, (first, last) in zip(hills, itertools.pairwise(bounds), strict=True)
    ]
