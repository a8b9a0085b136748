"""Quantiles with intervals: against scipy, tables and simulated coverage."""

import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from latprof_analysis.stats.quantiles import (
    binomial_quantile,
    normal_quantile,
    quantile_ci,
    quantiles_by,
    samples_needed,
    share_interval,
)
from scipy import special, stats


def ranks(n, p, confidence=0.95):
    """Ranks of the interval's ends: of the sample 1..n they are the values."""
    ci = quantile_ci(np.arange(1, n + 1), p, confidence)
    return ci.low, ci.high


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # 95% interval of the median by the sign test, as every table has it
    [(6, 1, 6), (9, 2, 8), (10, 2, 9), (20, 6, 15), (25, 8, 18), (100, 40, 61)],
)
def test_ranks_for_the_median_are_those_of_the_tables(n, low, high):
    assert ranks(n, 0.5) == (low, high)


@pytest.mark.parametrize("p", [0.01, 0.1, 0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("n", [5, 17, 100, 1000, 54_321, 2_000_000])
def test_ranks_hold_what_the_binomial_distribution_promises(n, p):
    low, high = ranks(n, p)
    below = stats.binom(n, p)
    if math.isfinite(low):
        assert below.cdf(low - 1) <= 0.025 + 1e-9
        assert below.cdf(low) >= 0.025 - 1e-9  # one rank more would be too many
    else:
        assert below.cdf(0) >= 0.025 - 1e-9
    if math.isfinite(high):
        assert below.sf(high - 1) <= 0.025 + 1e-9
        assert below.sf(high - 2) >= 0.025 - 1e-9
    else:
        assert below.sf(n - 1) >= 0.025 - 1e-9


@pytest.mark.parametrize(
    ("p", "n"), [(0.1, 200), (0.5, 41), (0.5, 200), (0.9, 200), (0.99, 1000)]
)
@pytest.mark.parametrize("shape", ["exponential", "pareto"])
def test_intervals_cover_the_true_quantile(p, n, shape):
    runs = 1000
    rng = np.random.default_rng(20)
    if shape == "exponential":
        samples, truth = rng.exponential(1, (runs, n)), -math.log(1 - p)
    else:
        samples, truth = rng.pareto(1.1, (runs, n)), (1 - p) ** (-1 / 1.1) - 1
    intervals = [quantile_ci(sample, p) for sample in samples]
    covered = np.mean([ci.low <= truth <= ci.high for ci in intervals])
    # At least 95% by construction, up to 98% since ranks are whole; four standard
    # deviations of 1000 runs are 2.8%.
    assert 0.95 - 0.028 <= covered <= 0.98 + 0.018


def test_the_value_is_the_inverse_of_the_empirical_distribution():
    rng = np.random.default_rng(3)
    for n in (1, 2, 7, 100, 999):
        sample = rng.normal(size=n)
        for p in ("0.001", "0.07", "0.25", "0.5", "0.9", "0.999"):
            # In whole numbers, since 0.07 * 100 is more than 7 in floating point.
            smallest = next(x for x in sorted(sample) if at_least(sample, x, p))
            assert quantile_ci(sample, float(p)).value == smallest


def at_least(sample, x, p):
    return int(np.sum(sample <= x)) >= Fraction(p) * len(sample)


def test_the_p99_of_50_packets_has_no_upper_bound():
    ci = quantile_ci(np.arange(50), 0.99)
    assert ci.high == math.inf
    assert math.isfinite(ci.low)
    assert ci.as_dict()["high"] is None


def test_the_order_of_the_sample_does_not_matter():
    rng = np.random.default_rng(4)
    sample = rng.normal(size=300)
    shuffled = rng.permutation(sample)
    assert quantile_ci(sample, 0.9) == quantile_ci(shuffled, 0.9)


def test_a_higher_confidence_widens_the_interval():
    narrow, wide = ranks(1000, 0.5, 0.5), ranks(1000, 0.5, 0.999)
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


@pytest.mark.parametrize(
    ("p", "n"),
    [(0.5, 5), (0.9, 100), (0.99, 1000), (0.999, 10_000), (0.01, 1000), (0.75, 10)],
)
def test_samples_needed_grow_with_how_far_out_the_quantile_lies(p, n):
    assert samples_needed(p) == n


@pytest.mark.parametrize(
    ("sample", "p", "confidence", "message"),
    [
        ([], 0.5, 0.95, r"sample must have shape \(n,\) with n >= 1, got \(0,\)"),
        ([[1.0]], 0.5, 0.95, r"got \(1, 1\)"),
        ([1.0, math.nan], 0.5, 0.95, "sample must hold no NaN, got 1 of them"),
        ([1.0], 0.0, 0.95, r"p must be between 0 and 1, got 0\.0"),
        ([1.0], 0.5, 95, "confidence must be between 0 and 1, got 95"),
    ],
)
def test_bad_input_is_refused(sample, p, confidence, message):
    with pytest.raises(ValueError, match=message):
        quantile_ci(sample, p, confidence)


def test_quantiles_without_scipy_are_those_of_scipy():
    rng = np.random.default_rng(3)
    for n in np.rint(10 ** rng.uniform(0, 7, 2000)).astype(int).tolist():
        p = float(rng.choice([0.5, 0.9, 0.99, 0.999, rng.uniform(1e-4, 0.9999)]))
        end = float(rng.choice([0.005, 0.025, 0.05, 0.95, 0.975, 0.995]))
        assert binomial_quantile(end, n, p) == stats.binom.ppf(end, n, p), (end, n, p)
        assert normal_quantile(p) == pytest.approx(special.ndtri(p), rel=1e-12)


@pytest.mark.parametrize("n", [1, 7, 1000, 10**6])
def test_the_interval_of_no_losses_and_of_all_is_that_of_scipy(n):
    for hits in (0, n):
        exact = stats.binomtest(hits, n).proportion_ci(method="exact")
        assert share_interval(hits, n) == pytest.approx((exact.low, exact.high), 1e-9)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.99])
def test_quantiles_by_key_are_those_of_pandas(p):
    rng = np.random.default_rng(1)
    keys, values = rng.integers(0, 40, 5000), rng.exponential(1e6, 5000)
    expected = pd.Series(values).groupby(keys).quantile(p)
    found, quantiles = quantiles_by(keys, values, p)
    assert found.tolist() == expected.index.tolist()
    np.testing.assert_allclose(quantiles, expected.to_numpy(), rtol=1e-12)


def test_in_the_order_of_time_the_interval_is_that_of_fewer_values():
    """Ten of each value are worth as many as one of each."""
    each = np.random.default_rng(7).random(1000)
    expected = quantile_ci(each, 0.5)
    found = quantile_ci(np.repeat(each, 10), 0.5, in_order=True)
    blind = quantile_ci(np.repeat(each, 10), 0.5)
    assert found.value == expected.value
    assert found.high - found.low == pytest.approx(
        expected.high - expected.low, rel=0.3
    )
    assert blind.high - blind.low < 0.5 * (found.high - found.low)
    with pytest.raises(ValueError, match="finite"):
        quantile_ci([1.0, np.inf], 0.5, in_order=True)
