"""Windows at random times, held against all of the same traffic."""

from __future__ import annotations

import socket
import threading
import time

import pytest
from latprof_agent.monitor import windows
from latprof_agent.monitor.totals import Counted, Quantity
from monitored import histogram, monitored
from recording import tcp_pair

pytestmark = pytest.mark.timed

SECONDS = 16
GAP_SECONDS = 0.001
# Periodic, so that windows at regular times would see it always or never.
PERIOD_SECONDS = 0.1
STALL_SECONDS = 0.03
SLOW_NS = 2_000_000


@pytest.fixture
def costly(monkeypatch):
    """Hooks that seem to cost so much that a part of the time is allowed.

    Of a CPU, so that the allowance is far above what the test's own process takes.
    """
    monkeypatch.setattr(windows, "HOOK_SECONDS", 5e-4)
    monkeypatch.setattr(windows, "LOOK_SECONDS", 0.2)


def stalling_reader(server: socket.socket, until: float) -> None:
    next_stall = time.monotonic()
    while time.monotonic() < until:
        server.recv(1 << 16)
        if time.monotonic() >= next_stall:
            time.sleep(STALL_SECONDS)
            next_stall += PERIOD_SECONDS


def slow_share(found):
    """Of a histogram: what waited for longer than a reader without stalls takes."""
    from latprof_analysis.stats.kernel_histogram import edges_ns

    return found.counts[edges_ns()[:-1] >= SLOW_NS].sum() / found.count


# Windows are a sample: of few, on a machine that stalls, the figures differ by more.
@pytest.mark.thorough
@pytest.mark.usefixtures("costly")
def test_windows_tell_the_same_as_all_the_time(make_lab):
    lab = make_lab(delay_ns=0, rate_bps=0)
    client, server = tcp_pair(lab)
    with (
        client,
        server,
        monitored(lab, protocols=("tcp",)) as whole,
        monitored(lab, protocols=("tcp",), max_overhead=1.0) as sampled,
    ):
        until = time.monotonic() + SECONDS
        reader = threading.Thread(target=stalling_reader, args=(server, until))
        reader.start()
        while time.monotonic() < until:
            client.send(bytes(64))
            time.sleep(GAP_SECONDS)
        client.shutdown(socket.SHUT_WR)
        reader.join()

    coverage = sampled.totals.own.covered_seconds / sampled.totals.own.seconds
    assert 0.03 < coverage < 0.9  # it was measured in windows, or nothing is shown
    all_waits = histogram(whole.group(role="server"), Quantity.RECEIVE_QUEUE)
    waits = histogram(sampled.group(role="server"), Quantity.RECEIVE_QUEUE)
    # the share differs between windows by half a period's; a hundred of them
    assert slow_share(waits) == pytest.approx(slow_share(all_waits), abs=0.12)
    assert waits.quantile(0.95) == pytest.approx(all_waits.quantile(0.95), rel=0.15)
    # counts stand for the pauses, too: up to the last window
    sent = whole.group(role="client").counted[Counted.SENT_MESSAGES]
    scaled = sampled.group(role="client").counted[Counted.SENT_MESSAGES]
    assert scaled == pytest.approx(sent, rel=0.15)
    # what a window's edge cut is left out, and a wait is never that of a pause
    assert waits.counts[edges_above(2 * STALL_SECONDS)].sum() <= 0.02 * waits.count


def edges_above(seconds):
    from latprof_analysis.stats.kernel_histogram import edges_ns

    return edges_ns()[:-1] >= seconds * 1e9
