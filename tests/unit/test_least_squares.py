"""Least squares on means of five, against scipy, the text's figures and known links."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_links import RATE, TCP, burst, exponential, fit_tcp, link, pareto_spikes
from latprof_analysis.fit.rivals import fit_means_of_five, means_of_five
from scipy import stats

GOODPUT = RATE * TCP.payload_share


def slow_means(sizes, times):
    """By fives of each size in order, one by one."""
    waiting, found = {}, []
    for size, time in zip(sizes, times, strict=True):
        waiting.setdefault(size, []).append(time)
    for size in sorted(waiting):
        of_size = waiting[size]
        while of_size:
            found.append((size, sum(of_size[:5]) / len(of_size[:5])))
            of_size = of_size[5:]
    return found


@given(
    st.lists(
        st.tuples(st.sampled_from([18, 64, 500, 9000]), st.integers(1, 10**9)),
        min_size=1,
        max_size=80,
    )
)
def test_means_are_those_of_each_five_in_the_order_in_which_they_came(rows):
    sizes, times = np.array(rows, dtype=float).T
    found = list(zip(*means_of_five(sizes, times), strict=True))
    assert [size for size, _ in found] == [
        size for size, _ in slow_means(*zip(*rows, strict=True))
    ]
    for (_, mean), (_, slow) in zip(found, slow_means(sizes, times), strict=True):
        assert mean == pytest.approx(slow, rel=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_line_is_scipys_through_the_means(seed):
    size, rtt, _ = link(seed, noise=exponential)
    found = fit_means_of_five(size, rtt, outliers="kept")
    x, y = np.array(slow_means(size, rtt)).T
    line = stats.linregress(x, y)
    t = stats.t.ppf(0.975, len(x) - 2)
    slope = found.slope_ns_per_byte
    assert slope.value == pytest.approx(line.slope)
    assert slope.high - slope.low == pytest.approx(2 * t * line.stderr)
    delay = found.fixed_delay_seconds
    assert delay.value == pytest.approx(line.intercept / 1e9)
    assert delay.high - delay.low == pytest.approx(2e-9 * t * line.intercept_stderr)
    assert found.r_squared == pytest.approx(line.rvalue**2)
    assert (found.means, found.removed, found.n) == (len(x), 0, size.size)


def test_the_published_line_gives_the_bandwidth_that_it_stands_for():
    # Printed: slope 0.0000016977 ms a byte, intercept 0.0818 ms. Its unit was
    # printed the wrong way round; the change of size over that of delay is
    # 1 / 1.6977e-6 = 589 032 bytes a ms, which is 4.712 Gbit/s.
    size = np.repeat([18, 1000, 16_384, 65_535], 10)
    rtt_ns = (0.0000016977 * size + 0.0818) * 1e6
    found = fit_means_of_five(size, rtt_ns)
    assert found.bandwidth_as_written.value == pytest.approx(4.712e9, rel=1e-4)
    assert found.fixed_delay_seconds.value == pytest.approx(81.8e-6)
    assert found.bandwidth_bits_per_second is None
    assert found.factor is None


@pytest.mark.parametrize(("reply_mode", "factor"), [("echo", 2), (18, 1)])
def test_as_written_a_round_trip_of_an_echo_has_half_of_the_bandwidth(
    reply_mode, factor
):
    size, rtt, _ = link(1, reply_mode, noise=exponential)
    found = fit_means_of_five(size, rtt, reply_mode=reply_mode)
    assert found.factor == factor
    as_written = found.bandwidth_as_written.value
    assert as_written * factor == pytest.approx(GOODPUT, rel=0.01)
    told = found.bandwidth_bits_per_second.value
    assert told == pytest.approx(factor * as_written)


def test_fences_remove_what_is_far_from_the_quartiles_of_its_size():
    rng = np.random.default_rng(3)
    size = np.repeat([100.0, 5000.0], 60)
    rtt = 1e6 + 10 * size + rng.exponential(1e4, 120)
    rtt[[7, 70]] += 1e7
    outside = 0
    for wanted in (100, 5000):
        of_size = rtt[size == wanted]
        reach = 1.5 * stats.iqr(of_size)
        outside += np.sum(of_size > np.percentile(of_size, 75) + reach)
        outside += np.sum(of_size < np.percentile(of_size, 25) - reach)
    found = fit_means_of_five(size, rtt)
    assert found.removed == outside >= 2
    assert found.n == 120 - outside


@pytest.mark.parametrize("noise", [pareto_spikes, burst])
def test_outliers_move_least_squares_and_not_the_default_answer(noise):
    rate, wrong = 1e9, []
    for seed in range(12):
        trips = link(seed, noise=noise, rate=rate)
        default = fit_tcp(trips, resamples=100).bandwidth_bits_per_second.value
        assert default == pytest.approx(rate, rel=0.01)
        kept = fit_means_of_five(*trips[:2], outliers="kept", reply_mode="echo")
        told = kept.bandwidth_bits_per_second
        error = 1 if told is None else abs(told.value / (rate * TCP.payload_share) - 1)
        wrong.append(error)
    # Spikes of several ms on delays of at most 3 ms: 1.3 to 5% seen, the burst more.
    assert np.median(wrong) > 0.02


def test_fences_hold_against_spikes_but_not_against_a_burst_over_one_size():
    size = np.repeat([1000.0, 8000.0, 20_000.0, 60_000.0], 50)  # swept in order
    rng = np.random.default_rng(1)
    rtt = 2e6 + 160 * size + rng.exponential(3e4, 200)
    spiky = rtt + 5e6 * (rng.random(200) < 0.04)
    held = fit_means_of_five(size, spiky, reply_mode="echo").bandwidth_bits_per_second
    assert held.value == pytest.approx(RATE, rel=0.01)
    burst_on_one = rtt + 3e6 * (size == 60_000)
    moved = fit_means_of_five(size, burst_on_one, reply_mode="echo")
    assert moved.removed < 20
    assert moved.bandwidth_bits_per_second.value < 0.9 * RATE


def test_intervals_cover_the_truth_where_noise_is_normal():
    rng = np.random.default_rng(1)
    size = np.tile([100.0, 3000, 9000, 30_000, 60_000], 20)
    runs = 1000
    hits = np.zeros(2)
    for _ in range(runs):
        rtt = 2e6 + 160 * size + rng.normal(0, 5e4, 100)
        found = fit_means_of_five(size, rtt, outliers="kept")
        slope, delay = found.slope_ns_per_byte, found.fixed_delay_seconds
        hits += [slope.low <= 160 <= slope.high, delay.low <= 2e-3 <= delay.high]
    # 95% by the closed form; three standard deviations of 1000 runs are 2.1%.
    assert (np.abs(hits / runs - 0.95) < 0.021).all()


def test_a_slope_that_may_be_zero_has_no_bandwidth():
    rng = np.random.default_rng(2)
    size = np.tile([100.0, 1000, 2000], 20)
    found = fit_means_of_five(size, 1e6 + rng.exponential(1e5, 60), reply_mode="echo")
    assert found.bandwidth_as_written is None
    assert found.bandwidth_bits_per_second is None
    assert json.loads(json.dumps(found.as_dict(), allow_nan=False)) == found.as_dict()


@settings(max_examples=50)
@given(st.floats(1, 1e4), st.floats(1e3, 1e9))
def test_an_exact_line_is_found_exactly(slope, delay_ns):
    size = np.repeat([18.0, 500, 9000, 65_000], 7)
    found = fit_means_of_five(size, delay_ns + slope * size)
    assert found.removed == 0
    assert found.slope_ns_per_byte.value == pytest.approx(
        slope, rel=1e-6, abs=1e-6 * delay_ns / 65_000
    )


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (([], []), {}, "2 sizes and 3 means of 5 or more, got 0 and 0"),
        (([64] * 30, [1e5] * 30), {}, "got 1 and 6"),
        (([64, 128], [1e5, 2e5]), {}, "got 2 and 2"),
        (([64, 128, 256], [1e5] * 3), {}, "rtt_ns must vary, got 100000 ns"),
        (([64], [1e5, 2e5]), {}, "equal length"),
        (([64], [np.nan]), {}, "rtt_ns must be finite"),
        (([64], [-1]), {}, "rtt_ns must be more than 0"),
        (([64], [1]), {"outliers": "some"}, "outliers must be 'fences' or 'kept'"),
        (([64], [1]), {"confidence": 2}, "confidence must be between 0 and 1"),
        (([64], [1]), {"reply_mode": -1}, "reply_mode must be"),
    ],
)
def test_bad_input_is_refused(columns, options, message):
    with pytest.raises(ValueError, match=message):
        fit_means_of_five(*columns, **options)
