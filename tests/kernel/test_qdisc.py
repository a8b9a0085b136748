"""Waiting at the sender's qdisc, against the shaper's arithmetic and `tc -s`."""

from __future__ import annotations

import contextlib
import socket
import time
from threading import Thread

import numpy as np
import pytest
from dropper import attach_dropper
from packet_capture import total_retransmits
from recording import recording, tcp_pair, udp_pair, wait_until
from shaper import (
    Bucket,
    datagram_packets,
    depart_all,
    tc_backlog,
    tc_count,
    tcp_header_bytes,
)
from undisturbed import undisturbed

pytestmark = pytest.mark.timed

RATE_BPS = 10_000_000
BURST_BYTES = 8000
# A qdisc leaves a packet when its timer fires and the softirq runs, usually 5
# to 70 us late; a median of more would be a defect, not a busy machine.
LATE_NS = 200_000
# Kernel and tc round the burst to ticks of 64 ns, each packet's time to 1 ns.
ROUNDING_NS = 2_000

SO_RCVBUFFORCE = 33

TCP_RATE_BPS = 100_000_000
TCP_BURST_BYTES = 64_000
MESSAGE_SIZES = [64, 1000, 1448, 1449, 10_000, 64_000, 250_000, 1_000_000]

both_shapers = pytest.mark.parametrize("qdisc", ["tbf", "htb"])
both_families = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])


def shaped_lab(make_lab, tmp_path, qdisc, **options):
    """Make a lab whose end a sends through a shaper, and nothing unasked."""
    how = {"rate_bps": RATE_BPS, "burst_bytes": BURST_BYTES, "queue_bytes": 2_000_000}
    lab = make_lab(qdisc=qdisc, congestion="reno", **(how | options))
    attach_dropper(lab, "a", "egress", tmp_path)
    return lab


def roomy_pair(lab):
    """Make a UDP pair whose receiver has room for all that is sent here."""
    client, server = udp_pair(lab)
    server.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    return client, server


def send_datagrams(sender, sizes):
    """Send numbered datagrams; return when each call began and ended."""
    times = []
    for number, size in enumerate(sizes, 1):
        payload = number.to_bytes(8, "big") + bytes(size - 8)
        began = time.monotonic_ns()
        sender.send(payload)
        times.append((began, time.monotonic_ns()))
    return times


def receive_numbers(receiver, count):
    """Receive that many datagrams and return their numbers."""
    return [int.from_bytes(receiver.recv(65536)[:8], "big") for _ in range(count)]


def receive_all(receiver):
    """Receive what is there and return the numbers."""
    receiver.settimeout(0)
    numbers = []
    with contextlib.suppress(BlockingIOError):
        while True:
            numbers += receive_numbers(receiver, 1)
    return numbers


def departures(lab, entered, packets, left):
    """When each datagram is due by the arithmetic; the bucket begins full.

    `left` is when those before it left: a timer that once was late, as on a busy
    machine, leaves tokens unused, and all later ones are due later.
    """
    bucket = Bucket(lab.spec.qdisc, lab.spec.rate_bps, lab.spec.burst_bytes)
    rows = zip(entered, packets, left, strict=True)
    return np.array([depart_all(bucket, t, p, out) for t, p, out in rows])


def check_departures(rows, lab, times, packets):
    """Compare `queue` and `xmit` of each row with the token bucket's arithmetic."""
    began, ended = np.array(times).T
    queue, xmit = rows["queue_ns"].to_numpy(), rows["xmit_ns"].to_numpy()
    low = departures(lab, began, packets, np.zeros(len(rows)))
    high = departures(lab, ended, packets, xmit)
    assert (began < queue).all() and (queue < ended).all()
    assert (xmit >= low - ROUNDING_NS).all()  # nothing leaves untimely
    late = xmit - high
    assert np.median(late) < LATE_NS, f"{late=}"
    wait = rows["qdisc_ns"].to_numpy()
    assert (wait >= low - ended - ROUNDING_NS).all()
    late = wait - (high - began)
    assert np.median(late) < LATE_NS, f"{late=}"


@both_families
@both_shapers
@pytest.mark.parametrize("size", [1000, 4000], ids=["whole", "fragments"])
def test_each_datagram_of_a_burst_leaves_at_its_arithmetic_time(
    make_lab, tmp_path, qdisc, ipv6, size
):
    lab = shaped_lab(make_lab, tmp_path, qdisc, ipv6=ipv6)
    sizes = [size] * 30 + [size // 2 - 100, size // 2, size + 7] * 5
    packets = [datagram_packets(n, lab.spec.mtu, ipv6) for n in sizes]

    def burst():
        client, server = roomy_pair(lab)
        before = tc_count(lab)
        with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
            times = send_datagrams(client, sizes)
            numbers = receive_numbers(server, len(sizes))
            return recorded, times, numbers, tc_count(lab) - before

    recorded, times, numbers, sent = undisturbed(tmp_path, lab.interface, burst)
    rows = recorded.messages()
    assert recorded.lost() == {}
    assert numbers == rows["sequence"].tolist() == list(range(1, len(sizes) + 1))
    assert rows["size_bytes"].tolist() == sizes
    assert rows["packets"].tolist() == [len(p) for p in packets]
    assert (sent.packets, sent.bytes) == (rows["packets"].sum(), sum(map(sum, packets)))
    check_departures(rows, lab, times, packets)


@both_families
@both_shapers
@pytest.mark.parametrize("size", [1000, 4000], ids=["whole", "fragments"])
def test_each_datagram_that_the_qdisc_drops_is_a_row_that_never_left(
    make_lab, tmp_path, qdisc, ipv6, size
):
    lab = shaped_lab(make_lab, tmp_path, qdisc, ipv6=ipv6, queue_bytes=16_000)

    def overflow():
        client, server = roomy_pair(lab)
        before = tc_count(lab)
        with recording(lab, tmp_path, ("udp",)) as recorded, client, server:
            send_datagrams(client, [size] * 60)
            wait_until(lambda: tc_backlog(lab) == 0, "an empty queue")
            return recorded, receive_all(server), tc_count(lab) - before

    recorded, numbers, counted = undisturbed(tmp_path, lab.interface, overflow)
    rows = recorded.messages()
    assert recorded.lost() == {}
    assert sorted(rows["sequence"]) == list(range(1, 61))
    assert sorted(rows["sequence"][rows["read_ns"].notna()]) == numbers
    gone = rows[rows["xmit_ns"].isna()]
    # IP gives up on a datagram with its first fragment that is dropped
    assert len(gone) == counted.drops == 60 - len(numbers) > 0
    assert gone["send_ns"].notna().all() and gone["end_to_end_ns"].isna().all()
    unmatched = recorded.recorder.joiner.unmatched
    assert unmatched == {"dropped before the driver": counted.drops}


def receive_bytes(receiver, count):
    """Receive until that many bytes have come."""
    while count:
        count -= len(receiver.recv(count))


def send_messages(client, server, sizes, lab):
    """Send one message after the other has arrived; what tc counted of each."""
    sent = []
    client.setblocking(True)  # or a full buffer ends the call, and the message
    for size in sizes:
        before = tc_count(lab)
        reader = Thread(target=receive_bytes, args=(server, size))
        reader.start()
        client.sendall(bytes(size))
        reader.join()
        sent.append(tc_count(lab) - before)
    return sent


def last_packet_ns(qdisc, offloads):
    """How much earlier HTB lets the last packet go: by its own time."""
    most = 65_536 + 46 * tcp_header_bytes(True) if offloads else 1514
    return most * 8e9 / TCP_RATE_BPS if qdisc == "htb" else 0


@both_families
@both_shapers
@pytest.mark.parametrize("offloads", [True, False], ids=["gso", "no-gso"])
def test_each_tcp_message_leaves_at_its_arithmetic_time_packet_for_packet(
    make_lab, tmp_path, qdisc, offloads, ipv6
):
    how = {"rate_bps": TCP_RATE_BPS, "burst_bytes": TCP_BURST_BYTES}
    lab = shaped_lab(make_lab, tmp_path, qdisc, offloads=offloads, ipv6=ipv6, **how)

    def sweep():
        client, server = tcp_pair(lab)
        with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
            counted = send_messages(client, server, MESSAGE_SIZES, lab)
            return recorded, counted, total_retransmits(client)

    recorded, counted, again = undisturbed(tmp_path, lab.interface, sweep)
    rows = recorded.messages()
    assert recorded.lost() == {}
    assert rows["size_bytes"].tolist() == MESSAGE_SIZES
    assert rows[["send_ns", "queue_ns", "xmit_ns"]].notna().all().all()
    # a queue of 5 ms may make TCP probe for a loss of the last packet
    assert rows["retransmits"].sum() == again <= 2
    sent = rows["packets"] + rows["retransmits"]
    assert sent.tolist() == [c.packets for c in counted]
    wire = rows["size_bytes"] + rows["packets"] * tcp_header_bytes(ipv6)
    once = rows["retransmits"] == 0
    assert (wire == [c.bytes for c in counted])[once].all()
    # Between the messages, where tc is asked, the bucket fills.
    drain = ((wire - TCP_BURST_BYTES) * 8e9 / TCP_RATE_BPS).clip(lower=0)
    held = rows["send_queue_ns"] + rows["qdisc_ns"]
    early = last_packet_ns(qdisc, offloads)
    assert (held >= drain - early - ROUNDING_NS).all()
    # An ACK that the scheduler holds back costs time only once the bucket is full
    # (5 ms); what starts a message may be late by a wake-up, in the median.
    assert np.median(held - drain) < LATE_NS, f"{held - drain=}"
    assert (held - drain)[wire > TCP_BURST_BYTES].min() < LATE_NS
