"""Waits for a CPU by a control group's quota, from made recordings."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story_lines import causes, conclusion
from latprof_analysis.story.story import UNKNOWN_WAIT, Flight, Part, time_of

FLIGHTS = layout_of().flights
MS = 1_000_000
READER, OTHER, IDLE = (50, 51), (60, 61), (0, 0)
BEGIN, END = 100 * MS, 190 * MS
WHAT = "by the CPU quota of control group payments: 10.0 ms in each 100 ms"


def switch(t_ns, left, came, *, state=0, flags=0, waited_ns=0):
    row = np.zeros(1, FLIGHTS["switches"])
    row["t_ns"], row["left_state"], row["left_flags"] = t_ns, state, flags
    row["left_pid"], row["left_thread"] = left
    row["pid"], row["thread"] = came
    row["waited_ns"], row["delay_ns"] = waited_ns, waited_ns % UNKNOWN_WAIT
    row["comm"][0, :5] = list(b"other" if came == OTHER else b"maybe")
    return row


def quota_wait(t_ns, throttled_ns, period_end_ns):
    row = np.zeros(1, FLIGHTS["quota_waits"])
    row["t_ns"], row["throttled_ns"], row["thread"] = t_ns, throttled_ns, READER[1]
    row["period_end_ns"] = period_end_ns
    row["period_ns"], row["quota_ns"] = 100 * MS, 10 * MS
    row["name"][0, :8] = list(b"payments")
    return row


def parts_of(switches, quotas, wakes=None):
    made = {name: np.zeros(0, FLIGHTS[name]) for name in FLIGHTS}
    made["switches"] = np.concatenate(switches)
    made["quota_waits"] = np.concatenate([made["quota_waits"], *quotas])
    if wakes is not None:
        made["wakes"] = wakes
    flight = Flight.cut(made, {}, 1, 10**12)
    return time_of(flight, READER[0], BEGIN, END, thread=READER[1]).parts


def preempted(flags):
    """The reader has a CPU until 110 ms, and from 180 on; another from 170."""
    return [
        switch(1, IDLE, READER),
        switch(110 * MS, READER, IDLE, flags=flags),
        switch(170 * MS, IDLE, OTHER),
        switch(180 * MS, OTHER, READER, waited_ns=70 * MS),
    ]


THROTTLED = 2  # TASK_THROTTLED


@pytest.mark.parametrize(
    ("flags", "throttled_ns", "period_end_ns", "kept_ns"),
    [
        (THROTTLED, 109 * MS, 260 * MS, 50 * MS),  # until 160, when a period began
        (0, 120 * MS, 260 * MS, 40 * MS),  # while it waited
        (THROTTLED, 109 * MS, 160 * MS, 50 * MS),  # no timer runs any more
        (THROTTLED, 109 * MS, 285 * MS, 70 * MS),  # the last period began before it
        (0, 10 * MS, 260 * MS, 0),  # once before: how long is not known
        (0, 185 * MS, 260 * MS, 0),
    ],
)
def test_a_wait_is_by_the_quota_until_the_next_period_begins(
    flags, throttled_ns, period_end_ns, kept_ns
):
    wait = quota_wait(180 * MS, throttled_ns, period_end_ns)
    parts = parts_of(preempted(flags), [wait])
    found = {part.kind: part for part in parts}
    assert found["busy"].time_ns == 20 * MS
    if kept_ns:
        assert (found["throttled"].what, found["throttled"].time_ns) == (WHAT, kept_ns)
    waited = found.get("waiting")
    assert (waited.time_ns if waited else 0) == 70 * MS - kept_ns
    assert sum(part.time_ns for part in parts) == END - BEGIN


def test_who_had_the_cpu_is_of_the_queue_that_it_stood_in():
    """It came from another CPU at 150 ms, and was throttled from 155 to 160."""
    switches = [
        switch(1, IDLE, READER),
        switch(110 * MS, READER, OTHER),
        switch(180 * MS, OTHER, READER, waited_ns=30 * MS),
    ]
    switches[1]["cpu"] = 1
    switches[0]["cpu"] = 1
    switches.insert(2, switch(111 * MS, IDLE, OTHER))
    wait = quota_wait(180 * MS, 155 * MS, 260 * MS)
    parts = parts_of(switches, [wait])
    assert {p.kind: p.time_ns for p in parts} == {
        "busy": 20 * MS,
        "throttled": 5 * MS,
        "waiting": 65 * MS,
    }
    (waiting,) = [part for part in parts if part.kind == "waiting"]
    # from 150 to 155, and from 160 to 180
    assert [who["time_ns"] for who in waiting.who] == [25 * MS]


def test_without_a_record_of_a_quota_it_is_a_wait():
    found = {part.kind: part.time_ns for part in parts_of(preempted(THROTTLED), [])}
    assert found == {"busy": 20 * MS, "waiting": 70 * MS}


def test_who_is_woken_in_a_throttled_group_waits_from_then_on():
    wake = np.zeros(1, FLIGHTS["wakes"])
    wake["t_ns"], wake["thread"], wake["sleeper_flags"] = 130 * MS, 51, THROTTLED
    switches = [
        switch(1, IDLE, READER),
        switch(BEGIN, READER, IDLE, state=1),
        switch(180 * MS, IDLE, READER, waited_ns=50 * MS),
    ]
    wait = quota_wait(180 * MS, 90 * MS, 280 * MS)  # throttled before it woke
    found = {p.kind: p.time_ns for p in parts_of(switches, [wait], wake)}
    assert found == {"asleep": 30 * MS, "throttled": 50 * MS, "busy": 10 * MS}


@pytest.mark.parametrize("is_woken", [True, False])
def test_a_wait_that_is_not_known_is_no_sleep(is_woken):
    """It is so before a clock is known; from a wake on it is one for a CPU."""
    wakes = np.zeros(int(is_woken), FLIGHTS["wakes"])
    wakes["t_ns"], wakes["thread"] = 130 * MS, 51
    switches = [
        switch(1, IDLE, READER),
        switch(BEGIN, READER, OTHER, state=1),
        switch(180 * MS, OTHER, READER, waited_ns=UNKNOWN_WAIT),
    ]
    parts = parts_of(switches, [], wakes)
    found = {part.kind: part.time_ns for part in parts}
    if is_woken:
        assert found == {"asleep": 30 * MS, "waiting": 50 * MS, "busy": 10 * MS}
    else:
        assert found == {"not recorded": 80 * MS, "busy": 10 * MS}
        assert parts[0].what == "asleep, or waiting for a CPU"


def story_of(*parts):
    """A message whose reader did that, as stories.json has it."""
    message = {
        **{"protocol": "tcp", "kind": "request", "sequence": 7, "size_bytes": 64},
        **{"sender_pid": 1, "reader_pid": 50, "sender_comm": "a", "reader_comm": "b"},
        **{"end_to_end_ns": 80 * MS, "retransmits": 0},
    }
    time_ns = sum(part.time_ns for part in parts)
    made = {"time_ns": time_ns, "parts": [asdict(part) for part in parts]}
    return {"message": message, "stages": {"receive_queue": made}}


def test_words_name_the_group_and_its_quota():
    story = story_of(Part("throttled", 80 * MS, WHAT, cpu=0))
    assert conclusion(story).endswith(f"b (pid 50), which was throttled {WHAT}")
    (cause,) = causes({"limit_ns": 10 * MS, "stories": [story]})
    assert cause["cause"] == f"receive_queue: throttled {WHAT}"


# enum task_flag in bpf/records.h: how the scheduler ranks who comes.
IDLE_POLICY, NORMAL, REAL_TIME, BY_LIMIT = 4, 8, 12, 16


def kept_waiting(other, reader):
    """A reader that another one took the CPU from, which then came again."""
    return [
        switch(1, IDLE, READER),
        switch(BEGIN + 20 * MS, READER, OTHER, flags=other),
        switch(180 * MS, OTHER, READER, waited_ns=60 * MS, flags=reader),
    ]


@pytest.mark.parametrize(
    ("other", "reader", "lower"),
    [
        (IDLE_POLICY, NORMAL, True),
        (NORMAL, REAL_TIME, True),
        (NORMAL, NORMAL, False),
        (IDLE_POLICY, IDLE_POLICY, False),
        (REAL_TIME, NORMAL, False),
        (NORMAL | BY_LIMIT, NORMAL, False),
        (0, REAL_TIME, False),  # of a recording that does not say so
        (IDLE_POLICY, 0, False),
    ],
)
def test_who_had_a_cpu_is_not_why_where_its_class_is_lower(other, reader, lower):
    parts = parts_of(kept_waiting(other, reader), [])
    (waiting,) = [part for part in parts if part.kind == "waiting"]
    (who,) = waiting.who
    assert (who["comm"], who["time_ns"]) == ("other", 60 * MS)
    assert who.get("lower_class", False) == lower
    if lower:
        assert conclusion(story_of(*parts)).endswith(
            "which waited for a CPU (why is not known: other (pid 60), which had it, "
            "is of a lower class) for 60.0 ms"
        )


def test_a_real_time_reader_is_throttled_where_others_have_what_it_may_not():
    parts = parts_of(kept_waiting(NORMAL | BY_LIMIT, REAL_TIME), [])
    found = {(part.kind, part.what): part.time_ns for part in parts}
    assert found == {
        ("throttled", "by the limit of real-time tasks"): 60 * MS,
        ("busy", ""): 30 * MS,
    }
    (throttled,) = [part for part in parts if part.kind == "throttled"]
    assert [who["comm"] for who in throttled.who] == ["other"]
