"""Ranks of a sample, equal values sharing theirs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mid_ranks(x: Floats) -> Floats:
    """Return the rank of each value as a share of all, less one half.

    Equal values get the middle of their ranks. The sum is 0; all lie within -1/2
    and 1/2.

    Parameters
    ----------
    x : ndarray, shape (n,)
        Finite.

    Examples
    --------
    >>> mid_ranks(np.array([7.0, 1.0, 9.0, 7.0])).tolist()
    [0.0, -0.375, 0.375, 0.0]
    """
    order = np.argsort(x)
    ascending = x[order]
    first = np.flatnonzero(np.diff(ascending, prepend=-np.inf))
    count = np.diff(first, append=x.size)
    ranks = np.empty(x.size)
    ranks[order] = np.repeat((first + count / 2) / x.size - 0.5, count)
    return ranks
