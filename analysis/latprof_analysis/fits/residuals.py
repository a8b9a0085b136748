"""What a line leaves of the delays: the largest, their order, their size."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.fits.rounds import Floats, LowDelays
from latprof_analysis.fits.tails import chi_square_tail

_FEWEST_SIGNS = 10  # in both kinds: below, the normal law of runs is rough


@dataclass(frozen=True)
class Residuals:
    """Residuals of each size, ascending, against the Theil-Sen line.

    Attributes
    ----------
    size_bytes : tuple of int
    p10_ns : tuple of float
        Low delay less the line: what the line was drawn through.
    median_ns : tuple of float
        Median delay less the line: what a typical message took above it.
    largest_share : float
        Largest absolute value of ``p10_ns`` as a share of the line there.
    largest_at_bytes : int
        Its size.
    runs : int
        Runs of sizes on one side of the line: few where the delays bend.
    runs_p : float or None
        Probability of so few runs or fewer if the signs were in random order [1]_;
        None with fewer than 10 sizes.
    lack_of_fit_p : float or None
        Probability of residuals so large or larger if they came from the spread
        between rounds alone: chi-square of residual over standard error [2]_. Of
        a real link it is often small, since hosts bend every line a little; what
        counts is ``largest_share``. None where there is no spread.

    References
    ----------
    .. [1] Wald and Wolfowitz (1940). On a test whether two samples are from the
       same population. Annals of Mathematical Statistics 11, 147-162.
    .. [2] Draper and Smith (1998). Applied Regression Analysis, 3rd ed.: lack of fit.
    """

    size_bytes: tuple[int, ...]
    p10_ns: tuple[float, ...]
    median_ns: tuple[float, ...]
    largest_share: float
    largest_at_bytes: int
    runs: int
    runs_p: float | None
    lack_of_fit_p: float | None


def residuals_of(low: LowDelays, line_ns: NDArray[np.float64]) -> Residuals:
    """Return what a line, given as its delay at each size, leaves of the delays."""
    left = low.delay_ns - line_ns
    share = np.abs(left) / np.maximum(np.abs(line_ns), 1.0)
    largest = int(np.argmax(share))
    runs, runs_p = runs_test(left)
    typical = left if low.median_ns is None else low.median_ns - line_ns
    return Residuals(
        size_bytes=tuple(int(size) for size in low.size_bytes),
        p10_ns=tuple(left.tolist()),
        median_ns=tuple(typical.tolist()),
        largest_share=float(share[largest]),
        largest_at_bytes=int(low.size_bytes[largest]),
        runs=runs,
        runs_p=runs_p,
        lack_of_fit_p=_lack_of_fit(left, low.noise_ns),
    )


def runs_test(left: Floats) -> tuple[int, float | None]:
    """Count runs of signs, and tell how probable so few are.

    Examples
    --------
    >>> runs, p = runs_test(np.repeat([-1.0, 1.0, -1.0], 8))
    >>> runs, round(p, 6)
    (3, 5.7e-05)
    """
    above = left[left != 0] > 0
    runs = int(np.count_nonzero(above[1:] != above[:-1])) + 1 if above.size else 0
    n, plus = above.size, int(above.sum())
    minus = n - plus
    if n < _FEWEST_SIGNS or min(plus, minus) == 0:
        return runs, None
    mean = 1 + 2 * plus * minus / n
    variance = (mean - 1) * (mean - 2) / (n - 1)
    if variance <= 0:
        return runs, None
    z = (runs + 0.5 - mean) / math.sqrt(variance)
    return runs, math.erfc(-z / math.sqrt(2)) / 2


def _lack_of_fit(left: Floats, noise_ns: Floats) -> float | None:
    if left.size < 3 or (noise_ns <= 0).any():
        return None
    return chi_square_tail(left.size - 2, float(np.sum((left / noise_ns) ** 2)))
