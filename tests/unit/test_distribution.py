"""Percentiles, three pieces and CCDF: against scipy, closed forms, coverage."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.stats import distribution
from latprof_analysis.stats.change_points import mid_ranks
from latprof_analysis.stats.distribution import (
    ccdf,
    histogram_percentiles,
    percentiles_by_group,
    percentiles_in_order,
    three_pieces,
)
from latprof_analysis.stats.histogram import Histogram
from latprof_analysis.stats.quantiles import quantile_ci
from latprof_analysis.stats.waiting import wait_by_queue
from scipy import signal, stats

latencies = st.lists(st.integers(0, 10**9), min_size=1, max_size=80)


def chain(rng, runs, n, correlation):
    """Standard normal series, each value correlated with the one before it."""
    noise = rng.normal(size=(runs, n + 200)) * math.sqrt(1 - correlation**2)
    return signal.lfilter([1], [1, -correlation], noise)[:, 200:]


@given(latencies)
def test_many_percentiles_are_those_that_are_taken_one_by_one(sample):
    together = distribution.percentiles(sample, [0.1, 0.5, 0.99])
    assert together == tuple(quantile_ci(sample, p) for p in (0.1, 0.5, 0.99))


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_intervals_of_a_series_cover_the_true_percentiles(correlation):
    series = chain(np.random.default_rng(1), 600, 4000, correlation)
    for p in (0.5, 0.9):
        truth = stats.norm.ppf(p)
        found = [percentiles_in_order(one, [p])[0] for one in series]
        # 95% within four standard deviations of 600 runs, and whole ranks above it.
        assert 0.93 <= np.mean([q.low <= truth <= q.high for q in found]) <= 0.985


def test_intervals_blind_to_dependence_are_too_narrow():
    series = chain(np.random.default_rng(1), 300, 4000, 0.8)
    found = [distribution.percentiles(one, [0.5])[0] for one in series]
    assert np.mean([q.low <= 0 <= q.high for q in found]) < 0.6


@given(
    st.lists(st.integers(0, 2**36 - 1), min_size=1, max_size=200),
    st.sampled_from([0.1, 0.5, 0.9]),
)
def test_a_histograms_interval_holds_the_samples_and_little_more(values, p):
    counted = Histogram()
    counted.record(np.array(values, dtype=np.int64))
    (shown,), exact = histogram_percentiles(counted, [p]), quantile_ci(values, p)
    assert shown.low <= exact.low
    assert exact.high <= shown.high
    assert abs(shown.value - exact.value) <= 0.004 * exact.value
    if math.isfinite(exact.low):
        assert shown.low >= exact.low / (1 + 1 / 128)
    if math.isfinite(exact.high):
        assert shown.high <= exact.high * (1 + 1 / 128)


@given(latencies, latencies)
def test_a_merged_histogram_has_the_percentiles_of_all_values(a, b):
    parts = [Histogram(), Histogram(), Histogram()]
    for part, values in zip(parts, (a, b, a + b), strict=True):
        part.record(values)
    parts[0].merge(parts[1])
    assert histogram_percentiles(parts[0]) == histogram_percentiles(parts[2])


def test_a_percentile_among_the_overflow_is_left_out():
    counted = Histogram()
    counted.record([1000] * 60 + [2**40] * 40)
    assert [q.p for q in histogram_percentiles(counted, [0.3, 0.9])] == [0.3]
    with pytest.raises(ValueError, match="at least one value"):
        histogram_percentiles(Histogram())


@given(latencies, st.sampled_from(["linear", "log"]), st.integers(1, 120))
def test_the_three_pieces_hold_each_value_once_and_in_order(sample, scale, bins):
    pieces = three_pieces(sample, scale, bins)
    assert sum(piece.count for piece in pieces) == len(sample)
    for piece in pieces:
        assert piece.counts.sum() + piece.zeros == piece.count
        assert piece.zeros == 0 or scale == "log"
    bounds = [x for piece in pieces if piece.count for x in (piece.low, piece.high)]
    assert bounds == sorted(bounds)
    assert (bounds[0], bounds[-1]) == (min(sample), max(sample))


def test_the_pieces_of_the_51424_messages_of_1988_have_their_counts():
    pieces = three_pieces(np.random.default_rng(1).exponential(1, 51_424))
    # 95% and 99.9% of 51,424 are 48,852.8 and 51,372.6
    assert [piece.count for piece in pieces] == [48_853, 2_520, 51]
    assert all(piece.counts.size == 100 for piece in pieces)


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_bins_count_as_numpys_histogram_does(scale):
    sample = np.random.default_rng(2).lognormal(8, 1, 20_000)
    ascending = np.sort(sample)
    parts = ascending[:19_000], ascending[19_000:19_980], ascending[19_980:]
    for piece, part in zip(three_pieces(sample, scale), parts, strict=True):
        counts, _ = np.histogram(part, piece.edges)
        # an end of the outer bins may round to within the range
        assert np.abs(counts - piece.counts).sum() <= 2
        width = np.diff(piece.edges if scale == "linear" else np.log(piece.edges))
        assert width == pytest.approx(np.full(100, width[0]), rel=1e-6)


def test_equal_values_and_a_piece_that_is_not_reached_are_shown_as_such():
    fast, middle, slow = three_pieces([7.0] * 10, "log")
    assert (fast.low, fast.high, fast.edges.tolist()) == (7.0, 7.0, [7.0, 7.0])
    assert fast.counts.tolist() == [10]
    assert (middle.count, middle.low, slow.counts.size) == (0, None, 0)
    assert three_pieces([0.0, 0.0, 5.0], "log")[0].zeros == 2


@given(latencies, st.integers(4, 50))
def test_the_ccdf_is_exact_at_each_point_and_keeps_both_ends(sample, points):
    tail = ccdf(sample, points)
    x = np.array(sample)
    assert tail.share.tolist() == [np.mean(x >= value) for value in tail.value]
    assert (tail.value[0], tail.value[-1]) == (x.min(), x.max())
    assert len(tail.value) <= points
    assert (tail.low <= tail.share).all()


def test_thinning_keeps_the_slowest_values_and_no_gap_in_the_tail():
    x = np.random.default_rng(3).pareto(1.1, 1_000_000)
    tail = ccdf(x, 200)
    assert set(np.sort(x)[-5:]) <= set(tail.value)
    assert (tail.share[:-6] / tail.share[1:-5]).max() < 1.35


def test_the_ccdf_of_exponential_values_is_the_exponential_function():
    tail = ccdf(np.random.default_rng(4).exponential(5, 1_000_000))
    bulk = tail.share > 1e-3
    truth = np.exp(-tail.value / 5)
    # five deviations of a count of at least 1000
    assert tail.share[bulk] == pytest.approx(truth[bulk], rel=0.16)
    assert np.abs(tail.share - truth).max() < 0.0025


def test_intervals_of_the_ccdf_cover_the_true_share_far_out_too():
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(1500):
        tail = ccdf(rng.exponential(1, 300), points=8)
        truth = np.exp(-tail.value)
        covered.append((tail.low <= truth) & (truth <= tail.high))
    by_point = np.mean(covered, axis=0)[1:]  # the first has one end only
    assert by_point.min() >= 0.93
    assert by_point.max() <= 0.97


@given(st.lists(st.integers(0, 20), min_size=2, max_size=50))
def test_mid_ranks_are_those_of_scipy(values):
    expected = (stats.rankdata(values) - 0.5) / len(values) - 0.5
    assert mid_ranks(np.array(values, dtype=float)) == pytest.approx(expected)


def queue_and_wait(rng, n):
    queue = rng.geometric(0.3, n) - 1
    noise = 0.5 * rng.standard_t(2, n)
    return queue, np.maximum(0, 45 + 3 * queue + noise)


def test_the_line_of_the_wait_is_right_beside_outliers_and_like_scipys():
    rng = np.random.default_rng(6)
    queue, wait = queue_and_wait(rng, 1000)
    wait[:150] = 10_000
    line = wait_by_queue(queue, wait)
    expected = stats.theilslopes(wait, queue, 0.95)
    assert line.slope == expected.slope
    assert line.slope_low < 3 < line.slope_high
    assert line.intercept == pytest.approx(45, abs=1)
    rho = stats.spearmanr(queue, wait).statistic
    assert line.rank_correlation == pytest.approx(rho)
    assert line.correlation_low < rho < line.correlation_high


def test_intervals_of_slope_and_rank_correlation_cover_the_truth():
    rng = np.random.default_rng(7)
    truth = 6 / math.pi * math.asin(0.6 / 2)  # Spearman's of a normal pair with 0.6
    slope, correlation = [], []
    for _ in range(400):
        x = rng.normal(size=60)
        y = 0.6 * x + 0.8 * rng.normal(size=60)
        line = wait_by_queue(x + 100, y + 100)
        slope.append(line.slope_low <= 0.6 <= line.slope_high)
        correlation.append(line.correlation_low <= truth <= line.correlation_high)
    # four standard deviations of 400 runs around 95%
    assert 0.91 <= np.mean(slope) <= 0.99
    assert 0.91 <= np.mean(correlation) <= 0.99


def test_of_many_messages_so_many_as_it_says_are_drawn_for_the_line():
    queue, wait = queue_and_wait(np.random.default_rng(8), 50_000)
    line = wait_by_queue(queue, wait)
    assert (line.n, line.n_line) == (50_000, 2000)
    assert line.slope_low < 3 < line.slope_high


def test_groups_have_the_percentiles_of_their_own_values():
    rng = np.random.default_rng(9)
    hops, delay = rng.integers(1, 4, 1000), rng.exponential(1, 1000)
    by_hops = percentiles_by_group(delay, hops, [0.5, 0.9])
    assert list(by_hops) == [1, 2, 3]
    for one, (median, _) in by_hops.items():
        assert median == quantile_ci(delay[hops == one], 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: distribution.percentiles([]), "sample must have shape"),
        (lambda: distribution.percentiles([1.0, math.nan]), "got 1 that are not"),
        (lambda: distribution.percentiles([1.0], [1.5]), "p must be between 0 and 1"),
        (lambda: percentiles_in_order([1.0], [0.0]), "p must be between 0 and 1"),
        (lambda: three_pieces([-1.0, 5.0]), "latencies of at least 0, got -1"),
        (lambda: three_pieces([1.0], "cubic"), "scale must be linear or log"),
        (lambda: three_pieces([1.0], bins=0), "bins must be at least 1"),
        (lambda: ccdf([math.inf]), "sample must be finite"),
        (lambda: ccdf([1.0], points=3), "points must be at least 4"),
        (lambda: wait_by_queue([1.0] * 20, range(20)), "queue must vary, got 1.0"),
        (lambda: wait_by_queue(range(20), range(19)), "same length, got 20 and 19"),
        (lambda: wait_by_queue(range(3), range(3)), "at least 10 values"),
        (lambda: wait_by_queue(range(-1, 19), range(20)), "queue must be at least 0"),
        (lambda: percentiles_by_group([1.0], [1, 2]), "group must have shape"),
        (lambda: percentiles_by_group([1.0], [0.5]), "group must hold integers"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
