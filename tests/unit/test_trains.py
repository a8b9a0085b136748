"""Dispersion of trains over links that are known."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_links import RATE
from latprof_analysis.fit.line import fit_round_trips
from latprof_analysis.fit.trains import fit_dispersion
from scipy import stats
from simulated_links import Fifo, TokenBucket, arrivals

BYTE_NS = 8e9 / RATE


@pytest.mark.parametrize("link", [Fifo, TokenBucket])
@pytest.mark.parametrize("seed", range(3))
def test_dispersion_is_the_links_rate_with_and_without_a_bucket(seed, link):
    train, arrive, size, sent = arrivals(seed, link, trains=12)
    found = fit_dispersion(train, arrive, size, sent_ns=sent)
    assert found.state == "measured"
    assert (found.trains, found.packets) == (12, 2400)
    # Stamps late by 2 us in the mean, over 11 ms of a half train.
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)


def test_whole_trains_through_a_bucket_are_faster_than_the_link():
    _, arrive, size, _ = arrivals(1, TokenBucket, trains=1)
    whole = 8e9 * size[1:].sum() / (arrive[-1] - arrive[0])
    assert whole > 1.1 * RATE  # 112 Mbit/s on a real bucket of this size


def test_dispersion_does_not_care_for_what_a_reply_would_be():
    # On the same bucket a full echo without pauses reads as twice the rate.
    size = np.tile(np.linspace(100, 30_000, 12), 20)
    rounds = np.repeat(np.arange(20), 12)
    echo = fit_round_trips(size, 2e4 + BYTE_NS * size, rounds, reply_mode="echo")
    assert echo.bandwidth_bits_per_second.value == pytest.approx(2 * RATE)
    train, arrive, size, sent = arrivals(1, TokenBucket, trains=6)
    found = fit_dispersion(train, arrive, size, sent_ns=sent)
    assert found.bandwidth_bits_per_second.value == pytest.approx(RATE, rel=0.001)


@pytest.mark.parametrize("link", [Fifo, TokenBucket])
def test_a_sender_that_is_slower_than_the_link_measures_nothing(link):
    train, arrive, size, sent = arrivals(1, link, trains=8, spacing_ns=2e5)
    found = fit_dispersion(train, arrive, size, sent_ns=sent)
    assert found.state == "none"
    assert found.left_out == {"did not wait for the link": 8}
    assert "6 trains that waited are needed, got 0" in found.reason
    # Without the time of departure it is the sender's rate that is shown.
    blind = fit_dispersion(train, arrive, size).bandwidth_bits_per_second
    assert blind.value == pytest.approx(8e9 * 1442 / 2e5, rel=0.001)


def test_trains_that_waited_by_chance_are_no_answer():
    slow = arrivals(1, Fifo, trains=12, spacing_ns=2e5)
    fast = arrivals(2, Fifo, trains=8)
    fast[0] += 12
    train, arrive, size, sent = np.hstack([slow, fast])
    found = fit_dispersion(train, arrive, size, sent_ns=sent)
    assert (found.state, found.trains) == ("none", 8)
    assert found.left_out == {"did not wait for the link": 12}
    assert "12 did not wait for the link" in found.reason


def test_an_offset_between_the_clocks_changes_nothing():
    train, arrive, size, sent = arrivals(1, Fifo, trains=6)
    here = fit_dispersion(train, arrive, size, sent_ns=sent)
    there = fit_dispersion(train, arrive + 5e9, size, sent_ns=sent)
    assert there.left_out == here.left_out == {}
    assert there.bandwidth_bits_per_second.value == pytest.approx(
        here.bandwidth_bits_per_second.value, rel=1e-6
    )


def test_intervals_of_dispersion_cover_the_truth():
    train, nth = np.divmod(np.arange(20 * 32), 32)
    rng = np.random.default_rng(5)
    hits = []
    for _ in range(250):
        rates = np.repeat(rng.normal(120_000, 500, 20), 32)  # as of other traffic
        found = fit_dispersion(train, 1e9 * train + rates * nth, np.full(640, 1500))
        e = found.bandwidth_bits_per_second
        hits.append(e.low <= RATE <= e.high)
    # Of 20 trains the 6th and the 15th bound the median.
    exact = 1 - 2 * stats.binom.cdf(5, 20, 0.5)
    assert 0.95 <= exact <= 0.97
    sigma = math.sqrt(exact * (1 - exact) / 250)
    assert abs(np.mean(hits) - exact) < 4 * sigma


@settings(max_examples=30, deadline=None)
@given(st.floats(1e5, 1e11), st.integers(0, 10**6))
def test_dispersion_without_noise_is_exact_in_any_order(rate, seed):
    rng = np.random.default_rng(seed)
    size = rng.integers(60, 1500, 6 * 40).astype(float)
    train = np.repeat(np.arange(6), 40)
    arrive = np.cumsum(size) * 8e9 / rate
    mixed = rng.permutation(240)
    found = fit_dispersion(train[mixed], arrive[mixed], size[mixed])
    assert found.bandwidth_bits_per_second.value == pytest.approx(rate, rel=1e-6)


@pytest.mark.parametrize(
    ("packets", "step_ns", "why"),
    [(15, 1e5, "fewer than 16 packets"), (40, 0.0, "arrived all at once")],
)
def test_trains_that_say_nothing_are_left_out_and_counted(packets, step_ns, why):
    train, nth = np.divmod(np.arange(7 * packets), packets)
    found = fit_dispersion(train, 1e9 * train + step_ns * nth, np.full(nth.size, 1500))
    assert found.state == "none"
    assert found.left_out == {why: 7}
    assert f"7 {why}" in found.reason
    assert found.bandwidth_bits_per_second is None
    stored = found.as_dict()
    assert json.loads(json.dumps(stored, allow_nan=False)) == stored


def test_too_few_trains_for_the_confidence_have_no_interval_and_no_number():
    train, nth = np.divmod(np.arange(6 * 20), 20)
    found = fit_dispersion(
        train, 1e9 * train + 1e5 * nth, np.full(120, 1500), confidence=0.999
    )
    assert found.state == "none"
    assert "no interval of 0.999 from 6 trains" in found.reason


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (([0], [1], [1, 2]), "equal length, got 1, 1, 2 and 1"),
        (([0], [np.nan], [1]), "arrive_ns must be finite"),
        (([0], [1], [0]), "size_bytes must be more than 0, got 0"),
    ],
)
def test_bad_arrivals_are_refused(columns, message):
    with pytest.raises(ValueError, match=message):
        fit_dispersion(*columns)


def test_no_arrivals_measure_nothing():
    found = fit_dispersion([], [], [], sent_ns=[])
    assert (found.state, found.trains) == ("none", 0)
