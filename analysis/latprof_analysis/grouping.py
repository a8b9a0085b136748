"""Rows that are alike in a number, put together in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Places = NDArray[np.intp]


def in_groups(
    keys: NDArray[np.integer[Any]], rows: Places
) -> tuple[list[int], Places, Places]:
    """Order rows by their keys; those of the same key stay in their order.

    Parameters
    ----------
    keys : ndarray of int, shape (n,)
        From 0.
    rows : ndarray of int, shape (n,)

    Returns
    -------
    found : list of int
        The keys that there are, ascending.
    ordered : ndarray of int, shape (n,)
        The rows, group by group.
    lengths : ndarray of int
        How many rows each of the groups has.

    Examples
    --------
    >>> in_groups(np.array([3, 0, 3]), np.array([5, 6, 7]))
    ([0, 3], array([6, 5, 7]), array([1, 2]))
    """
    if not len(keys):
        return [], rows, np.empty(0, np.intp)
    if keys.min() == keys.max():
        return [int(keys[0])], rows, np.array([len(rows)])
    if keys.max() < 1 << 16:
        own = keys.astype(np.uint16)  # which is sorted in one pass
        counts = np.bincount(own)
        found = np.flatnonzero(counts)
        lengths = counts[found]
    else:
        found, own, lengths = np.unique(keys, return_inverse=True, return_counts=True)
    order = own.argsort(kind="stable")
    return found.tolist(), rows[order], lengths


def parted(
    keys: NDArray[np.integer[Any]], rows: Places
) -> Iterator[tuple[int, Places]]:
    """Split rows into those of the same key, by rising key, as `in_groups`.

    Examples
    --------
    >>> [(key, part.tolist()) for key, part in parted(np.array([1, 0, 1]),
    ...                                               np.array([5, 6, 7]))]
    [(0, [6]), (1, [5, 7])]
    >>> list(parted(np.array([], int), np.array([], int)))
    []
    """
    found, ordered, lengths = in_groups(keys, rows)
    parts = np.split(ordered, np.cumsum(lengths))[:-1]  # the last is empty
    yield from zip(found, parts, strict=True)
