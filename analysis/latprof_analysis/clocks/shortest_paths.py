"""Bounds of differences, in all orders of hosts: each is a shortest path.

That x_b - x_a is at most w for some pairs of hosts says of all others, by sums along
paths, how far they may be apart: shortest paths with these weights, and where a ring
of them is negative, no x at all does what is said [1]_.

References
----------
.. [1] Cormen, Leiserson, Rivest, Stein. Introduction to Algorithms, 3rd ed., section
   24.1, Bellman and Ford, 24.4, difference constraints, and 25.2, Floyd and Warshall.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.stats import Floats

Bools = NDArray[np.bool_]
Link = tuple[int, int]
_SHORTEST = 1e-9  # of a link: one of no length would be none


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


class Links:
    """Pairs of hosts of which something is said: few of all that there could be."""

    def __init__(self, links: Sequence[Link]) -> None:
        self._source, target = np.array(links, np.intp).reshape(-1, 2).T
        self._order = np.argsort(target, kind="stable")
        self._targets, self._begins = np.unique(target[self._order], return_index=True)

    def lowered(self, wanted: Floats, most: Floats) -> tuple[Floats, Bools]:
        """Lower values until each is at most what others and the bounds allow.

        Parameters
        ----------
        wanted : ndarray, shape (h, k)
        most : ndarray, shape (e, k)
            Of each link what x_b - x_a is at most.

        Returns
        -------
        values, allowed
            Shapes (h, k) and (k,): the largest that are not above `wanted`, and
            whether there are any.
        """
        found, source = wanted.copy(), self._source[self._order]
        most = most[self._order]
        moving = np.arange(wanted.shape[1])
        for _ in range(len(wanted) + 1 if source.size else 0):
            now = found[:, moving]
            paths = now[source] + most[:, moving]
            least = np.minimum.reduceat(paths, self._begins, axis=0)
            least = np.minimum(least, now[self._targets])
            moved = (least < now[self._targets]).any(axis=0)
            found[self._targets[:, None], moving] = least
            moving = moving[moved]
            if not moving.size:
                break
        allowed = np.ones(wanted.shape[1], bool)
        allowed[moving[: moving.size if source.size else 0]] = False
        return found, allowed


def contradicted(count: int, links: Sequence[Link], most: Floats) -> Bools:
    """Say at which times no values of `count` hosts are within bounds of shape (e, k).

    Where all bounds allow 0 that is one: then nothing has to be looked for.
    """
    return ~Links(links).lowered(np.zeros((count, most.shape[1])), most)[1]


def within(wanted: Floats, links: Sequence[Link], most: Floats) -> Floats:
    """Move values into their bounds, all of them alike.

    In the middle between the largest that are nowhere above and the least that are
    nowhere below: both are within bounds, and so is what lies between.

    Parameters
    ----------
    wanted : ndarray, shape (h, k)
    links : sequence of (int, int)
    most : ndarray, shape (e, k)
        Of each link (a, b) what x_b - x_a is at most; inf where nothing is said.

    Returns
    -------
    ndarray, shape (h, k)
        Values whose differences are within `most`; `wanted` where there are none, or
        where it is.
    """
    high, allowed = Links(links).lowered(wanted, most)
    low = -Links([(b, a) for a, b in links]).lowered(-wanted, most)[0]
    return np.where(allowed, (low + high) / 2, wanted)


def ways(
    count: int, lengths: dict[Link, float], asked: Iterable[Link]
) -> Iterator[tuple[Link, list[Link]]]:
    """Give the shortest way from one host to another, link after link.

    Parameters
    ----------
    count : int
    lengths : dict of (a, b) to float
        From a to b; not negative, inf where there is no way.
    asked : iterable of (a, b)
        Nothing is given where no way leads from a to b.
    """
    from scipy.sparse import csr_array  # what runs as root loads it for this alone
    from scipy.sparse.csgraph import dijkstra

    known = {link: long for link, long in lengths.items() if np.isfinite(long)}
    asked = list(asked)
    if not known or not asked:
        return
    places = np.array(list(known), np.intp).T
    longs = np.maximum(np.array(list(known.values())), _SHORTEST)
    graph = csr_array((longs, tuple(places)), shape=(count, count))
    sources = sorted({a for a, _ in asked})
    row = {source: place for place, source in enumerate(sources)}
    _, before = dijkstra(graph, indices=sources, return_predecessors=True)
    for a, b in asked:
        back, way = before[row[a]], list[Link]()
        at = b
        while back[at] >= 0:
            way.append((int(back[at]), at))
            at = int(back[at])
        if at == a:
            yield (a, b), way[::-1]
