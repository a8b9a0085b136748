"""The search for a rate, against links whose highest rate is known."""

from __future__ import annotations

import numpy as np
import pytest
from latprof_agent.workload.bulk_search import (
    MOST_TRIALS,
    RESOLUTION,
    RateSearch,
    Trial,
)

TRIAL_S, CONFIRM_S = 2.0, 10.0
DATAGRAM_BITS = 8 * 1400


def search_of(carries, most_loss):
    """Search on a link that gives `carries(offered, s)`: what is sent, and received."""
    search = RateSearch(most_loss, TRIAL_S, CONFIRM_S)
    for offered, seconds in search.tries():
        sent, received, places = carries(offered, seconds)
        loss = 1 - received / sent if places else 0.0
        search.add(Trial(seconds, offered, sent, received, loss, places))
    return search.as_dict()


def dropping(limit, fastest):
    """A link that drops what is more than it carries."""

    def carries(offered, _seconds):
        sent = offered or fastest
        lost = sent > limit
        return sent, min(sent, limit), ("qdisc tbf of a",) if lost else ()

    return carries


def storing(limit, fastest):
    """A queue so large that a short trial loses nothing, whatever its rate."""

    def carries(offered, _seconds):
        sent = offered or fastest
        return sent, min(sent, limit), ()

    return carries


@pytest.mark.parametrize("link", [dropping, storing])
@pytest.mark.parametrize("limit", [97.1e6, 1e9, 33e3])
@pytest.mark.parametrize("fastest", [1.5, 70.0])
def test_the_rate_found_is_the_links_to_the_resolution(link, limit, fastest):
    found = search_of(link(limit, fastest * limit), 0.0)
    # a queue stores half a percent unnoticed, as trials have ends
    assert limit * (1 - RESOLUTION) <= found["rate_bps"] <= 1.005 * limit
    assert found["failed_bps"] <= limit * (1 + 2 * RESOLUTION)
    assert len(found["trials"]) <= MOST_TRIALS
    assert found["bound"] == (["qdisc tbf of a"] if link is dropping else [])
    # what bounds it failed in a longer trial, too
    *short, repeated = found["trials"]
    assert {trial["seconds"] for trial in short} == {TRIAL_S}
    assert (repeated["seconds"], repeated["passed"]) == (CONFIRM_S, False)
    assert repeated["offered_bps"] == pytest.approx(found["failed_bps"], abs=1)
    last = found["confirmation"]
    assert (last["seconds"], last["passed"]) == (CONFIRM_S, True)
    assert last["offered_bps"] == pytest.approx(found["rate_bps"], abs=1)


@pytest.mark.parametrize("sent", [999_999_999.4, 999_999_999.6])
@pytest.mark.parametrize("received_over_sent", [1.0, 1.00001, 0.99999, 0.994])
def test_a_first_trial_that_failed_by_chance_is_tried_again(sent, received_over_sent):
    """A few datagrams of as many as it could send: the same rate then passes."""
    asked = []

    def carries(offered, _seconds):
        asked.append(offered)
        if not offered:
            return sent, sent * received_over_sent, ("receive buffer",)
        return float(offered), float(offered), ()

    found = RateSearch(0.0, TRIAL_S, CONFIRM_S)
    for offered, seconds in found.tries():
        rate, received, places = carries(offered, seconds)
        loss = 1e-9 if places else 0.0
        found.add(Trial(seconds, offered, rate, received, loss, places))
    assert found.as_dict()["rate_bps"] == pytest.approx(sent, abs=1)
    assert len(asked) <= 5
    assert len(set(asked)) >= len(asked) - 1  # but for what is confirmed


@pytest.mark.parametrize("most_loss", [0.01, 0.1])
def test_a_loss_that_is_allowed_raises_the_rate(most_loss):
    found = search_of(dropping(1e8, 2e9), most_loss)
    assert found["rate_bps"] == pytest.approx(1e8 / (1 - most_loss), rel=0.011)


def test_a_sender_slower_than_the_link_is_one_trial_and_nothing_bounds_it():
    found = search_of(dropping(1e9, 4e8), 0.001)
    assert (found["rate_bps"], found["failed_bps"]) == (4e8, None)
    assert [trial["offered_bps"] for trial in found["trials"]] == [0]
    assert (found["confirmation"]["offered_bps"], found["bound"]) == (0, [])


def test_a_rate_that_was_not_sent_is_not_found():
    def carries(offered, _seconds):
        if not offered:
            return 2e8, 5.5e7, ("receive buffer",)
        return min(offered, 5e7), min(offered, 5e7), ()

    found = search_of(carries, 0.0)
    assert found["held_back"]
    assert found["rate_bps"] <= 5e7


def test_a_link_that_loses_everything_has_no_rate_to_confirm():
    def carries(offered, _seconds):
        return offered or 1e9, 0.0, ("no socket at b",)

    found = search_of(carries, 0.0)
    assert (found["rate_bps"], found["confirmation"]) == (0, None)
    assert len(found["trials"]) <= MOST_TRIALS


def test_a_rate_that_stands_only_short_trials_is_told_as_not_confirmed():
    def carries(offered, seconds):  # as a shaper that lends for five seconds
        sent, limit = offered or 1e9, 1e8 if seconds < 5 else 5e7
        return sent, min(sent, limit), ("qdisc tbf of a",) if sent > limit else ()

    found = search_of(carries, 0.0)
    assert found["rate_bps"] == pytest.approx(1e8, rel=RESOLUTION)
    assert not found["confirmation"]["passed"]
    assert found["confirmation"]["loss"] == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("failing", [{2}, {3}, {2, 3}, {2, 3, 4}, {2, 3, 5}])
def test_trials_that_failed_for_no_fault_of_the_link_do_not_hold_it_low(failing):
    tried = []

    def carries(offered, _seconds):  # as where the receiver's host was busy
        tried.append(offered)
        sent = offered or 2e9
        received = min(sent, 1e8) * (0.9 if len(tried) in failing else 1)
        return sent, received, ("receive buffer",) if received < sent else ()

    found = search_of(carries, 0.001)
    assert found["rate_bps"] == pytest.approx(1e8, rel=0.02)
    assert found["confirmation"]["passed"]


@pytest.mark.parametrize("limit", [10e6, 100e6])
def test_losses_by_chance_below_the_bound_do_not_hold_the_search_low(limit):
    """Of 1,800 datagrams in a trial 0.9 are lost on average, and two or more often."""
    found = []
    for seed in range(200):
        random = np.random.default_rng(seed)

        def carries(offered, seconds, random=random):
            sent = offered or 10 * limit
            datagrams = round(sent * seconds / DATAGRAM_BITS)
            lost = random.binomial(datagrams, 0.0005) / datagrams
            received = min(sent * (1 - lost), limit)
            return sent, received, ("link's loss, a to b",)

        found.append(search_of(carries, 0.001)["rate_bps"])
    # a longer trial of 8,900 loses 9 or more, twice the mean, once in 25 times
    assert np.mean(np.array(found) < 0.98 * limit) < 0.06
    assert max(found) < 1.007 * limit
