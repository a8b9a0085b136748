"""TCP Fast Open: the request that goes with the SYN is a message as any other."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pandas as pd
import pytest
from latprof_agent import netns
from latprof_agent.monitor.totals import Counted, Quantity
from logged import Calls, assert_inside, assert_stamps_in_order, rows_between
from monitored import monitored
from recording import DEADLINE_SECONDS, recording, socket_in

CONNECTIONS, ASK, REPLY, MORE = 20, 120, 300, 70
TCP_FASTOPEN, TCP_FASTOPEN_CONNECT = 23, 30
BOTH_ENDS = "3"


class Talk:
    """Connections that send their first request with the SYN, but for the first."""

    def __init__(self, lab, way):
        self.lab, self.way = lab, way
        self.family = socket.AF_INET6 if lab.spec.ipv6 else socket.AF_INET
        for name in (lab.a_netns, lab.b_netns):
            netns.run_in(name, self._allow)
        self.listener = socket_in(lab.b_netns, self.family, socket.SOCK_STREAM)
        self.listener.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN, 64)
        self.listener.bind((lab.b_address, 0))
        self.listener.listen()
        self.to = self.listener.getsockname()[:2]
        self.ports, self.asks, self.reads = [], Calls(), Calls()

    @staticmethod
    def _allow():
        Path("/proc/sys/net/ipv4/tcp_fastopen").write_text(BOTH_ENDS)

    def taken(self):
        """How many connections the server's kernel took with their data."""

        def look():
            names, values = (
                Path("/proc/thread-self/net/netstat").read_text().split("\n")[:2]
            )
            found = dict(zip(names.split(), values.split(), strict=True))
            return int(found["TCPFastOpenPassive"])

        return netns.run_in(self.lab.b_netns, look)

    def _ask(self, client):
        if self.way == "deferred":
            client.setsockopt(socket.IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1)
            client.connect(self.to)
            self.asks.do(client.send, bytes(ASK))
        else:
            self.asks.do(client.sendto, bytes(ASK), socket.MSG_FASTOPEN, self.to)

    def connect(self):
        """One connection: a request, its reply, and both again."""
        client = socket_in(self.lab.a_netns, self.family, socket.SOCK_STREAM)
        # not by settimeout: that makes it one that does not wait for its connection
        deadline = struct.pack("ll", int(DEADLINE_SECONDS), 0)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, deadline)
        with client:
            self._ask(client)
            server, _ = self.listener.accept()
            with server:
                for size in (ASK, MORE):
                    if size == MORE:
                        client.send(bytes(size))
                    read = self.reads.do if size == ASK else Calls().do
                    assert len(read(server.recv, size, socket.MSG_WAITALL)) == size
                    server.send(bytes(REPLY))
                    client.recv(REPLY, socket.MSG_WAITALL)
            self.ports.append(client.getsockname()[1])


@pytest.mark.parametrize("way", ["sendto", "deferred"])
@pytest.mark.parametrize(
    "link", [{}, {"ipv6": True}, {"qdisc": "tbf", "rate_bps": 50_000_000}]
)
def test_the_request_in_the_syn_is_a_message_with_all_stamps(
    make_lab, tmp_path, way, link
):
    lab = make_lab(**link)
    talk = Talk(lab, way)
    with recording(lab, tmp_path, ("tcp",)) as recorded, talk.listener:
        for _ in range(CONNECTIONS):
            talk.connect()

    assert talk.taken() == CONNECTIONS - 1  # the first asks for its cookie
    rows, to = recorded.messages(), talk.to[1]
    asked = [rows_between(rows, port, to) for port in talk.ports]
    assert [list(each["size_bytes"]) for each in asked] == [[ASK, MORE]] * CONNECTIONS
    assert [list(each["sequence"]) for each in asked] == [
        [ASK, ASK + MORE]
    ] * CONNECTIONS
    firsts = pd.concat([each[:1] for each in asked])
    assert firsts["end_to_end_ns"].notna().all(), firsts
    assert_stamps_in_order(firsts)
    assert_inside(firsts["send_ns"], talk.asks)
    assert_inside(firsts["read_ns"], talk.reads)
    stamps = firsts[["queue_ns", "xmit_ns", "arrive_ns", "ready_ns"]]
    assert stamps[1:].notna().all(axis=None), firsts
    assert firsts["retransmits"].sum() == 0
    exchanges = pd.read_csv(recorded.folder.path / "exchanges.csv")
    assert len(exchanges) == 2 * CONNECTIONS
    assert set(exchanges["request_bytes"]) == {ASK, MORE}
    assert recorded.lost() == {}


@pytest.mark.parametrize("way", ["sendto", "deferred"])
def test_exchanges_of_live_traffic_have_it_too(make_lab, way):
    lab = make_lab()
    talk = Talk(lab, way)
    with monitored(lab, protocols=("tcp",)) as counted, talk.listener:
        for _ in range(CONNECTIONS):
            talk.connect()
    assert talk.taken() == CONNECTIONS - 1
    for role, size in (("client", ASK + MORE), ("server", 2 * REPLY)):
        group = counted.group(protocol="tcp", role=role)
        assert group.counted[Counted.SENT_MESSAGES] == 2 * CONNECTIONS
        assert group.counted[Counted.SENT_BYTES] == size * CONNECTIONS
        assert group.counted[Counted.EXCHANGES] == 2 * CONNECTIONS
    client = counted.group(protocol="tcp", role="client")
    assert client.histograms[Quantity.RESPONSE].count == 2 * CONNECTIONS
