"""Whole rounds drawn again and again, as weights of the single round trips.

The same draws that `rounds` takes for its low delays, for estimators that want
every round trip.
"""

from __future__ import annotations

import numpy as np

from latprof_analysis.fits.rounds import BLOCKS, Floats, Ints


def block_weights(
    round_index: Floats, *, resamples: int, seed: int
) -> tuple[Ints, Floats]:
    """Return the block of each row, and how often each draw holds each block.

    Parameters
    ----------
    round_index : ndarray, shape (n,)
        Of each row. A block is a round, or, of very many rounds, some
        consecutive ones.
    resamples, seed : int
        Number of draws, and what makes them repeatable.

    Returns
    -------
    block : ndarray, shape (n,)
    weights : ndarray, shape (1 + resamples, blocks)
        The first row is the sample itself: each block once.

    Examples
    --------
    >>> rounds = np.array([0.0, 0.0, 7.0, 7.0])
    >>> block, weights = block_weights(rounds, resamples=3, seed=1)
    >>> block, weights[0], weights.sum(axis=1)
    (array([0, 0, 1, 1]), array([1., 1.]), array([2., 2., 2., 2.]))
    """
    rounds, rank = np.unique(round_index, return_inverse=True)
    if rounds.size == 0:
        raise ValueError("round_index must hold a round or more, got none")
    blocks = min(rounds.size, BLOCKS)
    rng = np.random.default_rng(seed)
    draws = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=resamples)
    weights = np.vstack([np.ones(blocks), draws])
    return rank * blocks // rounds.size, weights
