"""Whether long messages see another line, of links that are known."""

import numpy as np
from latprof_analysis.fit.line import long_messages_differ
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
