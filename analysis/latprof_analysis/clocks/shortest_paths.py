"""Bounds of differences, in all orders of hosts: each is a shortest path.

That x_b - x_a is at most w for some pairs of hosts says of all others, by sums along
paths, how far they may be apart: shortest paths with these weights, and where a ring
of them is negative, no x at all does what is said [1]_.

References
----------
.. [1] Cormen, Leiserson, Rivest, Stein. Introduction to Algorithms, 3rd ed., section
   24.4, difference constraints, and 25.2, Floyd and Warshall.
"""

from __future__ import annotations

import numpy as np

from latprof_analysis.stats import Floats


def closed(most: Floats) -> Floats:
    """Give the least bounds that follow, by Floyd and Warshall, for many times at once.

    Parameters
    ----------
    most : ndarray, shape (h, h, k)
        ``most[a, b]``: what x_b - x_a is at most; inf where nothing is said.

    Returns
    -------
    ndarray, shape (h, h, k)
        Below 0 on the diagonal where the bounds contradict each other.
    """
    found = most.copy()
    hosts = range(len(found))
    found[hosts, hosts] = np.minimum(found[hosts, hosts], 0.0)
    for via in hosts:
        np.minimum(found, found[:, via, None] + found[None, via], out=found)
    return found


def within(wanted: Floats, most: Floats) -> Floats:
    """Move values into their bounds, host after host, as little as it takes for each.

    Of bounds that are closed no choice for some hosts leaves another one none.

    Parameters
    ----------
    wanted : ndarray, shape (h, k)
    most : ndarray, shape (h, h, k)
        As of `closed`; where it contradicts itself nothing is moved.

    Returns
    -------
    ndarray, shape (h, k)
        Values whose differences are within `most`.
    """
    least = closed(most)
    found = wanted.copy()
    for host in range(1, len(wanted)):
        low = (found[:host] - least[host, :host]).max(axis=0)
        high = (found[:host] + least[:host, host]).min(axis=0)
        found[host] = np.clip(wanted[host], low, high)
    hosts = range(len(most))
    contradicted = (least[hosts, hosts] < 0).any(axis=0)
    return np.where(contradicted, wanted, found)
