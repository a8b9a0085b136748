"""More messages than a socket's FIFO holds: merged and counted, none lost."""

from __future__ import annotations

import pytest
from brackets import STAGES
from peers import BYTES_SENT, Peer, buffers, read, send, tcp_info, watch_readable
from recording import recording, tcp_pair

MESSAGES, SIZE = 5000, 10
TOTAL = MESSAGES * SIZE


def assert_nothing_is_lost(recorded, rows):
    """The bytes are all there, once, and the stages of every row add up."""
    assert recorded.lost() == {}
    unmatched = recorded.recorder.joiner.unmatched
    if unmatched and recorded.totals.untraced.count:
        pytest.skip("the kernel hid what a CPU did meanwhile: reads may be unseen")
    assert unmatched == {}
    assert rows["size_bytes"].sum() == TOTAL
    ends = rows["size_bytes"].cumsum()
    assert rows["sequence"].tolist() == ends.tolist()
    stages = rows[[f"{stage}_ns" for stage in STAGES]]
    assert (stages.fillna(0) >= 0).all().all()
    assert (stages.sum(axis=1) == rows["end_to_end_ns"]).all()


def test_unread_messages_beyond_the_fifo_keep_their_rows_without_ready(
    make_lab, tmp_path
):
    # reno, since bbr takes a long time to learn the rate of small packets
    lab = make_lab(congestion="reno")
    client, server = tcp_pair(lab, buffers(1 << 20, 8 << 20))
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        with (
            Peer(watch_readable, server, real_time=False, until=TOTAL) as watcher,
            Peer(send, client, sizes=[SIZE] * MESSAGES, pending=False) as sender,
        ):
            watcher.go()
            sender.go().result()
            watcher.result()
        with Peer(read, server, pieces=[TOTAL], total=TOTAL) as reader:
            reader.go().result()

    rows = recorded.messages().sort_values("sequence")
    assert_nothing_is_lost(recorded, rows)
    assert recorded.counters["merged_sends"] == 0
    assert len(rows) == MESSAGES
    merged = recorded.counters["merged_reads"]
    blank = rows["ready_ns"].isna()
    assert merged > MESSAGES / 2
    # The FIFO's last entry knows when the last byte was ready, and no byte before.
    # A readiness that the kernel hid is that of the message behind it.
    untraced = recorded.totals.untraced.count
    assert merged <= blank.sum() <= merged + (MESSAGES // 100 if untraced else 0)
    assert not blank.iloc[0] and not blank.iloc[-1]
    for column in ("arrive_ns", "wakeup_ns", "queue_bytes_at_arrival"):
        assert rows.loc[blank, column].isna().all()
    assert rows["read_ns"].notna().all()


def test_pending_messages_beyond_the_fifo_are_merged_and_counted(make_lab, tmp_path):
    client, server = tcp_pair(lab := make_lab(), buffers(8 << 20, 4096))
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        with Peer(send, client, real_time=False, sizes=[SIZE] * MESSAGES) as sender:
            sender.go().result()
        # the window is shut: most of it cannot have left
        assert tcp_info(client, BYTES_SENT) < TOTAL / 2
        with Peer(read, server, pieces=[TOTAL], total=TOTAL) as reader:
            reader.go().result()

    rows = recorded.messages().sort_values("sequence")
    assert_nothing_is_lost(recorded, rows)
    merged = recorded.counters["merged_sends"]
    assert merged > 0
    assert len(rows) + merged == MESSAGES
