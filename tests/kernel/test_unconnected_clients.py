"""--port finds clients of UDP that never connect(): by where their datagrams go."""

from __future__ import annotations

import socket
from collections import Counter

import pytest
from latprof_agent.monitor.totals import Counted
from latprof_agent.probes.filter import Filter, Terms
from logged import Calls, assert_rows_are, rows_between
from monitored import monitored
from recording import DEADLINE_SECONDS, recording, socket_in

COUNT = 100
LINKS = [{}, {"ipv6": True}, {"qdisc": "tbf", "rate_bps": 50_000_000}]


def ends(lab):
    family = socket.AF_INET6 if lab.spec.ipv6 else socket.AF_INET
    client = socket_in(lab.a_netns, family, socket.SOCK_DGRAM)
    server = socket_in(lab.b_netns, family, socket.SOCK_DGRAM)
    server.bind((lab.b_address, 0))
    for end in (client, server):
        end.settimeout(DEADLINE_SECONDS)
    return client, server


def ask(client, server, sends, reads):
    to = server.getsockname()[:2]
    for number in range(COUNT):
        sends.do(client.sendto, b"%07d" % number, to)
        _, back = reads.do(server.recvfrom, 100)
        server.sendto(b"answer %d" % number, back)
        client.recvfrom(100)


def watched(lab, port, **more):
    return Filter(netns=lab.inodes, protocols=("udp",), **{"ports": (port,)} | more)


@pytest.mark.parametrize("link", LINKS)
def test_all_their_datagrams_are_whole_messages(make_lab, tmp_path, link):
    lab = make_lab(**link)
    client, server = ends(lab)
    other, its_server = ends(lab)  # of another port
    sends, reads = Calls(), Calls()
    port = server.getsockname()[1]
    with recording(watched(lab, port), tmp_path) as recorded:
        ask(client, server, sends, reads)
        ask(other, its_server, Calls(), Calls())
    rows = recorded.messages()
    assert len(rows) == 2 * COUNT
    there = rows_between(rows, client.getsockname()[1], port)
    assert_rows_are(there, [7] * COUNT, sends, reads)
    assert rows["end_to_end_ns"].notna().all()
    for end in (client, server, other, its_server):
        end.close()


def test_what_is_excluded_or_of_another_kind_is_not_watched(make_lab, tmp_path):
    lab = make_lab()
    client, server = ends(lab)
    port = server.getsockname()[1]
    there = {"but_not": Terms(remote_ports=(port,))}
    with recording(watched(lab, port, **there), tmp_path) as recorded:
        ask(client, server, Calls(), Calls())
    rows = recorded.messages()
    assert Counter(rows["sender_pid"].notna()) == {True: COUNT, False: COUNT}
    client.close(), server.close()


def test_live_they_are_counted_too(make_lab):
    lab = make_lab()
    client, server = ends(lab)
    port = server.getsockname()[1]
    only = {"ports": (), "remote_ports": (port,)}
    with monitored(watched(lab, port, **only), protocols=("udp",)) as counted:
        ask(client, server, Calls(), Calls())
    group = counted.group(protocol="udp", role="client")
    assert group.counted[Counted.SENT_MESSAGES] == COUNT
    client.close(), server.close()
