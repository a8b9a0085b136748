"""Histograms of 32 buckets to an octave: quantiles of many at once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, quantiles
from latprof_analysis.stats.quantiles import rank, samples_needed

FRACTIONS = (0.5, 0.9, 0.99)
samples = st.lists(st.integers(0, 2**36 - 1), max_size=300)


@given(st.lists(samples, min_size=1, max_size=5))
def test_quantiles_lie_within_a_bucket_of_those_of_the_sample(made):
    stacked = np.stack([CoarseHistogram.of(values).counts for values in made])
    for values, found in zip(made, quantiles(stacked, FRACTIONS), strict=True):
        for p, quantile in zip(FRACTIONS, found, strict=True):
            if len(values) < samples_needed(p):
                assert np.isnan(quantile)
                continue
            true = sorted(values)[rank(p, len(values)) - 1]
            # half a bucket: 1/64 of where it stands; 32 below 64 ns
            assert abs(quantile - true) <= max(32, true / 64)


def test_scaled_counts_tell_no_more_than_what_was_measured():
    values = range(1000, 2000)
    made = CoarseHistogram.of(values)
    scaled = CoarseHistogram(10 * made.counts, 10 * made.sum_ns, 9 * made.count)
    assert (scaled.count, scaled.measured) == (10_000, 1000)
    for p in (0.5, 0.9, 0.99):
        assert scaled.quantile(p) == made.quantile(p)
    assert CoarseHistogram.of([*values] * 10).quantile(0.999)
    assert scaled.quantile(0.999) is None
    # what is measured adds up, and a window of it is a difference
    assert (scaled + made).measured == 2000
    assert (scaled + made - scaled).measured == (scaled - scaled + made).count == 1000


def test_a_quantile_beyond_the_last_edge_is_not_told():
    long = CoarseHistogram.of([2**36] * 3 + [1000] * 7)
    assert abs(long.quantile(0.5) - 1000) <= 1000 / 64
    assert CoarseHistogram.of([2**36] * 10).quantile(0.5) is None
