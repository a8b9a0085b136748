"""Two pairs of namespaces with equal addresses and ports, as containers have them."""

from __future__ import annotations

import socket
import time

import pytest
from recording import DEADLINE_SECONDS, Filter, recording, socket_in

CLIENT_PORT, SERVER_PORT = 4000, 5000
IP_MTU_DISCOVER, IP_PMTUDISC_DO = 10, 2  # packets have no identification then
DATAGRAMS = 50


def bound(name, address, port):
    """A UDP socket in a namespace."""
    sock = socket_in(name, socket.AF_INET, socket.SOCK_DGRAM)
    sock.settimeout(DEADLINE_SECONDS)
    sock.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO)
    sock.bind((address, port))
    return sock


@pytest.mark.parametrize("answered", [0, 1])
def test_a_datagram_of_one_namespace_is_not_joined_to_a_read_in_another(
    make_lab, tmp_path, answered
):
    # all are alike: only where they were sent tells them apart; nobody listens for
    # the others, which leave first or last
    labs = [make_lab(), make_lab()]
    clients = [bound(lab.a_netns, lab.a_address, CLIENT_PORT) for lab in labs]
    server = bound(labs[answered].b_netns, labs[answered].b_address, SERVER_PORT)
    target = labs[answered].b_address, SERVER_PORT
    assert labs[0].b_address == labs[1].b_address
    inodes = tuple(inode for lab in labs for inode in lab.inodes)
    calls = []  # of those that are read: before, after the call, and when it was read
    with (
        recording(Filter(netns=inodes, protocols=("udp",)), tmp_path) as recorded,
        clients[0],
        clients[1],
        server,
    ):
        for _ in range(DATAGRAMS):
            for number, client in enumerate(clients):
                before_ns = time.monotonic_ns()
                client.sendto(bytes(64), target)
                if number == answered:
                    calls.append([before_ns, time.monotonic_ns()])
            server.recv(100)
            calls[-1].append(time.monotonic_ns())
    assert recorded.lost() == {}
    rows = recorded.messages().sort_values("send_ns")
    assert len(rows) == 2 * DATAGRAMS
    assert set(rows["source_port"]) == {CLIENT_PORT}
    read = rows[rows["read_ns"].notna()]
    assert len(read) == DATAGRAMS
    for sent, received, (before, after, until) in zip(
        read["send_ns"], read["read_ns"], calls, strict=True
    ):
        assert before <= sent <= after < until
        assert sent < received <= until
    assert (read["transit_ns"] >= 0).all()
