"""Packets that two hosts saw, by the stamps of each; and the tick of its clock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.stats import Ints

# Differences of stamps below it, and what is added to them here, fit into int64.
_LARGEST_NS = 1 << 61


@dataclass(frozen=True)
class Sightings:
    """Packets of one direction, each seen as it left and as it came.

    Any order. A packet that was lost, or seen at one end only, is not among them.

    Parameters
    ----------
    sent_ns : array_like of int, shape (n,)
        When each left, by the clock of the host that sent it; 0 to 2^61.
    arrived_ns : array_like of int, shape (n,)
        When it came, by the clock of the host that received it.

    Raises
    ------
    ValueError
        Where the two are no such stamps, or of different lengths.

    Examples
    --------
    >>> len(Sightings([1_000, 2_000], [51_000, 52_100]))
    2
    """

    sent_ns: Ints
    arrived_ns: Ints

    def __init__(self, sent_ns: ArrayLike, arrived_ns: ArrayLike) -> None:
        sent, arrived = checked_stamps(sent_ns), checked_stamps(arrived_ns)
        if sent.shape != arrived.shape:
            raise ValueError(
                "sent_ns and arrived_ns must be of one length, "
                f"got {sent.size} and {arrived.size}"
            )
        object.__setattr__(self, "sent_ns", sent)
        object.__setattr__(self, "arrived_ns", arrived)

    def __len__(self) -> int:
        return int(self.sent_ns.size)


def checked_stamps(stamps_ns: ArrayLike) -> Ints:
    """Give stamps as int64, or refuse them by a ValueError."""
    stamps: NDArray[np.generic] = np.asarray(stamps_ns)
    if stamps.size == 0:
        return np.empty(0, np.int64)
    if stamps.ndim != 1 or not np.issubdtype(stamps.dtype, np.integer):
        raise ValueError(
            "stamps must be integers in one dimension, "
            f"got {stamps.dtype} in {stamps.ndim}"
        )
    if not (int(stamps.min()) >= 0 and int(stamps.max()) < _LARGEST_NS):
        raise ValueError(
            f"stamps must be 0 to 2^61 ns, got {stamps.min()} to {stamps.max()}"
        )
    return stamps.astype(np.int64, copy=False)


def resolution_of(stamps_ns: ArrayLike) -> int:
    """Find the tick of a clock: what all differences of its stamps are multiples of.

    A stamp of such a clock is up to one tick early. Of few stamps it may be a multiple
    of the tick, which makes intervals wider than they need to be, never narrower.

    Parameters
    ----------
    stamps_ns : array_like of int, shape (n,)
        Stamps by one clock, in any order.

    Returns
    -------
    int
        In ns, at least 1; 1 with fewer than two different stamps.

    Examples
    --------
    >>> resolution_of([20_000, 50_000, 90_000])
    10000
    """
    stamps = checked_stamps(stamps_ns)
    if stamps.size == 0:
        return 1
    return max(1, int(np.gcd.reduce(stamps - stamps[0])))
