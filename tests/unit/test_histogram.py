"""Histogram: merge laws, exactness of what is exact, error of what is not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.stats.histogram import Histogram, bucket_edges, record_parts

LIMIT_NS = 2**36
durations = st.lists(st.integers(0, 2**63 - 1), max_size=30)


def histogram_of(values):
    made = Histogram()
    made.record(np.array(values, dtype=np.int64))
    return made


def merged(*parts):
    whole = Histogram()
    for part in parts:
        whole.merge(part)
    return whole


@given(durations, durations)
def test_merging_equals_recording_everything_in_one(a, b):
    whole = merged(histogram_of(a), histogram_of(b))
    assert whole.as_dict() == histogram_of(a + b).as_dict()


@given(durations, durations)
def test_merging_is_commutative(a, b):
    a, b = histogram_of(a), histogram_of(b)
    assert merged(a, b).as_dict() == merged(b, a).as_dict()


@given(durations, durations, durations)
def test_merging_is_associative(a, b, c):
    a, b, c = histogram_of(a), histogram_of(b), histogram_of(c)
    left = merged(merged(a, b), c)
    assert left.as_dict() == merged(a, merged(b, c)).as_dict()


@given(durations)
def test_an_empty_histogram_changes_nothing(a):
    assert merged(histogram_of(a), Histogram()).as_dict() == histogram_of(a).as_dict()


@given(durations)
def test_merging_leaves_the_merged_one_as_it_was(a):
    part = histogram_of(a)
    merged(part, part)
    assert part.as_dict() == histogram_of(a).as_dict()


@given(durations.filter(len))
def test_count_sum_and_extremes_are_exact(values):
    made = histogram_of(values)
    assert made.count == len(values)
    assert made.sum_ns == sum(values)  # Python's integers do not overflow
    assert (made.min_ns, made.max_ns) == (min(values), max(values))
    assert made.overflow == sum(v >= LIMIT_NS for v in values)


@given(st.integers(0, LIMIT_NS - 1))
def test_a_value_falls_in_the_bucket_whose_edges_hold_it(value):
    (bucket,) = np.flatnonzero(histogram_of([value]).counts)
    edges = bucket_edges()
    assert edges[bucket] <= value < edges[bucket + 1]


def test_edges_ascend_and_buckets_are_at_most_one_128th_wide():
    edges = bucket_edges()
    assert len(edges) == len(Histogram().counts) + 1
    assert (np.diff(edges) > 0).all()
    low = edges[64:-1]
    assert (np.diff(edges)[64:] / low).max() == 1 / 128


@pytest.mark.parametrize("p", [0.001, 0.01, 0.1, 0.5, 0.75, 0.9, 0.99, 0.999])
def test_a_quantile_is_within_half_a_percent_of_the_samples(p):
    rng = np.random.default_rng(5)
    values = np.exp(rng.uniform(np.log(64), np.log(60e9), 20_000)).astype(np.int64)
    exact = np.quantile(values, p, method="inverted_cdf")
    assert abs(histogram_of(values).quantile(p) / exact - 1) < 0.005


@given(
    st.lists(st.integers(0, LIMIT_NS - 1), min_size=5, max_size=50),
    st.sampled_from([0.4, 0.5, 0.6]),
)
def test_a_quantile_is_close_for_any_sample(values, p):
    shown = histogram_of(values).quantile(p)
    if shown is None:  # p40 and p60 need 7 values
        assert len(values) < 7
        return
    exact = np.quantile(values, p, method="inverted_cdf")
    assert abs(shown - exact) <= 0.004 * exact
    assert exact >= 64 or shown == exact


def test_equal_values_have_an_exact_quantile():
    assert histogram_of([123_457] * 10).quantile(0.5) == 123_457


def test_no_quantile_is_shown_from_too_few_values():
    assert Histogram().quantile(0.5) is None
    assert histogram_of([7] * 4).quantile(0.5) is None
    assert histogram_of([7] * 5).quantile(0.5) == 7
    assert histogram_of([7] * 999).quantile(0.99) is None
    assert histogram_of([7] * 1000).quantile(0.99) == 7


def test_a_quantile_among_the_overflow_is_not_shown():
    made = histogram_of([1000] * 40 + [LIMIT_NS] * 60)
    assert made.quantile(0.5) is None
    assert made.quantile(0.3) == pytest.approx(1000, rel=0.004)
    assert made.max_ns == LIMIT_NS


def test_memory_does_not_grow_with_what_is_recorded():
    made = Histogram()
    before = made.counts.nbytes
    for seed in range(10):
        made.record(np.random.default_rng(seed).integers(0, 2**40, 10_000))
    assert made.counts.nbytes == before < 32 * 1024


def test_an_empty_array_is_recorded_as_nothing():
    made = histogram_of([])
    made.record([])
    assert made.count == 0
    assert made.mean_ns is None
    assert made.min_ns is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([-1, 5], "values must be from 0 to below 2[*][*]63 ns, got -1"),
        (np.array([3], "u8") - np.array([5], "u8"), "got 18446744073709551614"),
        ([1.5], "values must be whole nanoseconds, got float64"),
        ([[1], [2]], r"values must have shape \(n,\), got \(2, 1\)"),
    ],
)
def test_what_cannot_be_a_duration_is_refused(values, message):
    made = Histogram()
    with pytest.raises(ValueError, match=message):
        made.record(values)
    assert made.count == 0


@pytest.mark.parametrize("p", [0, 1, -0.5, float("nan")])
def test_p_outside_0_and_1_is_refused(p):
    with pytest.raises(ValueError, match="p must be between 0 and 1"):
        histogram_of([1] * 10).quantile(p)


@given(st.lists(durations, max_size=9))
def test_parts_are_recorded_as_each_by_itself(parts):
    together = [Histogram() for _ in parts]
    values = np.array([value for part in parts for value in part], dtype=np.int64)
    record_parts(together, values, np.array([len(part) for part in parts], int))
    alone = [histogram_of(part).as_dict() for part in parts]
    assert [one.as_dict() for one in together] == alone


def test_many_parts_are_recorded_in_turns():
    values = np.random.default_rng(1).integers(0, 10**7, 5000)
    lengths = np.bincount(np.arange(5000) % 150)
    together = [Histogram() for _ in lengths]
    record_parts(together, values, lengths)
    alone = [histogram_of(part) for part in np.split(values, np.cumsum(lengths)[:-1])]
    assert [one.as_dict() for one in together] == [one.as_dict() for one in alone]


def test_a_negative_duration_in_a_part_is_refused():
    with pytest.raises(ValueError, match="values must be 0 or more, got -5"):
        record_parts([Histogram()], np.array([3, -5]), np.array([2]))
