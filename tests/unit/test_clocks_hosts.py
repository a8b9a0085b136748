"""Clocks of several hosts, related to one of them, against clocks that are known."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from latprof_analysis.clocks import State, pair_clock, relate_hosts
from latprof_analysis.clocks.line_maps import backward, onward
from latprof_analysis.clocks.shortest_paths import closed, within
from scipy.sparse.csgraph import floyd_warshall
from simulated_clocks import S_NS, START_NS, Host, Way, moments, pair

SPAN_S = 12.0
HOSTS = (
    Host(),
    Host(3 * S_NS, lambda t: 30e-6 * t + 20_000 * np.sin(2 * np.pi * t / 30e9)),
    Host(10**16, lambda t: -50e-6 * t),
    Host(-(10**11), lambda t: 10e-6 * t + 4_000 * np.sin(2 * np.pi * t / 20e9)),
)
RING = [(0, 1), (1, 2), (2, 0)]
ALL = list(combinations(range(4), 2))
PATH = Way(300, service_ns=100_000)


def measured(edges, hosts=HOSTS, there=PATH, back=PATH, seed=1):
    """The clock of each pair, and the packets that it is from."""
    made = {
        (a, b): pair(hosts[b], there, back, SPAN_S, seed + 17 * n, a=hosts[a])
        for n, (a, b) in enumerate(edges)
    }
    return {key: pair_clock(*each.sightings()) for key, each in made.items()}


def assert_holds(clocks, hosts=HOSTS, at=None, count=None):
    """All differences of stamps of one moment are within their bounds.

    Gives how far they are from none.
    """
    at = moments(SPAN_S, 800) if at is None else at
    count = count or len(hosts)
    common = [clocks.to_reference(host, hosts[host].says(at)) for host in range(count)]
    off = {}
    for a, b in permutations(range(count), 2):
        difference = (common[b] - common[a]).astype(float)
        minus, plus = clocks.bounds(a, b, common[a])
        assert (difference - minus <= 0).all()
        assert (difference + plus >= 0).all()
        off[a, b] = np.abs(difference)
    return off


@pytest.mark.parametrize("reference", [0, 1, 2])
@pytest.mark.parametrize("edges", [RING[:2], RING], ids=["chain", "ring"])
def test_hosts_are_related_also_those_that_never_talked(edges, reference):
    clocks = relate_hosts(3, measured(edges, HOSTS[:3]), reference)
    off = assert_holds(clocks, HOSTS[:3])
    for each in off.values():
        assert np.quantile(each, 0.95) <= 10_000
    at = clocks.to_reference(0, HOSTS[0].says(moments(SPAN_S, beyond_s=0)))
    assert set(clocks.state(0, 2, at)) == {State.GOOD}
    # 100 us each way, once or by two pairs.
    half = np.median(np.sum(clocks.bounds(0, 2, at), axis=0)) / 2
    pairs = 2 if edges == RING[:2] else 1
    assert pairs * 100_000 <= half <= pairs * 103_000


def test_the_reference_keeps_its_stamps():
    clocks = relate_hosts(4, measured(ALL), reference=2)
    at = HOSTS[2].says(moments(SPAN_S))
    np.testing.assert_array_equal(clocks.to_reference(2, at), at)
    np.testing.assert_array_equal(clocks.from_reference(2, at), at)
    assert (clocks.hosts[2].offset_ns == 0).all()


def test_stamps_keep_their_order_and_come_back():
    clocks = relate_hosts(4, measured(ALL))
    for host in range(4):
        stamps = HOSTS[host].says(moments(SPAN_S))
        common = clocks.to_reference(host, stamps)
        assert (np.diff(common) >= 0).all()
        assert np.abs(clocks.from_reference(host, common) - stamps).max() <= 1


def test_another_reference_gives_the_same_differences():
    pairs = measured(ALL)
    one, other = (relate_hosts(4, pairs, reference) for reference in (0, 3))
    at = moments(SPAN_S, beyond_s=0)
    differences = [
        clocks.to_reference(1, HOSTS[1].says(at))
        - clocks.to_reference(2, HOSTS[2].says(at))
        for clocks in (one, other)
    ]
    # Knots are at other times.
    assert np.abs(differences[0] - differences[1]).max() <= 1_500


def test_a_pair_given_the_other_way_round_says_the_same():
    made = pair(HOSTS[1], PATH, PATH, SPAN_S)
    there, back = made.sightings()
    one = relate_hosts(2, {(0, 1): pair_clock(there, back)})
    other = relate_hosts(2, {(1, 0): pair_clock(back, there)})
    at = HOSTS[1].says(moments(SPAN_S, beyond_s=0))
    apart = np.abs(one.to_reference(1, at) - other.to_reference(1, at))
    assert apart.max() <= 3_000
    for clocks in (one, other):
        assert_holds(clocks, HOSTS[:2])


def test_a_short_way_round_bounds_a_long_pair():
    """Of 2 and 7 ms between two hosts, a third that is near to both leaves little."""
    pairs = measured(RING[:2], HOSTS[:3])
    long = pair(HOSTS[0], Way(least_ns=2e6), Way(least_ns=7e6), SPAN_S, 3, a=HOSTS[2])
    pairs[2, 0] = pair_clock(*long.sightings())
    clocks = relate_hosts(3, pairs)
    off = assert_holds(clocks, HOSTS[:3])
    assert np.median(off[2, 0]) <= 10_000
    (loop,) = clocks.loops
    assert loop.hosts == (0, 1, 2)
    assert not loop.contradicts
    # What the paths make of it: half of 5 ms.
    assert abs(loop.rms_ns - 2_500_000) <= 10_000
    assert abs(loop.max_ns - 2_500_000) <= 20_000


def test_loops_of_symmetric_paths_add_up():
    clocks = relate_hosts(4, measured(ALL))
    assert len(clocks.loops) == 4
    for loop in clocks.loops:
        assert loop.rms_ns <= 5_000
        assert not loop.contradicts


def test_a_pair_that_contradicts_all_others_is_broken_and_left_out():
    pairs = measured(ALL)
    false = Host(HOSTS[1].constant_ns + 5_000_000, HOSTS[1].wander)
    pairs[0, 1] = measured([(0, 1)], (HOSTS[0], false))[0, 1]
    clocks = relate_hosts(4, pairs)
    for each in assert_holds(clocks).values():
        assert np.quantile(each, 0.95) <= 10_000
    wrong = {loop.hosts for loop in clocks.loops if loop.contradicts}
    assert wrong == {(0, 1, 2), (0, 1, 3)}


def test_where_nobody_can_say_which_pair_is_false_all_are_broken():
    pairs = measured(RING, HOSTS[:3])
    false = Host(HOSTS[1].constant_ns + 5_000_000, HOSTS[1].wander)
    pairs[0, 1] = measured([(0, 1)], (HOSTS[0], false))[0, 1]
    clocks = relate_hosts(3, pairs)
    (loop,) = clocks.loops
    assert loop.contradicts
    at = HOSTS[0].says(moments(SPAN_S, beyond_s=0))
    for a, b in combinations(range(3), 2):
        assert set(clocks.state(a, b, at)) == {State.BROKEN}
        assert np.isinf(clocks.bounds(a, b, at)).all()


@pytest.mark.parametrize("step_ns", [2e9, -2e9, 150e3])
def test_a_host_whose_clock_is_set_is_broken_there_and_the_others_are_not(step_ns):
    set_at = 6.1234 * S_NS
    reset = Host(
        HOSTS[1].constant_ns,
        lambda t: HOSTS[1].wander(t) + step_ns * (t > set_at),
    )
    hosts = (HOSTS[0], reset, HOSTS[2])
    # As b: knots of a pair stand in the order of a's clock.
    clocks = relate_hosts(3, measured([(0, 1), (2, 1), (0, 2)], hosts))
    at = moments(SPAN_S, 800)
    # A clock that was set back said each of these times twice.
    twice = (step_ns < 0) & (np.abs(at - set_at) <= abs(step_ns) + 0.1 * S_NS)
    off = assert_holds(clocks, hosts, at[~twice])
    assert np.quantile(off[0, 1], 0.9) <= 10_000
    there = HOSTS[0].says(np.array([set_at]))
    assert clocks.state(0, 1, there) == [State.BROKEN]
    assert clocks.state(0, 2, there) == [State.GOOD]
    assert np.isinf(clocks.bounds(0, 1, there)).all()


def test_one_direction_goes_through_as_far_as_it_bounds():
    pairs = measured([(0, 1)], HOSTS)
    pairs |= measured([(1, 2)], HOSTS, back=Way(0))
    clocks = relate_hosts(3, pairs)
    assert_holds(clocks, HOSTS[:3])
    at = HOSTS[0].says(moments(SPAN_S, beyond_s=0))
    assert set(clocks.state(0, 2, at)) == {State.ONE_DIRECTION}
    minus, plus = clocks.bounds(0, 2, at)
    # An upper bound of the offset is one of how early b's stamp may be.
    assert np.isfinite(minus).all() != np.isfinite(plus).all()
    assert set(clocks.state(0, 1, at)) == {State.GOOD}


def test_both_directions_by_different_ways_bound_both_sides():
    pairs = measured([(0, 1)], HOSTS, back=Way(0))
    pairs |= measured([(1, 2)], HOSTS)
    pairs |= measured([(2, 0)], HOSTS, back=Way(0))
    clocks = relate_hosts(3, pairs)
    assert_holds(clocks, HOSTS[:3])
    at = HOSTS[0].says(moments(SPAN_S, beyond_s=0))
    assert set(clocks.state(0, 1, at)) == {State.APPROXIMATE}
    assert np.isfinite(clocks.bounds(0, 1, at)).all()


def test_a_host_that_nobody_saw_is_unknown():
    clocks = relate_hosts(4, measured(RING[:1]) | measured([(2, 3)]))
    at = HOSTS[2].says(moments(SPAN_S))
    np.testing.assert_array_equal(clocks.to_reference(2, at), at)
    assert set(clocks.state(0, 2, at)) == {State.UNKNOWN}
    assert np.isinf(clocks.bounds(0, 2, at)).all()
    assert_holds(clocks, count=2)


def test_without_any_pair_nothing_is_known():
    clocks = relate_hosts(2, {})
    assert clocks.to_reference(1, [7]) == [7]
    assert clocks.state(0, 1, [7]) == [State.UNKNOWN]
    assert np.isinf(clocks.bounds(0, 1, [7])).all()
    assert clocks.bounds(1, 1, [7]) == ([0.0], [0.0])


def test_one_packet_each_way_relates_hosts():
    made = pair(HOSTS[1], Way(1), Way(1), 3, seed=3)
    few = type(made)(made.a, made.b, made.there[:, :1], made.back[:, :1])
    clocks = relate_hosts(2, {(0, 1): pair_clock(*few.sightings())})
    assert_holds(clocks, HOSTS[:2])


def test_stamps_far_apart_have_wider_bounds():
    clocks = relate_hosts(2, measured([(0, 1)]))
    at = [START_NS + 5 * S_NS]
    near, far = (clocks.bounds(0, 1, at, apart) for apart in (0, S_NS))
    for one, other in zip(near, far, strict=True):
        assert other - one == pytest.approx(clocks.between[0, 1].growth_ppb)


def test_the_table_of_a_host_holds_its_true_offset():
    clocks = relate_hosts(4, measured(ALL))
    table = clocks.hosts[3]
    after = (table.at_ns - START_NS).astype(float)
    true = HOSTS[3].says(after) - table.at_ns
    assert (table.low_ns <= true).all()
    assert (true <= table.high_ns).all()
    assert np.median(np.abs(table.drift_ppb - 10_000)) <= 2_000
    assert set(table.state) == {State.GOOD}


@given(
    st.lists(st.sampled_from(ALL), min_size=1, max_size=6, unique=True),
    st.integers(0, 3),
    st.integers(0, 100),
    st.sampled_from([Way(3), Way(50, 7e6, 1e6), Way(200, 500), Way(0)]),
)
@settings(max_examples=25, deadline=None, derandomize=True)
def test_whichever_pairs_talk_all_bounds_hold(edges, reference, seed, way):
    pairs = measured(edges, there=way, seed=seed)
    near = {reference}
    for _ in HOSTS:
        near |= {host for edge in edges if near & set(edge) for host in edge}
    at = moments(SPAN_S, 200)
    asked = list(permutations(near, 2))
    for wanted in (None, asked):
        clocks = relate_hosts(4, pairs, reference, wanted)
        for a, b in asked:
            one = clocks.to_reference(a, HOSTS[a].says(at))
            difference = clocks.to_reference(b, HOSTS[b].says(at)) - one
            minus, plus = clocks.bounds(a, b, one)
            assert (difference <= minus).all()
            assert (-difference <= plus).all()


def test_pairs_that_were_asked_for_are_bounded_as_others_are():
    """By the pair, by a short way round, and over two others in a row."""
    edges = [(0, 1), (1, 2), (2, 3)]
    pairs = measured(edges) | measured([(0, 2)], there=Way(300, 7e6))
    one_way = measured([(0, 3)], there=Way(0))
    asked = [(0, 1), (0, 2), (0, 3)]
    at = HOSTS[0].says(moments(SPAN_S, beyond_s=0))
    for each in (pairs, pairs | one_way):
        all_of, some = (relate_hosts(4, each, 0, of) for of in (None, asked))
        for host in (1, 2, 3):
            widths = [np.sum(c.bounds(0, host, at), axis=0) for c in (all_of, some)]
            np.testing.assert_allclose(widths[1], widths[0], rtol=0.02)
            assert (all_of.state(0, host, at) == some.state(0, host, at)).all()
    assert some.state(1, 3, at[:1]) == [State.UNKNOWN]  # nobody asked
    assert np.isinf(some.bounds(1, 3, at)).all()


@pytest.mark.parametrize(
    ("edges", "reference", "why"),
    [
        ([(0, 1)], 2, "reference must be"),
        ([(0, 2)], 0, "two hosts of 0 to 1"),
        ([(1, 1)], 0, "two hosts"),
        ([(0, 1), (1, 0)], 0, "there once"),
    ],
)
def test_hosts_that_there_are_not_are_refused(edges, reference, why):
    clock = measured([(0, 1)])[0, 1]
    with pytest.raises(ValueError, match=why):
        relate_hosts(2, dict.fromkeys(edges, clock), reference)


def test_bounds_that_follow_are_shortest_paths():
    rng = np.random.default_rng(1)
    most = rng.uniform(0, 10, (5, 5, 7))
    most[rng.random(most.shape) < 0.4] = np.inf
    found = closed(most)
    for k in range(7):
        graph = np.where(np.isinf(most[..., k]), 0, most[..., k])
        np.fill_diagonal(graph, 0)
        np.testing.assert_allclose(found[..., k], floyd_warshall(graph))


def test_values_are_moved_into_their_bounds_and_no_farther():
    rng = np.random.default_rng(2)
    true, wanted = rng.uniform(0, 10, (2, 4, 50))
    most = true[None] - true[:, None] + rng.uniform(0, 3, (4, 4, 50))
    most[rng.random(most.shape) < 0.3] = np.inf
    links = list(permutations(range(4), 2))
    of_links = np.array([most[link] for link in links])
    moved = within(wanted, links, of_links)
    assert (moved[None] - moved[:, None] <= most + 1e-3).all()
    inside = ((wanted[None] - wanted[:, None]) <= most).all(axis=(0, 1))
    np.testing.assert_array_equal(moved[:, inside], wanted[:, inside])
    np.testing.assert_array_equal(within(true, links, of_links), true)


@given(
    st.lists(
        st.tuples(st.integers(1, 10**12), st.floats(-1e-3, 1e-3)),
        min_size=1,
        max_size=20,
    ),
    st.integers(0, 10**17),
    st.integers(-(10**17), 10**17),
)
@settings(max_examples=100, deadline=None, derandomize=True)
def test_maps_of_clocks_are_undone_to_the_nanosecond(steps, start, ahead):
    lengths = np.array([length for length, _ in steps])
    rates = np.array([rate for _, rate in steps])
    at = start + np.cumsum(lengths)
    offset = ahead + np.rint(np.cumsum(lengths * rates)).astype(np.int64)
    outer = np.array([5e-5, -5e-5])
    t = np.r_[at, at + 1, at[0] - 10**9, at[-1] + 10**9, (at[0] + at[-1]) // 2]
    again = backward(at, offset, outer, onward(at, offset, outer, t))
    assert np.abs(again - t).max() <= 1
