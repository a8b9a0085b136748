"""A sender that must wait: the time lands in send_queue, and nowhere else.

The truth is when TCP handed a byte on for the first time (tcpi_bytes_sent less
tcpi_bytes_retrans, polled by a process of its own), and TCP's own account of
what limited it.
"""

from __future__ import annotations

import socket

import numpy as np
import pytest
from brackets import STAGES, bracket_at, bracket_of_calls, outside_ns
from peers import (
    BYTES_ACKED,
    RWND_LIMITED,
    SNDBUF_LIMITED,
    Peer,
    buffers,
    read,
    send,
    tcp_info,
    watch_sent,
)
from recording import recording, tcp_pair, wait_until
from undisturbed import undisturbed

pytestmark = pytest.mark.timed

BOUND_NS = 200_000
TICK_NS = 4_000_000  # at HZ=250; TCP's accounts and timers count in ticks
DELAYED_ACK_NS = 40_000_000  # TCP_DELACK_MIN


def limited_ns(client):
    """How long TCP says that window and send buffer have limited it."""
    return 1000 * (tcp_info(client, RWND_LIMITED) + tcp_info(client, SNDBUF_LIMITED))


def waiting_ns(rows):
    """How long at least one message was waiting in send_queue."""
    begins, ends = rows["send_ns"].to_numpy(), rows["queue_ns"].to_numpy()
    furthest = np.r_[begins[0], np.maximum.accumulate(ends)[:-1]]
    return np.maximum(ends - np.maximum(begins, furthest), 0).sum()


def worst_but_one(errors):
    """Of one its error: others may take the CPU between two stamps now and then."""
    return np.sort(errors)[-2:][0]


def assert_send_queue_agrees(rows, sends, sent, ends):
    """Both stamps of the stage, for every message, and its length."""
    called, returned = bracket_of_calls(sends, ends)
    earliest, latest = bracket_at(sent, ends)
    assert np.median(latest - earliest) < BOUND_NS  # the oracle is sharp enough
    send_ns, queue_ns = rows["send_ns"].to_numpy(), rows["queue_ns"].to_numpy()
    assert (outside_ns(send_ns, called, returned) == 0).all()
    assert worst_but_one(outside_ns(queue_ns, earliest, latest)) <= BOUND_NS
    # a call that waits for room begins when it is called, not when there is room
    assert np.median(send_ns - called) <= BOUND_NS
    found = rows["send_queue_ns"].to_numpy()
    error = outside_ns(found, earliest - called, latest - called)
    assert worst_but_one(error) <= BOUND_NS


def test_waiting_for_room_in_the_send_buffer_is_send_queue(make_lab, tmp_path):
    lab = make_lab()
    sizes, ends = [3000] * 100, np.arange(1, 101) * 3000

    def waits():
        client, server = tcp_pair(lab, buffers(4096, 4096))
        with (
            recording(lab, tmp_path, ("tcp",)) as recorded,
            client,
            server,
            Peer(watch_sent, client, until=ends[-1].item()) as watcher,
            Peer(
                read, server, pieces=[3000], total=ends[-1].item(), gap_ns=2_000_000
            ) as reader,
            Peer(send, client, sizes=sizes) as sender,
        ):
            watcher.go()
            reader.go()
            sends, sent = sender.go().result(), watcher.result()
            reader.result()
            return recorded, sends, sent, limited_ns(client)

    recorded, sends, sent, limit_ns = undisturbed(tmp_path, lab.interface, waits)
    rows = recorded.messages().sort_values("sequence")
    assert recorded.lost() == {}
    assert rows["sequence"].tolist() == ends.tolist()
    blocked_ns = np.array([after - before for before, after, _ in sends])
    assert np.median(blocked_ns) > 1_000_000  # or the buffer was not full
    assert_send_queue_agrees(rows, sends, sent, ends)
    # whenever TCP says that it was limited, a message was waiting
    assert limit_ns > 50_000_000
    assert waiting_ns(rows) >= limit_ns - 2 * TICK_NS
    for stage in ("qdisc", "transit", "receive_stack"):
        assert rows[f"{stage}_ns"].median() <= BOUND_NS


def test_waiting_for_a_receive_window_is_send_queue(make_lab, tmp_path):
    lab = make_lab()
    size = 200_000

    def waits():
        client, server = tcp_pair(lab, buffers(1 << 20, 4096))
        with (
            recording(lab, tmp_path, ("tcp",)) as recorded,
            client,
            server,
            Peer(watch_sent, client, until=size) as watcher,
            Peer(read, server, pieces=[size], total=size) as reader,
            Peer(send, client, sizes=[size]) as sender,
        ):
            watcher.go()
            sends = sender.go().result()
            wait_until(lambda: limited_ns(client) > 100_000_000, "a shut window")
            reader.go()
            sent = watcher.result()
            reader.result()
            return recorded, sends, sent, limited_ns(client)

    recorded, sends, sent, limit_ns = undisturbed(tmp_path, lab.interface, waits)
    rows = recorded.messages()
    assert recorded.lost() == {}
    assert rows["size_bytes"].tolist() == [size]
    assert_send_queue_agrees(rows, sends, sent, [size])
    assert abs(rows["send_queue_ns"][0] - limit_ns) <= 2 * TICK_NS
    assert rows["send_queue_ns"][0] >= 0.95 * rows["end_to_end_ns"][0]


def test_nagle_with_a_delayed_ack_is_40_ms_of_send_queue(make_lab, tmp_path):
    lab = make_lab()
    pairs, size = 5, 100
    total = 2 * pairs * size

    def delayed():
        client, server = tcp_pair(lab)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 0)
        log = []
        with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
            for n in range(pairs):
                server.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
                until = 2 * size * (n + 1)
                with (
                    Peer(watch_sent, client, until=until) as watcher,
                    Peer(send, client, sizes=[size, size]) as sender,
                ):
                    watcher.go()
                    log.append((sender.go().result(), watcher.result()))
                # the next pair begins with nothing on its way; the handshake counts 1
                wait_until(
                    lambda u=until: tcp_info(client, BYTES_ACKED) == u + 1,
                    "the last ACK",
                )
                assert len(server.recv(total)) == 2 * size
        return recorded, log

    recorded, log = undisturbed(tmp_path, lab.interface, delayed)
    rows = recorded.messages().sort_values("sequence")
    assert recorded.lost() == {}
    assert len(rows) == 2 * pairs
    sends = [call for calls, _ in log for call in calls]
    sent = [change for _, changes in log for change in changes]
    ends = np.arange(1, 2 * pairs + 1) * size
    assert_send_queue_agrees(rows, sends, sent, ends)
    first, second = rows["send_queue_ns"].to_numpy().reshape(-1, 2).T
    assert np.median(first) <= BOUND_NS
    # the timer of the delayed ACK ends on a tick, up to one late and one early
    assert abs(np.median(second) - DELAYED_ACK_NS) <= 2 * TICK_NS


def test_each_send_that_does_not_wait_is_one_row_of_what_it_accepted(
    make_lab, tmp_path
):
    lab = make_lab()
    slow = {"real_time": False}

    def overrun():
        client, server = tcp_pair(lab, buffers(4096, 4096))
        with (
            recording(lab, tmp_path, ("tcp",)) as recorded,
            client,
            server,
            Peer(read, server, pieces=[3000], total=1 << 40, **slow) as reader,
            Peer(send, client, sizes=[50_000] * 60, blocking=False, **slow) as sender,
        ):
            reader.go()
            sends = sender.go().result()
            client.shutdown(socket.SHUT_WR)
            return recorded, sends, reader.result()

    recorded, sends, reads = undisturbed(tmp_path, lab.interface, overrun)
    accepted = [size for _, _, size in sends if size]
    assert len(accepted) >= 20
    assert max(accepted) < 50_000  # only a part each time
    assert sum(size for _, _, size in reads) == sum(accepted)
    rows = recorded.messages().sort_values("sequence")
    assert recorded.lost() == {}
    assert rows["size_bytes"].tolist() == accepted
    assert rows["sequence"].tolist() == np.cumsum(accepted).tolist()
    stages = rows[[f"{stage}_ns" for stage in STAGES]]
    assert (stages.sum(axis=1) == rows["end_to_end_ns"]).all()
