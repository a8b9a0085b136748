"""Loss and throughput of two sides against statsmodels and simulation."""

import numpy as np
import pytest
from latprof_analysis.compare import compare_loss, compare_throughput
from latprof_analysis.compare.sides import Trips


def trips(lost=(), sent=None, sizes=1):
    lost = np.asarray(lost, bool)
    sent = np.arange(lost.size) if sent is None else np.asarray(sent, np.int64)
    return Trips(sent, lost, frozenset(range(sizes)))


def bursts(rng, n, share, length):
    """Gilbert's chain: losses in bursts of a mean length."""
    rise, lost, flags = share / (1 - share) / length, False, []
    for u in rng.random(n):
        lost = u < rise if not lost else u >= 1 / length
        flags.append(lost)
    return flags


def test_of_bursts_the_difference_in_loss_is_held_95_times_of_100():
    rng = np.random.default_rng(14)
    held, found = [], []
    for _ in range(250):
        a, b = (trips(bursts(rng, 3000, 0.05, 4)) for _ in range(2))
        change = compare_loss([a], [b])
        held.append(change.difference.low <= 0 <= change.difference.high)
        found.append(change.p_value <= 0.05)
    assert 0.92 <= np.mean(held) <= 0.98
    assert np.mean(found) <= 0.08


def test_independent_losses_are_compared_as_statsmodels_compares_proportions():
    from statsmodels.stats.proportion import confint_proportions_2indep

    rng = np.random.default_rng(15)
    a, b = rng.random(5000) < 0.02, rng.random(4000) < 0.03
    change = compare_loss([trips(a)], [trips(b)])
    low, high = confint_proportions_2indep(
        b.sum(), b.size, a.sum(), a.size, method="newcomb"
    )
    assert change.difference.low == pytest.approx(low, abs=1e-3)
    assert change.difference.high == pytest.approx(high, abs=1e-3)


def test_few_losses_are_bounded_by_how_many_may_come():
    """Garwood's upper limits of a Poisson count: 3.69 of none, 5.57 of one."""
    kept = trips([0] * 2000)
    none = compare_loss([kept], [kept])
    assert (none.p_value, none.difference.value) == (None, 0.0)
    assert none.difference.high == pytest.approx(3.6889 / 2000, rel=1e-4)
    burst = compare_loss([kept], [trips([1] * 3 + [0] * 1997)])
    assert burst.difference.high == pytest.approx(3 * 5.5716 / 2000, rel=1e-4)
    assert burst.difference.low == pytest.approx(-3.6889 / 2000, rel=1e-4)


def test_a_handful_of_losses_is_not_judged():
    change = compare_loss([trips([0] * 500)], [trips([1] + [0] * 499)])
    assert change.reason == "episodes of loss: 1, 10 are needed"


def every(nth, n=2000):
    """Each nth request is lost: episodes enough, and the same count in each run."""
    return trips(np.arange(n) % nth == 0)


def test_runs_that_lose_the_same_count_each_time_do_not_tell_how_runs_differ():
    change = compare_loss([every(100)] * 3, [every(50)] * 3)
    assert change.p_value is None
    assert change.reason.startswith("the runs of each side do not differ at all")
    assert change.difference.value == pytest.approx(0.01)
    # as much on both sides is alike, and one that differs tells how runs do
    assert compare_loss([every(50)] * 3, [every(50)] * 3).reason is None
    told = compare_loss([every(100)] * 3, [every(50), every(48), every(53)])
    assert told.p_value < 0.01


def test_throughput_is_held_whatever_the_sizes_of_a_round():
    rng = np.random.default_rng(16)
    held = []
    for _ in range(200):
        sides = []
        for factor in (1.0, 1.25):
            gaps = np.tile([1e6, 5e6, 9e6], 200) + rng.exponential(1e6, 600)
            sides.append([trips(np.zeros(600), np.cumsum(factor * gaps), sizes=3)])
        ratio = compare_throughput(*sides).ratio
        held.append(ratio.low <= 0.8 <= ratio.high)
    assert 0.92 <= np.mean(held) <= 0.99


def test_throughput_of_other_sizes_is_not_compared():
    a, b = (trips(np.zeros(100), np.arange(100), sizes=n) for n in (1, 2))
    assert compare_throughput([a], [b]).reason == "the sides sent different sizes"
