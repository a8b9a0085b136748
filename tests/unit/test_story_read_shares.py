"""Whom a message was behind at its reader, from made reads.

A slow reference counts the same wait nanosecond by nanosecond.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.capture.reads import Reads, reads_of
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story_lines import conclusion, story_lines
from latprof_analysis.story.reads import (
    READ,
    Sender,
    Waits,
    shares_of,
    waits_of,
    words_of_reads,
)
from latprof_analysis.story.story import Flight, Part
from latprof_analysis.story.system_calls import CALLS

LAYOUT = layout_of()
MS = 1_000_000
THREAD, OTHER = 51, 52
OWN, FIRST, SECOND = 1, 2, 3  # flows
PIDS = {OWN: 70, FIRST: 80, SECOND: 90}
READY, TAKEN = 10 * MS, 60 * MS  # a message of the flow OWN, bytes 200 to 300
AWAKE = Waits(0, np.array([], "i8"), np.array([], "i8"))


def read(t_ns, flow, start, end, *, thread=THREAD, pid=None):
    row = np.zeros(1, READ)
    row["read_ns"], row["flow"], row["thread"] = t_ns, flow, thread
    row["start"], row["end"] = start, end
    row["sender_pid"] = PIDS.get(flow, 0) if pid is None else pid
    return row


def shares(*reads, waits=AWAKE, messages=None):
    found = np.concatenate([np.zeros(0, READ), *reads])
    rows = found if messages is None else np.concatenate(messages)
    return shares_of(found, rows, (OWN, 200), READY, TAKEN, waits)


def waits(*spans, since_ns=0):
    begin, end = np.array(spans, "i8").reshape(-1, 2).T
    return Waits(since_ns, begin, end)


def test_what_was_read_meanwhile_is_counted_until_the_next_read():
    one, other = shares(
        read(20 * MS, FIRST, 0, 100),
        read(30 * MS, SECOND, 50, 80),
        read(40 * MS, FIRST, 100, 400),
        waits=waits(since_ns=READY),
    )
    assert (one.flow, one.messages, one.read_bytes, one.pid) == (FIRST, 2, 400, 80)
    assert (other.flow, other.messages, other.read_bytes) == (SECOND, 1, 30)
    # before 20 ms it was at something that nobody saw
    assert (one.time_ns, other.time_ns) == (30 * MS, 10 * MS)
    assert not (one.own or other.own or one.in_hand or other.in_hand)


def test_what_a_thread_had_in_hand_is_before_a_message_too():
    (one,) = shares(read(1 * MS, SECOND, 0, 9), read(8 * MS, FIRST, 0, 26))
    assert (one.flow, one.in_hand, one.messages, one.read_bytes) == (FIRST, True, 1, 26)
    assert one.time_ns == TAKEN - READY


@pytest.mark.parametrize(
    ("answers", "count", "in_hand"),
    [
        ([9 * MS], 1, False),
        ([READY], 1, False),
        ([7 * MS], 1, True),  # of what it had read before
        ([READY + 1], 1, True),
        ([9 * MS], 2, True),  # the first of two that one read took
        ([9 * MS, 9 * MS + 1], 2, False),
    ],
)
def test_what_is_answered_is_not_in_hand_any_more(answers, count, in_hand):
    reads = read(8 * MS, FIRST, 0, 26)
    messages = np.concatenate([read(8 * MS, FIRST, 13, 26)] * count)
    found = shares_of(
        *(reads, messages, (OWN, 200), READY, TAKEN, AWAKE),
        lambda flow: np.array(answers if flow == FIRST else [], "i8"),
    )
    assert [share.in_hand for share in found] == [True] * in_hand


@pytest.mark.parametrize(
    "known",
    [
        waits((9 * MS, 12 * MS)),  # it was idle when the message came
        waits((8 * MS + 1, 9 * MS)),  # ... and had gone on to something else
        waits(since_ns=9 * MS),  # what it did before is not there
        None,
    ],
)
def test_what_a_thread_may_be_done_with_is_not_told(known):
    assert shares(read(8 * MS, FIRST, 0, 26), waits=known) == []


def test_of_its_own_flow_what_came_before_is_told_and_pieces_of_itself_are_not():
    (own,) = shares(
        read(20 * MS, OWN, 0, 100),
        read(30 * MS, OWN, 100, 250),  # and half of itself
        read(40 * MS, OWN, 250, 290),
        messages=[read(20 * MS, OWN, 0, 100), read(30 * MS, OWN, 100, 200)],
        waits=waits(since_ns=READY),
    )
    assert (own.own, own.messages, own.read_bytes) == (True, 2, 200)
    assert own.time_ns == 20 * MS


def test_time_in_which_a_thread_waits_for_input_is_nobodys():
    (one,) = shares(
        read(20 * MS, FIRST, 0, 100),
        waits=waits((15 * MS, 18 * MS), (25 * MS, 45 * MS)),
    )
    assert one.time_ns == (60 - 20 - 20) * MS


def test_a_part_of_a_large_message_is_bytes_and_no_message():
    (one,) = shares(
        *(read(t * MS, FIRST, 100 * t, 100 * t + 100) for t in range(20, 40)),
        messages=[np.zeros(0, READ)],
    )
    assert (one.messages, one.read_bytes, one.pid) == (0, 2000, 0)


def test_of_a_sender_elsewhere_nobody_counts_messages():
    (one,) = shares(read(20 * MS, FIRST, 0, 100, pid=0))
    assert (one.messages, one.read_bytes) == (None, 100)


def test_without_the_recorder_bytes_are_told_and_no_times():
    one, other = shares(
        read(8 * MS, FIRST, 0, 26),
        read(20 * MS, FIRST, 26, 52),
        read(30 * MS, SECOND, 0, 100),
        waits=None,
    )
    assert (one.flow, one.read_bytes, one.time_ns) == (SECOND, 100, None)
    assert (other.read_bytes, other.time_ns) == (26, None)


_STEPS = st.lists(st.tuples(st.integers(1, 8), st.sampled_from([FIRST, SECOND])))


@given(_STEPS, st.lists(st.integers(1, 9), min_size=2, max_size=2), st.integers(0, 30))
def test_times_are_those_of_a_slow_reference(steps, wait, ready):
    times = np.cumsum([step for step, _ in steps], dtype="i8").tolist()
    flows = [flow for _, flow in steps]
    taken = max([*times, ready]) + 3
    reads = [
        read(t, f, 10 * i, 10 * i + 10)
        for i, (t, f) in enumerate(zip(times, flows, strict=True))
    ]
    # a thread that waits reads nothing: behind its last read
    begin = max([*times, 0]) + 1
    idle = (begin, min(begin + wait[0], taken))
    found = shares_of(
        np.concatenate([np.zeros(0, READ), *reads]),
        np.concatenate([np.zeros(0, READ), *reads]),
        (OWN, 0),
        ready,
        taken,
        waits(idle),
    )
    expected: Counter[int] = Counter()
    hand = [t for t in times if t <= ready]
    busy_since = hand and not hand[-1] < idle[0] <= ready
    for now in range(ready, taken):
        last = [f for t, f in zip(times, flows, strict=True) if t <= now]
        known = [t for t in times if t <= now and (t > ready or busy_since)]
        if last and known and not idle[0] <= now < idle[1]:
            expected[last[-1]] += 1
    assert {s.flow: s.time_ns for s in found if s.time_ns} == dict(expected)


def switch(t_ns, left, came, *, state=1, call=232, cpu=0):
    row = np.zeros(1, LAYOUT.flights["switches"])
    row["t_ns"], row["left_thread"], row["thread"], row["cpu"] = t_ns, left, came, cpu
    row["left_state"], row["left_call"] = state, call
    return row


@pytest.mark.parametrize(
    ("state", "call", "waited"),
    [
        (1, 232, True),  # epoll_wait
        (1, 45, True),  # recvfrom
        (1, 230, False),  # clock_nanosleep: at its own pace
        (1, 202, False),  # futex: for a lock
        (2, 0, False),  # read of a disk
        (0, 232, False),  # preempted
    ],
)
def test_only_sleep_in_calls_that_wait_for_others_is_a_wait_for_input(
    state, call, waited
):
    switches = np.concatenate(
        [switch(20 * MS, THREAD, 0, state=state, call=call), switch(30 * MS, 0, THREAD)]
    )
    flight = Flight.cut({"switches": switches}, {}, 10 * MS, 90 * MS)
    found = waits_of(flight, THREAD, CALLS["x86_64"])
    spans = [(20 * MS, 30 * MS)] if waited else []
    assert [*zip(found.begin_ns, found.end_ns, strict=True)] == spans
    assert found.since_ns == 10 * MS


def test_a_thread_that_kept_its_cpu_is_known_since_it_came():
    switches = np.concatenate([switch(2 * MS, 0, THREAD), switch(80 * MS, THREAD, 0)])
    flight = Flight.cut({"switches": switches}, {}, 10 * MS, 90 * MS)
    assert waits_of(flight, THREAD, CALLS["x86_64"]).since_ns == 2 * MS


def ranges(*rows):
    found = np.zeros(len(rows), LAYOUT.rings["received_ranges"])
    for record, row in zip(found, rows, strict=True):
        for name, value in row.items():
            record[name] = value
    return found


def test_reads_are_of_streams_by_offset_and_of_datagrams_by_size():
    dropped = LAYOUT.flags["RECORD_DROPPED"]
    found = reads_of(
        ranges(
            {"flow": 2**64 - 1, "start": 5, "end": 9, "read_ns": 1, "thread": 7},
            # of a query: its kind and number stand there
            {"flow": 4, "key": 3, "start": 77, "size_bytes": 64}
            | {"ready_ns": 1, "read_ns": 2, "thread": 7},
            {"flow": 4, "key": 3, "size_bytes": 64, "read_ns": 3, "flags": dropped},
        ),
        dropped,
    )
    assert (found["end"] - found["start"]).tolist() == [4, 64]
    assert found["flow"].astype("u8").tolist() == [2**64 - 1, 4]
    assert found["ready_ns"].tolist() == [0, 1]


def test_reads_of_a_thread_begin_with_the_last_before():
    kept = Reads()
    for t_ns in (1, 5, 20, 30, 40):
        kept.add(
            np.concatenate([read(t_ns, 1, 0, 1), read(t_ns, 1, 0, 1, thread=OTHER)])
        )
    found = kept.of_thread(THREAD, 10, 30)
    assert found["read_ns"].tolist() == [5, 20, 30]
    assert set(found["thread"]) == {THREAD}
    assert kept.newest_ns == 40
    assert kept.since_ns == 0


def test_reads_of_a_span_are_of_all_threads():
    kept = Reads(chunk_records=2)
    for t_ns in (1, 5, 20, 30, 40):
        kept.add(read(t_ns, 1, 0, 1, thread=THREAD + t_ns % 2))
    assert kept.within(5, 30)["read_ns"].tolist() == [5, 20, 30]
    assert kept.within(50, 60)["read_ns"].tolist() == []


def test_where_there_is_no_room_the_oldest_reads_go_and_it_is_known_since_when():
    kept = Reads(chunks=3, chunk_records=4)
    for t_ns in range(10):
        kept.add(np.concatenate([read(t_ns, 1, 0, 1)] * 2))
        assert kept.newest_ns == t_ns
    # of 20 records the last 12
    assert kept.since_ns == 3
    assert kept.of_thread(THREAD, 4, 99)["read_ns"].tolist() == sorted(
        2 * [*range(4, 10)]
    )
    kept.add(np.concatenate([read(t_ns, 1, 0, 1) for t_ns in range(10, 40)]))
    # the last chunk has two
    assert kept.since_ns == 29
    assert kept.of_thread(THREAD, 0, 99)["read_ns"].tolist() == [*range(30, 40)]


def told(found, *, complete=True):
    names = {OWN: "client", FIRST: "redis-cli", SECOND: "bench"}
    return words_of_reads(
        [
            (one, Sender(f"{names[one.flow]} -> redis", one.pid, names[one.flow]))
            for one in found
        ],
        complete=complete,
    )


def story_of(reads, *parts):
    whole_ns = TAKEN - READY
    stage = {"time_ns": whole_ns, "parts": [p.__dict__ for p in parts], "reads": reads}
    message = {
        **{"sequence": 4, "size_bytes": 100, "protocol": "tcp", "kind": "message"},
        **{"sender_comm": "client", "sender_pid": 70, "retransmits": 0},
        **{"reader_comm": "redis", "reader_pid": 50, "end_to_end_ns": whole_ns},
    }
    return {"message": message, "stages": {"receive_queue": stage}}


BUSY = Part("busy", TAKEN - READY, "keysCommand")


def test_a_reader_that_is_busy_is_told_with_what_it_was_at():
    found = shares(read(12 * MS, FIRST, 0, 26), read(58 * MS, SECOND, 0, 1000))
    story = story_of(told(found), BUSY)
    behind = (
        "behind 2 messages of 1.0 kB, of which those of redis-cli (pid 80) took 92.0%"
    )
    assert conclusion(story) == (
        "50.0 ms of 50.0 ms in the receive queue of redis (pid 50), "
        f"which was busy in keysCommand, {behind}"
    )
    assert behind in [*story_lines(story)][1]


def test_what_is_not_all_there_is_at_least_so_much():
    found = shares(*(read(t * MS, FIRST, 9 * t, 9 * t + 9) for t in range(12, 59)))
    story = story_of(told(found, complete=False), BUSY)
    assert "behind at least 47 messages of 423 bytes of redis-cli" in conclusion(story)


@pytest.mark.parametrize("kind", ["asleep", "waiting", "interrupts"])
def test_a_reader_that_was_not_busy_is_told_by_that(kind):
    found = shares(read(12 * MS, FIRST, 0, 26))
    story = story_of(told(found), Part(kind, TAKEN - READY))
    assert "behind" not in conclusion(story)
    assert "behind 1 message of 26 bytes of redis-cli" in [*story_lines(story)][1]


def test_what_took_little_of_the_wait_is_no_cause():
    found = shares(read(50 * MS, FIRST, 0, 26))
    story = story_of(told(found), BUSY)
    assert "behind" not in "".join(story_lines(story))


def test_earlier_messages_of_its_own_flow_are_told_as_such():
    found = shares(read(12 * MS, OWN, 0, 200), messages=[read(12 * MS, OWN, 0, 200)])
    assert "behind 1 message of 200 bytes of its own flow" in conclusion(
        story_of(told(found), BUSY)
    )


def test_of_many_senders_the_first_are_named_and_the_others_summed():
    reads = [read((11 + i) * MS, 10 + i, 0, 10, pid=100 + i) for i in range(20)]
    found = shares(*reads)
    document = words_of_reads(
        [(one, Sender("", one.pid, f"p{one.pid}")) for one in found], complete=True
    )
    assert len(document["senders"]) == 11
    assert sum(s["bytes"] for s in document["senders"]) == document["bytes"] == 200
    assert sum(s["messages"] for s in document["senders"]) == document["messages"] == 20
    others = next(s for s in document["senders"] if s["way"] == "others")
    assert others["flows"] == 10


def accepted_after(waited_ns, *parts):
    story = story_of(told([]), *parts)
    story["stages"]["receive_queue"]["accept"] = {"waited_ns": waited_ns}
    return story


STOPPED = Part("asleep", TAKEN - READY, "stopped (by a signal, a tracer or a freezer)")


@pytest.mark.parametrize(
    ("waited_ns", "told"),
    [
        (40 * MS, "was not accepted for 40.0 ms: it slept stopped"),
        (None, "was not accepted when it came: it slept stopped"),
    ],
)
def test_a_connection_that_nobody_accepts_is_told_with_what_its_reader_did(
    waited_ns, told
):
    story = accepted_after(waited_ns, STOPPED)
    assert f"redis (pid 50), whose connection {told}" in conclusion(story)
    assert "  not accepted " in [*story_lines(story)][1]


def test_a_short_wait_for_accept_is_no_cause():
    story = accepted_after(20 * MS, STOPPED)
    assert "accepted" not in conclusion(story)
    assert "  not accepted for 20.0 ms" in [*story_lines(story)][1]


def test_where_nothing_is_known_of_the_reader_the_accept_is_told():
    story = accepted_after(40 * MS)
    story["stages"]["receive_queue"]["parts"] = None
    assert conclusion(story).endswith("was not accepted for 40.0 ms")
