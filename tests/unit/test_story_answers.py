"""Whom a thread waited for in a socket, from made reads, messages and switches."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story_lines import causes, conclusion, story_lines
from latprof_analysis.story.answers import (
    QUEUE,
    WAKING_NS,
    WORK,
    Answer,
    Answers,
    Peer,
    Took,
    after_pauses,
    answers_of,
)
from latprof_analysis.story.reads import MESSAGE, READ
from latprof_analysis.story.sleeps import together
from latprof_analysis.story.story import MOST_HOPS, Flight, time_of

FLIGHTS = layout_of().flights
MS = 1_000_000
EPOLL, RECV, NANOSLEEP = 232, 45, 230
SLEEPING = 1
TO_STORE, FROM_STORE = 3, 4  # flows
STORE = Peer("10.0.0.2", 5432, 90, "store")


def read_at(t_ns, thread=51, *, ready_ns=0, start=0, end=50):
    row = np.zeros(1, READ)
    row["read_ns"], row["ready_ns"] = t_ns, ready_ns or t_ns - 5_000
    row["thread"], row["flow"], row["start"], row["end"] = (
        thread,
        FROM_STORE,
        start,
        end,
    )
    return row


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(1, 3)), max_size=40),
    st.integers(1, 60),
)
def test_what_is_read_after_a_pause_is_found_of_each_thread(times, least_ns):
    """As one after the other finds it."""
    reads = np.concatenate([np.zeros(0, READ), *(read_at(t, of) for t, of in times)])
    expected = []
    for thread in 1, 2, 3:
        last_ns = -(10**9)
        for t_ns in sorted(t for t, of in times if of == thread):
            if t_ns - last_ns >= least_ns:
                expected.append((thread, t_ns))
            last_ns = t_ns
    found = after_pauses(reads, least_ns)
    assert [(int(r["thread"]), int(r["read_ns"])) for r in found] == expected


def message(flow, send_ns, read_ns, *, start=0, end=50, thread=51, **stamps):
    """One that is handed on at once, but for some stamps."""
    row = np.zeros(1, MESSAGE)
    row["flow"], row["start"], row["end"], row["thread"] = flow, start, end, thread
    row["sender_pid"] = STORE.pid if flow == FROM_STORE else 50
    for stamp in ("send", "queue", "xmit", "arrive", "ready"):
        row[f"{stamp}_ns"] = stamps.get(f"{stamp}_ns", send_ns)
    row["read_ns"] = read_ns
    return row


def took_of(read, *messages, asked_on=TO_STORE):
    asked = {TO_STORE: -1, FROM_STORE: asked_on}

    def peer_of(flow, pid):
        assert flow == FROM_STORE
        return STORE._replace(pid=pid)

    rows = np.concatenate([np.zeros(0, MESSAGE), *messages])
    (found,) = answers_of(read, rows, lambda flow: asked[flow], peer_of)
    assert (found.thread, found.read_ns) == (read["thread"], read["read_ns"])
    return found


QUESTION = message(TO_STORE, 10 * MS, 11 * MS, ready_ns=10 * MS, thread=91)
ANSWER = message(FROM_STORE, 40 * MS, 41 * MS, ready_ns=40 * MS)


@pytest.mark.parametrize(
    ("question", "answer", "expected"),
    [
        (QUESTION, ANSWER, (WORK, 11 * MS, 40 * MS, 30 * MS, 91)),
        (
            message(TO_STORE, 10 * MS, 30 * MS, ready_ns=10 * MS, thread=91),
            *(ANSWER, (QUEUE, 10 * MS, 30 * MS, 30 * MS, 91)),
        ),
        (
            message(TO_STORE, 10 * MS, 30 * MS, ready_ns=29 * MS, thread=91),
            *(ANSWER, ("request receive_stack", 10 * MS, 29 * MS, 30 * MS, 91)),
        ),
        (
            *(QUESTION,),
            message(
                *(FROM_STORE, 12 * MS, 41 * MS),
                **{"queue_ns": 13 * MS, "xmit_ns": 39 * MS},
                **{"arrive_ns": 39 * MS, "ready_ns": 40 * MS},
            ),
            ("reply qdisc", 13 * MS, 39 * MS, 30 * MS, 91),
        ),
    ],
)
def test_an_answer_is_told_with_where_most_of_its_time_was(question, answer, expected):
    found = took_of(read_at(41 * MS), question, answer)
    assert found.peer == STORE
    assert found.took == expected


def test_a_question_is_the_last_words_before_the_answer():
    older = message(TO_STORE, 2 * MS, 3 * MS)
    later = message(TO_STORE, 42 * MS, 43 * MS, start=50, end=100)
    found = took_of(read_at(41 * MS), older, QUESTION, later, ANSWER)
    assert found.took.begin_ns == 11 * MS


@pytest.mark.parametrize(
    "messages",
    [
        (ANSWER,),  # nobody asked
        # of a pipeline: asked before the last answer had been read
        (QUESTION, message(FROM_STORE, 8 * MS, 20 * MS, start=-50, end=0), ANSWER),
        # the other end had not read it when it sent this
        (message(TO_STORE, 10 * MS, 41 * MS, thread=91), ANSWER),
        # what was read is inside of a message
        (QUESTION, message(FROM_STORE, 40 * MS, 41 * MS, start=-10, end=50)),
        (),
    ],
)
def test_what_answers_no_question_for_sure_has_no_times(messages):
    assert took_of(read_at(41 * MS), *messages).took is None


def test_a_client_that_asks_answers_nothing():
    found = took_of(read_at(41 * MS), QUESTION, ANSWER, asked_on=-1)
    assert (found.peer, found.took) == (STORE, None)


def test_a_datagram_is_the_one_that_was_read_then():
    question, answer = QUESTION.copy(), ANSWER.copy()
    for row in question, answer:
        row["start"] = row["end"] = 0
    assert took_of(read_at(41 * MS), question, answer).took.begin_ns == 11 * MS
    assert took_of(read_at(40 * MS), question, answer).took is None


@pytest.mark.parametrize(
    ("ready_ns", "thread", "is_it"),
    [
        (40 * MS, 51, True),
        (40 * MS - WAKING_NS, 51, True),
        (40 * MS - WAKING_NS - 1, 51, False),  # it was there before
        (40 * MS + 1, 51, False),  # something else woke it
        (40 * MS, 52, False),
    ],
)
def test_what_became_readable_as_a_thread_was_woken_it_waited_for(
    ready_ns, thread, is_it
):
    answers = Answers(
        [
            Answer(51, 45 * MS, 45 * MS, STORE),
            Answer(thread, ready_ns, 41 * MS, STORE),
            Answer(51, 39 * MS, 39 * MS, STORE),
        ]
    )
    found = answers.ending(51, 40 * MS)
    assert (found is not None) == is_it


def switch(t_ns, left, came, cpu=0, call=0):
    """A row; a thread's number is its process'."""
    row = np.zeros(1, FLIGHTS["switches"])
    row["t_ns"], row["cpu"] = t_ns, cpu
    row["left_pid"] = row["left_thread"] = left
    row["pid"] = row["thread"] = came
    row["left_state"], row["left_call"] = (SLEEPING, call) if call else (0, 0)
    name = f"p{came}".encode()
    row["comm"][0, : len(name)] = list(name)
    return row


def asleep(cpu, thread, begin_ns, end_ns, call=RECV):
    """A thread that sleeps on a CPU of its own, and the wake."""
    woken = np.zeros(1, FLIGHTS["wakes"])
    woken["t_ns"], woken["thread"], woken["pid"] = end_ns, thread, thread
    rows = [
        switch(1, 0, thread, cpu),
        switch(begin_ns, thread, 0, cpu, call),
        switch(end_ns, 0, thread, cpu),
    ]
    return rows, [woken]


def flight_of(sleeps):
    rows = [row for rows, _ in sleeps for row in rows]
    made = {
        "switches": np.concatenate(rows),
        "wakes": np.concatenate([one for _, wakes in sleeps for one in wakes]),
        **{ring: np.zeros(0, FLIGHTS[ring]) for ring in ("interrupts", "samples")},
    }
    return Flight.cut(made, {}, 1, 10**12)


def asking(pids, last=NANOSLEEP):
    """Each of these waits for the next, and the last on a timer."""
    calls = [RECV] * (len(pids) - 1) + [last]
    sleeps, answers = [], []
    for place, (pid, call) in enumerate(zip(pids, calls, strict=True)):
        begin_ns, end_ns = (10 + place) * MS, (90 - place) * MS
        sleeps.append(asleep(place, pid, begin_ns, end_ns, call))
        if call == RECV:
            peer = Peer("127.0.0.1", 1000 + place, pids[place + 1], f"p{place + 1}")
            span = begin_ns + MS // 2, end_ns - MS // 2
            whole_ns = end_ns - begin_ns
            took = Took(WORK, *span, whole_ns, pids[place + 1])
            answers.append(Answer(pid, end_ns - 5000, end_ns + 1000, peer, took))
    return flight_of(sleeps), Answers(answers)


def told(pids, last=NANOSLEEP, asker=0):
    flight, answers = asking(pids, last)
    return time_of(flight, pids[0], 9 * MS, 91 * MS, answers=answers, asker=asker).parts


def hops_of(part):
    """The other ends, each with what it did longest."""
    found = []
    who = list(part.who)
    while who:
        (one,) = who
        did = one["did"][0] if one["did"] else {}
        found.append((one["pid"], one["peer"]["again"], did.get("what")))
        who = did.get("who", [])
    return found


def test_who_answered_is_followed_to_whom_that_waited_for():
    first, _ = told([50, 60, 70])
    assert (first.kind, first.what, first.time_ns) == ("asleep", "in recvfrom", 80 * MS)
    assert hops_of(first) == [
        (60, None, "in recvfrom"),
        (70, None, "on a timer (clock_nanosleep)"),
    ]
    (who,) = first.who
    assert who["thread"] == 60
    assert who["peer"] == {
        **{"address": "127.0.0.1", "port": 1000, "answers": 1, "stage": "work"},
        **{"stage_ns": 79 * MS, "whole_ns": 80 * MS, "again": None},
        "queue": None,
    }
    # the time on a CPU before it slept, and after
    assert [one["time_ns"] for one in who["did"]] == [78 * MS, MS]


def test_no_story_goes_further_than_eight_hops():
    first, _ = told(range(50, 64))
    found = hops_of(first)
    assert [pid for pid, _, _ in found] == [*range(51, 52 + MOST_HOPS)][:MOST_HOPS]
    assert found[-1][2] is None


def test_who_waits_for_one_that_waits_for_it_is_followed_no_further():
    first, _ = told([50, 60, 70, 80], asker=70)
    assert hops_of(first) == [
        (60, None, "in recvfrom"),
        (70, {"pid": 50, "comm": "p50"}, "in recvfrom"),
    ]


def test_what_was_there_when_the_time_began_was_not_waited_for():
    flight, answers = asking([50, 60])
    parts = time_of(flight, 50, 90 * MS - 2000, 91 * MS, answers=answers).parts
    assert not any(part.who for part in parts)
    flight, _ = asking([50, 60])
    # nothing is known of what it read
    assert not any(part.who for part in time_of(flight, 50, 9 * MS, 91 * MS).parts)


def test_a_timer_is_not_what_came_as_it_ended():
    _, answers = asking([50, 60])
    flight, _ = asking([50], NANOSLEEP)
    (first, _) = time_of(flight, 50, 9 * MS, 91 * MS, answers=answers).parts
    assert (first.what, first.who) == ("on a timer (clock_nanosleep)", ())


def test_answers_of_one_end_are_summed_by_the_stage_of_their_time():
    busy = [did("busy", "f"), did("busy", "f"), did("busy", "g")]
    work, queued = together(
        [who(did=[one]) for one in busy]
        + [who(stage="receive_queue", time_ns=10 * MS, did=[TIMER])]
    )
    assert work["time_ns"] == 240 * MS
    assert {name: work["peer"][name] for name in ("answers", "stage_ns")} == {
        **{"answers": 3, "stage_ns": 210 * MS}
    }
    # in several functions it was busy in none
    (one,) = work["did"]
    assert (one["kind"], one["what"], one["time_ns"]) == ("busy", "", 180 * MS)
    assert queued["peer"]["stage"] == "receive_queue"


def test_whom_several_waited_for_is_one():
    inner = [who(pid=91, time_ns=20 * MS), who(pid=92, time_ns=30 * MS)]
    each = [who(did=[did("asleep", "in recvfrom", who=[one])]) for one in inner]
    (found,) = together(each)
    (asleep,) = found["did"]
    assert [one["pid"] for one in asleep["who"]] == [92, 91]


def who(*, pid=90, did=(), time_ns=80 * MS, **peer):
    return {
        **{"pid": pid, "comm": "store" if pid else "", "time_ns": time_ns},
        **{"thread": pid, "did": list(did)},
        "peer": {
            **{"address": "10.0.0.2", "port": 5432, "answers": 1, "stage": "work"},
            **{"stage_ns": 70 * MS, "whole_ns": 79 * MS, "again": None},
        }
        | peer,
    }


def did(kind, what, time_ns=60 * MS, who=()):
    return {"kind": kind, "what": what, "time_ns": time_ns, "who": list(who)}


def story_of(*of, kind="asleep", what="in recvfrom"):
    part = {"kind": kind, "what": what, "time_ns": 80 * MS, "who": list(of)}
    part |= {"functions": [], "stacks": [], "cpu": None}
    message = {
        **{"sequence": None, "size_bytes": 100, "protocol": "tcp", "kind": "exchange"},
        **{"sender_comm": "client", "sender_pid": 70, "retransmits": 0},
        **{"reader_comm": "app", "reader_pid": 50, "end_to_end_ns": 80 * MS},
    }
    stages = {"server": {"time_ns": 80 * MS, "parts": [part]}}
    return {"message": message, "stages": stages}


IPERF = {"pid": 9, "comm": "iperf3", "processes": 1, "bytes": 1_176_000}
QUEUE_OF_VA0 = {"name": "tbf 8001: of va0", "backlog_bytes": 1_200_000, "fifo": True}
QUEUE_OF_VA0 |= {"before": [IPERF]}
TIMER = did("asleep", "on a timer (clock_nanosleep)")
BUSY = did("busy", "crunch_numbers")


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (
            who(did=[BUSY]),
            "store (pid 90, port 5432) answered (its work 70.0 ms of 79.0 ms: busy in "
            "crunch_numbers)",
        ),
        (
            who(stage="receive_queue", did=[TIMER]),
            "store (pid 90, port 5432) answered (in its receive queue 70.0 ms of 79.0 "
            "ms: slept on a timer (clock_nanosleep))",
        ),
        (
            who(stage="reply qdisc"),
            "store (pid 90, port 5432) answered (its reply 70.0 ms of 79.0 ms in "
            "qdisc)",
        ),
        (
            who(stage="request qdisc", queue=QUEUE_OF_VA0),
            "store (pid 90, port 5432) answered (its request 70.0 ms of 79.0 ms in tbf "
            "8001: of va0 behind 1.2 MB, of which iperf3 (pid 9) 98.0%)",
        ),
        # nothing that it did took half of its time
        (
            who(did=[did("busy", "f", 30 * MS)], answers=3),
            "store (pid 90, port 5432) answered 3 times (its work 70.0 ms of 79.0 ms)",
        ),
        (who(pid=0, answers=0), "10.0.0.2:5432 sent"),
        (who(pid=0, answers=0, address="fd00::2"), "[fd00::2]:5432 sent"),
        (
            who(did=[TIMER], again={"pid": 50, "comm": "app"}),
            "store (pid 90, port 5432) answered, which waits for app (pid 50) again "
            "(its work 70.0 ms of 79.0 ms: slept on a timer (clock_nanosleep))",
        ),
        (
            who(
                did=[
                    did("asleep", "in recvfrom", who=[who(did=[BUSY], time_ns=60 * MS)])
                ]
            ),
            "store (pid 90, port 5432) answered (its work 70.0 ms of 79.0 ms: slept in "
            "recvfrom, until store (pid 90, port 5432) answered (its work 70.0 ms of "
            "79.0 ms: busy in crunch_numbers))",
        ),
    ],
)
def test_a_chain_is_told_in_a_sentence(of, words):
    story = story_of(of)
    assert conclusion(story) == (
        "80.0 ms of 80.0 ms from request to reply at app (pid 50), which slept in "
        f"recvfrom, until {words}"
    )
    assert [*story_lines(story)][2].endswith(f"asleep in recvfrom, until {words}")


def test_of_several_that_answered_each_ones_share_is_told():
    others = who(pid=0, time_ns=10 * MS)
    line = [*story_lines(story_of(who(time_ns=70 * MS), others))][2]
    assert line.endswith(
        "asleep in recvfrom, answered by store (pid 90, port 5432) 70.0 ms, "
        "10.0.0.2:5432 10.0 ms"
    )


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (who(), "answered by store (pid 90, port 5432)"),
        (who(pid=0, answers=0), "woken by 10.0.0.2:5432"),
    ],
)
def test_who_answered_is_a_cause(of, words):
    document = {"stories": [story_of(of)], "limit_ns": None, "slow_messages": 1}
    (found,) = causes(document)
    assert found["cause"] == f"server: asleep in recvfrom, {words}"


def test_without_room_it_is_told_what_the_reader_did():
    reader = {"pid": 50, "comm": "app", "thread": 52, "time_ns": 80 * MS}
    story = story_of(reader | {"did": [TIMER]}, kind="held", what="a zero window")
    story["stages"] = {"send_queue": story["stages"]["server"]}
    assert conclusion(story) == (
        "80.0 ms of 80.0 ms in the send queue of client (pid 70), held by a zero "
        "window, while app (pid 50, thread 52) slept on a timer (clock_nanosleep) for "
        "60.0 ms of it"
    )
