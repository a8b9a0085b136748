"""Every message of a sweep of sizes has one row, against the generator's log.

The generator is a process of its own that knows nothing of the probes: it logs
what it sent and got, and the offset or the number of each message.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
from brackets import STAGES
from latprof_agent.workload.generator import Generator, PingPong
from latprof_agent.workload.generator_log import LogTail, log_in
from peers import DATA_SEGS_OUT, TOTAL_RETRANS, Peer, read, send, tcp_info
from recording import recording, tcp_pair, wait_until

TCP_SIZES = (18, 64, 1000, 1448, 1449, 5000, 65507, 300_000, 1_000_000, 10_000_000)
UDP_SIZES = (18, 64, 1000, 1472, 1473, 5000, 20000, 65507)
ROUNDS = 5
STAMPS = ("send", "queue", "xmit", "arrive", "ready", "read")
# Below this no send buffer fills and no window ends in the middle of a packet.
WHOLE_BYTES = 10_000


@pytest.fixture(params=[True, False], ids=["offloads", "no offloads"])
def lab(request, make_lab, ipv6):
    """A lab for each setting of the offloads and both families."""
    return make_lab(offloads=request.param, ipv6=ipv6)


@pytest.fixture(params=[False, True], ids=["ipv4", "ipv6"])
def ipv6(request):
    """Each family."""
    return request.param


OPEN_BYTES = 20
# Messages before the first request: two each way, or the two that open a session.
HANDSHAKE = {"tcp": 4, "udp": 2}


def sweep(lab, folder, protocol, sizes, rounds=ROUNDS, **options):
    """Run the generator; what was recorded, its log, and the generator itself."""
    plan = PingPong(sizes=sizes, rounds=rounds, warmup_rounds=0, **options)
    log_file = os.open(folder, os.O_TMPFILE | os.O_RDWR)
    with recording(lab, folder, (protocol,)) as recorded:
        generator = Generator(lab, plan, protocol, log_file)
        generator.start()
        try:
            wait_until(lambda: not generator.running(), "the sweep's end")
        finally:
            generator.stop()
            generator.finish()
    assert recorded.lost() == {}
    # a datagram that was read and freed before its readiness was told is counted
    early = recorded.counters["unmatched_datagram_reads"]
    assert sum(recorded.recorder.joiner.unmatched.values()) <= early
    log = LogTail(log_in(log_file)).read()
    os.close(log_file)
    assert sorted(log["size_bytes"]) == sorted(sizes * rounds)
    return recorded, log, generator


def directions(rows, port):
    """Requests and replies, each in order."""
    rows = rows.sort_values("sequence")
    return rows[rows["destination_port"] == port], rows[rows["source_port"] == port]


def assert_stages_are_whole(rows, recorded):
    """Stamps never run backwards, and the stages sum to the whole exactly."""
    stamps = rows[[f"{stamp}_ns" for stamp in STAMPS]]
    assert stamps[["send_ns", "read_ns"]].notna().all().all()
    # a stamp is missing only for a reason, and that is counted
    counters, untraced = recorded.counters, recorded.totals.untraced.count
    if stamps["ready_ns"].isna().any():
        assert counters["merged_reads"] or untraced
    if stamps["arrive_ns"].isna().any():
        assert counters["backlog_arrivals"] or rows["retransmits"].sum() or untraced
    if stamps[["queue_ns", "xmit_ns"]].isna().any().any():
        assert rows["retransmits"].sum() or untraced
    forwards = stamps.ffill(axis=1).diff(axis=1).iloc[:, 1:]
    backwards = rows[(forwards < 0).any(axis=1)]
    assert backwards.empty, backwards.to_dict("records")
    stages = rows[[f"{stage}_ns" for stage in STAGES]]
    assert (stages.sum(axis=1) == rows["end_to_end_ns"]).all()
    assert (rows["end_to_end_ns"] == rows["read_ns"] - rows["send_ns"]).all()


def assert_one_row_each(rows, ends, sizes):
    """A row ends where each message of the log ends, and holds all of it.

    The generator's clock tick interrupts a send call that waits for long, so
    that of 10 MB may be several calls, each a row of what it gave.
    """
    found = rows["sequence"].to_numpy()
    assert (found == rows["size_bytes"].cumsum()).all()
    assert np.isin(ends, found).all()
    rows_of = np.diff(np.searchsorted(found, np.r_[0, ends], side="right"))
    assert (rows_of[sizes < max(TCP_SIZES)] == 1).all()
    assert (rows_of >= 1).all()
    assert len(rows) == rows_of.sum()


def test_every_tcp_message_has_one_row(lab, tmp_path):
    recorded, log, generator = sweep(lab, tmp_path, "tcp", TCP_SIZES)
    rows = recorded.messages()
    requests, replies = directions(rows, generator.port)
    assert len(requests) + len(replies) == len(rows)
    assert_stages_are_whole(rows, recorded)
    assert_one_row_each(requests, log["request_end"].astype("i8"), log["size_bytes"])
    assert_one_row_each(replies, log["reply_end"].astype("i8"), log["reply_bytes"])
    mss = generator.result["mss_bytes"]
    whole = rows[(rows["size_bytes"] <= WHOLE_BYTES) & (rows["retransmits"] == 0)]
    assert len(whole) >= ROUNDS
    assert (whole["packets"] == -(whole["size_bytes"] // -mss)).all()


def test_every_datagram_has_one_row(lab, tmp_path, ipv6):
    recorded, log, generator = sweep(lab, tmp_path, "udp", UDP_SIZES)
    rows = recorded.messages()
    requests, replies = directions(rows, generator.port)
    assert len(requests) + len(replies) == len(rows)
    assert_stages_are_whole(rows, recorded)
    for found in (requests, replies):
        # the first is what opens the session
        assert found["sequence"].tolist() == list(range(1, len(log) + 2))
        sizes = [OPEN_BYTES, *log["size_bytes"].tolist()]
        assert found["size_bytes"].tolist() == sizes
    # RFC 791 and 8200: fragments begin at multiples of 8 bytes
    room = 1500 - (40 if ipv6 else 20)
    fragment = (room - 8) // 8 * 8 if ipv6 else room
    transport = rows["size_bytes"] + 8
    packets = (-(transport // -fragment)).where(transport > room, 1)
    assert (rows["packets"] == packets).all()


def test_packets_are_the_segments_that_tcp_counted(lab, tmp_path):
    client, server = tcp_pair(lab)
    sizes = [18, 1448, 1449, 20_000, 65_507]
    segments, again = [], []
    with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
        for size in sizes:
            before = tcp_info(client, DATA_SEGS_OUT, "I")
            again_before = tcp_info(client, TOTAL_RETRANS, "I")
            with (
                Peer(read, server, pieces=[size], total=size) as reader,
                Peer(send, client, sizes=[size]) as sender,
            ):
                reader.go()
                sender.go().result()
                reader.result()
            segments.append(tcp_info(client, DATA_SEGS_OUT, "I") - before)
            again.append(tcp_info(client, TOTAL_RETRANS, "I") - again_before)
    rows = recorded.messages().sort_values("sequence")
    assert recorded.lost() == {}
    assert rows["size_bytes"].tolist() == sizes
    # what TCP sends again after the last byte has left does not count any more
    packets = rows["packets"].to_numpy()
    assert (packets <= segments).all()
    assert (packets >= np.array(segments) - again).all()


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_what_a_spinning_reader_takes_at_once_has_whole_rows(
    make_lab, tmp_path, protocol
):
    # on another CPU it may read a datagram before the hook of its readiness runs
    lab, cpus = make_lab(), sorted(os.sched_getaffinity(0))
    ends = {"client_cpu": cpus[0], "server_cpu": cpus[-1], "spin": True}
    sizes, rounds = (64, 1400), 2000
    recorded, _, _ = sweep(lab, tmp_path, protocol, sizes, rounds, **ends)
    rows = recorded.messages()
    untraced = recorded.totals.untraced.count
    assert len(rows) == 2 * rounds * len(sizes) + HANDSHAKE[protocol]
    # an interrupt may come between, and the other CPU reuse the packet's memory: of
    # 360,000 once where nothing else runs, 13 of 8,000 on a busy machine
    early = recorded.counters["unmatched_datagram_reads"]
    assert early <= len(rows) / 100
    assert rows["end_to_end_ns"].isna().sum() <= early + untraced
    assert (rows["receive_queue_ns"].dropna() >= 0).all()
