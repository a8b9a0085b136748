"""Why a message was slow: a thread's time by what it did, from made recordings.

A slow reference counts the same span nanosecond by nanosecond.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story import conclusion, story_lines
from latprof_analysis.study.story import UNKNOWN_WAIT, Flight, parts_of

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


def flight_of(*switches, interrupts=(), samples=(), begin_ns=1, end_ns=10**12):
    made = {
        "switches": np.concatenate(switches),
        "interrupts": np.zeros(len(interrupts), FLIGHTS["interrupts"]),
        "samples": np.zeros(len(samples), FLIGHTS["samples"]),
    }
    for row, (from_ns, until_ns) in zip(made["interrupts"], interrupts, strict=True):
        row["from_ns"], row["until_ns"] = from_ns, until_ns
    for row, t_ns in zip(made["samples"], samples, strict=True):
        row["t_ns"], row["thread"], row["pid"] = t_ns, THREAD, READER
    return Flight.cut(**made, begin_ns=begin_ns, end_ns=end_ns)


def told(flight, begin_ns, end_ns, **how):
    return parts_of(flight, READER, begin_ns, end_ns, **how)


def test_a_reader_that_computes_is_busy_in_the_function_of_its_stacks():
    flight = flight_of(
        switch(1, IDLE, MINE),
        interrupts=[(40 * MS, 42 * MS)],
        samples=range(2 * MS, 50 * MS, MS),
    )
    parts = told(flight, 10 * MS, 60 * MS, name=lambda _: "compute")
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
        (SLEEPING, 230, "of its own accord (clock_nanosleep)"),
        (SLEEPING, EPOLL, "in epoll_wait"),
        (SLEEPING, 999, "in system call 999"),
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
    assert (part.kind, part.time_ns) == ("asleep", 30 * MS)


def test_what_the_recorder_has_no_more_is_a_part_of_its_own():
    # the ring of CPU 1 goes back to 20 ms only
    flight = flight_of(
        switch(1, IDLE, MINE), switch(20 * MS, IDLE, HOGS, cpu=1), begin_ns=1
    )
    parts = told(flight, 5 * MS, 30 * MS)
    assert [(p.kind, p.time_ns) for p in parts] == [
        ("not recorded", 15 * MS),
        ("busy", 10 * MS),
    ]
    elsewhere = flight_of(switch(1, IDLE, HOGS))
    (part,) = told(elsewhere, 5 * MS, 30 * MS)
    assert (part.kind, part.time_ns) == ("not recorded", 25 * MS)


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
