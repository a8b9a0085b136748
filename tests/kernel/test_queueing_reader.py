"""Waiting at the reader: the receive queue, against a process that polls FIONREAD."""

from __future__ import annotations

import numpy as np
import pytest
from brackets import STAGES, bracket_at, bracket_of_calls, outside_ns
from peers import Peer, read, send, watch_readable
from recording import recording, tcp_pair

pytestmark = pytest.mark.timed

MESSAGES = 200
GAP_NS = 500_000  # 200 messages in 100 ms, in which the reader does nothing
SIZES = [50 + i % 7 for i in range(MESSAGES)]
BOUND_NS = 200_000


def test_every_message_of_a_ping_pong_has_one_row_and_its_stages_add_up(
    make_lab, tmp_path
):
    lab = make_lab()
    client, server = tcp_pair(lab)
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for _ in range(100):
            client.sendall(bytes(64))
            assert len(server.recv(64)) == 64
            server.sendall(bytes(32))
            assert len(client.recv(64)) == 32

    rows = recorded.messages()
    assert recorded.lost() == {}
    assert rows.groupby("size_bytes").size().to_dict() == {32: 100, 64: 100}
    parts = rows[[f"{stage}_ns" for stage in STAGES]]
    assert (parts >= 0).all().all()
    assert (parts.sum(axis=1) == rows["end_to_end_ns"]).all()


@pytest.mark.parametrize(
    "pieces",
    [SIZES, [sum(SIZES)], [37, 1013, 1, 211]],
    ids=["one by one", "one big read", "odd pieces"],
)
def test_the_wait_of_each_message_is_that_since_fionread_showed_it(
    make_lab, tmp_path, pieces
):
    lab = make_lab()
    client, server = tcp_pair(lab)
    total, ends = sum(SIZES), np.cumsum(SIZES)
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        with (
            Peer(watch_readable, server, until=total) as watcher,
            Peer(read, server, pieces=pieces, total=total) as reader,
            Peer(send, client, sizes=SIZES, gap_ns=GAP_NS) as sender,
        ):
            watcher.go()
            sender.go()
            readable = watcher.result()
            reads, sends = reader.go().result(), sender.result()
        pids = sender.process.pid, reader.process.pid

    rows = recorded.messages().sort_values("sequence")
    assert recorded.lost() == {}
    assert rows["sequence"].tolist() == ends.tolist()
    assert rows["size_bytes"].tolist() == SIZES
    assert set(zip(rows["sender_pid"], rows["reader_pid"], strict=True)) == {pids}
    assert_waits_agree(rows, readable, reads, ends)
    assert_whole_agrees(rows, sends, reads, ends)


def assert_waits_agree(rows, readable, reads, ends):
    """The receive queue: from FIONREAD's change to the call that read the end."""
    ready_first, ready_last = bracket_at(readable, ends)
    read_first, read_last = bracket_of_calls(reads, ends)
    # the oracle itself is sharper than the bound, or it would prove nothing
    assert np.median(ready_last - ready_first) < BOUND_NS / 2
    found = rows["receive_queue_ns"].to_numpy()
    error = outside_ns(found, read_first - ready_last, read_last - ready_first)
    assert np.quantile(error, 0.99) <= BOUND_NS


def assert_whole_agrees(rows, sends, reads, ends):
    """End to end: from the send call to the return of the call that read the end."""
    sent_first, sent_last = bracket_of_calls(sends, ends)
    read_first, read_last = bracket_of_calls(reads, ends)
    found = rows["end_to_end_ns"].to_numpy()
    error = outside_ns(found, read_first - sent_last, read_last - sent_first)
    assert np.quantile(error, 0.99) <= BOUND_NS
    assert (rows[[f"{stage}_ns" for stage in STAGES]].sum(axis=1) == found).all()
