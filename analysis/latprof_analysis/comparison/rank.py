"""How often a value of B is larger than one of A, and whether chance explains it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from latprof_analysis.comparison.worth import (
    FEWEST_INDEPENDENT,
    Effect,
    Floats,
    Runs,
    Spread,
    checked_runs,
    independent_count,
    spread,
    spread_of_runs,
)
from latprof_analysis.loss import wilson


@dataclass(frozen=True)
class RankEffect:
    """Probability that a value of B is larger than one of A, equal ones half.

    Attributes
    ----------
    larger : Effect
        Vargha and Delaney's A; 1/2 where neither side tends to be larger.
    p_value : float or None
        Of so much if it is 1/2; None where it cannot be told.
    reason : str or None
        Why there is no `p_value`.
    """

    larger: Effect
    p_value: float | None
    reason: str | None

    @property
    def cliffs_delta(self) -> Effect:
        """How much more often B is larger than smaller: from -1 to 1."""
        ends = (self.larger.value, self.larger.low, self.larger.high)
        return Effect(*(None if v is None else 2 * v - 1 for v in ends))  # type: ignore[arg-type]

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "larger": self.larger.as_dict(),
            "cliffs_delta": self.cliffs_delta.as_dict(),
            "p": self.p_value,
            "reason": self.reason,
        }


def compare_ranks(a: Runs, b: Runs) -> RankEffect:
    """Estimate how often a value of B is larger than one of A.

    Brunner and Munzel's test [1]_, which takes neither equal variances nor equal
    shapes for granted, with the variance that dependent values have; of several
    runs each counts the same, and is one cluster [2]_. The interval is Wilson's for
    as many independent pairs as give that variance.

    Parameters
    ----------
    a, b : sequence of ndarray
        For each run its values, in the order of time, finite.

    References
    ----------
    .. [1] Brunner and Munzel (2000). The nonparametric Behrens-Fisher problem.
       Biometrical Journal 42, 17-25.
    .. [2] Obuchowski (1997). Nonparametric analysis of clustered ROC curve data.
       Biometrics 53, 567-578.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> effect = compare_ranks([rng.normal(0, 1, 500)], [rng.normal(1, 1, 500)])
    >>> effect.larger.low < 0.7602 < effect.larger.high, effect.p_value < 1e-6
    (True, True)
    """
    a, b = checked_runs("a", a), checked_runs("b", b)
    placed_a, placed_b = _placements(a, b), _placements(b, a)
    if len(a) > 1 or len(b) > 1:
        means = [
            np.array([run.mean() for run in side]) for side in (placed_a, placed_b)
        ]
        value = float((means[1].mean() + 1 - means[0].mean()) / 2)
        counts = len(a), len(b)
        return _effect(value, spread_of_runs(*means), counts)
    (pa,), (pb,) = placed_a, placed_b
    value = float(pb.mean())
    if min(pa.size, pb.size) < 2:
        return RankEffect(Effect(value, None, None), None, "one value on a side")
    worth = independent_count(pa), independent_count(pb)
    if min(worth) < FEWEST_INDEPENDENT:
        reason = f"worth {min(worth):.0f} independent values,"
        reason += f" {FEWEST_INDEPENDENT} are needed"
        return RankEffect(Effect(value, None, None), None, reason)
    found = spread((float(pa.var(ddof=1)), float(pb.var(ddof=1))), worth)
    return _effect(value, found, worth)


def brunner_munzel(a: Floats, b: Floats) -> tuple[float, float]:
    """Return the probability that B is larger, and the p-value, of independent values.

    Examples
    --------
    >>> larger, p = brunner_munzel(np.arange(10.0), np.arange(3.0, 13.0))
    >>> round(larger, 4), round(p, 4)
    (0.755, 0.0314)
    """
    (pa,), (pb,) = _placements([a], [b]), _placements([b], [a])
    variances = float(pa.var(ddof=1)), float(pb.var(ddof=1))
    value = float(pb.mean())
    return value, spread(variances, (a.size, b.size)).p_value(value - 0.5)


def _placements(of: Runs, among: Runs) -> list[Floats]:
    """Return which share of the other side each value exceeds, equal ones half."""
    others = np.concatenate([*among])
    order = np.argsort(others, kind="stable")
    weights = np.concatenate([np.full(run.size, 1 / run.size) for run in among])
    ascending = others[order]
    shares = np.append(0.0, np.cumsum(weights[order]))
    shares /= shares[-1]
    placed = []
    for run in of:
        by_size = np.argsort(run, kind="stable")
        below, upto = (
            shares[np.searchsorted(ascending, run[by_size], side)]
            for side in ("left", "right")
        )
        placements = np.empty(run.size)
        placements[by_size] = (below + upto) / 2
        placed.append(placements)
    return placed


def _effect(value: float, found: Spread, counts: tuple[float, float]) -> RankEffect:
    """Return the effect; where all of one side are larger, by what n can tell."""
    most = value * (1 - value)
    pairs = min(counts)
    if found.error > 0 and most > 0:
        pairs = max(1.0, most / found.error**2)
    low, high = wilson(value, pairs, found.critical)
    p_value = max(found.p_value(value - 0.5), _least_p(*counts))
    return RankEffect(Effect(value, low, high), min(1.0, p_value), None)


def _least_p(a: float, b: float) -> float:
    """Return the two-sided probability that all of one side are larger by chance."""
    log_ways = math.lgamma(a + b + 1) - math.lgamma(a + 1) - math.lgamma(b + 1)
    return min(1.0, 2 * math.exp(-log_ways))
