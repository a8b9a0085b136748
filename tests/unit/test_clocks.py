"""The clock of a pair against clocks that are known, at every time that is asked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.clocks import (
    PairClock,
    Sightings,
    State,
    pair_clock,
    resolution_of,
)
from latprof_analysis.clocks.courses import course_of_one
from latprof_analysis.clocks.envelopes import Bounds, envelope, thinned
from scipy.optimize import linprog
from simulated_clocks import (
    QUEUED,
    S_NS,
    START_NS,
    WANDERING,
    Host,
    Way,
    errors,
    moments,
    pair,
)

MINUTE = 60.0


def assert_holds(clock, made, at, **beside):
    """The interval has the truth in it, each time; give what was off, by time."""
    over = errors(clock, made, at)
    minus, plus = clock.interval_at(made.a.says(at))
    assert (over <= minus).all()
    assert (-over <= plus).all()
    return np.abs(over)


def estimated(made, **said) -> PairClock:
    return pair_clock(*made.sightings(), **said)


@pytest.mark.parametrize("constant_ns", [0, -5 * S_NS, 10**16, 10**17])
@pytest.mark.parametrize("back", [Way(), QUEUED], ids=["one-sided", "both ways"])
def test_offsets_are_known_to_microseconds_where_queues_empty_at_times(
    constant_ns, back
):
    """Bars of the issue: 1 us p50 and 5 us p95, at 1 ms of queueing, 80% busy."""
    host = Host(constant_ns, WANDERING.wander)
    made = pair(host, back=back, span_s=MINUTE)
    clock = estimated(made)
    off = assert_holds(clock, made, moments(MINUTE, beyond_s=0))
    p50, p95 = np.quantile(off, (0.5, 0.95))
    assert p50 <= 1_000
    assert p95 <= 5_000
    # 100 us each way are the round trip, and all that is not known of it.
    assert 200_000 <= clock.base_round_trip_ns <= 201_000
    minus, plus = clock.interval_at(made.a.says(moments(MINUTE, beyond_s=0)))
    assert np.median(minus + plus) <= 205_000
    assert (clock.state == State.GOOD).all()
    assert abs(np.median(clock.drift_ppb) - 30_000) <= 4_500  # of the sine, 4.2 us/s


ONE_PACKET = Way(per_second=0.1)
WAYS = {
    "asymmetric": (Way(least_ns=2e6), Way(least_ns=7e6)),
    "all of it there": (Way(least_ns=1e6), Way(least_ns=0)),
    "deep queues": (Way(service_ns=1e6), Way()),
    "busy both ways": (Way(busy=0.95, service_ns=250_000), QUEUED),
    "few packets": (Way(10, service_ns=200_000), Way(10)),
    "sparse answers": (QUEUED, Way(per_second=0.5)),
    "plain veth": (Way(least_ns=500), Way(least_ns=600)),
    "three packets": (Way(per_second=0.1), Way(per_second=0.1)),
}


@pytest.mark.parametrize("ways", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("skew", [-50e-6, 0.0, 50e-6])
def test_the_interval_holds_the_truth_at_every_time(ways, skew):
    for seed in range(4):
        wander = 15_000 * np.sin(0.3 * seed)
        host = Host(
            S_NS, lambda t, w=wander: skew * t + w * np.sin(2 * np.pi * t / 25e9)
        )
        made = pair(host, *ways, seed=seed)
        assert_holds(estimated(made), made, moments(20))


def test_asymmetric_paths_are_off_by_half_of_it_unless_it_is_said():
    made = pair(there=Way(least_ns=2e6), back=Way(least_ns=7e6))
    at = moments(20, beyond_s=0)
    off = np.median(assert_holds(estimated(made), made, at))
    assert abs(off - 2_500_000) <= 1_000
    clock = estimated(made, asymmetry_ns=-5_000_000)
    assert np.quantile(assert_holds(clock, made, at), 0.95) <= 5_000
    minus, plus = clock.interval_at(made.a.says(at))
    assert np.median(minus + plus) <= 10_000


@pytest.mark.parametrize("seed", range(5))
def test_symmetric_paths_leave_of_the_interval_what_queues_do(seed):
    made = pair(there=QUEUED, back=Way(service_ns=50_000), seed=seed)
    at = moments(20, beyond_s=0)
    clock = estimated(made, symmetric=True)
    assert_holds(clock, made, at)
    minus, plus = clock.interval_at(made.a.says(at))
    assert np.median(minus + plus) <= 10_000


def test_of_few_packets_symmetry_says_nothing_of_the_interval():
    made = pair(there=Way(1, service_ns=1e6), back=Way(1), span_s=4)
    plain, said = estimated(made), estimated(made, symmetric=True)
    np.testing.assert_array_equal(said.low_ns, plain.low_ns)
    np.testing.assert_array_equal(said.high_ns, plain.high_ns)


def test_an_asymmetry_beyond_the_round_trip_is_refused():
    with pytest.raises(ValueError, match="within the least round trip"):
        estimated(pair(), asymmetry_ns=300_000)


@pytest.mark.parametrize("seen", ["there", "back"])
def test_of_one_direction_there_is_one_bound_on_which_the_offset_stands(seen):
    silent = Way(per_second=0)
    made = pair(there=QUEUED if seen == "there" else silent, back=silent)
    if seen == "back":
        made = pair(there=silent, back=QUEUED)
    at = moments(20, beyond_s=0)
    clock = estimated(made)
    off = assert_holds(clock, made, at)
    minus, plus = clock.interval_at(made.a.says(at))
    known, unknown = (plus, minus) if seen == "there" else (minus, plus)
    assert np.isinf(unknown).all()
    assert np.isfinite(known).all()
    # The least delay, 100 us, is not known; what is left is the queue's and drift's.
    assert np.quantile(np.abs(off - 100_000), 0.95) <= 20_000
    assert set(clock.state) == {State.ONE_DIRECTION}
    assert ("a to b" if seen == "there" else "b to a") in clock.reasons[
        State.ONE_DIRECTION
    ]


def test_nothing_seen_is_nothing_known():
    clock = pair_clock(Sightings([], []), Sightings([], []))
    assert clock.state_at([5]) == [State.UNKNOWN]
    assert np.isinf(clock.interval_at([5])).all()
    assert State.UNKNOWN in clock.reasons


@pytest.mark.parametrize("there", [0, 1, 2, 3])
@pytest.mark.parametrize("back", [0, 1, 2])
def test_few_messages_bound_what_they_can(there, back):
    made = pair(span_s=3)
    few = type(made)(made.a, made.b, made.there[:, :there], made.back[:, :back])
    clock = estimated(few)
    assert_holds(clock, made, moments(3))
    states = {State.APPROXIMATE} if there and back else {State.ONE_DIRECTION}
    assert set(clock.state) == (states if there or back else set())


def test_in_an_idle_minute_the_interval_grows_and_says_so():
    made = pair(span_s=80).kept(lambda s: (s < 10) | (s > 70))
    clock = estimated(made)
    assert_holds(clock, made, moments(80))
    at = made.a.says(np.array([5.0, 40.0, 75.0]) * S_NS)
    widths = np.sum(clock.interval_at(at), axis=0)
    assert widths[1] > 2 * max(widths[0], widths[2])
    assert list(clock.state_at(at)) == [
        State.GOOD,
        State.APPROXIMATE,
        State.GOOD,
    ]
    assert clock.at_ns.size < 120


def test_bursts_hold_the_truth_between_them():
    made = pair().kept(lambda s: s % 0.7 < 0.2)
    assert_holds(estimated(made), made, moments(20))


@pytest.mark.parametrize(
    "step_ns", [2e9, -2e9, 1e6, -1e6, 150e3, -150e3, 90e3, -90e3, -3600e9]
)
def test_a_clock_that_was_set_is_broken_there_and_good_on_both_sides(step_ns):
    """Also by less than the round trip of 200 us, which no bound contradicts."""
    set_at = 11.2345 * S_NS
    host = Host(3600 * S_NS, lambda t: WANDERING.wander(t) + step_ns * (t > set_at))
    made = pair(host)
    clock = estimated(made)
    broken = np.flatnonzero(clock.state == State.BROKEN)
    assert broken.size == 1
    begin, end = clock.at_ns[broken[0]], clock.at_ns[broken[0] + 1]
    assert begin <= START_NS + set_at <= end
    assert end - begin < 0.1 * S_NS
    assert "was set" in clock.reasons[State.BROKEN]
    off = assert_holds(clock, made, moments(20))
    assert np.quantile(off, 0.9) <= 5_000
    assert np.isinf(clock.interval_at([(begin + end) // 2])).all()
    assert clock.state_at([(begin + end) // 2]) == [State.BROKEN]


def test_a_path_that_becomes_longer_is_no_clock_that_was_set():
    made = pair(span_s=20)
    there = made.there.copy()
    there[1, there[0] > 10 * S_NS] += 3e6
    longer = type(made)(made.a, made.b, there, made.back)
    clock = estimated(longer)
    assert State.BROKEN not in clock.state
    assert_holds(clock, longer, moments(20))


@pytest.mark.parametrize("seed", range(10))
def test_lucky_packets_where_all_queue_are_no_clock_that_was_set(seed):
    """Two per thousand find a busy host idle; the clocks are one and the same."""
    rng = np.random.default_rng(seed)
    n, us = 420, 1000
    gaps_us = rng.exponential(2000, n) + rng.exponential(50_000, n) * (
        rng.random(n) < 0.01
    )
    delays_us = 1.5 + 0.5 * rng.gamma(200, size=(2, n)) * (rng.random((2, n)) > 0.002)
    sent = START_NS + (np.cumsum(gaps_us + delays_us.sum(0)) * us).astype("i8")
    arrived, back = sent + (delays_us[0] * us).astype("i8"), sent + 200_000
    clock = pair_clock(
        Sightings(sent, arrived),
        Sightings(back, back + (delays_us[1] * us).astype("i8")),
    )
    assert State.BROKEN not in clock.state
    assert (clock.offset_ns - clock.minus_ns <= 0).all()
    assert (clock.offset_ns + clock.plus_ns >= 0).all()


def test_a_false_stamp_breaks_the_clock_around_it_only():
    made = pair()
    there = made.there.copy()
    there[1, 9000] -= 5e6
    false = type(made)(made.a, made.b, there, made.back)
    clock = estimated(false)
    at = moments(20)
    away = np.abs(at - there[0, 9000]) > 0.1 * S_NS
    assert_holds(clock, false, at[away])
    assert 1 <= (clock.state == State.BROKEN).sum() <= 2


def test_stamps_of_no_two_clocks_are_broken():
    rng = np.random.default_rng(3)
    made = [rng.integers(0, 10 * S_NS, 5000) for _ in range(4)]
    clock = pair_clock(Sightings(*made[:2]), Sightings(*made[2:]))
    assert set(clock.state) == {State.BROKEN}
    assert np.isinf(clock.interval_at([5 * S_NS])).all()


@pytest.mark.parametrize("ticks", [(10_000, 10_000), (1, 10_000), (10_000, 1)])
def test_coarse_clocks_widen_the_interval_by_their_ticks(ticks):
    made = pair()
    there, back = made.sightings()
    a, b = ticks
    there = Sightings(there.sent_ns // a * a, there.arrived_ns // b * b)
    back = Sightings(back.sent_ns // b * b, back.arrived_ns // a * a)
    assert resolution_of(np.r_[there.sent_ns, back.arrived_ns]) == a
    clock = pair_clock(there, back, resolution_ns=ticks)
    at = moments(20, beyond_s=0)
    assert np.quantile(assert_holds(clock, made, at), 0.95) <= 5_000


def test_lost_packets_change_nothing_but_how_often_it_is_seen():
    made = pair()
    rng = np.random.default_rng(4)
    there = made.there[:, rng.random(made.there.shape[1]) > 0.3]
    lossy = type(made)(made.a, made.b, there, made.back)
    off = assert_holds(estimated(lossy), lossy, moments(20))
    assert np.quantile(off, 0.95) <= 5_000


def test_the_order_of_sightings_does_not_matter():
    made = pair(span_s=5)
    there, back = made.sightings()
    rng = np.random.default_rng(5)
    mixed = []
    for each in (there, back):
        order = rng.permutation(len(each))
        mixed.append(Sightings(each.sent_ns[order], each.arrived_ns[order]))
    one, other = pair_clock(there, back), pair_clock(*mixed)
    for name in ("at_ns", "offset_ns", "minus_ns", "plus_ns", "state"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_the_other_way_round_the_offset_is_negated():
    made = pair()
    there, back = made.sightings()
    one, other = pair_clock(there, back), pair_clock(back, there)
    at = made.a.says(moments(20, beyond_s=0))
    by_b = one.by_b(at)
    # Windows are of the other clock, so that they have other packets.
    assert np.abs(one.offset_at(at) + other.offset_at(by_b)).max() <= 3_000
    (minus, plus), (over, under) = one.interval_at(at), other.interval_at(by_b)
    width = minus + plus
    assert np.abs(width - over - under).max() <= 5_000
    np.testing.assert_allclose(one.by_a(by_b), at, atol=1)


@st.composite
def wandering(draw):
    """A clock whose rate is anywhere within 5 us/s of a constant one."""
    skew = draw(st.floats(-50e-6, 50e-6))
    rates = draw(st.lists(st.floats(-5e-6, 5e-6), min_size=1, max_size=20))
    knots = np.arange(len(rates) + 1) * 1e9
    values = np.concatenate([[0.0], np.cumsum(rates) * 1e9])
    last = rates[-1]
    return Host(
        draw(st.integers(-(10**11), 10**16)),
        lambda t: (
            skew * t
            + np.interp(t, knots, values)
            + last * np.maximum(0, t - knots[-1])
            + rates[0] * np.minimum(0, t)
        ),
    )


def some_way():
    return st.builds(
        Way,
        per_second=st.sampled_from([0.3, 3, 30, 300]),
        least_ns=st.sampled_from([0, 500, 100_000, 7e6]),
        service_ns=st.sampled_from([0, 20_000, 1_000_000]),
    )


@given(wandering(), some_way(), some_way(), st.integers(0, 1000))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_whatever_a_clock_does_within_its_bounds_the_interval_holds(
    host, there, back, seed
):
    made = pair(host, there, back, span_s=12, seed=seed)
    clock = estimated(made)
    assert_holds(clock, made, moments(12, 500))
    assert (np.diff(clock.at_ns) > 0).all()
    assert (clock.minus_ns >= 0).all()
    assert (clock.plus_ns >= 0).all()


def test_an_envelope_is_the_least_of_all_cones():
    rng = np.random.default_rng(6)
    reach = np.sort(rng.uniform(0, 100, 60))
    value = rng.uniform(0, 50, 60)
    asked = np.r_[rng.uniform(-20, 120, 200), reach]
    slow = (value[:, None] + np.abs(reach[:, None] - asked)).min(axis=0)
    np.testing.assert_allclose(envelope(value, reach, asked), slow)


def test_thinning_takes_no_bound_lower_and_none_much_higher():
    rng = np.random.default_rng(7)
    at, value = rng.integers(0, 10**9, 20_000), rng.integers(0, 10**6, 20_000)
    few = thinned(at, value, 10**9)
    assert len(few) <= 1001
    asked = np.linspace(0, 1e9, 500)
    rate = 1e-4
    order = np.argsort(at)
    whole = envelope(value[order].astype(float), rate * at[order], rate * asked)
    thin = envelope(few.value, rate * few.at, rate * asked)
    assert (thin >= whole).all()
    assert (thin <= whole + rate * 1e6).all()


def test_the_course_of_one_direction_is_the_best_line_below_all():
    """Against a linear programme: the line below all points, highest in the middle."""
    rng = np.random.default_rng(8)
    at = np.sort(rng.uniform(0, 1e10, 300))
    value = 20e-6 * at + rng.exponential(50_000, 300)
    from_middle = at - (at[0] + at[-1]) / 2
    best = linprog(
        [-1, 0],
        A_ub=np.column_stack([np.ones(300), from_middle / 1e9]),
        b_ub=value,
        bounds=[(None, None), (None, None)],
    )
    course = course_of_one(Bounds(at, value), 1.0)
    assert course.drift == pytest.approx(best.x[1] / 1e9, abs=1e-7)


@pytest.mark.parametrize(
    ("sent", "arrived", "why"),
    [
        ([1, 2], [3], "of one length"),
        ([1.5], [3], "integers"),
        ([-1], [3], "0 to 2"),
        ([2**62], [3], "0 to 2"),
        ([[1]], [[3]], "one dimension"),
        (np.array([2**63 + 5], np.uint64), [3], "0 to 2"),
    ],
)
def test_what_are_no_stamps_is_refused(sent, arrived, why):
    with pytest.raises(ValueError, match=why):
        Sightings(sent, arrived)


def test_a_tick_of_less_than_a_nanosecond_is_refused():
    nothing = Sightings([], [])
    with pytest.raises(ValueError, match="at least 1"):
        pair_clock(nothing, nothing, resolution_ns=(0, 1))


@pytest.mark.parametrize(
    ("stamps", "tick"), [([], 1), ([7], 1), ([5, 5], 1), ([0, 30, 45], 15)]
)
def test_the_tick_is_what_divides_all_differences(stamps, tick):
    assert resolution_of(stamps) == tick
