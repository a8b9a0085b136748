"""Where a line is refused, doubted, or cannot be drawn at all."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from known_links import RATE, SIZES, exponential, fit_tcp, link, sweep, token_bucket
from latprof_analysis.fit.line import fit_one_way, fit_round_trips


@pytest.mark.parametrize("reply_mode", ["echo", 18])
def test_a_token_bucket_with_pauses_is_no_line(reply_mode):
    fit = fit_tcp(token_bucket(1, 16_384, reply_mode), reply_mode)
    assert fit.model == "hinge"
    assert fit.delta_bic > 100
    assert fit.bandwidth_bits_per_second is None
    assert fit.fixed_delay_seconds is None
    # Knot: 16384 bytes on the wire are carried in 11 segments.
    assert fit.hinge.knot_bytes.value == pytest.approx(16_384 - 11 * 52, rel=0.01)
    above = fit.hinge.above.bandwidth_bits_per_second
    assert above.value == pytest.approx(RATE, rel=0.01)
    assert fit.hinge.below.bandwidth_bits_per_second is None


@pytest.mark.parametrize(("fit", "factor"), [(fit_round_trips, 2), (fit_one_way, 1)])
def test_two_slopes_are_told_with_both_rates_and_the_size_where_they_meet(fit, factor):
    # 100 Mbit/s up to 8000 bytes, and 1 Gbit/s beyond
    rng = np.random.default_rng(1)
    size, index = sweep(rng)
    ns = 80 * np.minimum(size, 8000) + 8 * np.maximum(0, size - 8000)
    ns = 1e6 + factor * ns + rng.exponential(1e3, size.size)
    options = {"reply_mode": "echo"} if factor == 2 else {}
    found = fit(size, ns, index, **options)
    hinge = found.hinge
    for side, rate in ((hinge.below, 100e6), (hinge.above, 1e9)):
        bandwidth = side.bandwidth_bits_per_second
        assert bandwidth.low <= rate <= bandwidth.high
        assert bandwidth.high - bandwidth.low < 0.02 * rate
    assert hinge.knot_bytes.value == pytest.approx(8000, rel=0.01)
    told = found.as_dict()["hinge"]["sentence"]
    pattern = r"up to (\d+) bytes at (\S+) Mbit/s \[.*\], what is above at (\S+) (\w)"
    knot, below, above, unit = re.match(pattern, told).groups()
    assert float(knot) == pytest.approx(8000, rel=0.01)
    assert float(below) == pytest.approx(100, rel=0.01)
    assert float(above) * {"M": 1, "G": 1e3}[unit] == pytest.approx(1000, rel=0.01)


def test_a_side_without_a_rate_is_told_by_its_slope():
    hinge = fit_tcp(token_bucket(1, 16_384)).hinge
    flat = replace(hinge.below.slope_ns_per_byte, low=-0.1)
    bare = replace(hinge.below, slope_ns_per_byte=flat, bandwidth_bits_per_second=None)
    assert (
        "in no measurable time for a byte, what" in replace(hinge, below=bare).sentence
    )
    steep = replace(hinge.above, bandwidth_bits_per_second=None)
    # 2 x 80 ns for 1500 bytes that carry 1448, and the hosts' 0.1
    assert "what is above at 166 ns a byte [16" in replace(hinge, above=steep).sentence


@pytest.mark.thorough
def test_intervals_of_a_hinge_cover_the_truth():
    fits = [fit_tcp(token_bucket(seed, 16_384), resamples=200) for seed in range(250)]
    above = [fit.hinge.above.bandwidth_bits_per_second for fit in fits]
    # The hosts' 0.1 ns a byte of the request come on top of twice 80 ns.
    rate = 2 * 8e9 / (2 * 80 + 0.1)
    # A standard error of 250 runs is 1.4%.
    assert 0.92 <= np.mean([e.low <= rate <= e.high for e in above]) <= 0.98
    # 16384 bytes on the wire are 11 segments.
    knots, payload = [fit.hinge.knot_bytes for fit in fits], 16_384 - 11 * 52
    assert 0.92 <= np.mean([e.low <= payload <= e.high for e in knots]) <= 0.98
    # Above the knot both directions wait: RTT = 50 us + 2 (W - 16384) 80 ns.
    truth = (50e3 - 2 * 16_384 * 80) / 1e9
    found = np.median([fit.hinge.above.intercept_seconds.value for fit in fits])
    assert found == pytest.approx(truth, abs=10e-6)


@pytest.mark.parametrize("burst_bytes", [32_768, 48_000, 60_000])
def test_a_bend_too_near_the_largest_size_is_refused_without_segments(burst_bytes):
    fit = fit_tcp(token_bucket(1, burst_bytes))
    assert fit.model == "none"
    assert "sizes on one side of the bend where 3 are needed" in fit.reason
    assert fit.bandwidth_bits_per_second is None
    assert fit.hinge is None


def test_a_straight_link_is_no_hinge():
    models = [fit_tcp(link(seed), resamples=100).model for seed in range(60)]
    assert models == ["line"] * 60


def test_steps_of_a_slow_start_are_no_line():
    size, rtt, index = link(1, noise=exponential)
    windows = np.ceil(np.log2(np.maximum(1, size / 14_480)))  # 10 segments, then twice
    fit = fit_tcp((size, rtt + 4e6 * windows, index))
    assert fit.model != "line"
    assert fit.bandwidth_bits_per_second is None


def test_delays_that_do_not_grow_have_no_bandwidth():
    rng = np.random.default_rng(3)
    size, index = sweep(rng)
    fit = fit_tcp((size, 1e6 + rng.exponential(1e5, size.size), index))
    assert fit.model == "none"
    assert "do not grow measurably with size" in fit.reason


def test_delays_that_fall_have_no_bandwidth():
    rng = np.random.default_rng(3)
    size, index = sweep(rng)
    fit = fit_tcp((size, 1e8 - 80 * size + exponential(rng, size.size), index))
    assert fit.model == "none"
    assert "do not grow" in fit.reason
    assert fit.bandwidth_bits_per_second is None


def test_at_the_speed_of_memory_the_figure_is_that_of_the_hosts():
    rng = np.random.default_rng(3)
    size, index = sweep(rng)
    trips = size, 8e3 + 0.13 * size + rng.exponential(300, size.size), index
    fit = fit_tcp(trips)
    assert fit.model == "line"
    assert fit.host_limited
    assert fit.bandwidth_bits_per_second is None
    assert fit.slope_ns_per_byte.value == pytest.approx(0.13, rel=0.01)
    assert "no bandwidth of the link: hosts and link together" in fit.caveats[-1]


def test_too_few_sizes_have_no_line():
    fit = fit_tcp(link(1, sizes=np.array([64, 1000, 60_000])))
    assert fit.model == "none"
    assert fit.reason == "a line needs 4 sizes with 10 round trips each, got 3"


def test_too_few_round_trips_have_no_line():
    fit = fit_tcp(link(1, rounds=9))
    assert fit.model == "none"
    assert "sizes left out for fewer than 10 round trips: 18, " in fit.caveats[0]


def test_few_rounds_and_few_sizes_are_caveats():
    fit = fit_tcp(link(1, noise=exponential, rounds=12, sizes=SIZES[::4]))
    assert fit.model == "line"
    assert "fewer than 20 rounds, got 12" in fit.caveats[0]
    assert "fewer than 6 sizes" in fit.caveats[1]


@pytest.mark.parametrize(
    "trips", [([], [], []), link(1), token_bucket(1, 16_384), link(1, rounds=3)]
)
def test_a_fit_is_json(trips):
    stored = fit_tcp(trips).as_dict()
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored
    estimate = stored["bandwidth_bits_per_second"]
    assert estimate is None or set(estimate) == {"value", "low", "high", "n"}


GOOD = [64, 128], [1e5, 2e5], [0, 0]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (([64], [1e5, 2e5], [0, 0]), {}, "equal length, got 1, 2 and 2"),
        (([[64]], [1e5], [0]), {}, r"size_bytes must have shape \(n,\), got \(1, 1\)"),
        (([64], [np.nan], [0]), {}, "rtt_ns must be finite, got nan"),
        (([64], [1e5], [np.inf]), {}, "round_index must be finite, got inf"),
        (([0], [1e5], [0]), {}, "size_bytes must be more than 0, got 0"),
        (([64], [-5], [0]), {}, "rtt_ns must be more than 0, got -5"),
        (([64], [1e5], [-1]), {}, "round_index must be 0 or more, got -1"),
        (GOOD, {"reply_mode": "short"}, "reply_mode must be 'echo' or a number"),
        (GOOD, {"reply_mode": -1}, "reply_mode must be .* got -1"),
        (GOOD, {"confidence": 1}, "confidence must be between 0 and 1, got 1"),
        (GOOD, {"resamples": 1}, "resamples must be 100 or more, got 1"),
    ],
)
def test_bad_input_is_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        fit_round_trips(*columns, **{"reply_mode": "echo", **options})
