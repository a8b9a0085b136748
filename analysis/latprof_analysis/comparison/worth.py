"""How far two samples of latency may be told apart: what each is worth, and spreads.

With one run on a side its values in the order of time are what was drawn; they
depend on each other, so they are worth fewer independent ones. With several runs
the run is what was drawn: what differs between runs (placement, caches, the
neighbours of a virtual machine) does not average out within one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.quantiles import checked_values
from latprof_analysis.series import variance_inflation

Floats = NDArray[np.float64]
# One array for each run, its values in the order of time.
Runs = Sequence[Floats]

CONFIDENCE = 0.95
# A sample worth fewer independent values does not tell how dependent they are. With
# this bound at most 6 of 100 comparisons without a change claim one, however long the
# dependence (simulated); of those that are worth 10 to 20, 83 to 94 of 100 intervals
# hold the truth, of those worth more 93 to 97.
FEWEST_INDEPENDENT = 10
# Longer series are averaged in blocks before they are correlated.
_LONGEST = 1 << 14


def checked_runs(name: str, runs: Runs) -> list[Floats]:
    """Return the runs of a side as floats, or say what is wrong with them."""
    if not len(runs):
        raise ValueError(f"{name} must hold the values of at least one run, got none")
    return [checked_values(f"each run of {name}", run) for run in runs]


@dataclass(frozen=True)
class Effect:
    """A value with its 95% interval; a side without a bound is None."""

    value: float
    low: float | None
    high: float | None

    def as_dict(self, unit: str = "") -> dict[str, float | None]:
        """Return the fields for JSON, their names with the unit behind."""
        return {f"{name}{unit}": value for name, value in vars(self).items()}


@dataclass(frozen=True)
class Spread:
    """Standard error of a difference of two means, and its degrees of freedom."""

    error: float
    freedom: float

    @property
    def critical(self) -> float:
        """Half width of the 95% interval in standard errors."""
        return critical(self.freedom)

    def p_value(self, difference: float) -> float:
        """Return the two-sided probability of so large a difference by chance."""
        from scipy import special  # takes long to load; few get here

        if difference == 0:
            return 1.0
        if self.error == 0:
            return 0.0
        return float(2 * special.stdtr(self.freedom, -abs(difference) / self.error))


def critical(freedom: float) -> float:
    """Return the half width of the 95% interval of Student's t.

    Examples
    --------
    >>> round(critical(4), 3), round(critical(1e9), 3)
    (2.776, 1.96)
    """
    from scipy import special

    return float(special.stdtrit(max(1.0, freedom), (1 + CONFIDENCE) / 2))


def independent_count(series: Floats) -> float:
    """Return how many independent values would tell the mean of a series as well.

    `variance_inflation` tells by what dependence raises the variance of the mean.
    Of a series that is short against its dependence it comes out too low by about
    2 / n of its square, since the correlations are taken around the sample's own
    mean; so much is added. Long series are first
    averaged in blocks, whose variance tells of what is nearer than a block.

    Parameters
    ----------
    series : ndarray, shape (n,)
        In the order of time, finite.

    Examples
    --------
    >>> tenfold = np.repeat(np.random.default_rng(0).random(10_000), 10)
    >>> 9_000 < independent_count(tenfold) < 11_000
    True
    """
    block = -(-series.size // _LONGEST)
    means = series[: series.size // block * block].reshape(-1, block).mean(axis=1)
    inflation = variance_inflation(means)
    if block > 1 and (variance := float(series.var())):
        inflation *= block * float(means.var()) / variance
    inflation = max(1.0, inflation)
    return series.size / inflation / (1 + 2 * inflation / series.size)


def spread(variances: tuple[float, float], counts: tuple[float, float]) -> Spread:
    """Return the spread of a difference of means with variances of their own [1]_.

    Parameters
    ----------
    variances : tuple of float
        Of single values on each side.
    counts : tuple of float
        Of independent values; above 1.

    References
    ----------
    .. [1] Welch (1947). The generalization of Student's problem when several
       different population variances are involved. Biometrika 34, 28-35.

    Examples
    --------
    >>> spread((1.0, 1.0), (5, 5))
    Spread(error=0.6324555320336759, freedom=8.0)
    """
    parts = [v / n for v, n in zip(variances, counts, strict=True)]
    total = sum(parts)
    if total == 0:
        return Spread(0.0, sum(counts) - 2)
    below = sum(v * v / (n - 1) for v, n in zip(parts, counts, strict=True))
    return Spread(math.sqrt(total), total * total / below)


def spread_of_runs(a: Floats, b: Floats) -> Spread:
    """Return the spread of the difference of the means of runs.

    A side of one run does not tell how runs differ: what the other side tells is
    then taken for both.

    Parameters
    ----------
    a, b : ndarray, shape (k,)
        One figure for each run; two runs or more on one side.

    Examples
    --------
    >>> one_against_three = spread_of_runs(np.array([7.0]), np.array([1.0, 2.0, 3.0]))
    >>> round(one_against_three.error, 3), one_against_three.freedom
    (1.155, 2)
    """
    if min(a.size, b.size) >= 2:
        variances = float(a.var(ddof=1)), float(b.var(ddof=1))
        return spread(variances, (a.size, b.size))
    repeated = a if a.size > 1 else b
    variance = float(repeated.var(ddof=1)) * (1 / a.size + 1 / b.size)
    return Spread(math.sqrt(variance), repeated.size - 1)
