"""TCP's losses, against what was dropped, TCP_INFO and captures of both ends."""

from __future__ import annotations

import array
import fcntl
import termios
from threading import Thread

import numpy as np
import pytest
from dropper import attach_dropper
from packet_capture import PacketCapture, total_retransmits
from recording import recording, tcp_pair, wait_until
from shaper import tc_count
from undisturbed import undisturbed

pytestmark = pytest.mark.timed

DELAY_NS = 5_000_000
SIZE = 1000
BURST = 10  # what TCP sends at once in the beginning
# A capture stamps a packet within the same softirq as we do, some us apart.
NEAR_NS = 50_000
# Interrupts, and a hypervisor that takes the CPU, may come between.
FAR_NS = 5_000_000

both_families = pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])


def waiting_bytes(sock, request=termios.FIONREAD):
    """What could be read at once, or with TIOCOUTQ what was not acknowledged."""
    count = array.array("i", [0])
    fcntl.ioctl(sock, request, count)
    return count[0]


def receive_bytes(receiver, count):
    """Receive until that many bytes have come."""
    while count:
        count -= len(receiver.recv(count))


def burst_of_messages(lab, folder):
    """Send messages at once and read them when all are there."""
    captures = PacketCapture(lab, "a"), PacketCapture(lab, "b")
    client, server = tcp_pair(lab)
    port = client.getsockname()[1]
    with recording(lab, folder, ("tcp",)) as recorded, client, server:
        for _ in range(BURST):
            client.send(bytes(SIZE))
        wait_until(lambda: waiting_bytes(server) == BURST * SIZE, "all messages")
        receive_bytes(server, BURST * SIZE)
        wait_until(lambda: not waiting_bytes(client, termios.TIOCOUTQ), "all ACKs")
        again = total_retransmits(client)
    return recorded, again, *(capture.segments(port) for capture in captures)


def times_of_last_byte(segments, end):
    """When the packets with the byte before `end` passed."""
    return [s.t_ns for s in segments if s.start < end <= s.end]


def check_against_captures(rows, sent, received):
    """Stamps and retransmits of each message, as the two captures tell them."""
    ends = rows["sequence"].tolist()
    arrived = np.array([min(times_of_last_byte(received, end)) for end in ends])
    whole = np.maximum.accumulate(arrived)  # nothing before it is missing
    left = np.array([min(times_of_last_byte(sent, end)) for end in ends])
    times = [len(times_of_last_byte(sent, end)) for end in ends]
    assert rows["retransmits"].tolist() == [n - 1 for n in times]
    for stamp, truth in (("xmit", left), ("arrive", arrived), ("ready", whole)):
        late = rows[f"{stamp}_ns"] - truth
        assert abs(np.median(late)) < NEAR_NS, f"{stamp} {late.tolist()}"
        assert late.abs().max() < FAR_NS, f"{stamp} {late.tolist()}"
    return times, whole - arrived


# Alone, the last, two holes, a run, again when sent again, first and last.
DROPPED = ["4", "10", "3,7", "3,4,5", "4,11", "1,10"]


@both_families
@pytest.mark.parametrize("dropped", DROPPED)
def test_recovery_stands_in_transit_of_the_lost_and_in_receive_stack_of_those_behind(
    make_lab, tmp_path, dropped, ipv6
):
    lab = make_lab(
        delay_ns=DELAY_NS,
        congestion="reno",
        ipv6=ipv6,
        emulator_options=(f"--drop-a={dropped}",),
    )
    lost = [int(n) for n in dropped.split(",")]
    recorded, again, sent, received = burst_of_messages(lab, tmp_path)
    rows = recorded.messages().sort_values("sequence", ignore_index=True)
    assert recorded.lost() == {}
    assert lab.counters()["emulator"]["ab"]["dropped_listed"] == len(lost)
    assert len(rows) == BURST and (rows["packets"] == 1).all()
    assert len(sent) == BURST + again and len(received) == len(sent) - len(lost)
    assert rows["retransmits"].sum() == again
    _, behind = check_against_captures(rows, sent, received)
    # what was lost had to be noticed (a round trip) and sent again
    gone = rows.index.isin([n - 1 for n in lost])
    assert (rows["transit_ns"][gone] > 3 * DELAY_NS).all()
    assert (rows["transit_ns"][~gone] >= DELAY_NS).all()
    assert rows["transit_ns"][~gone].median() < 2 * DELAY_NS
    waited = rows["receive_stack_ns"] - behind
    assert waited.abs().max() < FAR_NS
    assert behind.max() > 0 or lost == [BURST]


def test_a_packet_that_is_overtaken_is_late_itself_and_holds_up_the_others(
    make_lab, tmp_path
):
    options = ("--reorder=4", "--reorder-delay=2000000")
    lab = make_lab(delay_ns=DELAY_NS, congestion="reno", emulator_options=options)
    recorded, again, sent, received = burst_of_messages(lab, tmp_path)
    rows = recorded.messages().sort_values("sequence", ignore_index=True)
    assert recorded.lost() == {}
    assert lab.counters()["emulator"]["ab"]["reordered"] == 1
    assert rows["retransmits"].sum() == again
    check_against_captures(rows, sent, received)
    assert rows["transit_ns"][3] >= DELAY_NS + 2_000_000
    assert rows["receive_stack_ns"][4] > 1_000_000


@both_families
def test_what_a_tc_program_drops_at_the_receiver_is_sent_again_and_told_so(
    make_lab, tmp_path, ipv6
):
    lost = [4, 7]

    def burst():
        attach_dropper(lab, "b", "ingress", tmp_path, lost)
        return burst_of_messages(lab, tmp_path)

    lab = make_lab(congestion="reno", ipv6=ipv6)
    result = undisturbed(tmp_path, lab.interface, burst)
    recorded, again, sent, received = result
    rows = recorded.messages().sort_values("sequence", ignore_index=True)
    assert recorded.lost() == {}
    assert again == rows["retransmits"].sum() >= len(lost)
    # the capture comes before the program, so it has also what was dropped
    kept = [s for n, s in enumerate(received, 1) if n not in lost]
    _, behind = check_against_captures(rows, sent, kept)
    gone = [received[n - 1].end // SIZE - 1 for n in lost]
    assert (rows["retransmits"][gone] > 0).all()
    assert (rows["receive_stack_ns"] - behind).abs().median() < NEAR_NS


def test_what_a_tc_program_drops_at_the_sender_was_never_handed_on(make_lab, tmp_path):
    def burst():
        attach_dropper(lab, "a", "egress", tmp_path, [4, 7])
        return burst_of_messages(lab, tmp_path)

    lab = make_lab(congestion="reno")
    result = undisturbed(tmp_path, lab.interface, burst)
    recorded, again, sent, received = result
    rows = recorded.messages().sort_values("sequence", ignore_index=True)
    assert recorded.lost() == {}
    # TCP is told at once and keeps the segment: it was not lost, it waited
    assert again == rows["retransmits"].sum() == 0
    check_against_captures(rows, sent, received)
    assert (rows[["queue_ns", "xmit_ns", "arrive_ns"]].notna()).all().all()
    assert rows["send_queue_ns"][3] > rows["transit_ns"][3]


@pytest.mark.parametrize("offloads", [True, False], ids=["gso", "no-gso"])
def test_packets_and_retransmits_of_large_messages_sum_to_what_tc_sent(
    make_lab, tmp_path, offloads
):
    sizes = [1_000_000, 500, 300_000]
    lab = make_lab(qdisc="htb", rate_bps=10**9, congestion="reno", offloads=offloads)
    attach_dropper(lab, "a", "egress", tmp_path)

    def messages():
        attach_dropper(lab, "b", "ingress", tmp_path, [4, 5, 9, 20, 30])
        client, server = tcp_pair(lab)
        before = tc_count(lab)
        client.setblocking(True)
        with recording(lab, tmp_path, ("tcp",)) as recorded, client, server:
            for size in sizes:
                reader = Thread(target=receive_bytes, args=(server, size))
                reader.start()
                client.send(bytes(size))
                reader.join()
            return recorded, total_retransmits(client), tc_count(lab) - before

    result = undisturbed(tmp_path, lab.interface, messages)
    recorded, again, counted = result
    rows = recorded.messages().sort_values("sequence", ignore_index=True)
    assert rows["size_bytes"].tolist() == sizes
    assert rows["packets"].tolist() == [-(-size // 1448) for size in sizes]
    assert rows["retransmits"].sum() == again >= 5
    assert counted.packets == rows["packets"].sum() + again


def test_what_the_qdisc_drops_of_tcp_waited_before_it_was_taken_in(make_lab, tmp_path):
    limit = 4000
    how = {"rate_bps": 10**7, "burst_bytes": limit, "queue_bytes": limit}
    lab = make_lab(qdisc="tbf", congestion="reno", **how)
    attach_dropper(lab, "a", "egress", tmp_path)

    def burst():
        before = tc_count(lab)
        return *burst_of_messages(lab, tmp_path), tc_count(lab) - before

    result = undisturbed(tmp_path, lab.interface, burst)
    recorded, again, sent, received, counted = result
    rows = recorded.messages().sort_values("sequence", ignore_index=True)
    assert recorded.lost() == {}
    assert counted.drops > 0 and len(rows) == BURST
    # TCP is told at once and keeps the segment: nothing was sent again
    assert again == rows["retransmits"].sum() == 0
    check_against_captures(rows, sent, received)
    # no packet waits longer than a full queue takes, here 3.2 ms, but where the
    # shaper's timer is late on a busy machine: it is so for a few, if at all
    full_ns = limit * 8e9 / lab.spec.rate_bps
    waited = rows["qdisc_ns"]
    assert (waited < full_ns + NEAR_NS).mean() > 0.5, waited.tolist()
    assert rows["send_queue_ns"].max() > full_ns / 2
