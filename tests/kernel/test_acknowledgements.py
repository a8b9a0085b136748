"""ACKs that came to a sender, against packet sockets at both ends of the link.

The kernel stamps an ACK for a packet socket as it leaves the receiver's stack, which
is before `netif_receive_skb` of its sender, and as it enters that stack, which is
behind it. So each record has a time that it cannot be before, and one that it cannot
be after, of the same ACK number.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from dropper import run_tc
from held_page import HeldPage
from latprof_agent.capture.capture import Capture
from latprof_agent.netns import run_in
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.grouping import Grouping
from network_counters import kernel_counter
from packet_capture import PacketCapture
from recording import tcp_pair, wait_until
from test_not_measured import multipath
from undisturbed import hidden_messages

SIZE, MESSAGES, PAUSE_SECONDS = 100, 40, 0.05
CALL_BYTES = 1 << 20
FIRST_SEGMENTS, SEGMENT_BYTES = 10, 1400
SHIFT = 20  # one in each 2**20 ns of a socket
ACK_BYTES = 120  # with all options, and less than what any bulk sends
CLOCKS_NS = 150  # CLOCK_REALTIME is read to some 50 ns
ONE_EVENT = 1 << 30  # bytes that no packet has: each event counts once
SENDER = 1  # enum flow_side


@dataclass
class Seen:
    """What the probes recorded, and what the packet sockets and the kernel saw."""

    records: dict[str, np.ndarray] = field(default_factory=dict)
    port: int = 0  # the client's
    numbers: list[int] = field(default_factory=list)  # each once, as they came
    left_ns: list[int] = field(default_factory=list)
    came_ns: list[int] = field(default_factory=list)
    clocks_ns: int = 0
    unseen: int = 0  # packets that no probe could see, or that became part of one

    def acknowledged(self):
        """The records of the client's direction, in the order of their times."""
        flows = self.records["flows"]
        of_client = (flows["source_port"] == self.port) & (flows["side"] == SENDER)
        (flow,) = np.unique(flows["flow"][of_client])
        found = self.records["acknowledgements"]
        return np.sort(found[found["flow"] == flow], order="arrive_ns")


@contextmanager
def captured(lab, grouping=None, sampled=None) -> Iterator[dict[str, np.ndarray]]:
    """Keep all records of a lab's TCP; none may be lost."""
    watched = Filter(netns=lab.inodes, protocols=("tcp",))
    found: dict[str, np.ndarray] = {}
    offered = capabilities(watched.protocols)
    with Capture(watched, offered, grouping=grouping) as capture:
        if sampled:
            capture.sample(*sampled)
        capture.start()
        yield found
        capture.stop()
        found |= {ring: made.copy() for ring, made in capture.read().items()}
        counted = capture.counters()
    assert {k: v for k, v in counted.items() if k.startswith("lost_") and v} == {}


def waiting_bytes(sock, request=termios.FIONREAD):
    """What could be read at once, or with TIOCOUTQ what was not acknowledged."""
    return struct.unpack("i", fcntl.ioctl(sock, request, bytes(4)))[0]


def in_background(work, *arguments):
    thread = threading.Thread(target=work, args=arguments)
    thread.start()
    return thread


def receive_bytes(server, count):
    while count:
        count -= len(server.recv(count))


def bulk(calls, client, server):
    reader = in_background(receive_bytes, server, calls * CALL_BYTES)
    for _ in range(calls):
        client.sendall(bytes(CALL_BYTES))
    reader.join()


def now_and_then(client, server):
    """One way only, and slowly."""
    pause = threading.Event()
    for _ in range(MESSAGES):
        client.send(bytes(SIZE))
        server.recv(SIZE, socket.MSG_WAITALL)
        pause.wait(PAUSE_SECONDS)


def coalesced(lab):
    """How many packets the kernel has made part of one that waited for a socket."""
    asked = "netstat", "TcpExt", "TCPBacklogCoalesce"
    return run_in(lab.a_netns, lambda: kernel_counter(*asked))


def first_times(acks, outgoing):
    """When each number that is higher than all before passed."""
    found, highest = {}, 0
    for ack in acks:
        if ack.outgoing == outgoing and ack.number > highest:
            highest = ack.number
            found[highest] = ack.t_ns
    return found


def taken(captures, sender):
    """When each ACK for a sender came to its host, and left the other one."""
    port = sender.getsockname()[1]
    for one, outgoing in zip(captures, (False, True), strict=True):
        yield first_times(one.bare_acks(port), outgoing)


def talk(lab, tmp_path, work, connect_later):
    """Have a pair talk, and record it; it was connected before, or is only then."""
    captures = [PacketCapture(lab, end, ACK_BYTES) for end in "ab"]
    pair = None if connect_later else tcp_pair(lab)
    seen, before = Seen(), coalesced(lab)
    with hidden_messages(tmp_path, [lab.interface]) as hidden:
        with captured(lab) as records:
            client, server = pair or tcp_pair(lab)
            with client, server:
                client.setblocking(True)
                work(client, server)
                wait_until(
                    lambda: not waiting_bytes(client, termios.TIOCOUTQ), "all ACKs"
                )
                # before they close: the ACK of a FIN is none of bytes
                came, left = taken(captures, client)
                seen.port = client.getsockname()[1]
        seen.unseen = hidden(ONE_EVENT) + coalesced(lab) - before
    seen.records = records
    seen.clocks_ns = CLOCKS_NS + max(one.clocks_ns() for one in captures)
    seen.numbers = list(came)
    seen.came_ns = list(came.values())
    seen.left_ns = [left[number] for number in came]
    return seen


def check_times(seen):
    """Each record has the number of an ACK, and a time between its two stamps."""
    found = seen.acknowledged()
    at = np.searchsorted(seen.numbers, found["end"])
    assert np.isin(found["end"], seen.numbers).all()
    left_ns, came_ns = np.array([seen.left_ns, seen.came_ns], "i8")[:, at]
    arrive_ns = found["arrive_ns"].astype("i8")
    assert (left_ns - seen.clocks_ns <= arrive_ns).all(), arrive_ns - left_ns
    assert (arrive_ns <= came_ns + seen.clocks_ns).all(), came_ns - arrive_ns


def check_rule(seen):
    """One in each 2**20 ns, and none that is the first of its time left out."""
    times = (seen.acknowledged()["arrive_ns"] >> SHIFT).tolist()
    assert times == sorted(set(times))
    room = seen.clocks_ns
    left_out = [
        number
        for number, left_ns, came_ns in zip(
            seen.numbers, seen.left_ns, seen.came_ns, strict=True
        )
        if not {*range(left_ns - room >> SHIFT, (came_ns + room >> SHIFT) + 1)}
        & set(times)
    ]
    assert len(left_out) <= seen.unseen, (left_out, seen.unseen)


# By link how many calls: some 0.3 s each.
SHAPED = {"qdisc": "tbf", "rate_bps": 100_000_000}
BULK = {"shaped": (SHAPED, 4), "plain": ({}, 300)}


@pytest.mark.parametrize("connect_later", [False, True], ids=["older", "new"])
@pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])
@pytest.mark.parametrize(("link", "calls"), BULK.values(), ids=BULK.keys())
def test_acks_of_one_sided_bulk_have_their_numbers_and_times(
    make_lab, tmp_path, link, calls, ipv6, connect_later
):
    lab = make_lab(ipv6=ipv6, **link)
    seen = talk(lab, tmp_path, partial(bulk, calls), connect_later)
    assert seen.numbers[-1] == calls * CALL_BYTES
    check_times(seen)
    check_rule(seen)


@pytest.mark.parametrize("ipv6", [False, True], ids=["v4", "v6"])
def test_a_slow_sender_of_small_messages_has_an_ack_of_each(make_lab, tmp_path, ipv6):
    seen = talk(make_lab(ipv6=ipv6), tmp_path, now_and_then, connect_later=False)
    found = seen.acknowledged()
    assert set(seen.numbers) <= {SIZE * (n + 1) for n in range(MESSAGES)}
    assert np.isin(found["end"], seen.records["sent_messages"]["end"]).all()
    # the pause is longer than the time that has one record at most
    assert len(seen.numbers) - seen.unseen <= len(found) <= len(seen.numbers)
    check_times(seen)
    check_rule(seen)


def without_timestamps(lab):
    """ACKs whose options differ stay apart while they wait for their socket."""
    setting = Path("/proc/sys/net/ipv4/tcp_timestamps")
    run_in(lab.a_netns, lambda: setting.write_text("0"))


def shape(lab, how, rate):
    words = f"qdisc {how} dev {lab.interface} root tbf rate {rate} burst 1600"
    run_tc(lab, "a", *words.split(), "limit", "100000")


def test_of_acks_that_waited_for_their_socket_together_the_first_is_known(make_lab):
    """TCP makes one of them: the packet of the first, with the number of the last.

    No packet socket may look on, for TCP leaves apart what one shares. What the
    receiver has not got yet nothing has acknowledged.
    """
    lab = make_lab()
    without_timestamps(lab)
    client, server = tcp_pair(lab)
    client.setblocking(True)
    before, readable = coalesced(lab), []

    def became_one():
        readable.append((time.monotonic_ns(), waiting_bytes(server)))
        return coalesced(lab) > before

    shape(lab, "add", "20kbit")  # one in 0.6 s
    with captured(lab) as records, client, server:
        for _ in range(FIRST_SEGMENTS):
            client.send(bytes(SEGMENT_BYTES))
        with HeldPage() as page:
            sender = in_background(client.sendall, page.memory)
            page.wait_for_reader()
            shape(lab, "change", "2mbit")
            wait_until(became_one, "ACKs that became one")
            page.give()
            sender.join()
        receive_bytes(server, FIRST_SEGMENTS * SEGMENT_BYTES + len(page.memory))
        wait_until(lambda: not waiting_bytes(client, termios.TIOCOUTQ), "all ACKs")
    found = records["acknowledgements"]
    assert len(found) > 0
    for at_ns, count in readable:
        assert (found["arrive_ns"][found["end"] > count] > at_ns).all()


def test_what_acknowledges_beside_its_own_data_has_no_record(make_lab, tmp_path):
    """The data has stamps of its own, both ways."""

    def ask(client, server):
        for _ in range(MESSAGES):
            client.send(bytes(SIZE))
            server.recv(SIZE, socket.MSG_WAITALL)
            server.send(bytes(SIZE))
            client.recv(SIZE, socket.MSG_WAITALL)

    seen = talk(make_lab(), tmp_path, ask, connect_later=False)
    assert len(seen.records["sent_messages"]) >= 2 * MESSAGES - seen.unseen
    assert len(seen.numbers) < MESSAGES
    check_times(seen)
    check_rule(seen)


def test_mptcp_has_no_acknowledgements(make_lab):
    lab = make_lab()
    with captured(lab) as records:
        multipath(lab)
    assert len(records["acknowledgements"]) == 0


# A block of 16 KiB in each 128 KiB, as a sample has it that is not of all.
BLOCK_BITS, PERIOD_BITS = 14, 17
MESSAGE_BYTES, PERIODS = 1000, 16


def small_messages(client, server):
    count = (PERIODS << PERIOD_BITS) // MESSAGE_BYTES
    reader = in_background(receive_bytes, server, count * MESSAGE_BYTES)
    for _ in range(count):
        client.sendall(bytes(MESSAGE_BYTES))
    reader.join()


def test_live_they_are_of_what_is_sampled(make_lab, tmp_path):
    """Of each block that is chosen there is one, and none of what is between blocks.

    A block is known by the messages that end in it, all of which are sampled.
    """
    lab = make_lab(**SHAPED)
    capture = PacketCapture(lab, "a", ACK_BYTES)  # knows a stream's first number
    client, server = tcp_pair(lab)
    chosen, before = (BLOCK_BITS, PERIOD_BITS), coalesced(lab)
    with hidden_messages(tmp_path, [lab.interface]) as hidden:
        with captured(lab, Grouping(), chosen) as records, client, server:
            client.setblocking(True)
            small_messages(client, server)
            wait_until(lambda: not waiting_bytes(client, termios.TIOCOUTQ), "all ACKs")
            port = client.getsockname()[1]
            numbers = np.array([0, *first_times(capture.bare_acks(port), False)])
        unseen = hidden(ONE_EVENT) + coalesced(lab) - before
    sent = np.sort(records["sent_messages"]["end"].astype("i8"))
    first = np.flatnonzero(np.diff(sent, prepend=0) > MESSAGE_BYTES)
    blocks = [(run[0] - MESSAGE_BYTES, run[-1]) for run in np.split(sent, first[1:])]
    assert len(blocks) >= PERIODS - 1  # two that touch are one
    ends = records["acknowledgements"]["end"].astype("i8")
    assert np.isin(ends, numbers).all()
    begins = numbers[np.searchsorted(numbers, ends) - 1]
    of_blocks = [
        # a block may begin and end within a message
        (begins < last + MESSAGE_BYTES) & (ends > begin - MESSAGE_BYTES)
        for begin, last in blocks
    ]
    assert np.any(of_blocks, axis=0).all()
    assert sum(not of.any() for of in of_blocks) <= unseen


def test_live_without_any_sample_there_are_none(make_lab):
    lab = make_lab()
    client, server = tcp_pair(lab)
    with captured(lab, Grouping(), (0, 60)) as records, client, server:
        client.setblocking(True)
        bulk(10, client, server)
    assert len(records["sent_messages"]) == len(records["acknowledgements"]) == 0
