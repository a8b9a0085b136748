"""The Gilbert-Elliott chain, whose state is hidden: its likelihood and best fit."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.loss import Flags, loss_episodes

Floats = NDArray[np.float64]

# The likelihood of so many episodes takes some ms; a fit asks for it 1000 times.
_MOST_EPISODES = 10_000
# Log-odds beyond this are 0 or 1 for any run that anyone measures.
_BOUND = 14.0
_TINY = 1e-300


@dataclass(frozen=True)
class Runs:
    """Flags as runs: `arrived[i]` packets, then `lost[i]`, then `at_end` packets."""

    arrived: Floats
    lost: Floats
    at_end: int


def hidden_log_likelihood(
    runs: Runs, p: float, r: float, loss_good: float, loss_bad: float
) -> float:
    """Return the log-likelihood of a Gilbert-Elliott chain that began long ago.

    What the forward algorithm sums packet by packet is a product of one 2 by 2
    matrix for each packet, and the same one all through a run. So a run is a
    matrix power in closed form, and the product is formed by halves.

    Examples
    --------
    >>> runs = Runs(np.array([2.0]), np.array([1.0]), at_end=1)
    >>> likelihood = hidden_log_likelihood(runs, 0.1, 0.3, 0.2, 0.2)
    >>> round(float(np.exp(likelihood)), 6), round(0.8**3 * 0.2, 6)
    (0.1024, 0.1024)
    """
    step = np.array([[1 - p, p], [r, 1 - r]])
    of_arrived = step * np.array([1 - loss_good, 1 - loss_bad])
    of_lost = step * np.array([loss_good, loss_bad])
    matrices, logs = _power(of_arrived, np.append(runs.arrived, runs.at_end))
    lossy, lossy_logs = _power(of_lost, runs.lost)
    matrices[:-1] = matrices[:-1] @ lossy
    scale, product = _product(matrices)
    bad = stationary(p, r)
    seen = float(np.array([1 - bad, bad]) @ product @ np.ones(2))
    return float(logs.sum() + lossy_logs.sum() + scale + math.log(max(seen, _TINY)))


def _power(matrix: Floats, exponents: Floats) -> tuple[Floats, Floats]:
    """Return matrix powers, each divided by exp(the log that stands beside it)."""
    half_trace = (matrix[0, 0] + matrix[1, 1]) / 2
    half_gap = math.sqrt(
        ((matrix[0, 0] - matrix[1, 1]) / 2) ** 2 + matrix[0, 1] * matrix[1, 0]
    )
    # Never equal, so that Sylvester's formula for the powers holds.
    half_gap = max(half_gap, 1e-9 * half_trace, _TINY)
    large, small = half_trace + half_gap, half_trace - half_gap
    first = (matrix - small * np.eye(2)) / (2 * half_gap)
    ratio = np.asarray((small / large) ** exponents)[:, None, None]
    return first + ratio * (np.eye(2) - first), exponents * math.log(large)


def _product(matrices: Floats) -> tuple[float, Floats]:
    """Return the ordered product of matrices and the log of what it was divided by."""
    scale = 0.0
    while len(matrices) > 1:
        odd = matrices[-1:] if len(matrices) % 2 else matrices[:0]
        pairs = matrices[0 : len(matrices) - 1 : 2] @ matrices[1::2]
        size = np.maximum(pairs.max(axis=(1, 2)), _TINY)
        scale += float(np.log(size).sum())
        matrices = np.concatenate([pairs / size[:, None, None], odd])
    return scale, matrices[0]


def first_episodes(flags: Flags) -> tuple[Flags, Runs]:
    """Return the flags up to the last episode that is used, and their runs.

    Examples
    --------
    >>> used, runs = first_episodes(np.array([False, False, True, False]))
    >>> used.size, runs
    (4, Runs(arrived=array([2.]), lost=array([1.]), at_end=1))
    """
    found = loss_episodes(flags)
    stop = found.start + found.length
    end = flags.size if stop.size <= _MOST_EPISODES else int(stop[_MOST_EPISODES - 1])
    stop = stop[:_MOST_EPISODES]
    start, length = found.start[: stop.size], found.length[: stop.size]
    arrived = start - np.append(0, stop[:-1]) if stop.size else start
    last = int(stop[-1]) if stop.size else 0
    runs = Runs(arrived.astype("f8"), length.astype("f8"), end - last)
    return flags[:end], runs


def fit_hidden(
    runs: Runs, p: float, r: float, share: float
) -> tuple[tuple[float, float, float, float], float]:
    """Return p, r, loss_good and loss_bad of greatest likelihood, and its log.

    The likelihood is climbed by its gradient in log-odds, from the Gilbert chain
    and from two chains that are not near it; the highest top counts. Baum and
    Welch's re-estimation climbs the same hill in more and smaller steps [1]_.

    Parameters
    ----------
    runs : Runs
    p, r : float
        Of the Gilbert chain.
    share : float
        Of packets lost.

    References
    ----------
    .. [1] Rabiner (1989). A tutorial on hidden Markov models and selected
       applications in speech recognition. Proceedings of the IEEE 77, 257-286.

    Examples
    --------
    >>> runs = Runs(np.array([40.0, 60, 90, 10] * 9), np.array([5.0, 2, 9, 4] * 9), 5)
    >>> (p, r, good, bad), _ = fit_hidden(runs, 0.02, 0.2, 0.1)
    >>> round(p, 3), round(r, 3), round(good, 3), round(bad, 3)
    (0.02, 0.2, 0.0, 1.0)
    """
    from scipy import optimize, special  # take long to load; few get here

    def cost(log_odds: Floats) -> float:
        # per packet, so that the optimiser's own scale suits any run
        chances = special.expit(log_odds)
        return -hidden_log_likelihood(runs, *chances.tolist()) / packets

    packets = float(runs.arrived.sum() + runs.lost.sum() + runs.at_end)
    starts = [
        (p, r, 1e-5, 1 - 1e-5),
        (p / 3, r / 4, share / 10, 0.5),
        (0.01, 0.1, share / 2, min(0.9, 5 * share)),
    ]
    tops = [
        optimize.minimize(
            cost,
            special.logit(np.clip(start, 1e-6, 1 - 1e-6)),
            method="L-BFGS-B",
            bounds=[(-_BOUND, _BOUND)] * 4,
            options={"ftol": 1e-10, "gtol": 1e-8, "maxiter": 100},
        )
        for start in starts
    ]
    top = min(tops, key=lambda found: found.fun)
    up, down, good, bad = special.expit(top.x).tolist()
    if good > bad:  # which state is called bad is free until here
        up, down, good, bad = down, up, bad, good
    return (up, down, good, bad), -float(top.fun) * packets


def stationary(p: float, r: float) -> float:
    """Return the share of packets in the bad state, p / (p + r).

    Examples
    --------
    >>> stationary(0.01, 0.09)
    0.1
    """
    return p / (p + r) if p + r > 0 else 0.0
