"""From stamps of both ways to the clock of a pair: what is estimated, and how sure.

The offset is cut where a clock was set. Of each stretch between, the interval is what
the envelopes of both directions allow whatever the clocks did within the rates that
`courses` finds; the offset itself is drawn in their middle, along the smooth course.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from latprof_analysis.clocks.breaks import Stretch, stretches
from latprof_analysis.clocks.courses import (
    FASTEST,
    UNSEEN,
    Course,
    course_of,
    course_of_one,
    interval,
    middle,
    narrowest,
    unseen,
)
from latprof_analysis.clocks.envelopes import envelope, thinned
from latprof_analysis.clocks.pairs import PPB, PairClock, State
from latprof_analysis.clocks.sightings import Sightings
from latprof_analysis.stats import Floats, Ints
from latprof_analysis.text import counted, duration

# Where packets are, a knot each; fewer where a pair was recorded for hours.
_KNOT_NS = 250_000_000.0
_MOST_KNOTS = 20_000
_KNOTS_IN_A_PAUSE = 8
# Stamps that contradict each other more often are of no clock at all.
_MOST_BREAKS = 100
_SHORTEST_NS = 100_000_000.0
# A step of less than the round trip contradicts no bound. It takes both directions
# at once from what they are at least, though, by more than this share of the round
# trip and this time, which is as much as queues that never empty may pretend.
_MOST_SMALL_STEPS = 10
_SMALL_STEP_SHARE = 0.25
_SMALL_STEP_NS = 20_000.0
_BESIDE = 100  # packets on each side of a step, whose levels differ by it
_OFTEN = 100  # with fewer packets it is not known what they are at least
# What is good has been seen this often each way, and is known about as well as the
# least round trip allows.
_FEWEST = 10
_GOOD_TIMES = 2.0
_GOOD_NS = 10_000.0


@dataclass(frozen=True)
class _Part:
    """The clock in one stretch; times and offsets from a common start."""

    stretch: Stretch
    course: Course
    at: Floats
    offset: Floats
    low: Floats
    high: Floats
    state: Ints
    seen: Floats
    gap: Floats


def pair_clock(
    there: Sightings,
    back: Sightings,
    *,
    resolution_ns: tuple[int, int] = (1, 1),
    symmetric: bool = False,
    asymmetry_ns: int | None = None,
) -> PairClock:
    """Estimate the clock of host b by that of host a, with an interval.

    The interval holds the truth where stamps are what they say, no packet came before
    it was sent, and the clocks' rates differ by no more than 100 us/s where too little
    was seen, and by no more than 10 us/s from what was seen elsewhere. Where what was
    seen leaves no room for that, the rates are taken to differ by more, up to 1 ms/s:
    beyond it a clock was set.

    Parameters
    ----------
    there, back : Sightings
        Packets from a to b, and from b to a. One may be empty: then one side of the
        interval is infinite and the offset stands at the other. Of two clocks one of
        which was set back let that be b's: knots stand in the order of a's.
    resolution_ns : tuple of int
        Ticks of the clocks of a and b, see `resolution_of`: stamps are up to so much
        too early.
    symmetric : bool
        The least delays of both directions are the same, as their user says: then
        the interval is what queues and stamps left over of that.
    asymmetry_ns : int, optional
        The least delay there is longer than that back by so much, as the user says.

    Returns
    -------
    PairClock
        Without knots where there is no packet.

    Raises
    ------
    ValueError
        Where `asymmetry_ns` is more than both least delays together, or a tick is
        less than 1 ns.

    Examples
    --------
    A clock that is 5 s ahead, 100 us each way:

    >>> import numpy as np
    >>> t = np.arange(0, 10**9, 10**6)
    >>> clock = pair_clock(
    ...     Sightings(t, t + 5_000_100_000), Sightings(t + 5_000_000_000, t + 100_000)
    ... )
    >>> clock.offset_ns[0], round(clock.base_round_trip_ns / 1000)
    (np.int64(5000000000), 200)
    >>> [round(side[0] / 1000) for side in clock.interval_at([500_000_000])]
    [100, 100]
    """
    if min(resolution_ns) < 1:
        raise ValueError(f"resolution_ns must be at least 1, got {resolution_ns}")
    if asymmetry_ns is None and symmetric:
        asymmetry_ns = 0
    if len(there) + len(back) == 0:
        return _nothing_seen()
    start_ns, base_ns, whole = _bounds(there, back, resolution_ns)
    cuts = stretches(whole, FASTEST, 0.0, _MOST_BREAKS)
    if cuts is None:
        return _of_no_clock(start_ns, base_ns, whole)
    cuts = [piece for cut in _long(cuts) for piece in _cut_by_small_steps(cut)]
    parts = [_part(piece, asymmetry_ns) for piece in _long(cuts)]
    last = len(parts) - 1
    parts = [_certain(each, n > 0, n < last) for n, each in enumerate(parts)]
    return _joined(parts, start_ns, base_ns)


def _bounds(
    there: Sightings, back: Sightings, resolution_ns: tuple[int, int]
) -> tuple[int, int, Stretch]:
    """Bounds of the offset above a common one, from a common start."""
    start_ns = min(int(t.min()) for t in (there.sent_ns, back.arrived_ns) if t.size)
    most = there.arrived_ns - there.sent_ns + resolution_ns[1]
    least = back.sent_ns - back.arrived_ns - resolution_ns[0]
    base_ns = int(most.min() if most.size else least.max())
    above_at, below_at = there.sent_ns - start_ns, back.arrived_ns - start_ns
    span_ns = max(int(at.max()) for at in (above_at, below_at) if at.size)
    return (
        start_ns,
        base_ns,
        Stretch(
            thinned(above_at, most - base_ns, span_ns),
            thinned(below_at, base_ns - least, span_ns),
        ),
    )


def _long(found: list[Stretch]) -> list[Stretch]:
    """Leave out what is between two breaks that are close: packets on their way."""
    spans = [float(np.ptp(stretch.times())) for stretch in found]
    least = min(_SHORTEST_NS, max(spans))
    return [each for each, span in zip(found, spans, strict=True) if span >= least]


def _cut_by_small_steps(stretch: Stretch) -> list[Stretch]:
    """Cut where the offset made a step that no bound contradicts by itself."""
    if not _has_both(stretch):
        return [stretch]
    # Of fast clocks, so that a step is seen where it is only.
    fast = replace(unseen(), spread=np.full(1, FASTEST))
    _, _, gap = narrowest(stretch.above, stretch.below, fast)
    small, usual = np.quantile(gap, (0.25, 0.75))
    step = max(_SMALL_STEP_SHARE * small, _SMALL_STEP_NS)
    least = float(small - step)
    often = min(len(stretch.above), len(stretch.below)) >= _OFTEN
    if not often or usual - small > step / 2 or least <= 0:
        return [stretch]
    pieces = stretches(stretch, FASTEST, least, _MOST_SMALL_STEPS) or [stretch]
    return _of_steps(stretch, pieces, step)


def _of_steps(whole: Stretch, pieces: list[Stretch], step: float) -> list[Stretch]:
    """Undo cuts at which the offset is the same on both sides.

    Where all packets queue, on a busy host for minutes, a lucky one of each direction
    contradicts what they take at least as a step does. After a step, though, all of
    them are on another level; after the lucky one they are where they were before.
    """
    kept = pieces[:1]
    for piece in pieces[1:]:
        if abs(_level_change(kept[-1], piece)) > step / 2:
            kept.append(piece)
        else:
            begin, end = kept[-1].times()[0], piece.times()[-1]
            kept[-1] = whole.between(begin, end)
    return kept


def _level_change(before: Stretch, after: Stretch) -> float:
    """By how much the offset changed beside its drift; 0 where that is not known."""
    if min(len(s.above) for s in (before, after)) < _FEWEST:
        return 0.0
    if not (len(before.below) and len(after.below)):
        return 0.0
    at_before, early = _middles(before, slice(-_BESIDE, None))
    at_after, late = _middles(after, slice(_BESIDE))
    slopes = np.r_[_slopes(at_before, early), _slopes(at_after, late)]
    drift = float(np.clip(np.median(slopes), -UNSEEN, UNSEEN))
    levels = np.median(late - drift * at_after), np.median(early - drift * at_before)
    return float(levels[0] - levels[1])


def _middles(stretch: Stretch, which: slice) -> tuple[Floats, Floats]:
    """Offsets amid packets there and the next ones back, of the nearer half of them."""
    at, most = stretch.above.at[which], stretch.above.value[which]
    place = np.searchsorted(stretch.below.at, at)
    least = stretch.below.value[np.minimum(place, len(stretch.below) - 1)]
    gap = most + least
    near = gap <= np.median(gap)
    return at[near], (most - least)[near] / 2


def _slopes(at: Floats, value: Floats) -> Floats:
    """All between two of few points, of which the median is Theil's and Sen's."""
    i, j = np.triu_indices(at.size, 1)
    found: Floats = (value[j] - value[i]) / (at[j] - at[i])
    return found


def _has_both(stretch: Stretch) -> bool:
    return len(stretch.above) > 0 and len(stretch.below) > 0


def _part(stretch: Stretch, asymmetry_ns: float | None) -> _Part:
    if _has_both(stretch):
        return _of_both(stretch, asymmetry_ns)
    return _of_one(stretch)


def _of_both(stretch: Stretch, asymmetry_ns: float | None) -> _Part:
    above, below = stretch.above, stretch.below
    course, (seen, _, gap) = course_of(above, below)
    round_trip = float(gap.min())
    at = _knots(stretch.times())
    low, high = _safe(stretch, course, at)
    offset = middle(above, below, course, at)
    wide = high - low
    if asymmetry_ns is not None:
        offset = offset - asymmetry_ns / 2
        low, high = _narrowed(low, high, offset, gap, asymmetry_ns)
    good = wide <= _GOOD_TIMES * round_trip + _GOOD_NS
    good &= min(len(above), len(below)) >= _FEWEST
    state = np.where(good, State.GOOD, State.APPROXIMATE)
    offset = np.clip(offset, low, high)
    return _Part(stretch, course, at, offset, low, high, state, seen, gap)


def _narrowed(
    low: Floats, high: Floats, offset: Floats, gap: Floats, asymmetry_ns: float
) -> tuple[Floats, Floats]:
    """The interval where it is known how the least round trip is shared out.

    How far the least that was seen is over what the paths take is not known: by no more
    than windows differ in it, is said here. Of few windows nothing is.
    """
    round_trip = float(gap.min())
    if abs(asymmetry_ns) > round_trip:
        raise ValueError(
            "asymmetry_ns must be within the least round trip, "
            f"{round_trip:.0f} ns, got {asymmetry_ns:.0f}"
        )
    if gap.size < _FEWEST:
        return low, high
    least = round_trip - float(np.ptp(gap))
    narrow_low = low + max(0.0, least - asymmetry_ns) / 2
    narrow_high = high - max(0.0, least + asymmetry_ns) / 2
    return np.minimum(narrow_low, offset), np.maximum(narrow_high, offset)


def _of_one(stretch: Stretch) -> _Part:
    """One bound only: the offset stands there, as if the least delay were none."""
    sign, bounds = (1.0, stretch.above) if len(stretch.above) else (-1.0, stretch.below)
    course = course_of_one(bounds, sign)
    at = _knots(stretch.times())
    low, high = _safe(stretch, course, at)
    left = bounds.value - sign * course.smooth_at(bounds.at)
    least = envelope(left, course.supple_at(bounds.at), course.supple_at(at))
    offset = np.clip(course.smooth_at(at) + sign * least, low, high)
    state = np.full(at.size, State.ONE_DIRECTION)
    none = np.empty(0)
    return _Part(stretch, course, at, offset, low, high, state, none, none)


def _certain(part: _Part, after: bool, before: bool) -> _Part:
    """Leave out, beside breaks, times at which the clock may not have been set yet.

    Bounds stand at a's times. Where b's clock was set while packets were on their way,
    these say something of the time at which it stamped them: when those there came,
    and when those back left. Where a's was, it is as it stands.
    """
    above, below = part.stretch.above, part.stretch.below
    delay = above.value - np.interp(above.at, part.at, part.offset)
    delay_back = below.value + np.interp(below.at, part.at, part.offset)
    by_b = np.r_[above.at + delay, below.at - delay_back]
    first, last = part.at[[0, -1]]
    if after:
        first = np.ceil(max(first, by_b.min()))
    if before:
        last = np.floor(min(last, by_b.max()))
    at = np.unique(np.clip(part.at, first, max(first, last)))
    return replace(
        part,
        at=at,
        offset=np.interp(at, part.at, part.offset),
        low=_line(at, part.at, part.low),
        high=_line(at, part.at, part.high),
        state=part.state[np.searchsorted(part.at, at, "right") - 1],
    )


def _line(at: Floats, knots: Floats, value: Floats) -> Floats:
    """Interpolate what is finite everywhere, or nowhere."""
    if np.isinf(value).any():
        return np.full(at.size, value[0])
    found: Floats = np.interp(at, knots, value)
    return found


def _knots(at: Floats) -> Floats:
    """Times of knots: close where packets were, some in pauses."""
    width = max(_KNOT_NS, (at[-1] - at[0]) / _MOST_KNOTS)
    cell = (at - at[0]) // width
    first = np.r_[True, np.diff(cell) > 0]
    last = np.r_[np.diff(cell) > 1, True]
    knots = at[first | last]
    pauses = np.flatnonzero(np.diff(knots) > 2 * width)
    share = np.arange(1, _KNOTS_IN_A_PAUSE) / _KNOTS_IN_A_PAUSE
    within = knots[pauses, None] + np.diff(knots)[pauses, None] * share
    return np.union1d(np.rint(knots), np.rint(within.ravel()))


def _safe(stretch: Stretch, course: Course, at: Floats) -> tuple[Floats, Floats]:
    """Bounds at knots whose straight lines between are bounds, too."""
    low, high = interval(stretch.above, stretch.below, course, at)
    nodes = np.unique(np.r_[stretch.times(), at, course.edges])
    nodes = nodes[(nodes >= at[0]) & (nodes <= at[-1])]
    least, most = interval(stretch.above, stretch.below, course, nodes)
    reach = course.reach_at(nodes)
    trend, trend_at = course.mean * nodes, course.mean * at
    low = low - _over_lines(nodes, trend - least, reach, at, trend_at - low)
    return low, high + _over_lines(nodes, most - trend, reach, at, high - trend_at)


def _over_lines(
    nodes: Floats, value: Floats, reach: Floats, at: Floats, value_at: Floats
) -> Floats:
    """How far an envelope is over the lines between knots, at most beside each.

    It is where the cones of two nodes meet, between which its rate is the same.
    """
    if at.size < 2 or np.isinf(value).any():
        return np.zeros(at.size)
    line, apart = np.interp(nodes, at, value_at), np.diff(reach)
    peak = (value[1:] + value[:-1] + apart) / 2
    share = np.divide(
        peak - value[:-1], apart, out=np.zeros(apart.size), where=apart > 0
    )
    over = np.maximum(peak - line[:-1] - share * np.diff(line), 0.0)
    each = np.maximum.reduceat(over, np.searchsorted(nodes, at[:-1]))
    found: Floats = np.maximum(np.r_[each, 0.0], np.r_[0.0, each])
    return found


def _joined(parts: list[_Part], start_ns: int, base_ns: int) -> PairClock:
    """Put stretches behind each other, with a broken knot between two."""
    columns: list[tuple[Ints, Ints, Floats, Floats, Floats, Floats, Ints]] = []
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        at = np.rint(part.at).astype(np.int64)
        offset = np.rint(part.offset).astype(np.int64)
        drift = part.course.drift_at(part.at)
        spread = part.course.spread_of_drift_at(part.at)
        # Offsets and what is between them are rounded to 1 ns.
        minus, plus = offset - part.low + 1, part.high - offset + 1
        columns.append((at, offset, minus, plus, drift, spread, part.state))
        if following is not None:
            columns.append(_broken(at[-1], offset[-1], following.at[0]))
    at, offset, minus, plus, drift, spread, state = map(
        np.concatenate, zip(*columns, strict=True)
    )
    last = np.diff(at, append=at[-1] + 1) > 0
    round_trip = min((float(p.gap.min()) for p in parts if p.gap.size), default=np.inf)
    seen = np.concatenate([part.seen for part in parts])
    leftover = np.concatenate([p.gap - p.gap.min(initial=np.inf) for p in parts])
    return PairClock(
        at_ns=at[last] + start_ns,
        offset_ns=offset[last] + base_ns,
        minus_ns=minus[last],
        plus_ns=plus[last],
        drift_ppb=drift[last] * PPB,
        spread_ppb=spread[last] * PPB,
        state=state[last],
        reasons=_reasons(parts),
        base_round_trip_ns=round_trip,
        seen_ns=np.rint(seen).astype(np.int64) + start_ns,
        leftover_ns=leftover,
    )


def _broken(
    at: np.int64, offset: np.int64, following: float
) -> tuple[Ints, Ints, Floats, Floats, Floats, Floats, Ints]:
    """A knot behind which nothing is known up to the following one."""
    inf, zero = np.full(1, np.inf), np.zeros(1)
    behind = max(int(at), min(int(at) + 1, int(following) - 1))
    place = np.array([behind], np.int64), np.array([offset], np.int64)
    return *place, inf, inf, zero, zero, np.full(1, State.BROKEN, np.int64)


def _reasons(parts: list[_Part]) -> dict[State, str]:
    """Say for people why the clock is in the states that it is in."""
    found: dict[State, str] = {}
    states = np.unique(np.concatenate([part.state for part in parts]))
    two_ways = [part for part in parts if part.gap.size]
    if State.GOOD in states or State.APPROXIMATE in states:
        least = min(float(part.gap.min()) for part in two_ways)
        found[State.GOOD] = f"seen both ways, {duration(least)} there and back at least"
        found[State.APPROXIMATE] = (
            "few packets, or none for a while: the interval grows by "
            f"{max(part.course.spread.max() for part in two_ways) * 1e6:.0f} us/s"
        )
    if State.ONE_DIRECTION in states:
        ways = {
            "a to b" if len(part.stretch.above) else "b to a"
            for part in parts
            if part.gap.size == 0
        }
        found[State.ONE_DIRECTION] = (
            f"packets from {' or '.join(sorted(ways))} only: "
            "one side of the interval has no end"
        )
    if len(parts) > 1:
        changes = [b.offset[0] - a.offset[-1] for a, b in pairwise(parts)]
        found[State.BROKEN] = (
            f"a clock was set, or stamps are false, {counted(len(changes), 'time')}: "
            f"by up to {duration(float(np.max(np.abs(changes))))}"
        )
    return {
        state: text for state, text in found.items() if state in {*states.tolist(), 4}
    }


def _nothing_seen() -> PairClock:
    ints, floats = np.empty(0, np.int64), np.empty(0)
    return PairClock(
        at_ns=ints,
        offset_ns=ints,
        minus_ns=floats,
        plus_ns=floats,
        drift_ppb=floats,
        spread_ppb=floats,
        state=ints,
        reasons={State.UNKNOWN: "no packet was seen at both ends"},
        base_round_trip_ns=np.inf,
        seen_ns=ints,
        leftover_ns=floats,
    )


def _of_no_clock(start_ns: int, base_ns: int, whole: Stretch) -> PairClock:
    """What is left where stamps contradict each other all the time."""
    at = np.rint(whole.times()[[0, -1]]).astype(np.int64)
    middle_ns = (np.median(whole.above.value) - np.median(whole.below.value)) / 2
    return replace(
        _nothing_seen(),
        at_ns=at[:1] + start_ns,
        offset_ns=np.rint([middle_ns]).astype(np.int64) + base_ns,
        minus_ns=np.full(1, np.inf),
        plus_ns=np.full(1, np.inf),
        drift_ppb=np.zeros(1),
        spread_ppb=np.zeros(1),
        state=np.full(1, State.BROKEN, np.int64),
        reasons={
            State.BROKEN: "stamps contradict each other more than "
            f"{_MOST_BREAKS} times: these are of no two clocks"
        },
    )
