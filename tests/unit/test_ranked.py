"""Ranked values give the figures of sorted ones; packed latencies are near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.compare.ranked import (
    LONGEST_NS,
    NO_VALUE,
    Ranked,
    levels_ns,
    packed,
)
from latprof_analysis.stages import BLANK

latencies = st.lists(st.integers(0, LONGEST_NS), min_size=1, max_size=50)
values = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=50)


@given(latencies)
def test_a_packed_latency_is_within_a_fortieth_of_a_percent(ns):
    codes = packed(np.array(ns))
    assert codes.max() < NO_VALUE
    found = levels_ns()[codes]
    assert (np.abs(found - ns) <= 0.00025 * np.array(ns)).all()
    short = np.array(ns) < 2048
    assert (found[short] == np.array(ns)[short]).all()


def test_packed_latencies_keep_their_order_and_what_is_missing():
    edges = np.r_[0, [2**e + d for e in range(11, 42) for d in (-1, 0, 1)], LONGEST_NS]
    assert (np.diff(packed(edges).astype(int)) >= 0).all()
    assert packed(np.array([BLANK, 2**62])).tolist() == [NO_VALUE, NO_VALUE - 1]


@given(values, st.floats(0, 51))
def test_ranked_values_have_the_order_of_sorted_ones(some, rank):
    x = np.array(some)
    ascending, ranked = np.sort(x), Ranked.of(x)
    assert [ranked.at_rank(i + 1) for i in range(x.size)] == ascending.tolist()
    expected = np.interp(rank - 1, np.arange(x.size), ascending)
    assert ranked.between_ranks(rank) == pytest.approx(expected)
    assert ranked.shares(1.0) == (np.mean(x < 1), np.mean(x <= 1))


@given(values, st.integers(1, 7))
def test_means_and_variance_of_scores_are_those_of_each_value(some, block):
    x = np.array(some)
    ranked = Ranked.of(x)
    scores = ranked.levels**2
    expected = np.mean(x**2), np.var(x**2)
    assert ranked.moments(scores) == pytest.approx(expected)
    if x.size >= block:
        blocks = (x**2)[: x.size // block * block].reshape(-1, block)
        found = ranked.block_means(scores, block)
        assert found == pytest.approx(blocks.mean(axis=1))
