"""Loss and throughput of two sides: of round trips, of datagrams, of a mesh.

Round trips are known one by one, so that single runs can be compared. Of bulk transfers
and of a mesh's load each run has a number, so that runs must be repeated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.compare.effects import (
    CONFIDENCE,
    FEWEST_INDEPENDENT,
    ONE_EACH,
    Effect,
    FigureChange,
    Floats,
    Measured,
    Spread,
    apart,
    compare_figures,
    critical,
    difference_of_means,
    independent_count,
    spread,
    unlike,
)
from latprof_analysis.compare.sides import Lost, Rate, Trips
from latprof_analysis.stats.loss import (
    FEWEST_EPISODES,
    Episodes,
    loss_episodes,
    wilson,
)
from latprof_analysis.text import NS_PER_SECOND

# Rates of a schedule with random gaps differ by as much.
_OFFERED_ALIKE = 0.1


def compare_loss(a: Sequence[Trips], b: Sequence[Trips]) -> FigureChange:
    """Compare the shares of lost requests; of a ratio nothing is said.

    One run on each side: two proportions of as many independent requests as the
    bursts leave; the interval of their difference is recovered from Wilson's of
    each [1]_. Several runs: the runs' shares, by Welch's t. Where too few were lost to
    judge by, each side has at most as many episodes as Poisson's law allows [2]_, each
    as long as the longest that was seen.

    References
    ----------
    .. [1] Newcombe (1998). Interval estimation for the difference between
       independent proportions. Statistics in Medicine 17, 873-890, method 10.
    .. [2] Garwood (1936). Fiducial limits for the Poisson distribution. Biometrika
       28, 437-442.
    """
    flags = [np.concatenate([run.lost for run in side]) for side in (a, b)]
    of_a, of_b = (Measured(float(side.mean()), n=side.size) for side in flags)
    found = [loss_episodes(side) for side in flags]
    episodes = sum(side.start.size for side in found)
    if episodes < FEWEST_EPISODES:
        most_a, most_b = (
            _most_lost(one, side.size) for one, side in zip(found, flags, strict=True)
        )
        difference = Effect(of_b.value - of_a.value, -most_a, most_b)
        reason = f"episodes of loss: {episodes}, {FEWEST_EPISODES} are needed"
        return FigureChange(of_a, of_b, difference=difference, reason=reason)
    if len(a) > 1 or len(b) > 1:
        shares = [np.array([run.lost.mean() for run in side]) for side in (a, b)]
        difference, p_value = difference_of_means(shares)
        if why := unlike(difference, shares):
            return FigureChange(of_a, of_b, difference=difference, reason=why)
    else:
        difference, p_value = _two_shares(flags)
    return FigureChange(of_a, of_b, difference=difference, p_value=p_value)


def _most_lost(found: Episodes, n: int) -> float:
    """Return the upper end of the 95% interval of a share of few losses."""
    from scipy import special

    episodes = special.gammaincinv(found.start.size + 1, (1 + CONFIDENCE) / 2)
    longest = int(found.length.max(initial=1))
    return min(1.0, float(episodes) * longest / n) if n else 1.0


def _two_shares(flags: Sequence[NDArray[np.bool_]]) -> tuple[Effect, float]:
    series = [side.astype(np.float64) for side in flags]
    # A side that lost few does not show how its losses come: take the other's.
    factor = max(side.size / independent_count(side) for side in series)
    worth = [side.size / factor for side in series]
    shares = [float(side.mean()) for side in series]
    bound = critical(sum(worth) - 2)
    difference = apart(
        *(Effect(p, *wilson(p, n, bound)) for p, n in zip(shares, worth, strict=True))
    )
    both = float(np.concatenate(series).mean())
    error = math.sqrt(both * (1 - both) * sum(1 / n for n in worth))
    return difference, Spread(error, sum(worth) - 2).p_value(difference.value)


def compare_throughput(a: Sequence[Trips], b: Sequence[Trips]) -> FigureChange:
    """Compare how many round trips were begun a second; 0 where it is not known.

    The time from one to the next depends on its size, so that as many as there are
    sizes, which make a round, count as one value.
    """
    gaps = [[_round_gaps(run) for run in side] for side in (a, b)]
    counts = [sum(run.sent_ns.size for run in side) for side in (a, b)]
    if reason := _why_not([*a, *b], [*gaps[0], *gaps[1]]):
        of_a, of_b = (Measured(0.0, n=n) for n in counts)
        return FigureChange(of_a, of_b, difference=Effect(0.0), reason=reason)
    logs = [np.log([NS_PER_SECOND / run.mean() for run in side]) for side in gaps]
    if len(a) > 1 or len(b) > 1:
        effect, p_value = difference_of_means(logs)
    else:
        singles = [side[0] for side in gaps]
        variances = [float(run.var(ddof=1) / run.mean() ** 2) for run in singles]
        found = spread(variances, [independent_count(run) for run in singles])
        effect, p_value = difference_of_means(logs, found)
    rates = [float(np.exp(side.mean())) for side in logs]
    of_a, of_b = (Measured(rate, n=n) for rate, n in zip(rates, counts, strict=True))
    return FigureChange(
        of_a, of_b, effect.on_scale(math.exp), Effect(rates[1] - rates[0]), p_value
    )


def _round_gaps(run: Trips) -> Floats:
    """Return the mean time between round trips of each round, in ns."""
    gaps = np.diff(run.sent_ns).astype(np.float64)
    size = max(1, len(run.sizes))
    means: Floats = gaps[: gaps.size // size * size].reshape(-1, size).mean(axis=1)
    return means


def _why_not(runs: Sequence[Trips], gaps: Sequence[Floats]) -> str | None:
    if len({run.sizes for run in runs}) > 1:
        return "the sides sent different sizes"
    offered = [run.offered_per_second for run in runs]
    if None in offered and set(offered) != {None}:
        return "one side is a closed loop, the other an open one"
    if ends := _offered_apart(offered):
        return (
            f"open loops of {ends[0]:.4g} to {ends[1]:.4g} a second: how many begin is"
            " what was asked for"
        )
    fewest = min(run.size for run in gaps)
    if fewest < FEWEST_INDEPENDENT:
        return f"{fewest} rounds, {FEWEST_INDEPENDENT} are needed"
    if any(run.mean() <= 0 for run in gaps):
        return "all were sent at the same time"
    return None


def _offered_apart(offered: Sequence[float | None]) -> tuple[float, float] | None:
    """Return the least and the most that was offered, where they are not alike."""
    known = [rate for rate in offered if rate is not None]
    if known and max(known) > (1 + _OFFERED_ALIKE) * min(known):
        return min(known), max(known)
    return None


def compare_rates(a: Sequence[Rate], b: Sequence[Rate]) -> FigureChange:
    """Compare what got through a second, of which each run has one number.

    The logarithms of the runs' rates, by Welch's t, as those of their quantiles.
    """
    of_a, of_b = (np.array([run.per_second for run in side]) for side in (a, b))
    found = compare_figures(of_a, of_b)
    offered = [run.offered_per_second for run in (*a, *b)]
    if None in offered and set(offered) != {None}:
        reason = "one side offers a rate, the other as much as it can"
    elif ends := _offered_apart(offered):
        reason = f"{ends[0]:.4g} to {ends[1]:.4g} a second are what was asked for"
    else:
        return found
    return FigureChange(found.a, found.b, found.ratio, found.difference, reason=reason)


def compare_lost(a: Sequence[Lost], b: Sequence[Lost]) -> FigureChange:
    """Compare the shares of lost datagrams, of which each run has the counts.

    The runs' shares, by Welch's t. How the losses of a single run depend on each
    other is not in its counts, so that one run on each side is not judged.
    """
    of_a, of_b = map(_pooled, (a, b))
    difference = Effect(of_b.value - of_a.value)
    episodes = sum(run.episodes for run in (*a, *b))
    if episodes < FEWEST_EPISODES:
        reason = f"episodes of loss: {episodes}, {FEWEST_EPISODES} are needed"
        return FigureChange(of_a, of_b, difference=difference, reason=reason)
    if len(a) < 2 and len(b) < 2:
        return FigureChange(of_a, of_b, difference=difference, reason=ONE_EACH)
    shares = [np.array([run.lost / run.sent for run in side]) for side in (a, b)]
    difference, p_value = difference_of_means(shares)
    if why := unlike(difference, shares):
        return FigureChange(of_a, of_b, difference=difference, reason=why)
    return FigureChange(of_a, of_b, difference=difference, p_value=p_value)


def _pooled(side: Sequence[Lost]) -> Measured:
    sent, lost = (sum(getattr(run, name) for run in side) for name in ("sent", "lost"))
    return Measured(lost / sent, n=sent, runs=len(side))
