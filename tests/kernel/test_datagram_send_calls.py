"""Ways to send a datagram: true stamps, or blank and counted."""

from __future__ import annotations

import os
import socket
import struct

import pytest
from logged import (
    Calls,
    assert_inside,
    assert_rows_are,
    assert_stamps_in_order,
    ping,
)
from recording import recording, udp_pair
from system_calls import Uring
from undisturbed import undisturbed

MESSAGES = 50
SO_ZEROCOPY, MSG_ZEROCOPY = 60, 0x4000000
SOL_UDP, UDP_SEGMENT = 17, 103


def _sizes(n=MESSAGES):
    return [100 + 37 * i for i in range(n)]


@pytest.mark.parametrize("way", ["send", "write", "sendmsg", "zerocopy"])
def test_each_way_to_send_a_datagram_gives_a_row(make_lab, tmp_path, way):
    lab = make_lab()
    client, server = udp_pair(lab)
    client.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
    ways = {
        "send": client.send,
        "write": lambda data: os.write(client.fileno(), data),
        "sendmsg": lambda data: client.sendmsg([data[:50], data[50:]]),
        "zerocopy": lambda data: client.send(data, MSG_ZEROCOPY),
    }
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        for size in _sizes():
            data = bytes(size)
            ping(sends, reads, ways[way], data, server)

    assert recorded.lost() == {}
    rows = recorded.messages().sort_values("sequence").reset_index(drop=True)
    assert_rows_are(rows, _sizes(), sends, reads)


@pytest.mark.parametrize("way", ["uring", "splice"])
def test_a_datagram_without_a_send_call_has_no_send_stamp_and_is_counted(
    make_lab, tmp_path, way
):
    lab = make_lab()
    client, server = udp_pair(lab)
    client.settimeout(None)
    uring = Uring(tmp_path)
    out, into = os.pipe()

    def splice(data):
        os.write(into, data)
        return os.splice(out, client.fileno(), len(data))

    send = {"uring": lambda data: uring.send(client, data), "splice": splice}[way]
    plain, other, reads = Calls(), Calls(), Calls()
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        for size in _sizes():
            data = bytes(size)  # the call before must not stand in for this one
            ping(plain, reads, client.send, data, server)
            ping(other, reads, send, data, server)
    os.close(out)
    os.close(into)

    rows = recorded.messages().sort_values("sequence")
    assert rows["size_bytes"].tolist() == [n for n in _sizes() for _ in range(2)]
    assert_stamps_in_order(rows)
    assert_inside(rows["read_ns"], reads)
    assert_inside(rows["send_ns"].iloc[::2], plain)
    assert rows["send_ns"].iloc[1::2].isna().all()
    assert_inside(rows["queue_ns"].iloc[1::2], other)
    assert recorded.counters["udp_without_send"] == MESSAGES


def test_a_corked_datagram_is_one_message_of_the_last_call(make_lab, tmp_path):
    lab = make_lab()
    client, server = udp_pair(lab)
    sends, reads = Calls(), Calls()
    with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
        for _ in range(MESSAGES):
            client.send(bytes(10), socket.MSG_MORE)
            sends.do(client.send, bytes(20))
            assert len(reads.do(server.recv, 100)) == 30

    rows = recorded.messages().sort_values("sequence")
    assert rows["size_bytes"].tolist() == [30] * MESSAGES
    assert_inside(rows["send_ns"], sends)
    assert_inside(rows["read_ns"], reads)


@pytest.mark.parametrize("offloads", [True, False], ids=["whole", "cut-by-us"])
def test_datagrams_of_udp_segment_are_counted_and_leave_others_alone(
    make_lab, tmp_path, offloads
):
    """Beside traffic of elsewhere, which leaves packets' addresses to their parts."""
    lab, elsewhere = make_lab(offloads=offloads), make_lab()
    segments, size = 5, 1000
    control = [(SOL_UDP, UDP_SEGMENT, struct.pack("H", size))]

    def traffic():
        sends, reads = Calls(), Calls()
        client, server = udp_pair(lab)
        other, reader = udp_pair(elsewhere)
        with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
            for i in range(MESSAGES):
                for _ in range(segments):
                    other.send(bytes(size))
                for _ in range(segments):
                    assert len(reader.recv(size)) == size
                data = bytes([i]) * (segments * size)
                assert client.sendmsg([data], control) == len(data)
                sends.do(client.send, bytes(77))
                for _ in range(segments):
                    assert len(server.recv(5000)) == size
                assert len(reads.do(server.recv, 100)) == 77
        other.close()
        reader.close()
        return recorded, sends, reads

    recorded, sends, reads = undisturbed(tmp_path, lab.interface, traffic)
    rows = recorded.messages()
    assert recorded.counters["segmented_sends"] == MESSAGES
    plain = rows[rows["size_bytes"] == 77].sort_values("sequence")
    assert len(plain) == MESSAGES
    assert_inside(plain["send_ns"], sends)
    assert_inside(plain["read_ns"], reads)
    assert_stamps_in_order(rows)
    # no row of theirs joins two halves; each read is a half row, or counted
    others = rows[rows["size_bytes"] != 77]
    assert others["end_to_end_ns"].isna().all()
    half = (others["read_ns"].notna()).sum()
    counted = recorded.counters["unmatched_datagram_reads"]
    assert half + counted == segments * MESSAGES
