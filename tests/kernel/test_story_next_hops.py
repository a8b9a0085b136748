"""Packets that waited for the link address of their next hop, and some in vain."""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from dropper import run_at
from latprof_analysis.report.story_lines import conclusion
from latprof_analysis.story.next_hops import RESOLVING
from recording import (
    DEADLINE_SECONDS,
    recording,
    socket_in,
    tcp_pair,
    udp_pair,
    wait_until,
)
from told_stories import check_parts, of_messages

pytestmark = [
    pytest.mark.timed,
    pytest.mark.skipif(not shutil.which("nft"), reason="needs nft"),
]

MS = 1_000_000
TIMES, HELD_MS, AGAIN_MS = 5, 200, 20
IP_RECVERR, IPV6_RECVERR = 11, 25  # linux/in.h, in6.h
SILENT = """
table arp latprof_test {
    chain input { type filter hook input priority 0; drop; }
}
table ip6 latprof_test {
    chain input {
        type filter hook input priority 0
        icmpv6 type nd-neighbor-solicit drop
    }
}
"""
ANSWERS = "delete table arp latprof_test\ndelete table ip6 latprof_test"


@dataclass
class Sent:
    """When a message was sent, its next hop answered again, and it came; own stamps."""

    begun_ns: int
    returned_ns: int
    answers_ns: int = 0
    came_ns: int = 0

    @property
    def least_ns(self) -> int:
        """As long as it stood there, and nobody said the address."""
        return self.answers_ns - self.returned_ns

    @property
    def most_ns(self) -> int:
        """No longer than it was on its way."""
        return self.came_ns - self.begun_ns


@pytest.fixture
def lab(make_lab, request):
    """Two hosts whose first asks often, and for long, who has an address."""
    made = make_lab(rate_bps=0, delay_ns=0, ipv6=getattr(request, "param", False))
    ask(made, probes=1000)
    return made


def ask(lab, probes):
    """Have a host ask so often before it gives up."""
    for family in ("ipv4", "ipv6"):
        at = f"net.{family}.neigh.{lab.interface}"
        words = f"{at}.retrans_time_ms={AGAIN_MS}", f"{at}.mcast_solicit={probes}"
        run_at(lab, "a", "sysctl", "-qw", *words)


def neighbour(lab, *words):
    """Change what a host knows of the other one."""
    way = (lab.b_address, "dev", lab.interface)
    run_at(lab, "a", "ip", "neigh", words[0], *way, *words[1:])


@contextmanager
def silence(lab):
    """The first host does not know where the other is, which does not say it."""
    run_at(lab, "b", "nft", "-f", "-", text=SILENT)
    neighbour(lab, "del")
    yield
    run_at(lab, "b", "nft", "-f", "-", text=ANSWERS)


def send_late(lab, send, receive, count=1):
    """Send messages whose next hop answers later; give back their stamps."""
    sent = []
    with silence(lab):
        for _ in range(count):
            begun_ns = time.monotonic_ns()
            send()
            sent.append(Sent(begun_ns, time.monotonic_ns()))
        until_ns = sent[0].begun_ns + HELD_MS * MS
        wait_until(lambda: time.monotonic_ns() > until_ns, "time to pass")
        answers_ns = time.monotonic_ns()
    for one in sent:
        receive()
        one.answers_ns, one.came_ns = answers_ns, time.monotonic_ns()
    return sent


def waits_of(story):
    """How long it waited for whose address, by its story."""
    parts = story["stages"]["send_queue"]["parts"]
    return {p["what"]: p["time_ns"] for p in parts if p["kind"] == RESOLVING}


def check_told(lab, stories, sent):
    """Each has a story of its own time, and of nothing else."""
    stories = sorted(stories, key=lambda story: story["message"]["send_ns"])
    assert len(stories) == len(sent)
    whose = f"{lab.b_address} (neighbour resolution)"
    for story, one in zip(stories, sent, strict=True):
        assert waits_of(story).keys() == {whose}
        assert one.least_ns <= waits_of(story)[whose] <= one.most_ns
        text = conclusion(story)
        assert f"in the send queue of {story['message']['sender_comm']} (pid" in text
        assert f"waiting for the link address of {whose}" in text
        assert story["message"]["sender_pid"] == os.getpid()


def with_room(client, _listener):
    """Have a send call put all into its socket, and return."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)


both_families = pytest.mark.parametrize(
    "lab", [False, True], ids=["ipv4", "ipv6"], indirect=True
)


@both_families
@pytest.mark.parametrize("size", [100, 100_000])
def test_a_tcp_message_waits_for_the_address_of_its_next_hop(lab, tmp_path, size):
    sent = []
    with recording(lab, tmp_path, ("tcp",), story_ns=50 * MS) as recorded:
        client, server = tcp_pair(lab, with_room)

        def receive():
            left = size
            while left:
                left -= len(server.recv(left))

        with client, server:
            for _ in range(TIMES):
                sent += send_late(lab, lambda: client.sendall(bytes(size)), receive)
    assert recorded.lost() == {}
    check_parts(recorded.stories)
    check_told(lab, of_messages({"stories": recorded.stories}), sent)


@both_families
@pytest.mark.parametrize("count", [1, 4])
def test_a_datagram_that_waits_keeps_its_send_call(lab, tmp_path, count):
    sent = []
    with recording(lab, tmp_path, ("udp",), story_ns=50 * MS) as recorded:
        client, server = udp_pair(lab)
        with client, server:
            for _ in range(TIMES):
                send = iter(range(count)).__next__
                sent += send_late(
                    lab,
                    lambda s=send: client.send(bytes(100 + s())),
                    lambda: server.recv(200),
                    count,
                )
    assert recorded.lost() == {}
    assert recorded.counters["udp_without_send"] == 0
    check_parts(recorded.stories)
    check_told(lab, of_messages({"stories": recorded.stories}), sent)
    messages = recorded.messages().sort_values("send_ns")
    for (_, row), one in zip(messages.iterrows(), sent, strict=True):
        assert one.begun_ns <= row["send_ns"] <= one.returned_ns


def test_a_datagram_in_fragments_waits_as_one(lab, tmp_path):
    with recording(lab, tmp_path, ("udp",), story_ns=50 * MS) as recorded:
        client, server = udp_pair(lab)
        with client, server:
            sent = send_late(
                lab, lambda: client.send(bytes(4000)), lambda: server.recv(5000)
            )
    assert recorded.lost() == {}
    assert recorded.counters["udp_without_send"] == 0
    check_parts(recorded.stories)
    check_told(lab, of_messages({"stories": recorded.stories}), sent)
    (packets,) = recorded.messages()["packets"]
    assert packets == 3  # of 1480 bytes at most


def test_what_goes_with_a_syn_that_waits_is_of_who_connects(lab, tmp_path):
    for end in ("a", "b"):  # both ways, and no end asks for a cookie
        run_at(lab, end, "sysctl", "-qw", "net.ipv4.tcp_fastopen=519")
    listener = socket_in(lab.b_netns, socket.AF_INET, socket.SOCK_STREAM)
    client = socket_in(lab.a_netns, socket.AF_INET, socket.SOCK_STREAM)
    with listener, client:
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 16)
        listener.bind((lab.b_address, 0))
        listener.listen()
        to = listener.getsockname()
        client.setblocking(False)
        with recording(lab, tmp_path, ("tcp",), story_ns=50 * MS) as recorded:
            sent = send_late(
                lab,
                lambda: client.sendto(bytes(100), socket.MSG_FASTOPEN, to),
                lambda: listener.accept()[0].recv(100),
            )
    assert recorded.lost() == {}
    check_parts(recorded.stories)
    check_told(lab, of_messages({"stories": recorded.stories}), sent)


@pytest.mark.parametrize("state", ["reachable", "stale"])
def test_where_an_address_is_known_nothing_waits_for_it(lab, tmp_path, state):
    with recording(lab, tmp_path, story_ns=1) as recorded:
        for pair in (tcp_pair, udp_pair):
            client, server = pair(lab)
            with client, server:
                for _ in range(TIMES):
                    neighbour(lab, "change", "nud", state)
                    client.send(bytes(100))
                    server.recv(100)
    assert recorded.lost() == {}
    stories = of_messages({"stories": recorded.stories})
    assert len(stories) == 2 * TIMES
    kinds = {
        part["kind"]
        for story in stories
        for part in story["stages"]["send_queue"]["parts"]
    }
    assert kinds
    assert RESOLVING not in kinds


def failed(lab):
    """Whether the host has given up."""
    said = run_at(lab, "a", "ip", "neigh", "show", lab.b_address)
    return said.split()[-1:] == ["FAILED"]


@both_families
def test_a_segment_whose_address_is_not_found_is_told_to_be_lost_there(lab, tmp_path):
    ask(lab, probes=3)
    with recording(lab, tmp_path, ("tcp",), story_ns=50 * MS) as recorded:
        client, server = tcp_pair(lab)
        with client, server:
            with silence(lab):
                begun_ns = time.monotonic_ns()
                client.send(bytes(100))
                returned_ns = time.monotonic_ns()
                wait_until(lambda: failed(lab), "the host to give up")
            server.recv(100)
            took_ns = time.monotonic_ns() - begun_ns
    assert recorded.lost() == {}
    check_parts(recorded.stories)
    (story,) = of_messages({"stories": recorded.stories})
    parts = story["stages"]["send_queue"]["parts"]
    assert returned_ns - begun_ns <= sum(part["time_ns"] for part in parts) <= took_ns
    lost = [part for part in parts if part["kind"] == "lost"]
    assert lost
    for part in lost:
        assert re.fullmatch(
            r"at neighbour resolution \(.+\), sent again by .+", part["what"]
        )
    # it asked three times
    (waited_ns,) = waits_of(story).values()
    assert waited_ns >= 3 * AGAIN_MS * MS


def report_errors(sock):
    """Have the kernel keep what ICMP says of each datagram."""
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    else:
        sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)


def unreachable(sock):
    """How many of its datagrams the kernel says that it could not deliver."""
    count = 0
    sock.setblocking(False)
    with suppress(BlockingIOError):
        while sock.recvmsg(200, 200, socket.MSG_ERRQUEUE):
            count += 1
    sock.settimeout(DEADLINE_SECONDS)
    return count


@both_families
def test_datagrams_whose_address_is_not_found_are_counted_and_have_rows(lab, tmp_path):
    ask(lab, probes=3)
    with recording(lab, tmp_path, ("udp",)) as recorded:
        client, server = udp_pair(lab)
        report_errors(client)
        with client, server:
            with silence(lab):
                for _ in range(TIMES):
                    client.send(bytes(100))
                wait_until(lambda: failed(lab), "the host to give up")
            assert unreachable(client) == TIMES
            client.send(bytes(101))
            assert len(server.recv(200)) == 101
    assert recorded.lost() == {}
    assert recorded.counters["datagrams_without_address"] == TIMES
    messages = recorded.messages()
    dropped = messages[messages["size_bytes"] == 100]
    assert len(dropped) == TIMES
    assert dropped["send_ns"].notna().all()
    assert dropped["queue_ns"].isna().all()
    assert (dropped["sender_pid"] == os.getpid()).all()
