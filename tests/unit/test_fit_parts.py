"""What the fit is made of, each part against a slow reference."""

from itertools import combinations

import numpy as np
import pytest
from latprof_analysis.fit import slopes
from latprof_analysis.fit.estimates import residuals_of, runs_test
from latprof_analysis.fit.rounds import LowDelays, low_delays
from latprof_analysis.fit.slopes import (
    fit_hinge,
    fit_hinges,
    theil_sen,
    weighted_theil_sen,
)
from scipy import stats


@pytest.mark.parametrize("k", [4, 9, 20])
def test_theil_sen_is_scipys_with_the_joint_intercept(k):
    rng = np.random.default_rng(k)
    x = np.cumsum(rng.uniform(1, 50, k))
    for row in 3 + 2 * x + rng.standard_cauchy((5, k)):
        slope, intercept = theil_sen(x, row)
        scipys = stats.theilslopes(row, x, method="joint")
        assert slope == pytest.approx(scipys.slope, rel=1e-12)
        assert intercept == pytest.approx(scipys.intercept, rel=1e-9)


def test_theil_sen_in_pieces_equals_theil_sen_at_once(monkeypatch):
    rng = np.random.default_rng(1)
    x, y = np.arange(10.0), rng.normal(size=(100, 10))
    at_once = weighted_theil_sen(x, y)
    monkeypatch.setattr(slopes, "_PAIRS_AT_ONCE", 45 * 7)
    np.testing.assert_array_equal(weighted_theil_sen(x, y), at_once)


def uneven_rounds(seed, count, lost=0.1):
    rng = np.random.default_rng(seed)
    size = np.tile([18.0, 500.0, 9000.0], count)
    index = np.repeat(np.arange(float(count)), 3)
    rtt = 1e6 + 10 * size + rng.exponential(1e5, size.size)
    kept = rng.permutation(np.flatnonzero(rng.random(size.size) > lost))
    return size[kept], rtt[kept], index[kept]


def slow_low_quantile(values, weights, unseen):
    """Where the weight up to a value, of all and one that was not seen, is 0.1."""
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / (weights.sum() + unseen)
    above = min(max(1, int(np.sum(share < 0.1))), values.size - 1)
    part = slice(above - 1, above + 1)
    (x0, x1), (y0, y1) = share[part], values[order][part]
    return y0 + max(-1.0, (0.1 - x0) / (x1 - x0)) * (y1 - y0)


def test_resampled_delays_are_those_of_rounds_weighed_one_by_one():
    size, rtt, index = uneven_rounds(seed=2, count=60)
    low = low_delays(size, rtt, index, fewest=10, resamples=40, seed=9)

    rng = np.random.default_rng(9)
    weights = rng.exponential(size=(40, 60)).astype(np.float32).astype(float)
    unseen = rng.exponential(size=(3, 40))
    for b in range(40):
        of_row = weights[b][index.astype(int)]
        for i, wanted in enumerate((18, 500, 9000)):
            rows = size == wanted
            slow = slow_low_quantile(rtt[rows], of_row[rows], unseen[i, b])
            assert low.resampled_ns[b, i] == pytest.approx(slow, rel=1e-6)


@pytest.mark.parametrize("n", [20, 50])
def test_draws_of_one_size_cover_its_quantile_whatever_the_noise(n):
    # Each draw's interval is exact but for interpolation: 2000 runs, error 0.5%.
    rng = np.random.default_rng(n)
    index, size = np.arange(float(n)), np.full(n, 64.0)
    hits = []
    for seed in range(2000):
        low = low_delays(
            size, rng.exponential(1e5, n), index, fewest=10, resamples=100, seed=seed
        )
        above = np.mean(low.resampled_ns[:, 0] > -1e5 * np.log(0.9))
        hits.append(0.1 <= above <= 0.9)
    assert np.mean(hits) == pytest.approx(0.8, abs=0.05)


def test_the_delay_of_a_size_is_its_10th_percentile():
    size, rtt, index = uneven_rounds(seed=3, count=200)
    low = low_delays(size, rtt, index, fewest=10, resamples=100, seed=1)
    assert low.size_bytes.tolist() == [18, 500, 9000]
    for i, wanted in enumerate((18, 500, 9000)):
        of_size = rtt[size == wanted]
        # Hyndman and Fan's definition 8, in scipy's words.
        oracle = stats.mstats.mquantiles(of_size, 0.1, alphap=1 / 3, betap=1 / 3)[0]
        assert low.delay_ns[i] == pytest.approx(oracle, rel=1e-12)
        assert low.median_ns[i] == np.median(of_size)


def test_of_very_many_sizes_some_are_used_and_the_others_counted():
    size = np.tile(np.arange(1.0, 201), 10)
    index = np.repeat(np.arange(10.0), 200)
    low = low_delays(size, 1e6 + size, index, fewest=10, resamples=100, seed=1)
    assert low.size_bytes.size == 48
    assert (low.size_bytes[0], low.size_bytes[-1]) == (1, 200)
    assert low.unused_sizes == 152


@pytest.mark.parametrize("seed", range(4))
def test_the_weighted_line_makes_the_residuals_differ_least(seed):
    rng = np.random.default_rng(seed)
    x = np.unique(rng.geometric(1e-4, 9).astype(float))
    y = 5 + 2 * x + rng.standard_cauchy((1, x.size))
    (slope,), (intercept,) = weighted_theil_sen(x, y)

    def spread(a):
        left = y[0] - a * x
        return np.abs(left[:, None] - left).sum()

    # The spread is convex, and bends only at slopes of pairs.
    i, j = np.triu_indices(x.size, 1)
    pairs = (y[0, j] - y[0, i]) / (x[j] - x[i])
    assert spread(slope) == pytest.approx(min(map(spread, pairs)), rel=1e-9)
    left = y[0] - slope * x
    walsh = [(a + b) / 2 for k, a in enumerate(left) for b in left[k:]]
    assert intercept == pytest.approx(np.median(walsh), rel=1e-9)


def test_noise_of_very_many_rounds_follows_the_closed_form():
    size, rtt, index = uneven_rounds(seed=4, count=20_000, lost=0.0)
    low = low_delays(size, rtt, index, fewest=10, resamples=2000, seed=1)
    # Standard error of a p quantile: sqrt(p (1 - p) / n) / density, which for the
    # exponential is 1e5 ns * sqrt(p / ((1 - p) n)).
    expected_ns = 1e5 * np.sqrt(0.1 / 0.9 / 20_000)
    # The bootstrap's own density estimate is good to about 10% here.
    np.testing.assert_allclose(low.noise_ns, expected_ns, rtol=0.25)


def test_a_size_that_was_mostly_lost_is_left_out_and_named():
    size, rtt, index = uneven_rounds(seed=5, count=30, lost=0.0)
    kept = (size != 500) | (index < 9)
    low = low_delays(
        size[kept], rtt[kept], index[kept], fewest=10, resamples=100, seed=1
    )
    assert low.size_bytes.tolist() == [18, 9000]
    assert low.skipped_bytes == (500,)
    assert low.count == 60


def slow_hinge(x, y):
    """Sum of squares of the best hinge, by least squares at each of many knots."""
    best = (np.inf, 0.0)
    for knot in np.linspace(x[1], x[-2], 5001):
        terms = np.column_stack([np.ones_like(x), x, np.maximum(0, x - knot)])
        left = y - terms @ np.linalg.lstsq(terms, y, rcond=None)[0]
        best = min(best, (float(left @ left), float(knot)))
    return best


@pytest.mark.parametrize("seed", range(5))
def test_the_hinge_is_the_one_that_a_fine_search_finds(seed):
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(18, 65_000, 20))
    y = 5e4 + 160 * np.maximum(0, x - rng.uniform(15e3, 40e3)) + rng.normal(0, 5e4, 20)
    found = fit_hinge(x, y, resolution=1.0)
    rss, knot = slow_hinge(x, y)
    # 32 knots between two sizes that are some 3000 bytes apart
    assert found.knot == pytest.approx(knot, abs=300)
    assert found.split == np.sum(x <= found.knot)
    line = stats.linregress(x, y)
    rss_line = np.sum((y - line.intercept - line.slope * x) ** 2)
    delta = 20 * np.log(rss_line / rss) - 2 * np.log(20)  # n ln(RSS) + k ln(n)
    assert found.delta_bic == pytest.approx(delta, abs=0.5)


def test_a_line_seldom_passes_for_a_hinge():
    rng = np.random.default_rng(8)
    x = np.geomspace(18, 65_000, 20)
    gains = [fit_hinge(x, x + rng.normal(0, 50, 20), 1.0).delta_bic for _ in range(500)]
    assert np.median(gains) < 0  # two parameters cost more than they explain
    assert np.mean(np.array(gains) > 10) < 0.02


BREAKS = {
    "none": ((), (80.0,)),
    "a bucket's burst": ((16_000.0,), (1.0, 160.0)),
    "a segment and a burst": ((1448.0, 16_000.0), (80.0, 20.0, 160.0)),
    "three": ((1448.0, 14_480.0, 30_000.0), (80.0, 30.0, 160.0, 90.0)),
}


@pytest.mark.parametrize("name", BREAKS)
def test_as_many_bends_are_found_as_there_are(name):
    breaks, slopes = BREAKS[name]
    x = np.unique(np.geomspace(18, 65_000, 29).round())
    y = 1e5 + slopes[0] * x
    for knot, change in zip(breaks, np.diff(slopes), strict=True):
        y = y + change * np.maximum(0, x - knot)
    found = [
        fit_hinges(x, y + np.random.default_rng(seed).normal(0, 2e3, x.size), 1.0)
        for seed in range(60)
    ]
    # 10 of BIC: a bend that is not there in 2% of 29 sizes' lines, seen over 100.
    right = [f for f in found if f[0].size == len(breaks)]
    assert len(right) >= 0.9 * len(found)
    for nth, knot in enumerate(breaks):
        assert np.median([f[0][nth] for f in right]) == pytest.approx(knot, rel=0.05)
    for nth, slope in enumerate(slopes):
        middle = np.median([f[1][nth] for f in right])
        assert middle == pytest.approx(slope, rel=0.05, abs=1.5)


def test_a_single_bend_is_where_the_hinge_finds_it():
    x = np.unique(np.geomspace(18, 65_000, 20).round())
    y = 1e5 + 160 * np.maximum(0, x - 16_000)
    knots, _, gain = fit_hinges(x, y, 1.0)
    one = fit_hinge(x, y, 1.0)
    assert knots.tolist() == [one.knot]
    assert gain == pytest.approx(one.delta_bic)


def test_too_few_runs_are_as_rare_as_they_are_among_all_orders():
    # 6 sizes above and 6 below, in each of the 924 orders.
    orders = [
        np.where(np.isin(np.arange(12), above), 1.0, -1.0)
        for above in combinations(range(12), 6)
    ]
    counts = np.array([runs_test(order)[0] for order in orders])
    for runs in range(3, 9):
        order = orders[int(np.argmax(counts == runs))]
        exact = np.mean(counts <= runs)
        assert runs_test(order)[1] == pytest.approx(exact, abs=0.02)
    assert runs_test(np.array([1.0, -1.0])) == (2, None)
    assert runs_test(np.ones(20)) == (1, None)


def test_lack_of_fit_is_uniform_on_a_line_and_small_on_a_bend():
    rng = np.random.default_rng(3)
    x = np.geomspace(18, 65_000, 12)
    y = 1e6 + 160 * x
    found, bent = [], []
    for _ in range(400):
        noise = rng.normal(0, 500, (200, 12))
        for off, into in ((0.0, found), (2e3 * (x > 9e3), bent)):
            p10 = y + off + rng.normal(0, 500, 12)
            low = LowDelays(x, p10, y + noise, 1, 20, (), median_ns=p10)
            into.append(residuals_of(low, y).lack_of_fit_p)
    # 12 residuals of a known line where 10 degrees are left by a fitted one.
    assert stats.kstest(stats.chi2.isf(found, 10), stats.chi2(12).cdf).pvalue > 1e-4
    assert np.median(bent) < 1e-6


def test_an_exact_line_has_no_hinge():
    x = np.geomspace(18, 1e7, 20)
    assert fit_hinge(x, 2e6 + 160 * x, resolution=1.0).delta_bic < 0


def test_too_few_points_have_no_hinge():
    assert fit_hinge(np.arange(5.0), np.arange(5.0), resolution=1.0) is None
