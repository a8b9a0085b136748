"""Round trips in rounds -> one low delay per size, and its resampled twins.

The delay of a size is the 10th percentile of its round trips: queueing only ever
adds, so a low quantile stands near the floor, and unlike the minimum it has a
sampling distribution that a bootstrap can follow.

A burst of noise hits neighbours in time. Sizes are sent in rounds, each size once
a round in random order, so the round is what may be taken as independent: the
bootstrap weighs whole rounds anew, by exponential variables as Rubin's does [1]_.
Draws of rounds with replacement repeat a few values of so low a quantile over and
over, and their intervals covered 74 to 100% where 95% were asked for. A weight for
the unseen value to come makes the share of a size's delays below its j-th smallest
a Beta(j, n + 1 - j), which it is of any continuous distribution [2]_.

A clock that counts in steps writes down the step below or the nearest one, and all
draws agree on it. How far a delay is from what was written is then anything within a
step, the same for sizes of one step, and is drawn with the rest.

References
----------
.. [1] Rubin (1981). The Bayesian bootstrap. Annals of Statistics 9, 130-134.
.. [2] David and Nagaraja (2003). Order Statistics, 3rd ed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = NDArray[np.float32]

CLOCK_NS = 1.0
# The low delay is the value that this share does not exceed.
LOW = 0.1
# Of more sizes than this so many are used, evenly spaced by rank.
MOST_SIZES = 48
# More rounds than this are drawn in blocks of consecutive rounds.
BLOCKS = 250
# Files that write milliseconds as decimals are off whole ns by rounding.
_OF_A_NS = 0.01
_LOOKED_AT_FIRST = 100
# Ranks at which a resampled distribution is looked at: dense up to its 30%.
_DENSE_RANKS = 240
_SPARSE_RANKS = 16


@dataclass(frozen=True)
class LowDelays:
    """The low delay of each size, ascending in size: of `k` sizes."""

    size_bytes: Floats  # shape (k,)
    delay_ns: Floats  # shape (k,)
    resampled_ns: Floats  # shape (b, k), the same from `b` bootstrap samples of rounds
    count: int  # round trips that went into it
    rounds: int
    skipped_bytes: tuple[int, ...]  # sizes with too few round trips, left out
    median_ns: Floats  # shape (k,), the median delay of each size
    unused_sizes: int = 0  # left out since there were more than MOST_SIZES
    # Of the clock: all delays are multiples of it; 0 where no step above 1 ns is seen.
    step_ns: float = 0.0

    @property
    def draws_ns(self) -> Floats:
        """The delays, and below them the resampled ones: shape (1 + b, k)."""
        return np.vstack([self.delay_ns, self.resampled_ns])

    @property
    def step_noise_ns(self) -> float:
        """Standard deviation of what a step leaves open: uniform within it."""
        return self.step_ns / math.sqrt(12)

    @property
    def resolution_ns(self) -> float:
        """Of the delays; a residual below says nothing."""
        return max(CLOCK_NS, self.step_noise_ns)

    @property
    def noise_ns(self) -> Floats:
        """Standard error of each size's delay, the step's part with it."""
        return np.asarray(self.resampled_ns.std(axis=0))


def low_delays(
    size_bytes: Floats,
    rtt_ns: Floats,
    round_index: Floats,
    *,
    fewest: int,
    resamples: int,
    seed: int,
    step_ns: float | None = None,
) -> LowDelays:
    """Reduce round trips to one delay per size.

    The 10th percentile is the median-unbiased one [1]_, so that the median over
    sizes is not biased either. The clock's `step_ns` is looked for unless it is given,
    as of delays that were moved since it wrote them.

    References
    ----------
    .. [1] Hyndman and Fan (1996). Sample quantiles in statistical packages.
       American Statistician 50, 361-365; definition 8.
    """
    rounds, round_rank = np.unique(round_index, return_inverse=True)
    blocks = max(1, min(rounds.size, BLOCKS))
    block = round_rank * blocks // max(1, rounds.size)
    sizes, of_size, counts = np.unique(
        size_bytes, return_inverse=True, return_counts=True
    )
    enough = np.flatnonzero(counts >= fewest)
    used = min(enough.size, MOST_SIZES)
    kept = enough[np.linspace(0, enough.size - 1, used).astype(int)]

    rng = np.random.default_rng(seed)
    weights = rng.exponential(size=(resamples, blocks)).astype(np.float32)
    unseen = rng.exponential(size=(kept.size, resamples))
    by_size = np.argsort(of_size, kind="stable")
    ends = np.cumsum(counts)
    delay, median = np.empty(kept.size), np.empty(kept.size)
    resampled = np.empty((resamples, kept.size))
    for i, nth in enumerate(kept):
        rows = by_size[ends[nth] - counts[nth] : ends[nth]]
        median[i] = np.median(rtt_ns[rows])
        delay[i], resampled[:, i] = _low(rtt_ns[rows], block[rows], weights, unseen[i])
    step_ns = clock_step(rtt_ns) if step_ns is None else step_ns
    if step_ns:
        resampled += within_step(rng, delay, step_ns, resamples)
    return LowDelays(
        size_bytes=sizes[kept],
        delay_ns=delay,
        resampled_ns=resampled,
        count=int(counts[kept].sum()),
        rounds=rounds.size,
        skipped_bytes=tuple(int(size) for size in sizes[counts < fewest]),
        unused_sizes=enough.size - kept.size,
        median_ns=median,
        step_ns=step_ns,
    )


def within_step(
    rng: np.random.Generator, delay_ns: Floats, step_ns: float, resamples: int
) -> Floats:
    """Draw how far delays are from what a clock of such a step wrote; (b, k)."""
    _, alike = np.unique(np.rint(delay_ns / step_ns), return_inverse=True)
    within = rng.uniform(-0.5, 0.5, (resamples, alike.max(initial=0) + 1))
    return np.asarray(step_ns * within[:, alike])


def nth_in_run(begins: NDArray[np.bool_]) -> Ints:
    """Return how many rows each is behind the one that begins its run."""
    rows = np.arange(begins.size)
    return rows - np.maximum.accumulate(np.where(begins, rows, 0))


def clock_step(delays_ns: Floats) -> float:
    """Return the largest step of which all delays are multiples; 0 if none is seen.

    Of n different delays of a clock that counts nanoseconds all are multiples of 2
    once in 2^n times: in a few hundred no step is seen where there is none, and of
    a few that is found is rather too large than too small. A step that is no whole
    number of nanoseconds (of 300 jiffies a second) is not seen.
    """
    whole = np.rint(delays_ns)
    if (np.abs(delays_ns - whole) > _OF_A_NS).any() or whole.max(initial=0) >= 2**63:
        return 0.0
    # most clocks count ns, as the first delays show
    for some in (whole[:_LOOKED_AT_FIRST], whole):
        step = int(np.gcd.reduce(some.astype(np.int64)))
        if step <= CLOCK_NS:
            return 0.0
    return float(step)


def _low(
    values: Floats, block: Ints, weights: Weights, unseen: Floats
) -> tuple[float, Floats]:
    """Return the low quantile of values, and of them as each row weighs blocks."""
    low = float(np.quantile(values, LOW, method="median_unbiased"))
    if values.size == 1:
        return low, np.full(len(weights), low)
    order = np.argsort(values, kind="stable")
    ranks = _ranks(values.size)

    # up_to[b, j]: how many values of block b have rank ranks[j] or a lower one
    step = np.searchsorted(ranks, np.arange(values.size))
    shape = weights.shape[1], ranks.size
    cell = block[order] * ranks.size + step
    counted = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    drawn = weights @ np.cumsum(counted, axis=1).astype(np.float32)

    share = drawn / (drawn[:, -1] + unseen)[:, np.newaxis]
    above = np.clip(np.count_nonzero(share < LOW, axis=1), 1, ranks.size - 1)
    each = np.arange(len(share))
    below_share, above_share = share[each, above - 1], share[each, above]
    reach = (LOW - below_share) / np.maximum(above_share - below_share, 1e-9)
    # Below the smallest value by no more than it is below the second.
    reach = np.clip(reach, -1.0, 1.0)
    at = values[order[ranks]]
    return low, at[above - 1] + reach * (at[above] - at[above - 1])


def _ranks(n: int) -> Ints:
    """Return a few hundred ranks of n, dense around the low quantile."""
    dense = np.linspace(0, 3 * LOW * n, min(_DENSE_RANKS, int(3 * LOW * n) + 1))
    sparse = np.linspace(3 * LOW * n, n - 1, min(n, _SPARSE_RANKS))
    return np.unique(np.concatenate([dense, sparse]).astype(np.int64))
