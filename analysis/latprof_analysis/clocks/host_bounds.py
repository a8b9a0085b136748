"""Between which bounds each two hosts' clocks are, once offsets were chosen for all.

From knot to knot all of it is straight lines, and must hold in between: bounds of pairs
are raised to what their own knots say there; of sums along paths, the least of which
is concave, the chord is raised by twice what it lacks in the middle, where a concave
function is at least half as high over its chord as anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.clocks.line_maps import at_knots, backward
from latprof_analysis.clocks.pairs import PPB, PairClock, State
from latprof_analysis.clocks.shortest_paths import closed
from latprof_analysis.stats import Floats, Ints

Pairs = Mapping[tuple[int, int], PairClock]
Bools = NDArray[np.bool_]
# Stamps of both ends and two offsets are each rounded to 1 ns.
_ROUNDED_NS = 2.0


class Edges:
    """What p pairs say at k times, beside offsets that were chosen.

    Attributes
    ----------
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
        """What the difference over the chosen one is at most, shape (h, h, k)."""
        found = np.full((self.count, self.count, self.residual.shape[1]), np.inf)
        for place, (a, b) in enumerate(self.pairs):
            found[a, b] = self.residual[place] + self.plus[place]
            found[b, a] = self.minus[place] - self.residual[place]
        return found

    def slack(self) -> Floats:
        """What sums along paths may lack, as times of hosts between are not known well.

        By the width of all intervals on the way at most, times how fast bounds change.
        """
        width = self.minus + self.plus
        widest = np.where(np.isfinite(width), width, 0.0).max(axis=0)
        found = np.zeros((self.count, self.count, width.shape[1]))
        for (a, b), slope in zip(self.pairs, self.slope, strict=True):
            found[a, b] = found[b, a] = slope * widest * (self.count - 1)
        return found

    def leave_out_contradictions(self) -> None:
        """Let pairs bound nothing where no offsets are within the bounds of all."""
        wrong = _contradicting(self.most()[..., None], self.slack()[..., None])
        for place, pair in enumerate(self.pairs):
            self.minus[place, wrong[pair]] = self.plus[place, wrong[pair]] = np.inf


def bounds_between(
    count: int, pairs: Pairs, at: Ints, offset: Ints, drift: Floats
) -> tuple[Floats, NDArray[np.int8], Floats]:
    """Bound the offsets of each two hosts, from each knot to the next.

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

    Returns
    -------
    over_ns, states, growth_ppb
        As of `HostClocks`.
    """
    edges = Edges(count, pairs, at + offset)
    most = edges.most()
    # At the begin, in the middle and at the end of each interval between two knots.
    direct = np.stack([most[..., :-1], most[..., 1:]], axis=-1)
    direct = np.stack([direct[..., 0], direct.mean(axis=-1), direct[..., 1]], axis=-1)
    state = _states_of_pairs(count, pairs, at, offset)
    direct += _lifts(count, pairs, at, offset, direct)[..., None]
    direct[np.isinf(direct).any(axis=-1) | (state == State.BROKEN)] = np.inf
    slack = edges.slack()
    slack = np.maximum(slack[..., :-1], slack[..., 1:])[..., None]
    contradicting = _contradicting(direct, slack)
    direct[contradicting], state[contradicting] = np.inf, State.BROKEN
    least = np.minimum(direct, _closed(direct + slack))
    bounded = np.isfinite(least[..., 1])
    chord = (least[..., 0] + least[..., 2]) / 2
    lacking = np.subtract(
        least[..., 1], chord, where=bounded, out=np.zeros(chord.shape)
    )
    over = least[..., ::2] + 2 * np.maximum(lacking, 0.0)[..., None]
    over = np.concatenate([over, over[..., -1:, ::-1]], axis=2)
    over[..., -1, 1] = over[..., -1, 0]
    hosts = range(count)
    over = np.maximum(over, 0.0)
    over[hosts, hosts] = 0.0
    states = _states(state, bounded)
    states = np.concatenate([states, states[..., -1:]], axis=2)
    return over, states, _growth(count, pairs, drift)


def _closed(most: Floats) -> Floats:
    shape = most.shape
    return closed(most.reshape(*shape[:2], -1)).reshape(shape)


def _lifts(count: int, pairs: Pairs, at: Ints, offset: Ints, direct: Floats) -> Floats:
    """How far a pair's own knots are over the line of its bounds, at most."""
    found = np.zeros((count, count, at.size - 1))
    level = np.zeros(2)
    for (a, b), clock in pairs.items():
        t = backward(at, offset[a], level, clock.at_ns)
        known = (clock.state != State.BROKEN) & (t >= at[0]) & (t <= at[-1])
        t = t[known]
        place = np.minimum(np.searchsorted(at, t, "right") - 1, at.size - 2)
        share = (t - at[place]) / (at[place + 1] - at[place])
        chosen = at_knots(at, offset[b] - offset[a], level, t)
        ahead = (clock.offset_ns[known] - chosen).astype(float)
        for way, says in (
            ((a, b), ahead + clock.plus_ns[known]),
            ((b, a), clock.minus_ns[known] - ahead),
        ):
            begin, _, end = direct[way][place].T
            usable = np.isfinite(begin + end + says)
            line = begin[usable] + share[usable] * (end[usable] - begin[usable])
            over = says[usable] + _ROUNDED_NS - line
            np.maximum.at(found[way], place[usable], over)
    return found


def _states_of_pairs(
    count: int, pairs: Pairs, at: Ints, offset: Ints
) -> NDArray[np.int8]:
    """States of pairs from each knot to the next; broken where they are so anywhere."""
    found = np.full((count, count, at.size - 1), State.UNKNOWN, np.int8)
    level = np.zeros(2)
    for (a, b), clock in pairs.items():
        state = clock.state_at(at[:-1] + offset[a, :-1])
        broken = np.flatnonzero(clock.state == State.BROKEN)
        ends = np.r_[clock.at_ns, clock.at_ns[-1] + 1]
        begin = backward(at, offset[a], level, ends[broken]) - 2
        end = backward(at, offset[a], level, ends[broken + 1]) + 2
        first = np.searchsorted(at[1:], begin, "right")
        last = np.searchsorted(at[:-1], end, "left")
        marks = np.zeros(at.size, np.int64)
        np.add.at(marks, first, 1)
        np.add.at(marks, np.maximum(last, first), -1)
        state = np.where(np.cumsum(marks)[:-1] > 0, State.BROKEN, state)
        found[a, b] = found[b, a] = state
    return found


def _contradicting(direct: Floats, slack: Floats) -> Bools:
    """Which pairs may be why no offsets are within all bounds, where none are.

    A pair all of whose triangles contradict is one; where a longer loop does, each is.

    Parameters
    ----------
    direct, slack : ndarray, shape (h, h, k, m)
        The pair is looked for in all m together.

    Returns
    -------
    ndarray of bool, shape (h, h, k)
    """
    hosts = range(len(direct))
    found = np.zeros(direct.shape[:3], bool)
    for blamed_of in (_in_contradicting_triangles, np.isfinite):
        left = np.where(found[..., None], np.inf, direct + slack)
        sums = _closed(left)[hosts, hosts]
        wrong = (sums < 0).any(axis=(0, -1))
        if not wrong.any():
            break
        blamed: Bools = np.any(blamed_of(left[:, :, wrong]), axis=-1)
        found[:, :, wrong] |= blamed | blamed.swapaxes(0, 1)
    return found


def _in_contradicting_triangles(most: Floats) -> Bools:
    """Which pairs are in triangles, and in none whose bounds allow any offsets."""
    wrong = np.zeros(most.shape, bool)
    right = np.zeros(most.shape, bool)
    for via in range(len(most)):
        path = most[:, via, None] + most[None, via]
        ring = path + most.swapaxes(0, 1)
        other = path.swapaxes(0, 1) + most
        ring[via] = ring[:, via] = other[via] = other[:, via] = np.inf
        closes = np.isfinite(ring) | np.isfinite(other)
        bad = (ring < 0) | (other < 0)
        wrong |= bad
        right |= closes & ~bad
    return wrong & ~right


def _states(direct: NDArray[np.int8], bounded: Bools) -> NDArray[np.int8]:
    """States of all two hosts, also of those that are related through others."""
    hosts = range(len(direct))
    quality = np.where(direct == State.BROKEN, State.UNKNOWN, direct)
    quality[hosts, hosts] = State.GOOD
    linked = direct != State.UNKNOWN
    linked[hosts, hosts] = True
    for via in hosts:
        through = np.minimum(quality[:, via, None], quality[None, via])
        quality = np.maximum(quality, through)
        linked |= linked[:, via, None] & linked[None, via]
    found = np.where(linked, State.BROKEN, State.UNKNOWN)
    either, both = bounded | bounded.swapaxes(0, 1), bounded & bounded.swapaxes(0, 1)
    found[either & (direct != State.BROKEN)] = State.ONE_DIRECTION
    found[both] = np.maximum(quality, State.APPROXIMATE)[both]
    return found.astype(np.int8)


def _growth(count: int, pairs: Pairs, drift: Floats) -> Floats:
    """How fast a difference may leave the chosen one, ppb, shape (h, h)."""
    found = np.full((count, count, 1), np.inf)
    for (a, b), clock in pairs.items():
        chosen = (drift[b] - drift[a])[[0, -1]]
        off = np.abs(chosen - clock.drift_ppb[[0, -1]]).max()
        found[a, b] = found[b, a] = clock.spread_ppb.max() + off
    return np.nan_to_num(closed(found)[..., 0], posinf=0.0)
