"""A reader that is runnable and has no CPU: the time lands in wakeup.

The truth is the reader's run delay in /proc/PID/schedstat, the kernel's own
count of the time that a process waited for a CPU.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from peers import Peer, answer, answer_preempted, ask, hog
from recording import recording, tcp_pair, udp_pair

pytestmark = pytest.mark.timed

PAIRS = {"tcp": tcp_pair, "udp": udp_pair}
MESSAGES = 60
QUESTION_BYTES = 64
GAP_NS = 3_700_000  # no divisor of the hog's period, so it meets all its phases
BUSY_NS, IDLE_NS, TURNS = 8_000_000, 4_000_000, 400
# From the waking to the CPU's scheduler: an interrupt to an idle virtual CPU,
# which run delay does not contain, and Python between read and schedstat.
BOUND_NS = 200_000
LONG_NS = 1_000_000
PREEMPTIONS = 32  # while one message waits


@pytest.fixture(params=PAIRS)
def pair_of(request):
    """Run the test over each transport: (its name, what connects a pair)."""
    return request.param, PAIRS[request.param]


def questions(lab, folder, pair_of, hogged):
    """Rows of the questions but the first, and each one's true wait for a CPU.

    Reader and hog share a CPU; without a hog the reader goes before all others.
    """
    protocol, connect = pair_of
    client, server = connect(lab)
    cpus = sorted(os.sched_getaffinity(0))
    with recording(lab, folder, (protocol,)) as recorded, client, server:
        asked = {"size": QUESTION_BYTES, "count": MESSAGES}
        turns = {"busy_ns": BUSY_NS, "idle_ns": IDLE_NS, "count": TURNS}
        with (
            Peer(answer, server, cpus[0], real_time=not hogged, **asked) as reader,
            Peer(
                ask, client, cpus[-1], gap_ns=GAP_NS, peer=reader.process.pid, **asked
            ) as sender,
            Peer(hog, client, cpus[0], **turns) as rival,
        ):
            if hogged:
                rival.go()
            reader.go()
            before = sender.go().result()
            after = reader.result()
    assert recorded.lost() == {}
    rows = recorded.messages()
    rows = rows[rows["size_bytes"] == QUESTION_BYTES].sort_values("send_ns")
    assert len(rows) == MESSAGES
    # who reads a socket is known from its first read on, so that one's wakeup is blank
    assert rows["wakeup_ns"].isna().tolist() == [True] + [False] * (MESSAGES - 1)
    return rows[1:], (np.array(after) - np.array(before))[1:]


def test_the_time_that_a_hog_holds_the_readers_cpu_is_wakeup(
    make_lab, tmp_path, pair_of
):
    rows, delay_ns = questions(make_lab(), tmp_path, pair_of, hogged=True)
    wakeup_ns = rows["wakeup_ns"].to_numpy()
    # the hog may also come between read and schedstat, so not all agree
    assert np.quantile(np.abs(wakeup_ns - delay_ns), 0.75) <= BOUND_NS
    held = delay_ns >= LONG_NS
    assert held.sum() >= MESSAGES // 5
    rest_ns = rows["receive_queue_ns"].to_numpy() - wakeup_ns
    # of the wait in the receive queue nothing else is left
    assert np.median(rest_ns[held]) <= BOUND_NS
    assert (rest_ns >= 0).all()


def test_without_a_hog_wakeup_is_small(make_lab, tmp_path, pair_of):
    rows, delay_ns = questions(make_lab(), tmp_path, pair_of, hogged=False)
    wakeup_ns = rows["wakeup_ns"].to_numpy()
    assert np.median(wakeup_ns) <= BOUND_NS
    assert np.median(np.abs(wakeup_ns - delay_ns)) <= BOUND_NS


def test_all_waits_of_a_message_are_in_its_wakeup(make_lab, tmp_path, pair_of):
    protocol, connect = pair_of
    lab = make_lab()
    client, server = connect(lab)
    cpu = min(os.sched_getaffinity(0))
    with recording(lab, tmp_path, (protocol,)) as recorded, client, server:
        asked = {"size": QUESTION_BYTES, "preemptions": PREEMPTIONS}
        turns = {"busy_ns": 1_000_000, "idle_ns": 1_000_000, "count": 2000}
        with (
            Peer(answer_preempted, server, cpu, real_time=False, **asked) as reader,
            Peer(hog, client, cpu, **turns) as rival,
        ):
            reader.go()
            client.send(bytes(QUESTION_BYTES))
            client.recv(1)
            rival.go()
            client.send(bytes(QUESTION_BYTES))
            client.recv(1)
            log = np.array(reader.result())
    rows = recorded.messages().sort_values("send_ns")
    late = rows[rows["size_bytes"] == QUESTION_BYTES].iloc[1]
    # what the kernel had counted before it was ready, by the last look before
    before = log[log[:, 2] <= late["ready_ns"], 1].max(initial=log[0, 1])
    waited = log[-1, 1] - before
    # each turn of the hog is 1 ms, so there were as many waits as preemptions
    assert waited > PREEMPTIONS // 2 * BUSY_NS // 8
    assert late["wakeup_ns"] <= late["receive_queue_ns"]
    # one wait may be under way when it is ready, another end between read and look
    assert abs(late["wakeup_ns"] - waited) <= 2_000_000 + BOUND_NS
