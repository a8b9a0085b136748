"""What a packet takes beyond its bytes: closed forms, coverage, what cannot be told."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_links import SIZES, link, sweep, token_bucket
from latprof_analysis.fit.caveats import packet_cost
from latprof_analysis.fit.line import fit_one_way, fit_round_trips
from latprof_analysis.fit.rounds import low_delays
from latprof_analysis.fit.wire import Crossing, Packets

TCP = Packets.tcp(mtu_bytes=1500)
BARE = replace(TCP, overhead_bytes=0)  # as if nobody had told of the headers
BYTE_NS = 80.0
EIGHT = [64, 256, 700, 1400, 2500, 4000, 16_000, 64_000]


def cost_of(size, delay, rounds, packets=TCP, confidence=0.95, resamples=200):
    low = low_delays(
        size, delay, rounds, fewest=10, resamples=resamples, seed=len(size)
    )
    return packet_cost(Crossing.one_way(low.size_bytes, packets), low, confidence)


@settings(max_examples=25, deadline=None)
@given(
    byte_ns=st.floats(1, 800),
    packet_ns=st.floats(100, 20_000),
    mtu=st.integers(1280, 9000),
    reply=st.sampled_from(["echo", 18, 5000]),
)
def test_bytes_and_packets_are_told_apart_exactly(byte_ns, packet_ns, mtu, reply):
    size, rounds = sweep(np.random.default_rng(1), rounds=20)
    cut = Packets.tcp(mtu_bytes=mtu)
    crossing = Crossing.round_trip(size.astype(float), cut, reply)
    rtt = 1e6 + byte_ns * crossing.wire_bytes + packet_ns * crossing.packets
    rtt = rtt + rounds % 2 * 1e-3  # equal delays have no spread
    fit = fit_round_trips(
        size, rtt, rounds, reply_mode=reply, packets=cut, resamples=100
    )
    assert fit.packet_cost.per_packet_ns.value == pytest.approx(packet_ns, rel=1e-4)
    bandwidth = fit.packet_cost.bandwidth_bits_per_second.value
    assert bandwidth == pytest.approx(8e9 / byte_ns, rel=1e-6)


NOISES = {
    "normal": lambda rng, n: rng.normal(2e5, 2e4, n),
    "exponential": lambda rng, n: rng.exponential(2e4, n),
    "half Cauchy": lambda rng, n: 1e4 * np.abs(rng.standard_cauchy(n)),
}


def holds(estimate, truth):
    return estimate is not None and estimate.low <= truth <= estimate.high


@pytest.mark.parametrize("sizes", [SIZES, EIGHT])
def test_intervals_cover_the_truth_whatever_the_noise(sizes):
    held = []
    for noise in NOISES.values():
        for seed in range(150):
            rng = np.random.default_rng(seed)
            size, rounds = sweep(rng, np.array(sizes), rounds=50)
            crossing = Crossing.one_way(size.astype(float), TCP)
            delay = 1e6 + BYTE_NS * crossing.wire_bytes + 3000 * crossing.packets
            found = cost_of(size, delay + noise(rng, size.size), rounds)
            rate = found.bandwidth_bits_per_second
            held.append(
                (
                    holds(found.per_packet_ns, 3000),
                    holds(rate, 8e9 / BYTE_NS),
                )
            )
    # of 450 runs: a standard error of 1%
    for share in np.mean(held, axis=0):
        assert 0.92 <= share <= 0.98


def test_headers_that_nobody_told_of_are_a_packets_own_time():
    fit = fit_round_trips(*link(3), reply_mode="echo", packets=BARE)
    cost = fit.packet_cost
    header_ns = TCP.overhead_bytes * BYTE_NS
    assert cost.per_packet_ns.low < header_ns < cost.per_packet_ns.high
    assert cost.per_packet_ns.low > 0
    # The line holds the headers for the link's slowness, and says so.
    assert fit.bandwidth_bits_per_second.high < 0.975 * 100e6
    assert cost.bandwidth_bits_per_second.value == pytest.approx(100e6, rel=0.01)
    assert any(caveat.startswith("a packet takes ") for caveat in fit.caveats)


def test_where_headers_are_known_packets_take_nothing_and_no_caveat_says_so():
    fit = fit_round_trips(*link(3), reply_mode="echo", packets=TCP)
    assert fit.packet_cost.per_packet_ns.low < 0 < fit.packet_cost.per_packet_ns.high
    assert "not told from none" in fit.packet_cost.reason
    assert not any("packet takes" in caveat for caveat in fit.caveats)


def test_links_in_a_row_are_no_time_of_packets():
    # Each of three links takes a message of one packet whole before it sends it on.
    rng = np.random.default_rng(1)
    size, rounds = sweep(rng)
    wire = TCP.wire_bytes(size)
    delay = BYTE_NS * (wire + 2 * np.minimum(wire, 1500)) + rng.exponential(500, 2000)
    found = cost_of(size, 1e6 + delay, rounds)
    assert found.per_packet_ns is None or found.per_packet_ns.low < 0


def test_packets_that_would_take_less_than_nothing_have_a_reason():
    size, rounds = sweep(np.random.default_rng(1))
    delay = BYTE_NS * TCP.wire_bytes(size) - 9000 * TCP.packets(size)
    noise = np.random.default_rng(2).exponential(500, 2000)
    found = cost_of(size, 1e6 + delay + noise, rounds)
    assert found.per_packet_ns is None
    assert found.bandwidth_bits_per_second is None
    assert "several links in a row" in found.reason


def test_a_delay_of_another_shape_gives_a_wide_interval():
    found = cost_of(*token_bucket(1, 16_384))
    cost = found.per_packet_ns
    # A packet of this link takes 120 us; the bucket lets the first ten by.
    assert cost is None or cost.high - cost.low > 20_000


@pytest.mark.parametrize(
    ("sizes", "packets", "why"),
    [
        (SIZES, Packets(), "how messages are cut into packets is not known"),
        (np.arange(100, 1400, 150), TCP, "all messages are of as many packets"),
        ([64, 512, 1400, 2000, 4000, 9000, 64_000], TCP, "8 sizes are needed, got 7"),
        (1448 * np.arange(1, 9), TCP, "packets grow in step with bytes"),
    ],
)
def test_what_cannot_be_told_has_a_reason(sizes, packets, why):
    size, rounds = sweep(np.random.default_rng(1), np.array(sizes), rounds=20)
    found = cost_of(size, 1e6 + BYTE_NS * size + rounds, rounds, packets)
    assert found.per_packet_ns is None
    assert why in found.reason


def test_it_is_in_the_json_of_a_fit():
    size, delay, rounds = link(1, reply_mode=18)
    found = fit_one_way(size, delay, rounds, packets=TCP, resamples=100).as_dict()
    assert set(found["packet_cost"]) == {
        "reason",
        "per_packet_ns",
        "bandwidth_bits_per_second",
    }
    assert found["packet_cost"]["per_packet_ns"]["n"] == 2000
