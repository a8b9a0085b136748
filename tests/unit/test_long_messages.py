"""Whether a part of the messages sees another line, of links that are known."""

import numpy as np
import pytest
from known_links import TCP, exponential, link
from latprof_analysis.fit.line import (
    fit_line,
    fit_one_way,
    long_messages_differ,
    parts_of_line,
)
from latprof_analysis.fit.rounds import low_delays


def differ(size, delay, index):
    low = low_delays(size, delay, index, fewest=10, resamples=200, seed=1)
    return long_messages_differ(low.size_bytes, low)


def test_long_messages_of_a_line_seldom_seem_to_differ():
    rng = np.random.default_rng(1)
    size = np.tile(np.geomspace(64, 64_000, 16), 30)
    index = np.repeat(np.arange(30.0), 16)
    found = [
        differ(size, 1e6 + 0.8 * size + rng.exponential(2e3, 480), index)
        for _ in range(100)
    ]
    # 1% by design; the bootstrap of few rounds adds to it.
    assert sum(result is not None for result in found) <= 5


def test_too_few_long_messages_tell_nothing():
    size = np.tile([64.0, 128, 256, 512, 30_000, 60_000], 20)
    index = np.repeat(np.arange(20.0), 6)
    assert differ(size, 1e6 + 80 * np.maximum(size, 2000), index) is None
    none = np.empty(0)
    assert differ(none, none, none) is None


def two_slopes(knot, upper, seed=1):
    """One way at 100 Mbit/s up to a size, and what is above at another rate."""
    rng = np.random.default_rng(seed)
    size = np.tile(np.linspace(2000, 64_000, 12), 100)
    delay = 2e6 + 80 * np.minimum(size, knot)
    delay += 8e9 / upper * np.maximum(0, size - knot)
    return size, delay + rng.exponential(2e3, size.size), np.repeat(np.arange(100), 12)


@pytest.mark.parametrize("knot", [16_000, 20_000, 32_000])
@pytest.mark.parametrize("upper", [100.5e6, 101e6, 102e6, 105.3e6])
def test_no_interval_excludes_what_a_part_of_the_sizes_says(knot, upper):
    fit = fit_one_way(*two_slopes(knot, upper))
    found, fixed = fit.bandwidth_bits_per_second, fit.fixed_delay_seconds
    if found is None:  # these are told apart
        assert upper == 105.3e6
        assert knot >= 20_000
        return
    # the sizes above three quarters of the largest are all at the upper rate
    assert found.low < 100e6 < found.value < upper < found.high
    # by the short ones: the 10th percentile of the noise is 0.2 us
    assert fixed.low < 2.0002e-3 < fixed.high
    if upper >= 102e6:
        assert any("the intervals reach to that" in caveat for caveat in fit.caveats)


def test_parts_of_a_line_seldom_seem_to_differ():
    widened = 0
    for seed in range(100):
        size, delay, index = link(seed, noise=exponential, rounds=40)
        low = low_delays(
            size * 1.0, delay, index * 1.0, fewest=10, resamples=200, seed=1
        )
        x = TCP.wire_bytes(low.size_bytes)
        slope_ends, intercept_ends, _ = parts_of_line(x, low, fit_line(x, low))
        widened += bool(slope_ends or intercept_ends)
    assert widened <= 8  # 1% by the test of all residuals; 8 of 300 were seen
