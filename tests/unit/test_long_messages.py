"""Whether long messages see another line, of links that are known."""

import doctest

import numpy as np
from latprof_analysis import long_messages
from latprof_analysis.long_messages import long_messages_differ


def test_long_messages_of_a_line_seldom_seem_to_differ():
    rng = np.random.default_rng(1)
    size = np.tile(np.geomspace(64, 64_000, 16), 30)
    index = np.repeat(np.arange(30), 16)
    found = [
        long_messages_differ(
            size, 1e6 + 0.8 * size + rng.exponential(2e3, 480), index, resamples=300
        )
        for _ in range(100)
    ]
    # 1% by design; the bootstrap of few rounds adds to it.
    assert sum(differ is not None for differ in found) <= 5


def test_too_few_long_messages_tell_nothing():
    size = np.tile([64.0, 128, 256, 512, 30_000, 60_000], 20)
    index = np.repeat(np.arange(20), 6)
    bent = 1e6 + 80 * np.maximum(size, 2000)
    assert long_messages_differ(size, bent, index) is None
    assert long_messages_differ([], [], []) is None


def test_examples_in_the_docstrings_run():
    assert doctest.testmod(long_messages).failed == 0
