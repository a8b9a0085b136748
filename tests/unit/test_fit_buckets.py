"""Links with and without a memory: right within 1% by round trips, or refused."""

from functools import cache

import numpy as np
import pytest
from known_links import RATE, TCP, fit_tcp, link
from latprof_analysis.fits.carry_over import carry_over
from latprof_analysis.fits.fit import fit_round_trips
from latprof_analysis.fits.rounds import low_delays
from simulated_links import LINKS, SIZES, Fifo, Open, TokenBucket, ping_pong, trips_of


def fit(trips, reply_mode):
    return fit_round_trips(*trips, reply_mode=reply_mode, packets=TCP, resamples=200)


@cache
def simulated(name, seed):
    reply_mode, exchange = LINKS[name]
    return fit(trips_of(exchange(seed)), reply_mode)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", LINKS)
def test_round_trips_alone_are_right_within_1_percent_or_refused(name, seed):
    found = simulated(name, seed)
    told = found.bandwidth_bits_per_second
    if name in ("serial, echo", "serial, short reply"):
        assert told.value == pytest.approx(RATE, rel=0.002)
    else:
        assert found.model != "line"
        assert told is None
        assert found.reason


@pytest.mark.parametrize("reply_mode", ["echo", 18])
@pytest.mark.parametrize("gap_ns", [0.0, 2e6])
@pytest.mark.parametrize("delay_ns", [0.0, 5e4, 2e5, 1e6, 5e6])
@pytest.mark.parametrize("burst_bytes", [4096, 32_768, 131_072])
def test_no_token_bucket_passes_for_another_rate(
    burst_bytes, delay_ns, gap_ns, reply_mode
):
    there, back = (
        TokenBucket(burst_bytes=burst_bytes, delay_ns=delay_ns) for _ in range(2)
    )
    trips = trips_of(ping_pong(1, there, back, reply_mode, gap_ns, rounds=20))
    told = fit(trips, reply_mode).bandwidth_bits_per_second
    if told:
        assert told.value == pytest.approx(RATE, rel=0.01)


@pytest.mark.parametrize("rate", [1e6, 10e6, 100e6, 500e6])
@pytest.mark.parametrize("delay_ns", [1e4, 1e6, 1e8])
def test_serialising_links_are_told_whatever_their_rate_and_delay(delay_ns, rate):
    there, back = Fifo(rate, delay_ns), Fifo(rate, delay_ns)
    found = fit(trips_of(ping_pong(1, there, back, rounds=20)), "echo")
    # The hosts' copying, 0.06 ns a byte, is the slope's too.
    with_hosts = rate / (1 + 0.06 * rate / 8e9)
    assert found.model == "line"
    told = found.bandwidth_bits_per_second
    assert told.value == pytest.approx(with_hosts, rel=0.002)
    assert told.value <= rate * 1.002 <= told.value / (1 - found.host_share) * 1.01


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_before_the_request_is_refused_however_noisy(seed):
    # Twice the rate, but for what short messages take: so few rounds, so slow a link
    # and the line misses no size by more than its noise.
    there = TokenBucket(10e6, 16_384)
    trips = trips_of(ping_pong(seed, there, Open(), rounds=15))
    found = fit(trips, "echo")
    assert found.model == "none"
    assert found.bandwidth_bits_per_second is None


def test_steps_of_a_window_are_refused():
    # The first 10 segments go at once, twice as many after each round trip.
    size, rtt, index = trips_of(ping_pong(1, Fifo(), Fifo(), rounds=20))
    waits = np.floor(np.log2(np.maximum(1, size / 14_480)))
    found = fit((size, rtt + 2e6 * waits, index), "echo")
    assert found.model != "line"
    assert found.bandwidth_bits_per_second is None


def test_a_slope_that_may_be_a_tenth_off_is_no_answer():
    found = fit_tcp(link(1, rate=5e9, rounds=10, sizes=SIZES[::7] // 10))
    assert found.model == "none"
    assert "the slope is uncertain by over 10%" in found.reason


def test_links_without_a_memory_seldom_seem_to_have_one():
    found = []
    for seed in range(300):
        size, rtt, index = link(seed, rounds=15, sizes=SIZES[::3])
        low = low_delays(
            size.astype(float), rtt, index.astype(float), fewest=10, resamples=1, seed=1
        )
        found.append(carry_over(size.astype(float), rtt, low))
    # One in 2000 by design, of noise that comes in bursts and has no variance.
    assert sum(result is not None for result in found) <= 2


def test_the_order_of_sizes_alone_is_no_memory():
    size = np.tile(SIZES, 40).astype(float)
    rng = np.random.default_rng(1)
    rtt = 2e6 + 160 * size + rng.exponential(3e4, size.size)
    index = np.repeat(np.arange(40.0), SIZES.size)
    low = low_delays(size, rtt, index, fewest=10, resamples=1, seed=1)
    assert carry_over(size, rtt, low) is None


def test_too_few_messages_show_no_memory():
    one = np.array([64.0])
    low = low_delays(one, one, one, fewest=1, resamples=1, seed=1)
    assert carry_over(one, one, low) is None
    assert fit(link(1, rounds=3), "echo").model == "none"
