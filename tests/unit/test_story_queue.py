"""Whose bytes stood before a message in a device's queue, from made recordings."""

from __future__ import annotations

import shutil
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from latprof_agent.capture.device_queues import Queues, owners_of
from latprof_agent.probes.layout import layout_of
from latprof_analysis.report.story_lines import conclusion, story_lines
from latprof_analysis.story.device_queue import (
    UNKNOWN,
    DeviceQueue,
    Ends,
    queues_of,
    wait_of,
)

PACKETS = layout_of().flights["queued_packets"]
MS = 1_000_000
TBF = DeviceQueue(0, "va0", "tbf", 0x80010000, "bfifo")
FQ = DeviceQueue(0, "va0", "fq", 0x80010000)
MINE, THEIRS, OLD = 1000, 2000, 3000  # ports
ROW = {
    **{"source_address": "10.0.0.1", "destination_address": "10.0.0.2"},
    **{"source_port": MINE, "destination_port": 7, "protocol": "tcp"},
}
ENDS = Ends.of_message(ROW)


def packet(t_ns, port, size, backlog, *, inode=0, queue=1, handed_ns=0):
    row = np.zeros(1, PACKETS)
    row["t_ns"], row["bytes"], row["backlog_bytes"] = t_ns, size, backlog
    row["source"], row["destination"] = list(ENDS.source), list(ENDS.destination)
    row["source_port"], row["destination_port"], row["protocol"] = port, 7, 6
    row["inode"], row["queue"], row["handed_ns"] = inode, queue, handed_ns
    return row


def wait(*packets, begin_ns=10 * MS, end_ns=20 * MS, queue=TBF, **how):
    owners = {5: (9, "iperf3", 1), 6: (8, "curl", 2)}
    how = {"queue_at": lambda _n, _t: queue, "owner_of": owners.get} | how
    return wait_of(np.concatenate(packets), ENDS, begin_ns, end_ns, **how)


def told(found):
    return [(part.kind, part.what, part.time_ns) for part in found.parts]


def test_in_a_fifo_the_wait_is_shared_out_by_bytes():
    found = wait(
        packet(MS, OLD, 999, 0, inode=6),  # has left
        packet(2 * MS, THEIRS, 5000, 0, inode=5),
        packet(3 * MS, MINE, 1000, 5000),
        packet(4 * MS, THEIRS, 3000, 5000, inode=5),
        packet(10 * MS, MINE, 1000, 8000, inode=6),  # of 5,000 1,000 have left
    )
    assert told(found) == [
        ("queued", "behind", 7_777_778),
        ("queued", "behind its own sender's earlier packets", 1_111_111),
        ("held back", "", 1_111_111),
    ]
    assert found.parts[0].who == ({"pid": 9, "comm": "iperf3", "time_ns": 7_777_778},)
    assert [(one["comm"], one["bytes"]) for one in found.queue["before"]] == [
        ("iperf3", 7000),
        ("", 1000),
    ]
    story = {
        "message": {
            **{"protocol": "tcp", "kind": "request", "sequence": 1, "size_bytes": 9},
            **{"sender_pid": 1, "reader_pid": 2, "sender_comm": "a"},
            **{"reader_comm": "b", "end_to_end_ns": 11 * MS, "retransmits": 0},
        },
        "stages": {
            "qdisc": {
                "time_ns": 10 * MS,
                "parts": [vars(part) for part in found.parts],
                "queue": found.queue,
            }
        },
    }
    assert conclusion(story) == (
        "10.0 ms of 11.0 ms in tbf 8001: of va0 behind 8 kB, of which "
        "iperf3 (pid 9) 87.5%"
    )
    assert any("queued behind iperf3 (pid 9)" in line for line in story_lines(story))


def test_of_what_was_not_seen_to_come_nobody_is_told():
    before = packet(2 * MS, THEIRS, 1000, 0, inode=5)
    mine = packet(10 * MS, MINE, 1000, 9000)
    unseen = packet(3 * MS, 0, UNKNOWN, 1000)
    for found in (
        wait(packet(2 * MS, OLD, 1000, 0), unseen, before, mine),
        wait(packet(MS, OLD, 8000, 0), before, mine, since_ns=2 * MS),
    ):
        assert ("not recorded", "whose bytes stood before it", 8 * MS) in told(found)
        assert ("queued", "behind", MS) in told(found)


@pytest.mark.parametrize(
    "packets",
    [
        [packet(10 * MS, THEIRS, 1000, 9000)],
        [packet(10 * MS + 300_000, MINE, 1000, 9000)],
        [packet(10 * MS, MINE, 1000, UNKNOWN)],
        # on its way below it came to a second queue
        [packet(10 * MS, MINE, 1000, 0), packet(10 * MS + 9, MINE, 1, 0, queue=2)],
    ],
)
def test_a_packet_that_was_not_seen_has_no_cause(packets):
    assert told(wait(*packets)) == [("not recorded", "", 10 * MS)]
    lost = wait(packet(10 * MS, MINE, 1000, 9000), queue_at=lambda _n, _t: None)
    assert told(lost) == [("not recorded", "", 10 * MS)]


def test_an_empty_queue_itself_holds_a_packet_back():
    found = wait(packet(10 * MS + 5000, MINE, 1000, 0, handed_ns=5000))
    assert told(found) == [("held back", "", 10 * MS)]
    assert found.queue["before"] == []


def test_in_other_queues_bytes_before_it_are_told_as_at_most():
    packets = (
        packet(2 * MS, THEIRS, 5000, 0, inode=5),
        packet(10 * MS, MINE, 1000, 5000),
    )
    for queue in (FQ, DeviceQueue(0, "va0", "tbf", 1, "fq_codel")):
        found = wait(*packets, queue=queue)
        assert told(found) == [("queued", "", 10 * MS)]
        assert not found.queue["fifo"]
        assert found.queue["before"][0]["comm"] == "iperf3"


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 100_000)), min_size=1, max_size=40
    ),
    st.integers(0, 3_000_000),
    st.integers(1, 10**9),
)
def test_parts_sum_to_the_stage_and_bytes_to_the_backlog(packets, backlog, took_ns):
    rows = [packet(1 + i, port, size, 0) for i, (port, size) in enumerate(packets)]
    mine = packet(10 * MS, MINE, 1500, backlog)
    found = wait(*rows, mine, end_ns=10 * MS + took_ns)
    assert sum(part.time_ns for part in found.parts) == took_ns
    assert min(part.time_ns for part in found.parts) > 0
    # slowly, byte by byte from the latest on, in hundreds
    assert sum(one["bytes"] for one in found.queue["before"]) == backlog
    left = backlog
    slow = dict.fromkeys(range(5), 0)
    for port, size in reversed(packets):
        slow[port] += min(size, left)
        left -= min(size, left)
    slow[0] = left
    by_port = {one["flow"]: one["bytes"] for one in found.queue["before"]}
    for port, size in slow.items():
        flow = f"tcp 10.0.0.1:{port} to 10.0.0.2:7" if port else ""
        assert by_port.get(flow, 0) == size


def test_a_number_means_the_queue_that_was_there_at_the_time():
    entries = np.zeros(2, layout_of().device_queue)
    entries["since_ns"], entries["handle"] = [5, 10], [0x10000, 0x20000]
    queue_at = queues_of((3, entry) for entry in entries)
    assert queue_at(3, 4) is None
    assert queue_at(4, 20) is None
    assert queue_at(3, 9).handle == 0x10000
    assert queue_at(3, 10).handle == 0x20000


def test_a_socket_is_of_the_processes_that_have_it_open(tmp_path):
    for pid, inode in ((30, 77), (20, 77), (40, 78)):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
        (tmp_path / f"{pid}/fd/4").symlink_to("/dev/null")
        (tmp_path / f"{pid}/comm").write_text(f"p{pid}\n")
    assert owners_of({77, 79}, tmp_path) == {77: (20, "p20", 2)}
    assert Queues(tmp_path).owner(77) is None


class Drained:
    """Queues as the extension reads them."""

    def __init__(self, number, since_ns):
        self.entry = np.zeros(1, layout_of().device_queue)
        self.entry["since_ns"], self.number = since_ns, np.array([number], "u4")

    def entries(self, _table):
        return self.number.tobytes(), self.entry.tobytes()


def test_what_no_copy_has_any_more_is_forgotten_and_its_number_asked_for_anew(tmp_path):
    def opened_by(pid, inode):
        (tmp_path / f"{pid}/fd").mkdir(parents=True)
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
        (tmp_path / f"{pid}/comm").write_text(f"p{pid}\n")

    queues, layout = Queues(tmp_path), layout_of()
    opened_by(20, 77)
    queues.note(Drained(3, 5), layout, packet(1, 80, 100, 0, inode=77))
    between_ns = time.monotonic_ns()
    queues.forget_before(between_ns - MS * 1000)
    assert queues.owner(77) == (20, "p20", 1)
    assert queues.at()(3, 10) is not None
    queues.forget_before(time.monotonic_ns())
    assert queues.owner(77) is None
    assert queues.at()(3, 10) is None
    shutil.rmtree(tmp_path / "20")
    opened_by(30, 77)
    queues.note(Drained(4, 50), layout, packet(1, 80, 100, 0, inode=77))
    assert queues.owner(77) == (30, "p30", 1)
    assert queues.at()(3, 60) is None
    assert queues.at()(4, 60) is not None
