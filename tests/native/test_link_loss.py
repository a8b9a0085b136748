"""Random loss of latprof-link against the arithmetic of Gilbert and Elliott.

Bounds are five standard deviations; the seeds are fixed.
"""

import os
import re
import statistics

import pytest
from stamped import Flow, wait_for_counters

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")


def losses(lab, count):
    """Send `count` datagrams; tell of each if it was lost, and the counters."""
    received = set()
    with Flow(lab) as flow:
        for begin in range(0, count, 500):
            for number in range(begin, begin + 500):
                flow.send(number, 8)
            counters = wait_for_counters(lab, "ab", begin + 500)
            expected = counters["packets_out"] - len(received)
            received |= {arrival.number for arrival in flow.receive_all(expected)}
    return [number not in received for number in range(count)], counters


def runs(lost):
    """Lengths of the runs of losses."""
    text = "".join("x" if one else "." for one in lost)
    return [len(run) for run in re.findall("x+", text)]


def test_independent_loss_has_its_probability_and_its_run_length(link):
    count, loss = 20_000, 0.1
    lost, counters = losses(link(loss=loss), count)
    assert sum(lost) == counters["dropped_loss"]
    assert counters["packets_out"] + counters["dropped_loss"] == count
    # Binomial: five standard deviations, 0.1 +- 0.0106.
    assert abs(sum(lost) / count - loss) < 5 * (loss * (1 - loss) / count) ** 0.5
    # Geometric: 1 / (1 - loss) = 1.111; sd 0.35 over 1800 runs: 0.0083 each.
    assert statistics.mean(runs(lost)) == pytest.approx(1 / (1 - loss), abs=0.042)


def test_bursty_loss_has_its_rate_and_its_run_length(link):
    count, loss, burst = 20_000, 0.1, 5
    lost, counters = losses(link(loss=loss, loss_burst=burst), count)
    assert sum(lost) == counters["dropped_loss"]
    # About 400 runs, geometric of mean 5 and sd 4.5: 0.22 each, five of them.
    assert statistics.mean(runs(lost)) == pytest.approx(burst, abs=1.1)
    # Correlated over 2 / (p + r) - 1 = 8 packets: as n / 8 independent ones.
    assert abs(sum(lost) / count - loss) < 5 * (loss * (1 - loss) / count * 8) ** 0.5


def test_gilbert_elliott_has_its_stationary_loss(link):
    count, p, r, in_good, in_bad = 20_000, 0.02, 0.2, 0.01, 0.7
    lost, counters = losses(link(f"--ge={p},{r},{in_good},{in_bad}"), count)
    loss = (r * in_good + p * in_bad) / (p + r)  # 0.0727
    assert sum(lost) == counters["dropped_loss"]
    assert abs(sum(lost) / count - loss) < 5 * (loss * (1 - loss) / count * 8) ** 0.5


def test_the_same_seed_loses_the_same_packets(link):
    first, _ = losses(link(loss=0.2, seed=7), 500)
    again, _ = losses(link(loss=0.2, seed=7), 500)
    other, _ = losses(link(loss=0.2, seed=8), 500)
    assert first == again
    assert first != other
