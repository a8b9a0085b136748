"""From draws of slopes and intercepts to estimates in the units of a Fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.fits.fit_result import Estimate
from latprof_analysis.fits.tails import student_quantile
from latprof_analysis.text import NS_PER_SECOND

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scale:
    """What turns draws into estimates; the first of the draws is the estimate.

    The interval is Student's, of the draws' standard deviation: their percentiles
    are skewed as the sample's few lowest values happen to lie. `freedom` is of how
    many degrees that standard deviation is known.
    """

    n: int
    confidence: float
    factor: int
    payload_share: float
    freedom: tuple[float, float] = (math.inf, math.inf)

    def slope(self, slopes: Floats) -> Estimate:
        """Return ns per byte, as drawn."""
        return self.estimate(slopes, freedom=self.freedom[0])

    def per_payload_byte(self, slopes: Floats) -> Estimate:
        """Return ns per byte of payload, no factor applied."""
        unit = self.factor / self.payload_share
        return self.estimate(slopes, unit, self.freedom[0])

    def intercept_seconds(self, intercepts_ns: Floats) -> Estimate:
        """Return seconds of intercepts in ns."""
        return self.estimate(intercepts_ns, 1 / NS_PER_SECOND, self.freedom[1])

    def bandwidth(self, slopes: Floats, share: float = 1.0) -> Estimate | None:
        """Return the rate behind slopes; None if it may be anything."""
        slope = self.slope(slopes)
        if slope.low <= 0:
            return None
        rate = share * 8 * NS_PER_SECOND
        return Estimate(rate / slope.value, rate / slope.high, rate / slope.low, self.n)

    def estimate(
        self, draws: Floats, unit: float = 1.0, freedom: float = math.inf
    ) -> Estimate:
        """Return the first draw with Student's interval, in another unit.

        Examples
        --------
        >>> draws = np.append(5.0, np.random.default_rng(1).normal(5, 1, 100_000))
        >>> found = Scale(9, 0.95, 1, 1.0).estimate(draws)
        >>> found.value, round(found.low, 1), round(found.high, 1)
        (5.0, 3.0, 7.0)
        """
        value = float(draws[0])
        times = student_quantile(freedom, (1 + self.confidence) / 2)
        half = times * float(draws[1:].std())
        low, high = value - half, value + half
        return Estimate(value * unit, low * unit, high * unit, self.n)

    def between(self, draws: Floats) -> Estimate:
        """Return the first draw with the others' percentiles, for what has bounds."""
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(draws[1:], [tail, 1 - tail])
        value = float(draws[0])
        return Estimate(value, min(float(low), value), max(float(high), value), self.n)
