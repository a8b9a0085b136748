"""Clocks of many hosts from those of pairs: estimated by all, bounded by all.

Each pair says of two hosts' offsets how far apart they are, and between which bounds.
The offsets fit all pairs by least squares, so that what they say around a loop, which
should be nothing, is shared out as Huygens does [1]_; bounds add up along each path,
and the least sum holds. Where no offsets at all are within the bounds, a clock was set
or stamps are false, and it is said so.

References
----------
.. [1] Geng, Liu, Yin, Naik, Prabhakar, Rosenblum, Vahdat (2018). Exploiting a natural
   network effect for scalable, fine-grained clock synchronization. NSDI, 81-94.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

import numpy as np

from latprof_analysis.clocks.host_bounds import Edges, bounds_between, triangles
from latprof_analysis.clocks.host_clocks import HostClocks, Loop
from latprof_analysis.clocks.pairs import PairClock, State
from latprof_analysis.clocks.shortest_paths import within
from latprof_analysis.clocks.spanning_tree import SpanningTree
from latprof_analysis.stats import Floats, Ints

Pairs = Mapping[tuple[int, int], PairClock]
_KNOT_NS = 250_000_000
_FEWEST_KNOTS = 64
_BESIDE_NS = 4
_MOST_VALUES = 1 << 22  # of one for each two hosts and knot: 32 MB
_MOST_LOOPS = 1000
# Where one side of a pair's interval is infinite, or all of it: its weight is that of
# an interval so many times as wide as the best, and cannot move what others know.
_WIDEST = 1e5
_UNBOUNDED_NS = 1e15


def relate_hosts(
    count: int,
    pairs: Pairs,
    reference: int = 0,
    asked: Collection[tuple[int, int]] | None = None,
) -> HostClocks:
    """Estimate the clocks of all hosts by that of one, with intervals.

    Hosts that never talked are related through others. One that is not related to the
    reference at all keeps its stamps, without a bound.

    Parameters
    ----------
    count : int
        Hosts are 0 to `count` - 1.
    pairs : dict of (a, b) to PairClock
        For any pairs of hosts, each once: the clock of b by that of a.
    reference : int
        Whose clock is the common one.
    asked : collection of (a, b), optional
        Pairs of hosts that bounds are wanted of; else all, the work of which grows
        with the cube of `count`. These are bounded by what they saw themselves, and
        by one way over others, so that bounds may be wider.

    Returns
    -------
    HostClocks

    Raises
    ------
    ValueError
        Where a pair or the reference is not of these hosts, or a pair is there twice.

    Examples
    --------
    A clock that is 5 s ahead of one, and through it another that is 2 s behind it:

    >>> import numpy as np
    >>> from latprof_analysis.clocks.offsets import pair_clock
    >>> from latprof_analysis.clocks.sightings import Sightings
    >>> def clock(ahead_ns):
    ...     t = np.arange(10**10, 2 * 10**10, 10**7)
    ...     there = Sightings(t, t + ahead_ns + 100_000)
    ...     return pair_clock(there, Sightings(t + ahead_ns, t + 100_000))
    >>> clocks = relate_hosts(3, {(0, 1): clock(5 * 10**9), (1, 2): clock(-2 * 10**9)})
    >>> clocks.to_reference(2, [18_000_000_000])
    array([15000000000])
    >>> [round(side[0] / 1000) for side in clocks.bounds(0, 2, [15_000_000_000])]
    [201, 201]
    """
    _check(count, pairs, reference)
    seen = {pair: clock for pair, clock in pairs.items() if clock.at_ns.size}
    tree = SpanningTree(seen, reference)
    seen = {pair: clock for pair, clock in seen.items() if pair[0] in tree.hosts}
    if not seen:
        return _unrelated(count, reference)
    at = _grid(count**2 if asked is None else 2 * len(seen), seen, tree)
    coarse = tree.from_reference(count, at)
    edges = Edges(count, seen, coarse)
    loops = _loops(edges)
    edges.leave_out_contradictions()
    offset = coarse - at + np.rint(_corrections(edges, tree)).astype(np.int64)
    drift = tree.drift_ppb(coarse)
    between = bounds_between(count, seen, at, offset, drift, asked)
    return HostClocks(reference, at, offset, drift, between, loops)


def _check(count: int, pairs: Pairs, reference: int) -> None:
    if not 0 <= reference < count:
        raise ValueError(f"reference must be 0 to {count - 1}, got {reference}")
    for a, b in pairs:
        if a == b or not (0 <= a < count and 0 <= b < count):
            raise ValueError(
                f"pairs must be of two hosts of 0 to {count - 1}, got {a, b}"
            )
        if (b, a) in pairs:
            raise ValueError(f"pairs must be there once, got {a, b} and {b, a}")


def _unrelated(count: int, reference: int) -> HostClocks:
    """Clocks that are what they say, without a bound."""
    return HostClocks(
        reference=reference,
        at_ns=np.empty(0, np.int64),
        offset_ns=np.empty((count, 0), np.int64),
        drift_ppb=np.empty((count, 0)),
        between={},
        loops=(),
    )


def _grid(links: int, pairs: Pairs, tree: SpanningTree) -> Ints:
    """Times of knots by the reference's clock: those of pairs, not too close.

    There are the fewer the more links have a value at each.
    """
    knots, kept = [], []
    times = tree.to_reference([(a, clock.at_ns) for (a, _), clock in pairs.items()])
    for clock, at in zip(pairs.values(), times, strict=True):
        knots.append(at)
        broken = np.flatnonzero(clock.state == State.BROKEN)
        beside = np.r_[broken - 1, broken, broken + 1]
        kept.append(at[np.clip(beside, 0, at.size - 1)])
        # what is broken is taken 2 ns wider: not all up to the next knot
        after = np.minimum(broken + 1, at.size - 1)
        kept.append(np.r_[at[broken] - _BESIDE_NS, at[after] + _BESIDE_NS])
    at = np.unique(np.concatenate(knots))
    most = max(_FEWEST_KNOTS, _MOST_VALUES // links)
    width = max(_KNOT_NS, int(at[-1] - at[0]) // most + 1)
    _, first = np.unique((at - at[0]) // width, return_index=True)
    return np.unique(np.r_[at[first], at[-1], at[-1] + 1, *kept])


def _corrections(edges: Edges, tree: SpanningTree) -> Floats:
    """What to add to the tree's offsets, shape (h, k), so that all pairs are fitted."""
    width = np.nan_to_num(edges.minus + edges.plus, posinf=_UNBOUNDED_NS)
    best = width.min(axis=0)
    weights = (best / np.minimum(width, _WIDEST * best)) ** 2
    others = [host for host in sorted(tree.hosts) if host != tree.reference]
    found = np.zeros((edges.count, width.shape[1]))
    found[others] = _fitted(edges, weights, others)
    moved = within(found, edges.links, edges.most())
    result: Floats = moved - moved[tree.reference]
    return result


def _fitted(edges: Edges, weights: Floats, hosts: list[int]) -> Floats:
    """Fit the values of hosts, others' being 0, to all pairs by least squares.

    The normal equations of all times are solved at once: most hosts are in few pairs.
    """
    from scipy.sparse import coo_array  # what runs as root loads it for this alone
    from scipy.sparse.linalg import spsolve

    knots, size = weights.shape[1], len(hosts)
    row = np.full(edges.count, -1)
    row[hosts] = np.arange(size)
    ends = row[np.array(edges.pairs)].T
    a, b = ((end[:, None] + np.arange(knots) * size)[..., None] for end in ends)
    known = np.broadcast_to((ends >= 0)[..., None], (2, *weights.shape))
    at, to = np.concatenate([a, b, a, b], axis=-1), np.concatenate([a, b, b, a], -1)
    each = weights[..., None] * np.array([1.0, 1.0, -1.0, -1.0])
    both = known[0] & known[1]
    used = np.stack([known[0], known[1], both, both], axis=-1)
    normal = coo_array((each[used], (at[used], to[used])), shape=(knots * size,) * 2)
    aim = np.zeros(knots * size)
    for sign, end, is_known in ((-1.0, a, known[0]), (1.0, b, known[1])):
        said = sign * weights * edges.residual
        np.add.at(aim, end[..., 0][is_known], said[is_known])
    found: Floats = spsolve(normal.tocsc(), aim).reshape(knots, size).T
    return found


def _loops(edges: Edges) -> tuple[Loop, ...]:
    """How far the pairs around each three hosts are from adding up to nothing."""
    place = {pair: (number, 1.0) for number, pair in enumerate(edges.pairs)}
    place |= {(b, a): (number, -1.0) for (a, b), (number, _) in place.items()}
    rings = (
        ((a, b, c), [place[a, b], place[b, c], place[c, a]])
        for a, b, c in triangles(edges.pairs)
    )
    found = (_loop(hosts, ring, edges) for hosts, ring in islice(rings, _MOST_LOOPS))
    return tuple(loop for loop in found if loop)


def _loop(
    hosts: tuple[int, int, int], ring: list[tuple[int, float]], edges: Edges
) -> Loop | None:
    """The sum around one; None where its pairs were never known at one time."""
    plus = sum(
        (edges.plus if sign > 0 else edges.minus)[number] for number, sign in ring
    )
    minus = sum(
        (edges.minus if sign > 0 else edges.plus)[number] for number, sign in ring
    )
    known = np.isfinite(plus + minus)
    if not known.any():
        return None
    ahead = sum(sign * edges.residual[number] for number, sign in ring)[known]
    contradicts = (ahead > minus[known]) | (-ahead > plus[known])
    rms, most = np.sqrt(np.mean(ahead**2)), np.abs(ahead).max()
    return Loop(hosts, float(rms), float(most), bool(contradicts.any()))
