"""Clocks that count in steps: the step is found, and is in the intervals."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from known_links import RATE, TCP, fit_tcp, link, sweep, transmission_ns
from latprof_analysis.fit.line import fit_one_way, fit_round_trips
from latprof_analysis.fit.natural import WHOLE, fit_natural
from latprof_analysis.fit.rounds import clock_step
from latprof_analysis.read import read_samples
from natural_links import BYTE_NS, queued

DATA = Path(__file__).parents[1] / "data"

US = 1e3


def rounded(ns, step, rng):
    return np.rint(ns / step) * step


def cut_down(ns, step, rng):
    return np.floor(ns / step) * step


def stamps_cut_down(ns, step, rng):
    """As a tool has it that takes the difference of two coarse stamps."""
    sent = rng.uniform(0, 1e3 * step, ns.size)
    return step * (np.floor((sent + ns) / step) - np.floor(sent / step))


CLOCKS = [rounded, cut_down, stamps_cut_down]


@given(
    st.integers(2, 10_000_000),
    st.sampled_from([0.05, 1, 20]),
    st.sampled_from(["ns", "us", "ms", "s"]),
)
def test_a_step_is_found_whatever_the_unit_of_the_file(step, noise_steps, unit):
    ns = 5e6 + np.random.default_rng(1).exponential(noise_steps * 1e6, 2000)
    in_unit = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}[unit]
    written = np.unique(step * np.ceil(ns / step)) / in_unit  # and read again
    found = clock_step(written * in_unit)
    # few different multiples may have another factor in common
    assert found == step if written.size > 60 else found % step == 0


@pytest.mark.parametrize("seed", range(50))
def test_no_step_is_seen_where_the_clock_has_none(seed):
    delays = np.random.default_rng(seed).exponential(1e6, 40)
    assert clock_step(np.rint(delays)) == 0
    assert clock_step(delays) == 0
    # 40 delays of a finer clock among 10,000 of a coarse one
    coarse = rounded(1e6 + 1e5 * np.arange(10_000), 1e5, None)
    assert clock_step(np.append(coarse, np.rint(delays))) == 0


@pytest.mark.parametrize(
    ("file", "step"),
    [("iperf3_tcp.json", US), ("irtt.json", 0), ("sockperf_full_rtt.csv", 0)],
)
def test_the_step_of_what_real_tools_wrote(file, step):
    # iperf3 tells the kernel's round trip times, whose unit is a microsecond
    rows = read_samples(DATA / file).frame
    assert clock_step(rows["latency_ns"].dropna().to_numpy("float64")) == step


def test_no_delays_have_no_step():
    assert clock_step(np.array([])) == 0
    assert clock_step(np.zeros(5)) == 0


def coarse_line(seed, clock, step, sizes, rounds, noise_ns):
    """A fit, the rate, and the fixed delay, of a link of 70 to 140 Mbit/s."""
    rng = np.random.default_rng(seed)
    size, index = sweep(rng, np.geomspace(64, 64_000, sizes).round(), rounds)
    fixed, rate = rng.uniform(1e6, 3e6), RATE * rng.uniform(0.7, 1.4)
    ns = fixed + 2 * transmission_ns(TCP.wire_bytes(size), rate)
    ns = clock(ns + rng.exponential(noise_ns, size.size), step, rng)
    some = ns > 0  # below a step of 1 ms
    fit = fit_tcp((size[some], ns[some], index[some]), resamples=100)
    return fit, rate, (fixed - noise_ns * np.log(0.9)) / 1e9


def holds(estimate, truth):
    return estimate.low <= truth <= estimate.high


@pytest.mark.thorough
@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("step_us", [1, 10, 50, 100, 1000])
def test_intervals_hold_the_truth_of_coarse_clocks(clock, step_us):
    held, told, seed = [], 0, 0
    for sizes in (4, 7, 12):
        for rounds, runs in ((20, 16), (100, 16), (500, 4)):
            for noise_ns in (2e3, 3e4):
                for _ in range(runs):
                    seed += 1
                    fit, rate, fixed = coarse_line(
                        seed, clock, US * step_us, sizes, rounds, noise_ns
                    )
                    told += fit.model == "line"
                    bandwidth = fit.bandwidth_bits_per_second
                    if bandwidth:
                        slope = 2 * 8e9 / rate / TCP.payload_share
                        held.append(
                            (
                                holds(bandwidth, rate),
                                holds(fit.slope_ns_per_byte, slope),
                                holds(fit.fixed_delay_seconds, fixed),
                            )
                        )
    # of 216 runs: a standard error of 1.5%
    assert (np.mean(held, axis=0) >= 0.92).all()
    # steps of 1 ms on delays of 2 to 14 ms may leave the slope too uncertain
    assert told / seed > (0.7 if step_us == 1000 else 0.97)


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_step_is_told_of_and_widens_an_interval_of_no_width(clock):
    fit, rate, _ = coarse_line(1, clock, 100 * US, 7, 40, 2e3)
    bandwidth = fit.bandwidth_bits_per_second
    assert bandwidth.low < rate < bandwidth.high
    # 100 us of the 10 ms that the longest messages take
    assert 0.002 < (bandwidth.high - bandwidth.low) / rate < 0.03
    (told,) = [caveat for caveat in fit.caveats if "steps of" in caveat]
    assert "steps of 100 us" in told


def test_delays_cut_down_are_half_a_step_late_within_the_interval():
    rng = np.random.default_rng(3)
    size, index = sweep(rng, rounds=400)
    ns = 2e6 + 80 * size + rng.exponential(1e6, size.size)  # spread over many steps
    cut = cut_down(ns, 50 * US, rng)
    fine, coarse = (
        fit_one_way(size, delay, index).fixed_delay_seconds for delay in (ns, cut)
    )
    assert fine.value - coarse.value == pytest.approx(25e-6, rel=0.3)
    assert coarse.low < fine.value < coarse.high


def test_without_a_step_the_intervals_are_what_they_were():
    # as told before steps were looked for
    fit = fit_tcp(link(1))
    bandwidth, fixed = fit.bandwidth_bits_per_second, fit.fixed_delay_seconds
    assert [bandwidth.low, bandwidth.high] == pytest.approx(
        [99974190.42537406, 100016034.64537637], rel=1e-9
    )
    assert [fixed.low, fixed.high] == pytest.approx(
        [0.0020029427229698747, 0.0020041316082211147], rel=1e-9
    )
    assert not any("steps of" in caveat for caveat in fit.caveats)
    size, rtt, index = link(1)
    in_ns = fit_round_trips(size, np.rint(rtt), index, reply_mode="echo", packets=TCP)
    assert in_ns.bandwidth_bits_per_second.low == pytest.approx(
        99974190.42537406, rel=1e-6
    )


def test_intervals_of_natural_traffic_hold_the_truth_of_coarse_clocks():
    held = []
    for seed in range(60):
        messages = queued(seed, load=0.3)
        rng, step = np.random.default_rng(seed), (10, 100)[seed % 2] * US
        coarse = CLOCKS[seed % 3](messages.delays_ns[WHOLE], step, rng)
        fit = fit_natural(replace(messages, delays_ns={WHOLE: coarse}))
        if fit.model == "line":
            held.append(holds(fit.slope_ns_per_byte, BYTE_NS))
    # a standard error of 3%
    assert len(held) > 50
    assert np.mean(held) > 0.88
