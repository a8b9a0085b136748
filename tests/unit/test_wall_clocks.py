"""What readings of both clocks say of a wall clock that is set, or is not."""

import numpy as np
import pytest
from latprof_agent.join.wall_clocks import wall_clock
from latprof_analysis.records.recording import CLOCKS, SIDE_COLUMNS

AHEAD_NS = 1_700_000_000_000_000_000
SECOND_NS = 10**9


def readings(ahead_ns, seed=0):
    """Readings each second, of which each took a time that is not the others'."""
    random = np.random.default_rng(seed)
    found = np.zeros(len(ahead_ns), SIDE_COLUMNS[CLOCKS])
    begin = np.arange(len(ahead_ns)) * SECOND_NS + random.integers(0, SECOND_NS)
    width = random.integers(40, 20_000, len(ahead_ns))
    found["monotonic_ns"] = begin + width // 2
    found["width_ns"] = width
    found["realtime_ns"] = begin + random.integers(0, width + 1) + ahead_ns
    return found


@pytest.mark.parametrize("seed", range(20))
def test_a_wall_clock_that_nobody_set_is_as_far_ahead_as_all_readings_allow(seed):
    clocks = readings([AHEAD_NS] * 60, seed)
    found = wall_clock(clocks)
    assert abs(found.ahead_ns - AHEAD_NS) <= found.error_ns
    assert found.error_ns <= clocks["width_ns"].min() / 2 + 2
    assert (found.times_set, found.by_ns) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("by_ns", [3600 * SECOND_NS, -50_000_000, 100_000])
def test_each_time_that_it_was_set_is_noticed(seed, by_ns):
    ahead = [AHEAD_NS] * 20 + [AHEAD_NS + 7 * by_ns] * 20 + [AHEAD_NS + by_ns] * 20
    found = wall_clock(readings(ahead, seed))
    assert abs(found.ahead_ns - AHEAD_NS - by_ns) <= found.error_ns
    assert found.times_set == 2
    assert abs(found.by_ns - by_ns) <= found.by_error_ns


def test_of_one_reading_it_is_known_as_well_as_that_was_taken():
    clocks = readings([AHEAD_NS])
    found = wall_clock(clocks)
    assert abs(found.ahead_ns - AHEAD_NS) <= found.error_ns
    assert found.times_set == 0
