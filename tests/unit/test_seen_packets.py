"""What two hosts saw of the same packets, without a word about their clocks."""

from __future__ import annotations

import numpy as np
import pytest
from halves import LAYOUT
from latprof_analysis.records import seen_packets
from latprof_analysis.records.flows import IPPROTO_TCP
from latprof_analysis.records.host_records import HostRecords, host_of, own_pid
from latprof_analysis.records.seen_packets import RINGS, SeenPackets

SENDER, RECEIVER = 1, 2
UDP = 17
AHEAD = 7_000_000


def records(ring: str, **columns) -> np.ndarray:
    found = np.zeros(len(next(iter(columns.values()))), LAYOUT.rings[ring])
    for name, values in columns.items():
        found[name] = values
    return found


def batch(**rings: np.ndarray) -> dict:
    return {ring: rings.get(ring, np.empty(0, LAYOUT.rings[ring])) for ring in RINGS}


def announced(*flows: int, side: int, protocol: int = IPPROTO_TCP) -> np.ndarray:
    return records(
        "flows",
        flow=list(flows),
        side=[side] * len(flows),
        protocol=[protocol] * len(flows),
        source_port=[1000 + flow for flow in flows],
        destination_port=[80] * len(flows),
    )


def seen(one: dict, other: dict) -> list:
    packets = SeenPackets(LAYOUT.rings["flows"], 2)
    packets.add(0, one)
    packets.add(1, other)
    return list(packets.between())


def test_bytes_of_a_stream_meet_by_flow_and_offset():
    ends = [100, 200, 300]
    ((one, other, there, back),) = seen(
        batch(
            flows=announced(5, side=SENDER),
            sent_messages=records(
                "sent_messages", flow=[5] * 3, end=ends, xmit_ns=[10, 20, 30]
            ),
        ),
        batch(
            flows=announced(5, side=RECEIVER),
            received_ranges=records(
                "received_ranges", flow=[5] * 3, end=ends[::-1],
                arrive_ns=[AHEAD + 33, AHEAD + 22, AHEAD + 11],
            ),
        ),
    )  # fmt: skip
    assert (one, other) == (0, 1)
    assert sorted(there.arrived_ns - there.sent_ns) == [AHEAD + 1, AHEAD + 2, AHEAD + 3]
    assert len(back.sent_ns) == 0


def test_what_was_sent_again_says_nothing():
    ends = [100, 200, 300]
    ((_, _, there, _),) = seen(
        batch(
            flows=announced(5, side=SENDER),
            sent_messages=records(
                "sent_messages", flow=[5] * 3, end=ends, xmit_ns=[10, 20, 30]
            ),
            retransmits=records("retransmits", flow=[5], start=[150], end=[250]),
        ),
        batch(
            flows=announced(5, side=RECEIVER),
            received_ranges=records(
                "received_ranges", flow=[5] * 3, end=ends, arrive_ns=[11, 12, 31]
            ),
        ),
    )
    assert sorted(there.sent_ns) == [10, 30]


@pytest.mark.parametrize(("arrived", "met"), [([11, 21, 31], 3), ([11, 31], 0)])
def test_datagrams_that_are_alike_meet_where_none_was_lost(arrived, met):
    found = seen(
        batch(
            flows=announced(5, side=SENDER, protocol=UDP),
            sent_messages=records(
                "sent_messages", flow=[5] * 3, key=[9] * 3, xmit_ns=[10, 20, 30]
            ),
        ),
        batch(
            flows=announced(5, side=RECEIVER, protocol=UDP),
            received_ranges=records(
                "received_ranges",
                flow=[5] * len(arrived),
                key=[9] * len(arrived),
                arrive_ns=arrived,
            ),
        ),
    )
    there = [one[2] for one in found]
    assert sum(len(one.sent_ns) for one in there) == met
    assert all((one.arrived_ns - one.sent_ns == 1).all() for one in there)


def test_who_acknowledges_bytes_had_got_them():
    """Of a stream one way alone its ACKs are the way back."""
    ((_, _, there, back),) = seen(
        batch(
            flows=announced(5, side=SENDER),
            sent_messages=records(
                "sent_messages", flow=[5] * 2, end=[100, 200], xmit_ns=[10, 20]
            ),
            acknowledgements=records(
                "acknowledgements",
                flow=[5] * 3,
                end=[100, 150, 200],
                arrive_ns=[15, 16, 26],
            ),
        ),
        batch(
            flows=announced(5, side=RECEIVER),
            received_ranges=records(
                "received_ranges",
                flow=[5] * 2,
                end=[100, 200],
                arrive_ns=[AHEAD + 12, AHEAD + 22],
            ),
        ),
    )
    assert len(there.sent_ns) == 2
    # of half of a range the one before it had come
    assert (back.arrived_ns - back.sent_ns + AHEAD).tolist() == [3, 4, 4]


def test_of_more_than_there_is_room_for_both_hosts_keep_the_same(monkeypatch):
    monkeypatch.setattr(seen_packets, "MOST", 1000)
    ends = np.arange(1, 20_001) * 64
    one, other = (
        batch(
            flows=announced(5, side=SENDER),
            sent_messages=records(
                "sent_messages", flow=np.full(20_000, 5), end=ends, xmit_ns=ends
            ),
        ),
        batch(
            flows=announced(5, side=RECEIVER),
            received_ranges=records(
                "received_ranges", flow=np.full(20_000, 5), end=ends, arrive_ns=ends + 9
            ),
        ),
    )
    ((_, _, there, _),) = seen(one, other)
    assert 250 <= len(there.sent_ns) <= 1000
    assert (there.arrived_ns - there.sent_ns == 9).all()


def test_numbers_of_hosts_are_unlike_and_come_back():
    flows = announced(5, 6, side=SENDER, protocol=UDP)
    flows["sender_netns"], flows["netns"] = [1, 0], 4026531840
    sent = records("sent_messages", flow=[5, 6], pid=[12, 0], send_ns=[10, 0])
    rings = {"flows": flows.dtype, "sent_messages": sent.dtype}
    of_hosts = [
        HostRecords(host, lambda times: times + AHEAD).moved(
            {"flows": flows, "sent_messages": sent}, rings
        )
        for host in (0, 3)
    ]
    first, other = (moved["sent_messages"] for moved in of_hosts)
    # whose sender's namespace is known: the number is a host's own
    assert first["flow"][0] == 5 != other["flow"][0]
    assert first["flow"][1] == other["flow"][1] == 6
    for moved in of_hosts:
        numbers = [moved[ring]["flow"].tolist() for ring in ("flows", "sent_messages")]
        assert numbers[0] == numbers[1]
        assert moved["sent_messages"]["send_ns"].tolist() == [10 + AHEAD, 0]
    assert of_hosts[0]["flows"]["netns"][0] != of_hosts[1]["flows"]["netns"][0]
    pids = other["pid"].astype("i8")
    assert host_of(pids).tolist() == [3, -1]
    assert own_pid(pids).tolist() == [12, 0]
