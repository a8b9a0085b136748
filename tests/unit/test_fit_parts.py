"""What the fit is made of, each part against a slow reference."""

import doctest

import numpy as np
import pytest
from latprof_analysis import hinge, rounds, theilsen
from latprof_analysis.hinge import fit_hinge
from latprof_analysis.rounds import low_delays
from latprof_analysis.theilsen import theil_sen
from scipy import stats


@pytest.mark.parametrize("k", [4, 9, 20])
def test_theil_sen_is_scipys_with_the_joint_intercept(k):
    rng = np.random.default_rng(k)
    x = np.cumsum(rng.uniform(1, 50, k))
    y = 3 + 2 * x + rng.standard_cauchy((5, k))
    slope, intercept = theil_sen(x, y)
    for i, row in enumerate(y):
        scipys = stats.theilslopes(row, x, method="joint")
        assert slope[i] == pytest.approx(scipys.slope, rel=1e-12)
        assert intercept[i] == pytest.approx(scipys.intercept, rel=1e-9)


def test_theil_sen_in_pieces_equals_theil_sen_at_once(monkeypatch):
    rng = np.random.default_rng(1)
    x, y = np.arange(10.0), rng.normal(size=(100, 10))
    at_once = theil_sen(x, y)
    monkeypatch.setattr(theilsen, "_PAIRS_AT_ONCE", 45 * 7)
    np.testing.assert_array_equal(theil_sen(x, y), at_once)


def uneven_rounds(seed, count, lost=0.1):
    rng = np.random.default_rng(seed)
    size = np.tile([18.0, 500.0, 9000.0], count)
    index = np.repeat(np.arange(float(count)), 3)
    rtt = 1e6 + 10 * size + rng.exponential(1e5, size.size)
    kept = rng.permutation(np.flatnonzero(rng.random(size.size) > lost))
    return size[kept], rtt[kept], index[kept]


def test_resampled_delays_are_those_of_rounds_drawn_one_by_one():
    size, rtt, index = uneven_rounds(seed=2, count=60)
    low = low_delays(size, rtt, index, fewest=10, resamples=40, seed=9)

    rng = np.random.default_rng(9)
    for b, times in enumerate(rng.multinomial(60, np.full(60, 1 / 60), size=40)):
        for i, wanted in enumerate((18, 500, 9000)):
            drawn = [
                rtt[(index == r) & (size == wanted)]
                for r in np.repeat(range(60), times)
            ]
            slow = np.quantile(np.concatenate(drawn), 0.1, method="inverted_cdf")
            assert low.resampled_ns[b, i] == slow


def test_the_delay_of_a_size_is_its_10th_percentile():
    size, rtt, index = uneven_rounds(seed=3, count=200)
    low = low_delays(size, rtt, index, fewest=10, resamples=100, seed=1)
    assert low.size_bytes.tolist() == [18, 500, 9000]
    for wanted, delay in zip(low.size_bytes, low.delay_ns, strict=True):
        of_size = rtt[size == wanted]
        assert delay == np.quantile(of_size, 0.1, method="inverted_cdf")


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


def test_an_exact_line_has_no_hinge():
    x = np.geomspace(18, 1e7, 20)
    assert fit_hinge(x, 2e6 + 160 * x, resolution=1.0).delta_bic < 0


def test_too_few_points_have_no_hinge():
    assert fit_hinge(np.arange(5.0), np.arange(5.0), resolution=1.0) is None


@pytest.mark.parametrize("module", [hinge, rounds, theilsen])
def test_examples_in_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
