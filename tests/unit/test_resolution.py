"""The step in which values were taken is found as it was made."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_analysis.read import read_samples
from latprof_analysis.stats.change_points import level_changes
from latprof_analysis.stats.resolution import resolution, resolution_change


def waits(seed, n=3000):
    return np.random.default_rng(seed).lognormal(np.log(100), 0.5, n)


@pytest.mark.parametrize("step", [0.001, 0.1, 1, 2.5, 10, 64])
def test_the_step_of_rounding_is_found(step):
    # of so many values hardly all are multiples of twice the step
    assert resolution(np.rint(waits(1) / step) * step) == pytest.approx(step)


def test_ticks_that_are_no_whole_units_are_found():
    tick_ns = 1e9 / 24e6  # 41.67 ns, written as whole ones
    ticks = np.random.default_rng(2).lognormal(3, 0.4, 5000).round()
    found = resolution(np.rint(ticks * tick_ns))
    assert 41 <= found <= 42


@pytest.mark.parametrize("values", [[0.0, 0.0], [5.0, 5.0], [0.0, 5.0]])
def test_values_that_are_all_equal_have_their_value_as_step(values):
    assert resolution(values) == max(values)


def test_values_without_a_step_have_the_least():
    assert resolution(waits(3)) < 1e-6


def test_a_coarse_clock_makes_no_changes_of_level():
    for step in (10, 100):
        found = [level_changes(np.rint(waits(s) / step) * step) for s in range(20)]
        assert sum(bool(one.changes) for one in found) <= 1


@pytest.mark.parametrize("steps", [(1.0, 0.01), (0.001, 1.0)])
def test_a_change_of_step_is_found_where_it_is(steps):
    parts = [np.rint(waits(i) / step) * step for i, step in enumerate(steps)]
    place, *found = resolution_change(np.concatenate(parts))
    assert abs(place - 3000) <= 300  # pieces are of 300
    assert found == pytest.approx(steps)
    assert resolution_change(parts[0]) is None
    assert resolution_change(waits(1)) is None


def test_a_change_of_step_within_a_column_is_said(tmp_path):
    path = tmp_path / "a.csv"
    x = waits(1, 1000)
    path.write_text("\n".join(["ms", *map(str, x.round()), *map(str, x.round(3))]))
    found = read_samples(path, latency_column="ms", unit="ms").meta["notes"]
    assert found == [
        "the step of values changes from 1.00 ms to 1.00 us, from about latency 1,001"
        " on: another clock, or another unit?"
    ]
