"""Why a message was slow: a thread's time by what it did, from made recordings.

A slow reference counts the same span nanosecond by nanosecond.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story_lines import (
    causes,
    conclusion,
    story_lines,
    summary_lines,
)
from latprof_analysis.story import story
from latprof_analysis.story.story import (
    MOST_SPANS,
    UNKNOWN_WAIT,
    Flight,
    thread_at,
    time_of,
)

FLIGHTS = layout_of().flights
READER, THREAD, HOG = 50, 51, 90
RUNNING, SLEEPING, UNINTERRUPTIBLE = 0, 1, 2
FUTEX, EXCEPTION, EPOLL, FSYNC = 202, 0xFFFF, 232, 74
MS = 1_000_000
DELAY_NS = 0xFFFFFFF0  # its low bits come round


def switch(
    t_ns,
    left,
    came,
    *,
    cpu=0,
    state=RUNNING,
    call=EPOLL,
    waited_ns=0,
    elsewhere_ns=0,
):
    """A row; `left` and `came` are (pid, thread), who waits here and elsewhere."""
    row = np.zeros(1, FLIGHTS["switches"])
    row["t_ns"], row["cpu"] = t_ns, cpu
    row["left_pid"], row["left_thread"] = left
    row["pid"], row["thread"] = came
    row["left_state"], row["left_call"] = state, call
    # since the scheduler counts: before they leave all have waited as long
    row["left_delay_ns"], row["waited_ns"] = DELAY_NS, waited_ns
    row["delay_ns"] = (DELAY_NS + waited_ns + elsewhere_ns) & 0xFFFFFFFF
    name = {READER: b"reader", HOG: b"hog", 0: b"swapper/0"}[came[0]]
    row["comm"][0, : len(name)] = list(name)
    return row


IDLE, MINE, HOGS = (0, 0), (READER, THREAD), (HOG, HOG)


def flight_of(
    *switches, interrupts=(), samples=(), since_ns=None, begin_ns=1, end_ns=10**12
):
    made = {
        "switches": np.concatenate(switches),
        "wakes": np.zeros(0, FLIGHTS["wakes"]),
        "interrupts": np.zeros(len(interrupts), FLIGHTS["interrupts"]),
        "samples": np.zeros(len(samples), FLIGHTS["samples"]),
    }
    for row, one in zip(made["interrupts"], interrupts, strict=True):
        row["from_ns"], row["until_ns"], row["number"], row["soft"] = (*one, 0, 0)[:4]
    for row, t_ns in zip(made["samples"], samples, strict=True):
        row["t_ns"], row["thread"], row["pid"] = t_ns, THREAD, READER
    return Flight.cut(made, since_ns or {}, begin_ns, end_ns)


def told(flight, begin_ns, end_ns, thread=None, **how):
    """Parts, with which the time line agrees."""
    parts, spans = time_of(flight, READER, begin_ns, end_ns, thread=thread, **how)
    ends = [0, *(one["from_ns"] + one["time_ns"] for one in spans)]
    assert [one["from_ns"] for one in spans] == sorted(one["from_ns"] for one in spans)
    assert all(one["from_ns"] >= end for one, end in zip(spans, ends, strict=False))
    assert ends[-1] == (end_ns - begin_ns if spans else 0)
    for kind in ("asleep", "waiting", "busy", "interrupts"):
        in_order = sum(one["time_ns"] for one in spans if one["kind"] == kind)
        assert in_order == sum(p.time_ns for p in parts if p.kind == kind)
    return parts


def test_a_reader_that_computes_is_busy_in_the_function_of_its_stacks():
    flight = flight_of(
        switch(1, IDLE, MINE),
        interrupts=[(40 * MS, 42 * MS)],
        samples=range(2 * MS, 50 * MS, MS),
    )
    parts = told(flight, 10 * MS, 60 * MS, name=lambda _: ("main", "compute"))
    assert [(p.kind, p.time_ns, p.what) for p in parts] == [
        ("busy", 48 * MS, "compute"),
        ("interrupts", 2 * MS, "interrupt 0"),
    ]
    # of 2 to 49 ms those within the span
    assert parts[0].functions == ({"name": "compute", "samples": 39},)


def test_who_had_the_cpu_while_it_could_have_run():
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(10 * MS, MINE, HOGS),  # preempted
        switch(40 * MS, HOGS, MINE, waited_ns=30 * MS),
    )
    parts = told(flight, 5 * MS, 42 * MS)
    assert [(p.kind, p.time_ns) for p in parts] == [
        ("waiting", 30 * MS),
        ("busy", 7 * MS),
    ]
    assert parts[0].who == ({"pid": HOG, "comm": "hog", "time_ns": 30 * MS},)


@pytest.mark.parametrize(
    ("state", "call", "what"),
    [
        (SLEEPING, FUTEX, "for another thread (futex)"),
        (SLEEPING, EXCEPTION, "for a page (page fault)"),
        (UNINTERRUPTIBLE, EXCEPTION, "for a page (page fault)"),
        (UNINTERRUPTIBLE, FSYNC, "for a disk or file system (fsync)"),
        (SLEEPING, 230, "on a timer (clock_nanosleep)"),
        (SLEEPING, EPOLL, "in epoll_wait"),
        (SLEEPING, 999, "in system call 999"),
        (SLEEPING, 0xFFFD, "in a system call of a 32-bit program"),
        (4, EXCEPTION, "stopped (by a signal, a tracer or a freezer)"),
    ],
)
def test_a_sleep_is_told_by_its_call_and_the_wait_behind_it_apart(state, call, what):
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(10 * MS, MINE, HOGS, state=state, call=call),
        switch(40 * MS, HOGS, MINE, waited_ns=5 * MS),
    )
    parts = told(flight, 10 * MS, 40 * MS)
    assert [(p.kind, p.time_ns, p.what) for p in parts] == [
        ("asleep", 25 * MS, what),
        ("waiting", 5 * MS, ""),
    ]
    assert parts[1].who[0]["comm"] == "hog"


def test_of_a_wait_in_another_cpus_queue_nobody_is_named():
    """The scheduler moved it: who had that CPU is not who had this one."""
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(1, IDLE, HOGS, cpu=1),
        switch(10 * MS, MINE, HOGS, state=SLEEPING, call=EPOLL),
        switch(40 * MS, HOGS, MINE, cpu=1, waited_ns=5 * MS, elsewhere_ns=20 * MS),
    )
    waiting, asleep = told(flight, 10 * MS, 40 * MS)
    assert (waiting.kind, waiting.time_ns) == ("waiting", 25 * MS)
    assert waiting.who == ({"pid": HOG, "comm": "hog", "time_ns": 5 * MS},)
    assert (asleep.kind, asleep.time_ns) == ("asleep", 5 * MS)


def test_of_several_threads_on_cpus_none_is_taken_for_the_reader():
    flight = flight_of(
        switch(1, IDLE, MINE), switch(2, IDLE, (READER, THREAD + 1), cpu=1)
    )
    (part,) = told(flight, 5 * MS, 30 * MS)
    assert (part.kind, part.time_ns) == ("not recorded", 25 * MS)


def test_a_wait_that_is_not_known_is_not_told_apart():
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(10 * MS, MINE, IDLE, state=SLEEPING, call=FUTEX),
        switch(40 * MS, IDLE, MINE, waited_ns=UNKNOWN_WAIT),
    )
    (part,) = told(flight, 10 * MS, 40 * MS)
    assert (part.kind, part.time_ns) == ("not recorded", 30 * MS)
    assert part.what == "asleep, or waiting for a CPU"


def test_what_the_recorder_has_no_more_is_a_part_of_its_own():
    # the ring of CPU 1 goes back to 20 ms only, that of CPU 0 was never full
    gone = {"switches": {0: 0, 1: 20 * MS}}
    switches = switch(1, IDLE, MINE), switch(20 * MS, IDLE, HOGS, cpu=1)
    parts = told(flight_of(*switches, since_ns=gone), 5 * MS, 30 * MS)
    assert [(p.kind, p.time_ns) for p in parts] == [
        ("not recorded", 15 * MS),
        ("busy", 10 * MS),
    ]
    # a CPU that was idle until then hides nothing
    (part,) = told(flight_of(*switches), 5 * MS, 30 * MS)
    assert (part.kind, part.time_ns) == ("busy", 25 * MS)
    elsewhere = flight_of(switch(1, IDLE, HOGS))
    (part,) = told(elsewhere, 5 * MS, 30 * MS)
    assert (part.kind, part.time_ns) == ("not recorded", 25 * MS)


def test_where_interrupts_are_gone_busy_is_not_told():
    gone = {"interrupts": {0: 15 * MS}}
    flight = flight_of(
        switch(1, IDLE, MINE), interrupts=[(20 * MS, 21 * MS)], since_ns=gone
    )
    parts = told(flight, 5 * MS, 30 * MS)
    assert [(p.kind, p.time_ns, p.what) for p in parts] == [
        ("busy", 14 * MS, ""),
        ("not recorded", 10 * MS, "on a CPU, busy or interrupted"),
        ("interrupts", 1 * MS, "interrupt 0"),
    ]


def test_an_interrupt_within_another_is_counted_once():
    flight = flight_of(
        switch(1, IDLE, MINE),
        interrupts=[
            (10 * MS, 30 * MS, 3, 1),
            (12 * MS, 20 * MS, 24, 0),
            (21 * MS, 22 * MS, 24, 0),
            (32 * MS, 34 * MS, 99, 1),
        ],
    )
    interrupts, busy = told(flight, 5 * MS, 33 * MS)
    assert (busy.kind, busy.time_ns) == ("busy", 7 * MS)
    assert interrupts.time_ns == 21 * MS
    assert interrupts.what == ("soft interrupt NET_RX, interrupt 24, soft interrupt 99")
    spans = time_of(flight, READER, 5 * MS, 33 * MS).timeline
    soft, hard = "soft interrupt NET_RX", "interrupt 24"
    assert [(one["from_ns"] / MS, one["what"]) for one in spans] == [
        *[(0, ""), (5, soft), (7, hard), (15, soft), (16, hard), (17, soft), (25, "")],
        (27, "soft interrupt 99"),
    ]


def test_an_interrupt_that_begins_as_others_end_has_its_time():
    flight = flight_of(
        switch(1, IDLE, MINE),
        interrupts=[(10 * MS, 20 * MS, 3, 1), (15 * MS, 20 * MS), (20 * MS, 26 * MS)],
    )
    times = {p.kind: p.time_ns for p in told(flight, 5 * MS, 33 * MS)}
    assert times == {"busy": 12 * MS, "interrupts": 16 * MS}


def test_of_many_spans_the_longest_stand_in_the_time_line():
    turns = range(2 * MS, 302 * MS, MS)
    lasts = {t: 1000 + 100 * i for i, t in enumerate(turns)}
    flight = flight_of(
        switch(1, IDLE, MINE),
        *(
            row
            for t, ns in lasts.items()
            for row in (
                switch(t, MINE, HOGS),
                switch(t + ns, HOGS, MINE, waited_ns=ns),
            )
        ),
    )
    spans = time_of(flight, READER, MS, 302 * MS).timeline
    assert len(spans) == MOST_SPANS
    kept = {one["time_ns"] for one in spans}
    assert min(kept) > max(set(lasts.values()) - kept)
    assert [one["from_ns"] for one in spans] == sorted(one["from_ns"] for one in spans)


def test_what_a_hidden_task_did_is_not_taken_for_the_readers():
    # the reader left, and the next that is seen is that it leaves again
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(10 * MS, MINE, HOGS, state=SLEEPING, call=FUTEX),
        switch(50 * MS, MINE, HOGS, state=SLEEPING, call=FUTEX),
        switch(55 * MS, HOGS, MINE),
    )
    parts = told(flight, 5 * MS, 60 * MS)
    assert [(p.kind, p.time_ns, p.what) for p in parts] == [
        ("not recorded", 40 * MS, "untraced"),
        ("busy", 10 * MS, ""),
        ("asleep", 5 * MS, "for another thread (futex)"),
    ]
    # it came, and the next that is seen is that it comes again
    twice = flight_of(switch(1, IDLE, MINE), switch(50 * MS, HOGS, MINE, cpu=1))
    parts = told(twice, 5 * MS, 60 * MS, thread=THREAD)
    assert [(p.kind, p.time_ns, p.what) for p in parts] == [
        ("not recorded", 45 * MS, "untraced"),
        ("busy", 10 * MS, ""),
    ]
    # it left, and reads at the end without having come
    left = flight_of(
        switch(1, IDLE, MINE), switch(10 * MS, MINE, HOGS, state=SLEEPING, call=EPOLL)
    )
    parts = told(left, 5 * MS, 60 * MS, thread=THREAD)
    assert [(p.kind, p.time_ns) for p in parts] == [
        ("not recorded", 50 * MS),
        ("busy", 5 * MS),
    ]


def test_who_had_a_cpu_unseen_is_not_named():
    # somebody else leaves it than had come
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(10 * MS, MINE, HOGS),
        switch(40 * MS, IDLE, MINE, waited_ns=30 * MS),
    )
    waiting = told(flight, 10 * MS, 40 * MS)[0]
    assert waiting.who == ({"pid": 0, "comm": "untraced", "time_ns": 30 * MS},)


def test_the_thread_of_a_call_had_a_cpu_at_both_of_its_ends():
    sibling = READER, THREAD + 1
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(10 * MS, MINE, HOGS, state=SLEEPING, call=FUTEX),
        switch(20 * MS, IDLE, sibling, cpu=1),
        switch(30 * MS, HOGS, MINE),
    )
    assert thread_at(flight, READER, 35 * MS) is None  # both
    assert thread_at(flight, READER, 5 * MS, 35 * MS) == THREAD
    assert thread_at(flight, READER, 15 * MS) is None  # none
    assert thread_at(flight, READER, 25 * MS) == THREAD + 1
    assert thread_at(flight, READER, 5 * MS, 25 * MS) is None  # another one at each


def test_the_thread_that_read_is_followed_and_not_its_sibling():
    sibling = READER, THREAD + 1
    flight = flight_of(
        switch(1, IDLE, sibling),
        switch(2, MINE, HOGS, cpu=1, state=SLEEPING, call=FUTEX),
        switch(45 * MS, HOGS, MINE, cpu=1),
    )
    parts = told(flight, 5 * MS, 50 * MS, thread=THREAD)
    assert [(p.kind, p.time_ns) for p in parts] == [
        ("asleep", 40 * MS),
        ("busy", 5 * MS),
    ]


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 5), st.integers(0, 5)),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 60),
)
def test_parts_sum_to_the_span_and_are_those_of_each_nanosecond(turns, skipped):
    """Turns of so long on a CPU, asleep, and waiting; the reader runs at the end."""
    kinds, rows = [], [switch(1, IDLE, MINE)]
    for busy, asleep, waiting in [*turns, (3, 0, 0)]:
        kinds += ["busy"] * busy
        if asleep + waiting:
            how = {"state": SLEEPING, "call": FUTEX} if asleep else {}
            rows.append(switch(1 + len(kinds), MINE, HOGS, **how))
            kinds += ["asleep"] * asleep + ["waiting"] * waiting
            rows.append(switch(1 + len(kinds), HOGS, MINE, waited_ns=waiting))
    begin = min(skipped, len(kinds) - 1)
    flight = flight_of(*rows)
    found = Counter()
    for part in told(flight, 1 + begin, 1 + len(kinds)):
        found[part.kind] += part.time_ns
    assert found == Counter(kinds[begin:])


MESSAGE = {
    **{"protocol": "tcp", "kind": "request", "sequence": 7, "size_bytes": 64},
    **{"sender_pid": 1, "reader_pid": 2, "sender_comm": "a", "reader_comm": "b"},
    **{"end_to_end_ns": 10 * MS, "retransmits": 0},
}


def part(kind, time_ns, **more):
    return {
        **{"kind": kind, "time_ns": time_ns, "what": "", "who": []},
        **{"functions": [], "cpu": 1},
        **more,
    }


def test_the_conclusion_names_who_and_what():
    hog = [{"pid": 812, "comm": "backup", "time_ns": 8 * MS}]
    parts = [part("waiting", 8 * MS, who=hog), part("busy", MS, what="f")]
    stages = {
        "transit": {"time_ns": MS, "parts": None},
        "receive_queue": {"time_ns": 9 * MS, "parts": parts},
    }
    story = {"message": MESSAGE, "stages": stages}
    assert conclusion(story) == (
        "9.00 ms of 10.0 ms in the receive queue of b (pid 2), which waited for a "
        "CPU, which backup (pid 812) had for 8.00 ms"
    )
    lines = list(story_lines(story))
    assert any("waiting for a CPU (CPU 1), which had backup" in line for line in lines)


def test_of_a_way_between_hosts_nothing_is_guessed():
    stages = {"transit": {"time_ns": 9 * MS, "parts": None}}
    text = conclusion({"message": MESSAGE, "stages": stages})
    assert "of which nothing here tells" in text
    again = MESSAGE | {"retransmits": 2}
    text = conclusion({"message": again, "stages": stages})
    assert text.endswith("while 2 segments had to be sent again")


@given(
    st.lists(st.integers(0, 9), max_size=40),
    st.sets(st.integers(0, 12)),
    st.integers(1, 7),
)
def test_the_last_of_each_value_is_found_from_the_end(values, wanted, chunk):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(story, "_CHUNK", chunk)
        found = story._lasts(np.array(values, "u4"), np.array(sorted(wanted), "u4"))
    last = {value: at for at, value in enumerate(values) if value in wanted}
    assert sorted(found.tolist()) == sorted(last.values())


def test_causes_share_the_time_above_the_limit():
    """Of 10 ms 8 are above 2 ms; of 4 ms 2: the parts have them as the whole."""
    hog = [{"pid": 812, "comm": "backup", "time_ns": 5 * MS}]
    slow = {
        "message": MESSAGE,
        "stages": {
            "transit": {"time_ns": 5 * MS, "parts": None},
            "receive_queue": {
                "time_ns": 5 * MS,
                "parts": [part("waiting", 5 * MS, who=hog)],
            },
        },
    }
    quick = {
        "message": MESSAGE | {"end_to_end_ns": 4 * MS},
        "stages": {
            "receive_queue": {
                "time_ns": 4 * MS,
                "parts": [part("busy", 4 * MS, what="f")],
            }
        },
    }
    document = {"limit_ns": 2 * MS, "stories": [slow, quick]}
    held = "receive_queue: waiting for a CPU, which backup (pid 812) had"
    assert causes(document) == [
        {"cause": cause, "time_ns": time_ns, "share": share, "share_error": 0.0}
        for cause, time_ns, share in (
            ("transit", 4 * MS, 0.4),
            (held, 4 * MS, 0.4),
            ("receive_queue: busy in f", 2 * MS, 0.2),
        )
    ]
    whole = causes(document | {"limit_ns": None})
    assert [one["time_ns"] for one in whole] == [5 * MS, 5 * MS, 4 * MS]
    document |= {"slow_messages": 2, "recorder": {"skipped": 0, "symbols": "bcc"}}
    assert list(summary_lines(document, 1)) == [
        "2 messages took 2.00 ms or longer; 1 of 2 stories shown",
        "of the time above 2.00 ms of all 2:",
        "   40.0%  transit",
        f"   40.0%  {held}",
        "   20.0%  receive_queue: busy in f",
    ]


def test_what_is_not_recorded_has_the_stacks_of_its_time():
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(60 * MS, MINE, IDLE, state=SLEEPING),
        switch(70 * MS, IDLE, MINE),
        samples=range(20 * MS, 40 * MS, 2 * MS),
        since_ns={"switches": {0: 50 * MS}},
    )
    parts = told(flight, 10 * MS, 80 * MS)
    unseen = next(part for part in parts if part.kind == "not recorded")
    assert unseen.time_ns == 40 * MS
    assert unseen.functions == ({"name": "?", "samples": 10},)
    part_of = asdict(unseen) | {"what": ""}
    slow = {
        "message": MESSAGE,
        "stages": {"receive_queue": {"time_ns": 40 * MS, "parts": [part_of]}},
    }
    assert conclusion(slow).endswith(
        "did something that is not recorded, but for 10 stacks in which it ran in "
        "code without a name"
    )


def test_a_hidden_task_leaves_the_stacks_of_who_ran():
    """The reader came twice, and was not seen to leave between."""
    flight = flight_of(
        switch(1, IDLE, MINE),
        switch(30 * MS, IDLE, MINE),
        samples=[5 * MS, 15 * MS],
    )
    unseen, busy = told(flight, 10 * MS, 40 * MS)
    assert (unseen.what, unseen.time_ns) == ("untraced", 20 * MS)
    assert unseen.functions == ({"name": "?", "samples": 1},)
    assert (busy.kind, busy.time_ns) == ("busy", 10 * MS)
