"""The search for a rate, against links whose highest rate is known."""

from __future__ import annotations

import pytest
from latprof_agent.workload.bulk_search import (
    MOST_TRIALS,
    RESOLUTION,
    RateSearch,
    Trial,
)


def search_of(carries, most_loss):
    """Search on a link that gives `carries(offered)`: what is sent, and received."""
    search = RateSearch(most_loss)
    for offered in search.rates():
        sent, received, places = carries(offered)
        loss = 1 - received / sent if places else 0.0
        search.add(Trial(offered, sent, received, loss, places))
    return search.as_dict()


def dropping(limit, fastest):
    """A link that drops what is more than it carries."""

    def carries(offered):
        sent = offered or fastest
        lost = sent > limit
        return sent, min(sent, limit), ("qdisc tbf of a",) if lost else ()

    return carries


def storing(limit, fastest):
    """A queue so large that a short trial loses nothing, whatever its rate."""

    def carries(offered):
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


@pytest.mark.parametrize("most_loss", [0.01, 0.1])
def test_a_loss_that_is_allowed_raises_the_rate(most_loss):
    found = search_of(dropping(1e8, 2e9), most_loss)
    assert found["rate_bps"] == pytest.approx(1e8 / (1 - most_loss), rel=0.011)


def test_a_sender_slower_than_the_link_is_one_trial_and_nothing_bounds_it():
    found = search_of(dropping(1e9, 4e8), 0.001)
    assert (found["rate_bps"], found["failed_bps"]) == (4e8, None)
    assert [trial["offered_bps"] for trial in found["trials"]] == [0]


def test_a_rate_that_was_not_sent_is_not_found():
    def carries(offered):
        if not offered:
            return 2e8, 5.5e7, ("receive buffer",)
        return min(offered, 5e7), min(offered, 5e7), ()

    found = search_of(carries, 0.0)
    assert found["held_back"]
    assert found["rate_bps"] <= 5e7


def test_a_link_that_loses_everything_has_no_rate():
    found = search_of(lambda offered: (offered or 1e9, 0.0, ("no socket at b",)), 0.0)
    assert found["rate_bps"] == 0
    assert len(found["trials"]) <= MOST_TRIALS
