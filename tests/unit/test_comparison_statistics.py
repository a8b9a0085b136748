"""Effects, intervals and tests against scipy, statsmodels, a bootstrap, simulation."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latency_series import pareto_quantile, pareto_series
from latprof_analysis.compare import adjusted, compare_quantile, compare_ranks, effects
from latprof_analysis.compare.effects import (
    Effect,
    critical,
    independent_count,
    spread,
    spread_of_runs,
)
from latprof_analysis.compare.judgement import ALPHA, verdict
from scipy import stats

probabilities = st.lists(st.floats(0, 1), min_size=1, max_size=40)
samples = st.lists(st.integers(0, 30).map(float), min_size=3, max_size=60)


def simulated(rng, n, correlation, p, ratio=1.0):
    a, b = (pareto_series(rng, n, correlation) for _ in range(2))
    return compare_quantile([a], [ratio * b], p)


def is_claimed(change):
    word = verdict(change, change.p_value, 0.0)
    return word in ("slower", "faster")


@given(probabilities)
def test_benjamini_and_hochbergs_correction_is_that_of_scipy(p):
    assert adjusted(p) == pytest.approx(stats.false_discovery_control(p))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("mine", "theirs"), [("benjamini-hochberg", "fdr_bh"), ("holm", "holm")]
)
def test_corrections_are_those_of_statsmodels(mine, theirs):
    from statsmodels.stats.multitest import multipletests

    rng = np.random.default_rng(0)
    for n in range(1, 60):
        p = rng.random(n).round(2) ** 2  # some of them equal
        assert adjusted(p, mine) == pytest.approx(multipletests(p, method=theirs)[1])


def independent_ranks(a, b):
    """Compare values as if each told as much as an independent one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(effects, "_worth", lambda n, *_: n)
        patch.setattr(effects, "FEWEST_INDEPENDENT", 2)
        found = compare_ranks([np.array(a, float)], [np.array(b, float)])
    return found.larger.value, found.p_value


@given(samples, samples)
def test_of_independent_values_the_rank_test_is_brunner_and_munzels(a, b):
    larger, p = independent_ranks(a, b)
    pairs = np.sign(np.subtract.outer(np.array(b), np.array(a)))
    assert larger == pytest.approx((1 + pairs.mean()) / 2)
    separated = max(a) < min(b) or max(b) < min(a)
    if not separated and np.ptp(a + b):
        theirs = stats.brunnermunzel(np.array(a), np.array(b)).pvalue
        # of few values no order is rarer than all of one side being larger
        rarest = 2 / math.comb(len(a) + len(b), len(a))
        assert p == pytest.approx(max(theirs, rarest), abs=1e-9)


def test_the_rank_test_gives_what_r_prints():
    # brunner.munzel.test(Y, N) of R's package lawstat, the pain scores of its manual:
    # "p-value = 0.005786 ... P(X<Y)+.5*P(X=Y) 0.788961"
    y = np.array([1, 2, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 1, 1], float)
    n = np.array([3, 3, 4, 3, 1, 2, 3, 1, 1, 5, 4], float)
    larger, p = independent_ranks(y, n)
    assert (round(larger, 6), round(p, 6)) == (0.788961, 0.005786)


@given(samples, samples)
def test_the_rank_effect_is_mann_and_whitneys_u_over_all_pairs(a, b):
    effect = compare_ranks([np.array(a)], [np.array(b)])
    u = stats.mannwhitneyu(b, a).statistic
    assert effect.larger.value == pytest.approx(u / (len(a) * len(b)))
    assert effect.cliffs_delta.value == pytest.approx(2 * effect.larger.value - 1)


def test_the_spread_is_that_of_welchs_t_test():
    rng = np.random.default_rng(1)
    a, b = rng.normal(0, 1, 7), rng.normal(1, 3, 4)
    theirs = stats.ttest_ind(b, a, equal_var=False)
    mine = spread_of_runs(a, b)
    assert mine.freedom == pytest.approx(theirs.df)
    assert mine.p_value(b.mean() - a.mean()) == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval(0.95)
    assert critical(mine.freedom) * mine.error == pytest.approx(
        (interval.high - interval.low) / 2
    )
    assert spread((1.0, 0.0), (5, 5)).freedom == pytest.approx(4)


def test_the_share_test_of_independent_values_is_moods_median_test():
    rng = np.random.default_rng(2)
    a, b = rng.exponential(1, 4000), rng.exponential(1.05, 4000)
    _, p, _, _ = stats.median_test(a, b, correction=False)
    assert compare_quantile([a], [b], 0.5).p_value == pytest.approx(p, rel=0.2)


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
@pytest.mark.parametrize(("p", "n"), [(0.5, 1000), (0.9, 1500), (0.99, 10_000)])
def test_95_of_100_intervals_hold_the_true_ratio_and_difference(correlation, p, n):
    rng = np.random.default_rng(3)
    ratios, differences = [], []
    true = 0.2 * pareto_quantile(p)
    for _ in range(400 if n < 5000 else 150):
        change = simulated(rng, n, correlation, p, ratio=1.2)
        if change.p_value is None:
            continue
        low, high = change.ratio.low, change.ratio.high
        ratios.append(low <= 1.2 <= high)
        differences.append(change.difference.low <= true <= change.difference.high)
    # of 400 runs a nominal 95% scatters by 1.1 points, of 150 by 1.8
    slack = 2 * math.sqrt(0.95 * 0.05 / len(ratios))
    assert 0.94 - slack <= np.mean(ratios) <= 0.97 + slack
    assert 0.94 - slack <= np.mean(differences) <= 0.97 + slack


def blocks(rng, x, length):
    """A moving-block bootstrap sample."""
    starts = rng.integers(0, x.size - length + 1, -(-x.size // length))
    return x[(starts[:, np.newaxis] + np.arange(length)).ravel()[: x.size]]


@pytest.mark.parametrize("p", [0.5, 0.9])
def test_intervals_are_as_wide_as_a_moving_block_bootstraps(p):
    rng = np.random.default_rng(4)
    widths = []
    for _ in range(12):
        a, b = (pareto_series(rng, 3000, 0.8) for _ in range(2))
        mine = compare_quantile([a], [b], p).ratio
        drawn = [
            np.quantile(blocks(rng, b, 60), p) / np.quantile(blocks(rng, a, 60), p)
            for _ in range(300)
        ]
        low, high = np.quantile(drawn, [0.025, 0.975])
        widths.append((mine.high - mine.low) / (high - low))
    assert 0.85 <= np.median(widths) <= 1.2


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(("p", "n"), [(0.5, 85), (0.5, 1000), (0.9, 1000)])
def test_of_100_comparisons_without_a_change_at_most_6_claim_one(correlation, p, n):
    rng = np.random.default_rng(5)
    claims = [is_claimed(simulated(rng, n, correlation, p)) for _ in range(400)]
    assert np.mean(claims) <= 0.06


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_rank_effects_hold_one_half_95_times_of_100_where_nothing_changed(correlation):
    rng = np.random.default_rng(6)
    held, found = [], []
    for _ in range(400):
        a, b = (pareto_series(rng, 1000, correlation) for _ in range(2))
        effect = compare_ranks([a], [b])
        if effect.p_value is None:
            continue
        held.append(effect.larger.low <= 0.5 <= effect.larger.high)
        found.append(effect.p_value <= 0.05)
    assert len(held) > 350
    assert 0.93 <= np.mean(held) <= 0.985
    assert np.mean(found) <= 0.06


def test_a_test_that_takes_neighbours_for_independent_claims_one_time_of_three():
    # why all this: scipy's own test on the same series
    rng = np.random.default_rng(7)
    pairs = [[pareto_series(rng, 1000, 0.8) for _ in range(2)] for _ in range(200)]
    wrong = [stats.mannwhitneyu(a, b).pvalue <= 0.05 for a, b in pairs]
    assert np.mean(wrong) > 0.3


def test_a_shift_of_a_tenth_is_found_19_times_of_20():
    rng = np.random.default_rng(8)
    found = [is_claimed(simulated(rng, 2000, 0.5, 0.5, ratio=1.1)) for _ in range(100)]
    assert np.mean(found) >= 0.95


def runs(rng, count, ratio=1.0):
    """Runs whose level differs by 3% of its own."""
    levels = ratio * np.exp(0.03 * rng.normal(size=count))
    return [level * pareto_series(rng, 300, 0.5) for level in levels]


@pytest.mark.parametrize(("k_a", "k_b"), [(3, 3), (5, 2), (6, 1), (1, 4)])
def test_with_several_runs_the_interval_holds_what_differs_between_them(k_a, k_b):
    rng = np.random.default_rng(9)
    held = []
    for _ in range(300):
        change = compare_quantile(runs(rng, k_a), runs(rng, k_b, 1.1), 0.5)
        held.append(change.ratio.low <= 1.1 <= change.ratio.high)
    assert 0.92 <= np.mean(held) <= 0.98


def test_single_runs_claim_what_is_only_the_difference_between_runs():
    # what the warning of one run on each side is about
    rng = np.random.default_rng(10)
    claims, repeated = [], []
    for _ in range(150):
        long = [
            level * pareto_series(rng, 5000, 0.3)
            for level in np.exp(0.1 * rng.normal(size=6))
        ]
        claims.append(is_claimed(compare_quantile(long[:1], long[1:2], 0.5)))
        repeated.append(is_claimed(compare_quantile(long[:3], long[3:], 0.5)))
    assert np.mean(claims) > 0.5
    assert np.mean(repeated) <= 0.08  # 5%, and 2 standard errors of 150


def test_of_families_without_any_change_at_most_6_of_100_claim_one():
    rng = np.random.default_rng(11)
    wrong = {"holm": 0, "benjamini-hochberg": 0}
    for _ in range(100):
        changes = [simulated(rng, 200, 0.4, 0.5) for _ in range(20)]
        for correction in wrong:
            told = [c.p_value for c in changes if c.p_value is not None]
            corrected = adjusted(told, correction)
            wrong[correction] += bool((corrected <= ALPHA).any())
    assert max(wrong.values()) <= 6


def test_too_few_or_too_alike_values_are_not_judged_and_say_so():
    rng = np.random.default_rng(12)
    few = compare_quantile([rng.random(4)], [rng.random(100)], 0.5)
    assert (few.p_value, few.reason) == (None, "4 values, 5 are needed")
    alike = compare_quantile(*([np.repeat(rng.random(6), 50)] for _ in range(2)), 0.5)
    assert alike.p_value is None
    assert "alike: worth" in alike.reason
    tail = compare_quantile([rng.random(900)], [rng.random(5000)], 0.99)
    assert tail.reason == "900 values, 1000 are needed"


def test_equal_values_are_the_same_and_constants_apart_are_not():
    same = compare_quantile([np.full(100, 7.0)], [np.full(200, 7.0)], 0.5)
    assert (same.ratio, same.p_value) == (Effect(1.0, 1.0, 1.0), 1.0)
    apart = compare_quantile([np.full(100, 7.0)], [np.full(200, 8.0)], 0.5)
    assert apart.ratio.value == pytest.approx(8 / 7)
    assert apart.p_value < 1e-6
    ranks = compare_ranks([np.full(100, 7.0)], [np.full(200, 8.0)])
    assert ranks.larger.value == 1.0
    assert 0.9 < ranks.larger.low < 1.0
    assert ranks.p_value < 1e-6


def test_against_zero_there_is_a_difference_but_no_ratio():
    zeros, ones = np.zeros(100), np.ones(100)
    change = compare_quantile([zeros], [ones], 0.5)
    assert change.ratio is None
    assert change.difference == Effect(1.0, 1.0, 1.0)
    repeated = compare_quantile([zeros] * 3, [ones, 2 * ones, 3 * ones], 0.5)
    assert repeated.ratio is None
    assert repeated.difference.value == pytest.approx(2.0)


def test_runs_that_do_not_differ_at_all_are_not_judged():
    change = compare_quantile([np.full(9, 7.0)] * 3, [np.full(9, 8.0)] * 3, 0.5)
    assert (change.ratio.value, change.p_value) == (pytest.approx(8 / 7), None)
    assert "do not differ at all" in change.reason
    same = compare_quantile([np.full(9, 7.0)] * 3, [np.full(9, 7.0)] * 3, 0.5)
    assert same.p_value == 1.0


@pytest.mark.parametrize("bad", [[], [[1.0, math.nan]], [[math.inf]], [[[1.0]]], [[]]])
def test_values_that_are_none_are_refused(bad):
    for compare in (compare_ranks, lambda a, b: compare_quantile(a, b, 0.5)):
        with pytest.raises(ValueError, match="must"):
            compare(bad, [np.ones(9)])


def test_a_long_series_is_worth_what_its_parts_are():
    x = pareto_series(np.random.default_rng(13), 200_000, 0.9)
    ranks = stats.rankdata(x)
    parts = [
        independent_count(ranks[i : i + 16_000]) for i in range(0, 192_000, 16_000)
    ]
    assert independent_count(ranks) == pytest.approx(sum(parts) * 200 / 192, rel=0.15)


def test_a_side_that_is_worth_few_has_the_dependence_that_the_other_shows():
    worth = effects._worth_of_both((1000, 1000), [25.0, 50.0])
    assert worth == [25.0, 25.0]
    # what is worth many shows its own
    assert effects._worth_of_both((1000, 9000), [900.0, 30.0]) == [900.0, 30.0]
