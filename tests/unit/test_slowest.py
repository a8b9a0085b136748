"""Which slow ones have a story, and the sample that shares are of."""

from __future__ import annotations

import random

import numpy as np
import pytest
from latprof_agent.story.slowest import (
    MOST,
    MOST_COUNTED,
    MOST_FLOWS,
    SAMPLE,
    Slowest,
    mixed,
)
from latprof_agent.story.stories import spans_of
from latprof_analysis.report.story_lines import (
    causes,
    count_line,
    flow_lines,
    summary_lines,
)
from latprof_analysis.stages import STAMPS

MS = 1_000_000


def offered(slow):
    """Offer (time, flow) with their place as identity."""
    slowest = Slowest()
    for number, (took_ns, flow) in slow:
        slowest.offer(took_ns, flow, (flow, number), lambda n=number: ({"n": n}, None))
    return slowest


def numbered(slow, seed=None):
    found = list(enumerate(slow))
    if seed is not None:
        random.Random(seed).shuffle(found)
    return found


# A bulk flow that is slower throughout, and nine messages that stand behind it.
BULK = [(50 * MS + n, 1) for n in range(2000)] + [
    (30 * MS + n, 2 + n) for n in range(9)
]


def test_the_slowest_of_each_flow_has_a_story_beside_a_flow_that_is_slower():
    slowest = offered(numbered(BULK))
    told = slowest.slowest
    assert len(told) == MOST
    assert {one.flow for one in told} == set(range(1, 11))
    assert [one.took_ns for one in told] == sorted(
        (one.took_ns for one in told), reverse=True
    )
    assert sum(one.flow == 1 for one in told) == MOST - 9
    assert told[0].took_ns == 50 * MS + 1999
    assert (slowest.seen, slowest.flows) == (2009, 10)
    assert all(one.row for one in told)


def test_of_many_flows_those_with_the_slowest_have_one():
    slowest = offered(numbered([(n * MS, n) for n in range(1, 400)]))
    assert len(slowest.slowest) == MOST
    assert min(one.flow for one in slowest.slowest) == 400 - MOST
    assert slowest.flows == 399


@pytest.mark.parametrize("seed", range(3))
def test_which_are_kept_does_not_depend_on_their_order(seed):
    one, other = offered(numbered(BULK)), offered(numbered(BULK, seed))
    for name in ("slowest", "sample"):
        assert [kept.identity for kept in getattr(one, name)] == [
            kept.identity for kept in getattr(other, name)
        ]


@pytest.mark.parametrize(
    ("row", "spans"),
    [
        # before its send call, in it and in its socket, on its way, unread
        (
            {"created": 10, "send": 50, "queue": 51, "xmit": 52}
            | {"arrive": 60, "ready": 61, "read": 90},
            [(10, 50), (50, 51), (51, 52), (52, 60), (60, 61), (61, 90)],
        ),
        # a stage without a stamp between is asked for as one
        (
            {"send": 50, "queue": 51, "ready": 61, "read": 90},
            [(50, 51), (51, 61), (61, 90)],
        ),
        ({"ready": 61, "read": 90}, [(61, 90)]),
        ({}, []),
        ({"kind": "exchange", "ready": 20, "reply_sent": 80, "send": 1}, [(20, 80)]),
    ],
)
def test_what_is_asked_of_a_message_is_each_of_its_stages(row, spans):
    stamps = dict.fromkeys([*STAMPS, "reply_sent"]) | row
    found = {f"{name}_ns": value for name, value in stamps.items() if name != "kind"}
    assert spans_of(found | {"kind": row.get("kind", "request")}) == spans


def test_few_are_all_kept():
    slowest = offered(numbered([(MS, 1), (2 * MS, 1), (3 * MS, 2)]))
    assert len(slowest.slowest) == len(slowest.sample) == len(slowest.kept) == 3


def test_each_slow_one_is_in_the_sample_with_the_same_chance():
    """Of 3,000 in ten flows; the sample of each run is drawn by other identities."""
    counts = np.zeros(10)
    runs = 40
    for run in range(runs):
        slowest = Slowest()
        for n in range(3000):
            flow = n % 10
            slowest.offer(n, flow, (run, flow, n), lambda: ({"n": 1}, None))
        assert len(slowest.sample) == SAMPLE
        for one in slowest.sample:
            counts[one.flow] += 1
    expected = runs * SAMPLE / 10
    # chi-square with nine degrees of freedom: 27.9 at 0.1%
    assert ((counts - expected) ** 2 / expected).sum() < 27.9


def test_numbers_are_mixed_to_all_bits():
    found = np.array([mixed((1, n)) for n in range(4096)], "u8")
    for bit in range(0, 64, 7):
        share = (found >> np.uint64(bit) & np.uint64(1)).mean()
        assert abs(share - 0.5) < 0.04  # five standard errors


def story(cause, took_ns, kind="request"):
    part = {"kind": "busy", "what": cause, "time_ns": took_ns, "who": []}
    part |= {"functions": [], "cpu": 0}
    return {
        "message": {"kind": kind, "end_to_end_ns": took_ns},
        "stages": {"receive_queue": {"time_ns": took_ns, "parts": [part]}},
    }


def document(stories, sample, slow, **more):
    found = {"limit_ns": 10 * MS, "slow_messages": slow, "stories": stories}
    recorder = {"copies": 1, "skipped": 0, "symbols": "bcc"}
    return found | {"sample": sample, "recorder": recorder} | more


def drawn(causes_of, slow):
    """A sample of so many slow ones, each with the same weight."""
    weight = slow / len(causes_of)
    return [story(*one) | {"stands_for": weight} for one in causes_of]


def test_shares_are_of_the_sample_and_not_of_the_slowest():
    """One cause is slower, and has all stories; both have half of the time."""
    slowest = [story("slower", 50 * MS)] * 100
    sample = drawn([("slower", 50 * MS)] * 75 + [("other", 20 * MS)] * 225, 4000)
    found = causes(document(slowest, sample, 4000))
    shares = {one["cause"]: one["share"] for one in found}
    # above 10 ms: 75 x 40 and 225 x 10
    assert shares["receive_queue: busy in slower"] == pytest.approx(3000 / 5250)
    assert shares["receive_queue: busy in other"] == pytest.approx(2250 / 5250)
    assert sum(one["time_ns"] for one in found) == pytest.approx(5250 * MS * 4000 / 300)


def test_the_interval_of_a_share_holds_the_truth_as_often_as_it_says():
    """Of a population of 5,000 with two causes, drawn 400 times."""
    random_numbers = np.random.default_rng(7)
    slower = random_numbers.random(5000) < 0.3
    took = np.where(slower, 15 + random_numbers.exponential(30, 5000), 15)
    took = np.round(took * MS).astype(int)
    above = took - 10 * MS
    true = above[slower].sum() / above.sum()
    held = 0
    for _ in range(400):
        at = random_numbers.choice(5000, SAMPLE, replace=False)
        sample = drawn(
            [("a" if slower[i] else "b", int(took[i])) for i in at.tolist()], 5000
        )
        (one,) = [
            cause
            for cause in causes(document([], sample, 5000))
            if cause["cause"].endswith(" a")
        ]
        held += abs(one["share"] - true) <= one["share_error"]
    # 95% of 400, four standard errors
    assert 362 <= held <= 398


def test_a_sample_of_all_has_no_error():
    sample = drawn([("a", 20 * MS), ("b", 30 * MS)], 2)
    assert {one["share_error"] for one in causes(document([], sample, 2))} == {0.0}


def test_exchanges_have_a_limit_of_their_own():
    both = [story("a", 20 * MS), story("b", 60 * MS, "exchange")]
    shares = causes(document(both, [], 1, slow_exchanges=1, exchange_limit_ns=40 * MS))
    found = {one["cause"][-1]: one["time_ns"] for one in shares}
    assert found == {"a": 10 * MS, "b": 20 * MS}


def test_words_say_how_many_there_are_and_of_what_shares_are():
    sample = drawn([("a", 20 * MS)] * 200 + [("b", 20 * MS)] * 100, 900)
    of = document(
        [story("a", 20 * MS)] * 100,
        sample,
        890,
        slow_exchanges=10,
        slow_flows=70,
        flows_with_story=50,
    )
    lines = list(summary_lines(of, 3))
    assert lines[0] == (
        "10 exchanges and 890 messages took 10.0 ms or longer; 3 of 100 stories shown"
    )
    assert lines[1] == (
        f"of 70 flows with a slow one {MOST_FLOWS} have a story: the slowest of each "
        "first, then the slowest of all"
    )
    assert lines[2] == (
        "of the time above 10.0 ms of all 900, by a sample of 300 (+-: 95%):"
    )
    # of a share of two thirds: 1.96 sqrt(2/9 / 299 x 2/3)
    assert lines[3] == "   66.7% +- 4.4%  receive_queue: busy in a"


def test_where_flows_are_too_many_to_count_there_may_be_more():
    slowest = Slowest()
    for flow in range(MOST_COUNTED + 10):
        slowest.offer(MS, flow, (flow, 1), lambda: ({}, None))
    assert (slowest.flows, slowest.more_flows) == (MOST_COUNTED, True)
    of = document(
        [], [], 1, slow_flows=MOST_COUNTED, flows_with_story=50, more_flows=True
    )
    (line,) = flow_lines(of)
    assert line.startswith("of 65,536 flows or more with a slow one 50 have a story: ")


def test_without_flows_that_have_none_nothing_is_said_of_them():
    assert list(flow_lines(document([], [], 1, slow_flows=5, flows_with_story=5))) == []
    only = document([], [], 0, slow_exchanges=3)
    assert count_line(only, 0).startswith("3 exchanges took 10.0 ms or longer; ")
