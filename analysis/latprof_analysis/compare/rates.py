"""What two sides have besides latencies to rank: loss, throughput, summed-up figures.

Figures that sum up many latencies stand side by side: shown, not judged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.compare.effects import (
    FEWEST_INDEPENDENT,
    Effect,
    Floats,
    Spread,
    independent_count,
    spread,
    spread_of_runs,
)
from latprof_analysis.compare.sides import Figure, Group, Side, Trips
from latprof_analysis.stats.loss import FEWEST_EPISODES, loss_episodes, wilson
from latprof_analysis.text import NS_PER_SECOND

# Rates of a schedule with random gaps differ by as much.
_OFFERED_ALIKE = 0.1


@dataclass(frozen=True)
class TripsChange:
    """A figure of the round trips of B against that of A.

    Attributes
    ----------
    a, b : float
        Share of lost requests; or round trips a second, 0 where not known.
    n_a, n_b : int
        Requests.
    difference : Effect
        B less A: of shares. Of rates it has no interval.
    ratio : Effect or None
        B over A: of rates.
    p_value : float or None
        Of so much if there is no difference; None where it cannot be told.
    reason : str or None
        Why there is no `p_value`.
    """

    a: float
    b: float
    n_a: int
    n_b: int
    difference: Effect
    ratio: Effect | None
    p_value: float | None
    reason: str | None

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "a": {"value": self.a, "n": self.n_a},
            "b": {"value": self.b, "n": self.n_b},
            "ratio": self.ratio.as_dict() if self.ratio else None,
            "difference": self.difference.as_dict(),
            "p": self.p_value,
            "reason": self.reason,
        }


def compare_loss(a: Sequence[Trips], b: Sequence[Trips]) -> TripsChange:
    """Compare the shares of lost requests.

    One run on each side: two proportions of as many independent requests as the
    bursts leave; the interval of their difference is recovered from Wilson's of
    each [1]_. Several runs: the runs' shares, by Welch's t.

    References
    ----------
    .. [1] Newcombe (1998). Interval estimation for the difference between
       independent proportions. Statistics in Medicine 17, 873-890, method 10.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> sent = np.arange(5000)
    >>> a, b = (Trips(sent, rng.random(5000) < p, frozenset()) for p in (0.01, 0.03))
    >>> change = compare_loss([a], [b])
    >>> change.difference.low < 0.02 < change.difference.high, change.p_value < 0.001
    (True, True)
    """
    shares = [np.array([run.lost.mean() for run in side]) for side in (a, b)]
    flags = [np.concatenate([run.lost for run in side]) for side in (a, b)]
    value_a, value_b = (float(side.mean()) for side in flags)
    n_a, n_b = (side.size for side in flags)
    difference = Effect(value_b - value_a, None, None)
    p_value, reason = None, None
    episodes = sum(loss_episodes(side).start.size for side in flags)
    if episodes < FEWEST_EPISODES:
        reason = f"episodes of loss: {episodes}, {FEWEST_EPISODES} are needed"
    elif len(a) > 1 or len(b) > 1:
        found = spread_of_runs(*shares)
        difference, p_value = _around(shares, found)
    else:
        difference, p_value = _two_shares(flags)
    return TripsChange(value_a, value_b, n_a, n_b, difference, None, p_value, reason)


def _around(means: Sequence[Floats], found: Spread) -> tuple[Effect, float]:
    difference = float(means[1].mean() - means[0].mean())
    half = found.critical * found.error
    effect = Effect(difference, difference - half, difference + half)
    return effect, found.p_value(difference)


def _two_shares(flags: Sequence[Any]) -> tuple[Effect, float]:
    series = [side.astype(np.float64) for side in flags]
    # A side that lost few does not tell how its losses come: take the other's.
    factor = max(side.size / independent_count(side) for side in series)
    worth = [side.size / factor for side in series]
    a, b = (float(side.mean()) for side in series)
    critical = Spread(0.0, sum(worth) - 2).critical
    (low_a, high_a), (low_b, high_b) = (
        wilson(share, n, critical) for share, n in zip((a, b), worth, strict=True)
    )
    low = b - a - math.hypot(b - low_b, high_a - a)
    high = b - a + math.hypot(high_b - b, a - low_a)
    both = float(np.concatenate(series).mean())
    error = math.sqrt(both * (1 - both) * sum(1 / n for n in worth))
    p_value = Spread(error, sum(worth) - 2).p_value(b - a)
    return Effect(b - a, low, high), p_value


def compare_throughput(a: Sequence[Trips], b: Sequence[Trips]) -> TripsChange:
    """Compare how many round trips were begun a second.

    The time from one to the next depends on its size, so that as many as there are
    sizes, which make a round, count as one value.
    """
    gaps = [[_round_gaps(run) for run in side] for side in (a, b)]
    n_a, n_b = (sum(run.sent_ns.size for run in side) for side in (a, b))
    reason = _why_not(a, b, gaps)
    if reason:
        nothing = Effect(0.0, None, None)
        return TripsChange(0.0, 0.0, n_a, n_b, nothing, None, None, reason)
    logs = [np.log([NS_PER_SECOND / run.mean() for run in side]) for side in gaps]
    rate_a, rate_b = (float(np.exp(side.mean())) for side in logs)
    if len(a) > 1 or len(b) > 1:
        found = spread_of_runs(*logs)
    else:
        singles = [side[0] for side in gaps]
        variances = [float(run.var(ddof=1) / run.mean() ** 2) for run in singles]
        worth = [independent_count(run) for run in singles]
        found = spread((variances[0], variances[1]), (worth[0], worth[1]))
    effect, p_value = _around(logs, found)
    assert effect.low is not None and effect.high is not None
    ratio = Effect(*map(math.exp, (effect.value, effect.low, effect.high)))
    difference = Effect(rate_b - rate_a, None, None)
    return TripsChange(rate_a, rate_b, n_a, n_b, difference, ratio, p_value, None)


def _round_gaps(run: Trips) -> Floats:
    """Return the mean time between round trips of each round, in ns."""
    gaps = np.diff(run.sent_ns).astype(np.float64)
    size = max(1, len(run.sizes))
    means: Floats = gaps[: gaps.size // size * size].reshape(-1, size).mean(axis=1)
    return means


def _why_not(
    a: Sequence[Trips], b: Sequence[Trips], gaps: Sequence[Sequence[Floats]]
) -> str | None:
    if len({run.sizes for run in (*a, *b)}) > 1:
        return "the sides sent different sizes"
    offered = [run.offered_per_second for run in (*a, *b)]
    if None in offered and set(offered) != {None}:
        return "one side is a closed loop, the other an open one"
    known = [rate for rate in offered if rate is not None]
    if known and max(known) > (1 + _OFFERED_ALIKE) * min(known):
        return (
            f"open loops of {min(known):.4g} to {max(known):.4g} a second: how many"
            " begin is what was asked for"
        )
    fewest = min(run.size for side in gaps for run in side)
    if fewest < FEWEST_INDEPENDENT:
        return f"{fewest} rounds, {FEWEST_INDEPENDENT} are needed"
    if any(run.mean() <= 0 for side in gaps for run in side):
        return "all were sent at the same time"
    return None


REASON = (
    "a mean, a percentile or a maximum is one number: how far it would scatter is not"
    " in the file, so that the ratio has no interval and no verdict"
)


@dataclass(frozen=True)
class FigureRow:
    """One figure on each side, in ns; None where a side has none.

    `ratios` are over the baseline; `counts` say of how many messages.
    """

    group: Group
    statistic: str
    values: tuple[float | None, ...]
    counts: tuple[int | None, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Over the baseline."""
        base = self.values[0]
        return tuple(
            value / base if base and value is not None else None
            for value in self.values
        )

    def by_side(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the fields for JSON; one entry for each side."""
        columns = zip(names, self.values, self.counts, self.ratios, strict=True)
        return {
            "kind": self.group.kind,
            "size_bytes": self.group.size_bytes if self.group.size_bytes >= 0 else None,
            "statistic": self.statistic,
            "sides": {
                name: {"value_ns": value, "count": count, "ratio": ratio}
                for name, value, count, ratio in columns
            },
            "reason": REASON,
        }


def figure_rows(
    sides: Sequence[Side], wanted: Sequence[tuple[Group, str]]
) -> tuple[FigureRow, ...]:
    """Put figures side by side.

    Examples
    --------
    >>> get = Group("GET", "latency", 1000)
    >>> redis, endpoint = (Side(name, (name,), figures={(get, "mean"): [(ns, 3)]})
    ...                    for name, ns in (("REDIS", 2e5), ("ENDPOINT", 16e5)))
    >>> figure_rows([redis, endpoint], [(get, "mean")])[0].ratios
    (1.0, 8.0)
    """
    made = []
    for group, statistic in wanted:
        found = [
            _merged(statistic, side.figures.get((group, statistic), []))
            for side in sides
        ]
        values, counts = zip(*found, strict=True)
        made.append(FigureRow(group, statistic, values, counts))
    return tuple(made)


def _merged(
    statistic: str, figures: Sequence[Figure]
) -> tuple[float | None, int | None]:
    """Merge figures, where that can be done; of smoothed ones take the median."""
    known = [figure for figure in figures if not pd.isna(figure[0])]
    if not known:
        return None, None
    values = [float(value) for value, _ in known]
    counted = all(not pd.isna(count) for _, count in known)
    count = int(sum(int(count) for _, count in known)) if counted else None
    if len(known) == 1:
        return values[0], count
    if statistic in ("min", "max"):
        return (min if statistic == "min" else max)(values), count
    if statistic == "smoothed":
        return float(np.median(values)), len(values)
    if statistic == "mean" and count:
        total = sum(value * int(n) for value, (_, n) in zip(values, known, strict=True))
        return total / count, count
    return None, count
