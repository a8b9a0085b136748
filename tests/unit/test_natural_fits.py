"""Lines of natural traffic: intervals hold the truth, and what is no line has none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from latprof_analysis.fit.estimates import chi_square_tail, student_quantile
from latprof_analysis.fit.natural import DEVICE, FEWEST_CLASSES, WHOLE, fit_natural
from natural_links import (
    BYTE_NS,
    DELAY_NS,
    HOST_NS,
    NO_LINES,
    RATE,
    fifo,
    log_normal,
    pareto,
    queued,
    sample,
    take,
)
from scipy.special import chdtrc, stdtrit

RUNS = 150
NS_PER_SECOND = 1e9


@pytest.mark.thorough
def test_intervals_of_the_slope_hold_the_truth_as_often_as_they_say():
    held, told = 0, 0
    for seed in range(RUNS):
        for load in (0.1, 0.5):
            fit = fit_natural(queued(seed, load))
            told += fit.model == "line"
            slope = fit.slope_ns_per_byte
            held += slope is not None and slope.low <= BYTE_NS <= slope.high
    assert told == 2 * RUNS
    # 95% of 300 runs, give or take three standard errors
    assert 0.912 <= held / told <= 0.988


@pytest.mark.parametrize("load", [0.3, 0.6, 0.7, 0.8])
def test_bandwidth_and_fixed_delay_behind_a_queue_are_the_links_or_not_told(load):
    told = 0
    for seed in range(40):
        fit = fit_natural(queued(seed, load, other=0.15))
        if fit.model != "line":
            continue
        told += 1
        rate, fixed = fit.bandwidth_bits_per_second, fit.fixed_delay_seconds
        assert rate.low <= 1.01 * RATE
        assert rate.high >= 0.99 * RATE
        assert rate.value == pytest.approx(RATE, rel=0.03)
        # what hosts and queue add to the fastest tenth; their means are 20 us and more
        late = NS_PER_SECOND * fixed.value - DELAY_NS
        assert -HOST_NS < late < 6 * HOST_NS
    # at 95% busy even the fastest tenth has waited
    assert told >= {0.3: 40, 0.6: 30, 0.7: 10, 0.8: 0}[load]


@pytest.mark.parametrize("name", NO_LINES)
def test_of_what_is_no_line_of_a_link_nothing_is_told(name):
    for seed in range(25):
        fit = fit_natural(NO_LINES[name](seed))
        assert fit.model != "line", (seed, fit)
        assert fit.bandwidth_bits_per_second is None
        assert fit.reason


def test_few_messages_tell_nothing():
    for seed in range(20):
        messages = queued(seed, messages=500)
        fit = fit_natural(messages)
        assert fit.model == "none"
        assert fit.sizes < FEWEST_CLASSES
        assert f"got {fit.sizes}" in fit.reason


def staged(seed: int, transit_share: float, stream: bool = False):
    """A link whose bytes take time in the qdisc and beyond it, by so much each."""
    rng = np.random.default_rng(seed)
    size = log_normal(rng, 6000)
    t_ns, waited = fifo(rng, size, 0.3)
    link = BYTE_NS * size
    behind = DELAY_NS + transit_share * link + pareto(rng, size.size)
    before = (1 - transit_share) * link + waited - link + 1000
    stages = {"qdisc": before, "transit": behind, DEVICE: before + behind}
    return sample(rng, size, t_ns, before + behind + 5000, stream, **stages)


def test_a_stage_tells_a_bandwidth_where_all_of_the_growth_is_in_it():
    messages = staged(1, transit_share=1.0)
    assert fit_natural(messages, "transit").bandwidth_bits_per_second.value == (
        pytest.approx(RATE, rel=0.01)
    )
    assert fit_natural(messages, "qdisc").model == "none"
    # half of the link's time is elsewhere: twice its rate would be wrong
    messages = staged(1, transit_share=0.5)
    for name in ("transit", "qdisc"):
        assert "other stages grow" in fit_natural(messages, name).reason
    assert fit_natural(messages).model == "line"


def test_tcp_that_sent_at_its_own_pace_tells_nothing():
    messages = staged(2, transit_share=1.0, stream=True)
    assert fit_natural(messages).model == "line"
    resent = np.arange(messages.resent.size) % 20 == 0
    slowed = fit_natural(replace(messages, resent=resent))
    assert "sent again" in slowed.reason
    # the last packet of a long message did not wait before the link
    at_once = {**messages.delays_ns, DEVICE: np.full(resent.size, DELAY_NS)}
    paced = fit_natural(replace(messages, delays_ns=at_once))
    assert "by its window or its pace" in paced.reason


def test_messages_without_a_stamp_are_left_out_and_order_does_not_matter():
    messages = queued(5)
    fit = fit_natural(messages)
    delay = messages.delays_ns[WHOLE].copy()
    delay[::2] = np.nan
    half = fit_natural(replace(messages, delays_ns={WHOLE: delay}))
    assert half.n < fit.n / 2 + 100
    mixed = np.random.default_rng(3).permutation(delay.size)
    again = fit_natural(take(messages, mixed))
    assert again.slope_ns_per_byte.value == pytest.approx(
        fit.slope_ns_per_byte.value, rel=1e-9
    )


def test_the_tails_are_those_of_scipy():
    for freedom in (1, 4, 5, 8, 30, 1e4):
        for p, within in ((0.9, 2e-5), (0.975, 2e-4), (0.995, 8e-4)):
            exact = stdtrit(freedom, p)
            assert student_quantile(freedom, p) == pytest.approx(exact, rel=within)
    for freedom in range(1, 50):
        for value in (0.0, 1e-9, 0.5, freedom, 3 * freedom, 500):
            exact = chdtrc(freedom, value)
            assert chi_square_tail(freedom, value) == pytest.approx(exact, rel=1e-9)


def test_a_fit_imports_neither_scipy_nor_pandas():
    code = """
import sys
import numpy as np
from latprof_analysis.fit.natural import WHOLE, Natural, fit_natural
size = np.geomspace(64, 1e6, 2000)
delay = {WHOLE: 1e6 + 80 * size + np.arange(2000) % 97}
fit = fit_natural(Natural(size, np.arange(2000.0) * 7 % 2000, delay, size, size < 0,
                          False))
assert fit.model == "line", fit
assert not {"scipy", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
