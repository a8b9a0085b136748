"""Groups without room: the idlest make some, and no count is lost or comes twice."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack

import pytest
from latprof_agent.monitor import group_room
from latprof_agent.monitor.totals import OTHER, Counted, Quantity
from monitored import histogram, monitored
from recording import tcp_pair

ROUNDS, SERVICES = 8, 15  # of two groups each: less than there is room for at once
GIVEN_UP_SECONDS = 60


@pytest.fixture
def little_memory(monkeypatch):
    """Room for 123 groups."""
    monkeypatch.setattr(group_room, "_MEMORY_SHARE", 0.0)
    monkeypatch.setattr(group_room, "_LEAST_BYTES", 0)
    monkeypatch.setattr(group_room, "IDLE_SECONDS", 0.5)
    monkeypatch.setattr(group_room, "SETTLE_SECONDS", 0.2)


def ask(client, server, times=1):
    for _ in range(times):
        client.sendall(bytes(100))
        assert len(server.recv(200)) == 100
        server.sendall(bytes(50))
        assert len(client.recv(200)) == 50


def wait_for_room(counted):
    """Until the groups that are idle have left."""
    until = time.monotonic() + GIVEN_UP_SECONDS
    while time.monotonic() < until:
        tables = counted.monitor.capture.tables
        taken, _ = counted.monitor.capture.taken_groups()
        if tables.given - taken >= group_room.LEAST_FREE:
            return
        time.sleep(0.05)
    pytest.fail("no group has left")


@pytest.mark.thorough
@pytest.mark.usefixtures("little_memory")
def test_new_services_have_the_room_of_idle_ones_and_sums_stay_exact(
    make_lab, monkeypatch
):
    lab = make_lab(delay_ns=0, rate_bps=0)
    with ExitStack() as stack, monitored(lab, protocols=("tcp",)) as counted:
        stays = tcp_pair(lab)
        pairs = [stays]
        for _ in range(ROUNDS):
            wait_for_room(counted)
            for _ in range(SERVICES):
                pair = tcp_pair(lab)
                pairs.append(pair)
                ask(*pair)
            ask(*stays)
        wait_for_room(counted)
        for end in (e for pair in pairs for e in pair):
            stack.enter_context(end)
        # from now on nobody leaves, however slow this machine is
        monkeypatch.setattr(group_room, "IDLE_SECONDS", math.inf)
        last = tcp_pair(lab)
        ports = [str(server.getsockname()[1]) for _, server in (*pairs, last)]
        # the first is long idle, and may have left; its sockets are as they were
        ask(*pairs[1], times=3)
        ask(*last, times=7)
        for end in last:
            stack.enter_context(end)

    own = counted.totals.own
    assert own.groups.evicted > 0
    assert own.groups.refused == 0
    sent = {
        (group.role, group.service): totals.counted[Counted.SENT_MESSAGES]
        for group, totals in counted.totals.groups.items()
    }
    exchanges = 1 * (len(pairs) - 1) + ROUNDS + 3 + 7
    for role in ("client", "server"):
        assert sent[role, ports[-1]] == 7
        # what it had before is others', if it has left
        assert sent[role, ports[1]] in (3, 4)
        assert sent[role, OTHER] > 0
        of_role = [n for (which, _), n in sent.items() if which == role]
        assert sum(of_role) == exchanges
    waits = histogram(counted.group(role="server", service=OTHER), Quantity.SEND_QUEUE)
    assert waits.count == sent["server", OTHER]
