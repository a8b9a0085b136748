"""Where both ends talk at once: the least is never more than any response."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from latprof_analysis.records.least_responses import LeastResponses
from latprof_analysis.records.turn import FOREVER, Turn, no_turns

BEGIN_NS, TIME_NS = 1_000_000, st.integers(1, 1000)
# how long after the one before a request is sent, its way, service, and way back
CALLS = st.lists(st.tuples(st.integers(0, 500), TIME_NS, TIME_NS, TIME_NS), min_size=1)


def parts_of(messages):
    """Messages of (conversation, is a reply, send, read) as parts in their order."""
    made = no_turns(len(messages))
    for column, row in zip((Turn.IDENTITY, Turn.IS_REPLY), range(2), strict=True):
        made[column] = [one[row] for one in messages]
    made[Turn.LAST_SEND_NS] = [one[2] for one in messages]
    made[Turn.FIRST_READ_NS] = made[Turn.READY_NS] = [one[3] for one in messages]
    return made


def called(calls):
    """Messages of calls, each served by itself, and how long each response took."""
    messages, took, now_ns = [], [], BEGIN_NS
    for conversation, (gap, way, served, back) in calls:
        now_ns += gap
        there, answered = now_ns + way, now_ns + way + served
        messages.append((conversation, 0, now_ns, there))
        messages.append((conversation, 1, answered, answered + back))
        took.append(answered + back - now_ns)
    return messages, took


@given(st.lists(st.tuples(st.integers(1, 3), CALLS.map(lambda c: c[0])), min_size=1))
def test_no_response_is_below_it(calls):
    messages, took = called(calls)
    least_ns = LeastResponses().of(parts_of(sorted(messages)))
    assert least_ns.min() <= min(took)


@given(CALLS, st.integers(0, 60))
def test_nor_where_it_comes_in_pieces(calls, cut):
    messages, took = called([(1, call) for call in calls])
    messages.sort(key=lambda one: one[3])
    least = LeastResponses()
    pieces = [messages[:cut], messages[cut:]]
    found = np.concatenate([least.of(parts_of(piece)) for piece in pieces])
    assert found.min() <= min(took)


def test_a_server_that_answers_in_order_shows_its_time():
    """Four requests are on their way, and each takes 20 to serve."""
    sent = [
        (1, 0, 100 + 20 * max(0, i - 3), 105 + 20 * max(0, i - 3)) for i in range(9)
    ]
    answered = [(1, 1, 118 + 20 * i, 119 + 20 * i) for i in range(9)]
    least_ns = LeastResponses().of(parts_of(sent + answered))
    assert (least_ns[:9] == FOREVER).all()
    assert least_ns[9:].min() == 19


def test_without_a_request_nothing_is_known():
    pushed = [(1, 1, 50, 60), (2, 0, 10, 20)]
    assert (LeastResponses().of(parts_of(pushed)) == FOREVER).all()


def test_what_was_not_seen_to_leave_counts_from_when_it_came():
    halves = [(1, 0, 0, 30), (1, 1, 50, 60)]
    assert LeastResponses().of(parts_of(halves)).tolist() == [FOREVER, 30]
