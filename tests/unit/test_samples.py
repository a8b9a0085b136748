"""Sampled messages: histograms of both directions, and fits that follow the link."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from latprof_agent.monitor.reservoir import DECAY_NS, MOST_OF_A_CELL, MOST_ROWS
from latprof_agent.monitor.samples import FITTED_AGAIN_NS, NO_GROUP, Samples
from latprof_agent.monitor.totals import Group, Quantity
from latprof_analysis.stages import BLANK
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from natural_links import BYTE_NS, DELAY_NS, fifo, log_normal, pareto
from sampled_rows import link_stamps, messages_rows

CLIENT, SERVER = Group("tcp", "client", "80"), Group("tcp", "server", "80")
GROUPS = {0: CLIENT, 1: SERVER}
SECOND = 1_000_000_000


def groups_of(rows, number):
    return np.full(len(rows), number)


def traffic(seed, n, start_ns=SECOND, byte_ns=BYTE_NS, seconds=None, load=0.3):
    """Messages over a FIFO link, sent within so many seconds."""
    rng = np.random.default_rng(seed)
    size = log_normal(rng, n)
    t_ns, waited = fifo(rng, size, load, byte_ns=byte_ns)
    if seconds:
        t_ns = t_ns / t_ns[-1] * seconds * SECOND
    delay = DELAY_NS + waited + pareto(rng, n) + 2e4
    return messages_rows(size, link_stamps(start_ns + t_ns, delay))


def fitted(samples, now_ns, groups=GROUPS):
    """All fits, made at that time."""
    samples.step(now_ns)
    while samples._targets:
        samples._next_ns = 0
        samples.step(now_ns)
    samples._next_ns = 0
    return samples.fits(groups)


def test_a_message_counts_for_both_of_its_groups_each_in_its_direction():
    rng = np.random.default_rng(1)
    rows = traffic(1, 5000)
    sent, received = rng.integers(-1, 4, (2, 5000))
    rows.numbers["arrive_ns"][rng.random(5000) < 0.2] = BLANK
    rows.numbers["read_ns"][rng.random(5000) < 0.1] = BLANK
    samples = Samples()
    for part in np.array_split(np.arange(5000), 13):
        samples.add(rows.take(part), sent[part], received[part])
    found = samples.histograms()

    expected: dict[tuple[int, str], list[int]] = {}
    for i in range(5000):
        row = rows.row(i)
        for prefix, group in (("", sent[i]), ("received_", received[i])):
            for name, first, last in (
                ("transit", "xmit_ns", "arrive_ns"),
                ("end_to_end", "send_ns", "read_ns"),
            ):
                if group != NO_GROUP and row[first] and row[last]:
                    key = int(group), prefix + name
                    expected.setdefault(key, []).append(row[last] - row[first])
    assert {(g, q.value) for g, q in found} == set(expected)
    for (group, name), values in expected.items():
        histogram, wanted = found[group, Quantity(name)], CoarseHistogram.of(values)
        assert histogram.sum_ns == wanted.sum_ns
        assert (histogram.counts == wanted.counts).all()


def test_groups_have_the_fit_of_their_link_in_the_direction_of_their_messages():
    samples = Samples()
    rows = traffic(2, 4000)
    samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
    fits = fitted(samples, 60 * SECOND)
    assert set(fits) == {
        (CLIENT, Quantity.TRANSIT),
        (CLIENT, Quantity.END_TO_END),
        (SERVER, Quantity.RECEIVED_TRANSIT),
        (SERVER, Quantity.RECEIVED_END_TO_END),
    }
    for fit in fits.values():
        low, high = fit.bandwidth_low, fit.bandwidth_high
        assert low <= fit.bandwidth_bytes_per_second <= high
        assert fit.bandwidth_bytes_per_second == pytest.approx(12.5e6, rel=0.01)
        assert fit.fixed_delay_low_ns <= fit.fixed_delay_ns <= fit.fixed_delay_high_ns
        assert DELAY_NS < fit.fixed_delay_ns < DELAY_NS + 60_000
        assert fit.r_squared > 0.999
        assert 500 < fit.messages <= 4000
    assert samples.fits({0: CLIENT}).keys() == {k for k in fits if k[0] == CLIENT}


def test_messages_that_the_sample_did_not_choose_are_in_no_fit():
    samples = Samples()
    rows, slow = traffic(3, 3000), traffic(4, 3000, byte_ns=100 * BYTE_NS)
    samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
    samples.add(slow, groups_of(slow, NO_GROUP), groups_of(slow, NO_GROUP))
    fits = fitted(samples, 60 * SECOND)
    fit = fits[CLIENT, Quantity.END_TO_END]
    assert fit.bandwidth_bytes_per_second == pytest.approx(12.5e6, rel=0.02)
    assert samples.histograms()[0, Quantity.END_TO_END].count == 3000


def on_two_ways(samples, rng, second, byte_ns, base_ns):
    """Messages of which `second` go another way, with a line of its own each."""
    size = log_normal(rng, 4000)
    way = second(size).astype(int)
    t_ns = SECOND + np.cumsum(rng.exponential(1e6, 4000))
    delay = np.choose(way, base_ns) + np.choose(way, byte_ns) * size + pareto(rng, 4000)
    rows = messages_rows(size, link_stamps(t_ns, delay), ("a -> b", "a -> c"), way)
    samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
    return fitted(samples, 60 * SECOND)


def test_two_ways_of_a_group_make_no_line():
    """Short messages to who is near, long ones to who is far."""
    rng = np.random.default_rng(5)
    assert (
        on_two_ways(Samples(), rng, lambda size: size > 4000, (10, 10), (1e6, 2e7))
        == {}
    )


def test_the_way_of_most_messages_is_the_groups():
    rng = np.random.default_rng(6)
    fits = on_two_ways(
        Samples(), rng, lambda size: rng.random(size.size) < 0.1, (80, 10), (1e6, 2e5)
    )
    assert fits
    for fit in fits.values():
        assert fit.bandwidth_bytes_per_second == pytest.approx(12.5e6, rel=0.02)
        assert fit.fixed_delay_ns == pytest.approx(1e6, rel=0.05)


def test_fits_follow_a_link_that_becomes_slower_within_five_minutes():
    samples = Samples()
    rate = 12.5e6
    for minute in range(10):
        slower = minute >= 5
        rows = traffic(
            minute,
            2000,
            (1 + 60 * minute) * SECOND,
            (5 if slower else 1) * BYTE_NS,
            seconds=60,
        )
        samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
        fit = fitted(samples, 60 * (minute + 1) * SECOND).get(
            (CLIENT, Quantity.END_TO_END)
        )
        if minute < 5:
            assert fit.bandwidth_bytes_per_second == pytest.approx(rate, rel=0.02)
        if minute == 9:
            assert fit is None or fit.bandwidth_bytes_per_second == pytest.approx(
                rate / 5, rel=0.05
            )


def test_what_comes_no_more_has_no_fit_after_a_while():
    samples = Samples()
    rows = traffic(2, 4000)
    samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
    assert fitted(samples, 60 * SECOND)
    assert fitted(samples, 1200 * SECOND) == {}


def test_memory_is_bounded_by_rows_and_cells_whatever_comes():
    samples, rng = Samples(), np.random.default_rng(1)
    for seed in range(12):
        n = 20_000
        size = np.exp2(rng.uniform(0, 31, n))
        stamps = link_stamps(SECOND * (seed + rng.random(n)), np.full(n, 50_000))
        ways = [f"a -> b:{i}" for i in range(1000)]
        rows = messages_rows(size, stamps, ways, rng.integers(0, 1000, n))
        samples.add(rows, *rng.integers(0, 256, (2, n)))
    samples.step(20 * SECOND)
    assert len(samples._reservoir._kept) <= MOST_ROWS
    assert samples._waiting_rows == 0
    cells = Counter(samples._reservoir._kept["cell"].tolist())
    assert max(cells.values()) <= MOST_OF_A_CELL
    assert len(samples.histograms()) == 4 * 256


def test_what_is_kept_is_younger_by_the_decay_and_else_by_chance():
    samples = Samples()
    seconds = 1200
    for minute in range(seconds // 60):
        n = 6000
        t_ns = SECOND * (60 * minute + np.linspace(0, 60, n, endpoint=False) + 1)
        rows = messages_rows(np.full(n, 100), link_stamps(t_ns, np.full(n, 50_000)))
        samples.add(rows, np.arange(n) % 20, groups_of(rows, NO_GROUP))
    samples.step(seconds * SECOND)
    kept = samples._reservoir._kept
    assert 20 * MOST_OF_A_CELL - 5 <= len(kept) <= 20 * MOST_OF_A_CELL
    age = seconds + 1 - kept["t_ns"] / SECOND
    # exponential of 120 s, but for a twentieth of the youngest, which are all kept;
    # 1280 of them tell a share to 1.4%
    younger = np.mean(age < DECAY_NS / SECOND)
    assert younger == pytest.approx(1 - np.exp(-1), abs=0.05)
    assert np.median(age) == pytest.approx(np.log(2) * 120, rel=0.12)


def test_fits_keep_to_their_share_of_the_cpu():
    used = 0

    def cpu_ns():
        nonlocal used
        used += 10_000_000  # whatever is done takes 10 ms
        return used

    samples = Samples(cpu_ns)
    rows = traffic(2, 4000)
    samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
    hour_ns = 3600 * SECOND
    for now_ns in range(0, hour_ns, SECOND // 4):
        samples.step(now_ns)
    assert used / 2 <= 0.0021 * hour_ns
    assert used / 2 >= 0.0015 * hour_ns


def test_fits_are_not_made_anew_all_the_time():
    calls = 0

    def cpu_ns():
        nonlocal calls
        calls += 1
        return 0

    samples = Samples(cpu_ns)
    rows = traffic(2, 500)
    samples.add(rows, groups_of(rows, 0), groups_of(rows, 1))
    samples.step(FITTED_AGAIN_NS)
    begun = samples._begun_ns
    samples.step(FITTED_AGAIN_NS + 1)
    assert samples._begun_ns == begun
    assert calls
