"""Round trips in rounds -> one low delay per size, and its resampled twins.

The delay of a size is the 10th percentile of its round trips: queueing only ever
adds, so a low quantile stands near the floor, and unlike the minimum it has a
sampling distribution that a bootstrap can follow.

A burst of noise hits neighbours in time. Sizes are sent in rounds, each size once
a round in random order, so the round is what may be taken as independent: the
bootstrap draws whole rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = NDArray[np.float32]

# The low delay is the value that one in so many does not exceed.
ONE_IN = 10
# More rounds than this are drawn in blocks of consecutive rounds.
BLOCKS = 500
# Ranks at which a resampled distribution is looked at: dense up to its 30%.
_DENSE_RANKS = 384
_SPARSE_RANKS = 32


@dataclass(frozen=True)
class LowDelays:
    """The low delay of each size, ascending in size.

    Attributes
    ----------
    size_bytes : ndarray, shape (k,)
    delay_ns : ndarray, shape (k,)
    resampled_ns : ndarray, shape (b, k)
        The same from `b` bootstrap samples of rounds.
    count : int
        Round trips that went into it.
    rounds : int
    skipped_bytes : tuple of int
        Sizes with fewer than `fewest` round trips, left out.
    """

    size_bytes: Floats
    delay_ns: Floats
    resampled_ns: Floats
    count: int
    rounds: int
    skipped_bytes: tuple[int, ...]

    @property
    def noise_ns(self) -> Floats:
        """Standard error of each size's delay."""
        noise: Floats = self.resampled_ns.std(axis=0)
        return noise


def low_delays(
    size_bytes: Floats,
    rtt_ns: Floats,
    round_index: Floats,
    *,
    fewest: int,
    resamples: int,
    seed: int,
) -> LowDelays:
    """Reduce round trips to one delay per size.

    Examples
    --------
    >>> sizes, rounds = np.tile([64.0, 128.0], 20), np.repeat(np.arange(20.0), 2)
    >>> low = low_delays(sizes, 10 * sizes + rounds, rounds,
    ...                  fewest=10, resamples=100, seed=1)
    >>> low.size_bytes, low.delay_ns, low.resampled_ns.shape, low.rounds
    (array([ 64., 128.]), array([ 641., 1281.]), (100, 2), 20)
    """
    rounds, round_rank = np.unique(round_index, return_inverse=True)
    blocks = max(1, min(rounds.size, BLOCKS))
    block = round_rank * blocks // max(1, rounds.size)
    sizes, counts = np.unique(size_bytes, return_counts=True)
    kept = sizes[counts >= fewest]

    rng = np.random.default_rng(seed)
    draws = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples)
    weights = draws.astype(np.float32)  # whole numbers
    delay = np.empty(kept.size)
    resampled = np.empty((resamples, kept.size))
    for i, size in enumerate(kept):
        of_size = size_bytes == size
        delay[i], resampled[:, i] = _low(rtt_ns[of_size], block[of_size], weights)
    return LowDelays(
        size_bytes=kept,
        delay_ns=delay,
        resampled_ns=resampled,
        count=int(counts[counts >= fewest].sum()),
        rounds=rounds.size,
        skipped_bytes=tuple(int(size) for size in sizes[counts < fewest]),
    )


def _low(values: Floats, block: Ints, weights: Weights) -> tuple[float, Floats]:
    """Return the low quantile of values, and of them as each row weighs blocks."""
    order = np.argsort(values, kind="stable")
    ranks = _ranks(values.size)
    low = values[order[-(-values.size // ONE_IN) - 1]]

    # up_to[b, j]: how many values of block b have rank ranks[j] or a lower one
    up_to = np.zeros((weights.shape[1], ranks.size), dtype=np.float32)
    step = np.searchsorted(ranks, np.arange(values.size))
    np.add.at(up_to, (block[order], step), 1)
    drawn = weights @ np.cumsum(up_to, axis=1)

    total = drawn[:, -1:]
    first = np.count_nonzero(ONE_IN * drawn < total, axis=1)
    resampled = values[order[ranks[first]]]
    # A draw may hold none of a size that most rounds lost.
    return float(low), np.where(total[:, 0] > 0, resampled, low)


def _ranks(n: int) -> Ints:
    """Return a few hundred ranks of n, dense around the low quantile."""
    dense = np.linspace(0, 3 * n / ONE_IN, min(_DENSE_RANKS, 3 * n // ONE_IN + 1))
    sparse = np.linspace(3 * n / ONE_IN, n - 1, _SPARSE_RANKS)
    return np.unique(np.concatenate([dense, sparse]).astype(np.int64))
