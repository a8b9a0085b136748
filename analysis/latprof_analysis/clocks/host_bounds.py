"""Between which bounds each two hosts' clocks are, once offsets were chosen for all.

From knot to knot all of it is straight lines, and must hold in between: bounds of pairs
are raised to what their own knots say there; of sums along paths, the least of which
is concave, the chord is raised by twice what it lacks in the middle, where a concave
function is at least half as high over its chord as anywhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.clocks.host_clocks import Between
from latprof_analysis.clocks.line_maps import at_knots, backward
from latprof_analysis.clocks.pairs import PPB, PairClock, State
from latprof_analysis.clocks.shortest_paths import Link, closed, contradicted, ways
from latprof_analysis.stats import Floats, Ints

Pairs = Mapping[Link, PairClock]
Bools = NDArray[np.bool_]
States = NDArray[np.int8]
# Stamps of both ends and two offsets are each rounded to 1 ns.
_ROUNDED_NS = 2.0


class Edges:
    """What p pairs say at k times, beside offsets that were chosen.

    Attributes
    ----------
    pairs, links : list of (a, b)
        Links are the pairs, and then the same the other way round.
    residual : ndarray, shape (p, k)
        By how much b's clock less a's is over what was chosen.
    minus, plus : ndarray, shape (p, k)
        How far the truth may be below and above that.
    slope : ndarray, shape (p, k)
        How fast these may change, ns per ns: as of times that are not quite known.
    """

    def __init__(self, count: int, pairs: Pairs, said: Ints) -> None:
        self.count = count
        self.pairs = list(pairs)
        self.links = [*self.pairs, *((b, a) for a, b in self.pairs)]
        residual, minus, plus, slope = [], [], [], []
        for (a, b), clock in pairs.items():
            ahead = clock.offset_at(said[a]) - (said[b] - said[a])
            residual.append(ahead.astype(float))
            below, above = clock.interval_at(said[a])
            minus.append(below + _ROUNDED_NS)
            plus.append(above + _ROUNDED_NS)
            drift, spread = clock.rates_at(said[a])
            slope.append((np.abs(drift) + spread) / PPB)
        self.residual, self.slope = np.array(residual), np.array(slope)
        self.minus, self.plus = np.array(minus), np.array(plus)

    def most(self) -> Floats:
        """What the difference over the chosen one is at most by links, (2 p, k)."""
        return np.concatenate([self.residual + self.plus, self.minus - self.residual])

    def width(self) -> Floats:
        """How wide the intervals of pairs are, 0 for what has no end."""
        width = self.minus + self.plus
        return np.where(np.isfinite(width), width, 0.0)

    def slack(self) -> Floats:
        """What sums along paths may lack, as times of hosts between are not known well.

        By the width of all intervals on the way at most, times how fast bounds change.
        """
        found = self.slope * self.width().max(axis=0) * (self.count - 1)
        return np.concatenate([found, found])

    def leave_out_contradictions(self) -> None:
        """Let pairs bound nothing where no offsets are within the bounds of all."""
        wrong = self.contradicting((self.most() + self.slack())[..., None])
        self.minus[wrong] = self.plus[wrong] = np.inf

    def contradicting(self, most: Floats) -> Bools:
        """Which pairs may be why no offsets are within all bounds, where none are.

        A pair all of whose triangles contradict is one; where a longer loop does, each
        is.

        Parameters
        ----------
        most : ndarray, shape (2 p, k, m)
            Of links. The pair is looked for in all m together.

        Returns
        -------
        ndarray of bool, shape (p, k)
        """
        found: Bools = np.zeros((len(self.pairs), most.shape[1]), bool)
        for blamed_of in (self._in_contradicting_triangles, self._bounded_pairs):
            left = np.where(np.concatenate([found, found])[..., None], np.inf, most)
            flat = left.reshape(len(left), -1)
            wrong = contradicted(self.count, self.links, flat)
            wrong = np.any(wrong.reshape(most.shape[1:]), axis=-1)
            if not wrong.any():
                break
            found[:, wrong] |= np.any(blamed_of(left[:, wrong]), axis=-1)
        return found

    def _bounded_pairs(self, most: Floats) -> Bools:
        there, back = np.isfinite(most).reshape(2, len(self.pairs), *most.shape[1:])
        found: Bools = there | back
        return found

    def _in_contradicting_triangles(self, most: Floats) -> Bools:
        """Which pairs are in triangles, and in none whose bounds allow any offsets."""
        place = {link: number for number, link in enumerate(self.links)}
        count = len(self.pairs)
        wrong = np.zeros((count, *most.shape[1:]), bool)
        right = wrong.copy()
        for a, b, c in triangles(self.pairs):
            links = place[a, b], place[b, c], place[c, a]
            others = place[b, a], place[c, b], place[a, c]
            ring, other = most[links, :].sum(axis=0), most[others, :].sum(axis=0)
            bad = (ring < 0) | (other < 0)
            closes = np.isfinite(ring) | np.isfinite(other)
            pairs = [link % count for link in links]
            wrong[pairs] |= bad
            right[pairs] |= closes & ~bad
        return wrong & ~right


def triangles(pairs: Collection[Link]) -> Iterator[tuple[int, int, int]]:
    """Give each three hosts of which all pairs are there, in their order."""
    beyond: dict[int, set[int]] = {}
    for a, b in pairs:
        beyond.setdefault(min(a, b), set()).add(max(a, b))
    for a in sorted(beyond):
        for b in sorted(beyond[a]):
            for c in sorted(beyond[a] & beyond.get(b, set())):
                yield a, b, c


def bounds_between(
    count: int,
    pairs: Pairs,
    at: Ints,
    offset: Ints,
    drift: Floats,
    asked: Collection[Link] | None,
) -> dict[Link, Between]:
    """Bound the offsets of two hosts, from each knot to the next.

    Parameters
    ----------
    count : int
        How many hosts.
    pairs : dict of (a, b) to PairClock
    at : ndarray of int64, shape (k,)
        Knots by the reference's clock, two or more.
    offset : ndarray of int64, shape (h, k)
        Clock of each host less the reference's, as it was chosen.
    drift : ndarray, shape (h, k)
        Its rate, ppb.
    asked : collection of (a, b), optional
        Of these only, by one way over others that is short in most of the time; else
        of each two, by the shortest at each.
    """
    edges = Edges(count, pairs, at + offset)
    most = edges.most()
    # At the begin, in the middle and at the end of each interval between two knots.
    direct = np.stack([most[..., :-1], most[..., 1:]], axis=-1)
    direct = np.stack([direct[..., 0], direct.mean(axis=-1), direct[..., 1]], axis=-1)
    state = _states_of_pairs(pairs, at, offset)
    direct += _lifts(pairs, at, offset, direct)[..., None]
    broken = np.concatenate([state, state]) == State.BROKEN
    direct[np.isinf(direct).any(axis=-1) | broken] = np.inf
    contradicting = edges.contradicting(direct + _between(edges.slack())[..., None])
    direct[np.concatenate([contradicting, contradicting])] = np.inf
    state[contradicting] = State.BROKEN
    growth = _growth(pairs, drift)
    if asked is None:
        return _of_all(edges, direct, state, growth)
    return _of_asked(edges, direct, state, growth, asked)


def _between(values: Floats) -> Floats:
    """Give the larger of what is at the knots beside each interval."""
    found: Floats = np.maximum(values[..., :-1], values[..., 1:])
    return found


def _lifts(pairs: Pairs, at: Ints, offset: Ints, direct: Floats) -> Floats:
    """How far a pair's own knots are over the line of its bounds, at most: of links."""
    found = np.zeros((2 * len(pairs), at.size - 1))
    level = np.zeros(2)
    for number, ((a, b), clock) in enumerate(pairs.items()):
        t = backward(at, offset[a], level, clock.at_ns)
        known = (clock.state != State.BROKEN) & (t >= at[0]) & (t <= at[-1])
        t = t[known]
        place = np.minimum(np.searchsorted(at, t, "right") - 1, at.size - 2)
        share = (t - at[place]) / (at[place + 1] - at[place])
        chosen = at_knots(at, offset[b] - offset[a], level, t)
        ahead = (clock.offset_ns[known] - chosen).astype(float)
        for link, says in (
            (number, ahead + clock.plus_ns[known]),
            (number + len(pairs), clock.minus_ns[known] - ahead),
        ):
            begin, _, end = direct[link, place].T
            usable = np.isfinite(begin + end + says)
            line = begin[usable] + share[usable] * (end[usable] - begin[usable])
            over = says[usable] + _ROUNDED_NS - line
            np.maximum.at(found[link], place[usable], over)
    return found


def _states_of_pairs(pairs: Pairs, at: Ints, offset: Ints) -> States:
    """States of pairs from each knot to the next; broken where they are so anywhere."""
    found = np.full((len(pairs), at.size - 1), State.UNKNOWN, np.int8)
    level = np.zeros(2)
    for number, ((a, _), clock) in enumerate(pairs.items()):
        found[number] = clock.state_at(at[:-1] + offset[a, :-1])
        broken = np.flatnonzero(clock.state == State.BROKEN)
        if not broken.size:
            continue
        ends = np.r_[clock.at_ns, clock.at_ns[-1] + 1]
        begin = backward(at, offset[a], level, ends[broken]) - 2
        end = backward(at, offset[a], level, ends[broken + 1]) + 2
        first = np.searchsorted(at[1:], begin, "right")
        last = np.searchsorted(at[:-1], end, "left")
        marks = np.zeros(at.size, np.int64)
        np.add.at(marks, first, 1)
        np.add.at(marks, np.maximum(last, first), -1)
        found[number, np.cumsum(marks)[:-1] > 0] = State.BROKEN
    return found


def _growth(pairs: Pairs, drift: Floats) -> Floats:
    """How fast differences of pairs may leave the chosen ones, ppb."""
    found = [
        clock.spread_ppb.max()
        + np.abs((drift[b] - drift[a])[[0, -1]] - clock.drift_ppb[[0, -1]]).max()
        for (a, b), clock in pairs.items()
    ]
    return np.array(found)


def _over(least: Floats) -> Floats:
    """Give lines over bounds of shape (..., k - 1, 3): at both ends, (..., k, 2)."""
    bounded = np.isfinite(least[..., 1])
    chord = (least[..., 0] + least[..., 2]) / 2
    lacking = np.subtract(
        least[..., 1], chord, where=bounded, out=np.zeros(chord.shape)
    )
    over = least[..., ::2] + 2 * np.maximum(lacking, 0.0)[..., None]
    over = np.concatenate([over, over[..., -1:, ::-1]], axis=-2)
    over[..., -1, 1] = over[..., -1, 0]
    found: Floats = np.maximum(over, 0.0)
    return found


def _of_all(
    edges: Edges, direct: Floats, state: States, growth: Floats
) -> dict[Link, Between]:
    """Bound each two hosts by the shortest way at each time."""
    count, (from_, to) = edges.count, np.array(edges.links).T
    wide = np.full((count, count, *direct.shape[1:]), np.inf)
    wide[from_, to] = direct + _between(edges.slack())[..., None]
    least = closed(wide.reshape(count, count, -1)).reshape(wide.shape)
    least[from_, to] = np.minimum(direct, least[from_, to])
    states = _states_of_all(edges, state, np.isfinite(least[..., 1]))
    fast = np.full((count, count, 1), np.inf)
    fast[from_, to, 0] = np.concatenate([growth, growth])
    grows = np.nan_to_num(closed(fast)[..., 0], posinf=0.0)
    over = _over(least)
    return {
        (a, b): Between(over[a, b], states[a, b], float(grows[a, b]))
        for a, b in permutations(range(count), 2)
    }


def _states_of_all(edges: Edges, state: States, bounded: Bools) -> States:
    """States of all two hosts, also of those that are related through others."""
    hosts = range(edges.count)
    direct = np.full((edges.count, edges.count, state.shape[1]), State.UNKNOWN, "i1")
    direct[tuple(np.array(edges.links).T)] = np.concatenate([state, state])
    quality = np.where(direct == State.BROKEN, State.UNKNOWN, direct)
    quality[hosts, hosts] = State.GOOD
    linked = direct != State.UNKNOWN
    linked[hosts, hosts] = True
    for via in hosts:
        through = np.minimum(quality[:, via, None], quality[None, via])
        quality = np.maximum(quality, through)
        linked |= linked[:, via, None] & linked[None, via]
    return _states(direct, quality, linked, bounded, bounded.swapaxes(0, 1))


def _states(
    direct: States, quality: States, linked: Bools, there: Bools, back: Bools
) -> States:
    """States of two hosts from each knot to the next, (..., k), by what bounds them."""
    found = np.where(linked, State.BROKEN, State.UNKNOWN)
    found[(there | back) & (direct != State.BROKEN)] = State.ONE_DIRECTION
    both = there & back
    found[both] = np.maximum(quality, State.APPROXIMATE)[both]
    return np.concatenate([found, found[..., -1:]], axis=-1).astype(np.int8)


def _of_asked(
    edges: Edges,
    direct: Floats,
    state: States,
    growth: Floats,
    asked: Collection[Link],
) -> dict[Link, Between]:
    """Bound some by their own pair, and by one way over others."""
    links = {link: number for number, link in enumerate(edges.links)}
    both = sorted({way for a, b in asked for way in ((a, b), (b, a))})
    middle = np.median(direct[..., 1], axis=-1)
    lengths = {link: max(float(middle[at]), 0.0) for link, at in links.items()}
    chosen = dict(ways(edges.count, lengths, both))
    width, slope = _between(edges.width()), _between(edges.slope)
    intervals, count = direct.shape[1], len(edges.pairs)
    least, quality, grows = {}, {}, {}
    for ends in both:
        at = links.get(ends)
        least[ends] = np.full((intervals, 3), np.inf) if at is None else direct[at]
        quality[ends] = np.full(intervals, State.UNKNOWN, np.int8)
        grows[ends] = np.inf if at is None else float(growth[at % count])
        way = [links[link] for link in chosen.get(ends, ())]
        if not way or way == [at]:
            continue
        of = [link % count for link in way]
        slack = slope[of].sum(axis=0) * width[of].sum(axis=0)
        along = direct[way].sum(axis=0) + slack[:, None]
        least[ends] = np.minimum(least[ends], along)
        known = np.where(state[of] == State.BROKEN, State.UNKNOWN, state[of])
        quality[ends] = known.min(axis=0)
        grows[ends] = min(grows[ends], float(growth[of].sum()))
    over = dict(zip(both, _over(np.array([*least.values()])), strict=True))
    found = {}
    for a, b in both:
        at = links.get((a, b))
        own = state[at % count] if at is not None else np.zeros(intervals, np.int8)
        good = np.where(own == State.BROKEN, State.UNKNOWN, own)
        for way_there in ((a, b), (b, a)):
            good = np.maximum(good, quality[way_there])
        there, back = (np.isfinite(least[w][:, 1]) for w in ((a, b), (b, a)))
        linked = (own != State.UNKNOWN) | ((a, b) in chosen) | ((b, a) in chosen)
        states = _states(own, good, linked, there, back)
        growth_ppb = grows[a, b] if np.isfinite(grows[a, b]) else 0.0
        found[a, b] = Between(over[a, b], states, growth_ppb)
    return found
