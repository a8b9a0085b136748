"""latprof-load when replies are lost, late or wrong, and on its schedule."""

from __future__ import annotations

import os
import select
import signal
import time

import load_peer as peer
import numpy as np
import pytest
from load_peer import (
    HEADER,
    Header,
    echo,
    finish,
    pingpong,
    tcp_peer,
    told_progress,
)

pytestmark = pytest.mark.timed

LOST, CORRUPT = 2, 4


def signed(column):
    return column.astype("i8")


@pytest.mark.parametrize("pacing", [(), ("--interval", 500_000)])
def test_a_dropped_datagram_is_lost_and_stalls_nothing(tmp_path, pacing):
    dropped = {3, 17, 18, 19, 80}

    def answer(message):
        sequence = Header(*HEADER.unpack_from(message)).sequence
        return [] if sequence in dropped else [peer.reply_to(message)]

    with peer.udp_peer(answer) as port:
        run = pingpong(
            tmp_path,
            port,
            "--protocol",
            "udp",
            "--rounds",
            100,
            "--timeout",
            100_000_000,
            *pacing,
        )
    assert run.status == 0, run.stderr
    assert run.records["sequence"].tolist() == list(range(1, 101))
    lost = run.records[run.records["flags"] == LOST]
    assert set(lost["sequence"].tolist()) == dropped
    assert (lost["received_ns"] == 0).all()
    assert (run.summary["lost"], run.summary["received"]) == (5, 95)
    # Closed: 5 time-outs of 0.1 s, each up to two ticks (8 ms) late. Open: the
    # 50 ms that 100 messages take and, at most, one time-out behind them.
    limit_ms = 50 + 100 if pacing else 5 * 108
    assert run.summary["elapsed_ns"] < (limit_ms + 1000) * 1e6
    assert (run.records["request_end"] == peer.OPENS + np.arange(1, 101)).all()


def test_late_and_doubled_replies_are_counted_and_change_nothing(tmp_path):
    held: list[bytes] = []

    def answer(message):
        sequence = Header(*HEADER.unpack_from(message)).sequence
        if sequence == 5:
            held.append(peer.reply_to(message))
            return []
        late, held[:] = list(held), []
        return [*late, *[peer.reply_to(message)] * (2 if sequence == 9 else 1)]

    with peer.udp_peer(answer) as port:
        run = pingpong(
            tmp_path, port, "--protocol", "udp", "--rounds", 20, "--timeout", 50_000_000
        )
    assert run.status == 0, run.stderr
    assert (run.summary["lost"], run.summary["late"]) == (1, 1)
    assert run.summary["duplicates"] == 1
    assert run.records["received_ns"][4] == 0


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_corrupt_reply_is_detected(tmp_path, protocol):
    def spoil(message):
        reply = bytearray(peer.reply_to(message))
        if Header(*HEADER.unpack_from(message)).sequence == 7:
            reply[-1] ^= 1
        return bytes(reply)

    def serve(stream):
        while message := peer.receive_message(stream):
            stream.sendall(spoil(message))

    responder = (
        tcp_peer(serve)
        if protocol == "tcp"
        else peer.udp_peer(lambda message: [spoil(message)])
    )
    with responder as port:
        run = pingpong(tmp_path, port, "--protocol", protocol, "--rounds", 10)
    assert run.status == 0, run.stderr
    assert np.flatnonzero(run.records["flags"] == CORRUPT).tolist() == [6]
    assert run.summary["corrupt"] == 1


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_open_loop_sees_a_stopped_responder_for_what_it_is(tmp_path, protocol):
    output = tmp_path / "records"
    with echo() as server:
        words = (
            "--protocol",
            protocol,
            "--port",
            server.port,
            "--interval",
            1_000_000,
            "--duration",
            5,
        )
        with told_progress(output, *words) as (client, progress):
            while int(progress.readline().split()[0]) < 1000:
                pass
            os.kill(server.process.pid, signal.SIGSTOP)
            stopped_ns = time.monotonic_ns()
            select.select([], [], [], 0.2)  # the stop itself
            os.kill(server.process.pid, signal.SIGCONT)
            continued_ns = time.monotonic_ns()
            stopped_ms = (continued_ns - stopped_ns) / 1e6
            run = finish(client, output)
    assert run.status == 0, run.stderr
    assert len(run.records) == run.summary["received"] == 5000
    intended_ns = signed(run.records["intended_ns"])
    rtt_ms = (signed(run.records["received_ns"]) - intended_ns) / 1e6
    # 4% of the messages fall into the stop, evenly, so that 1% wait for longer
    # than three quarters of it. A busy machine adds waits of its own to other
    # messages: they raise the p99 of all, not that of those due in the stop.
    due_in_stop = (stopped_ns <= intended_ns) & (intended_ns < continued_ns)
    assert abs(np.count_nonzero(due_in_stop) - stopped_ms) <= 1
    truth_ms = 0.75 * stopped_ms
    assert np.quantile(rtt_ms[due_in_stop], 0.75) == pytest.approx(truth_ms, rel=0.1)
    assert np.quantile(rtt_ms, 0.99) >= 0.9 * truth_ms
    # It went on sending while no reply came.
    sent_in_stop = signed(run.records["sent_ns"])[due_in_stop] < continued_ns
    assert np.count_nonzero(sent_in_stop) > stopped_ms / 2


@pytest.mark.parametrize("words", [(), ("--poisson",)])
def test_open_loop_keeps_an_absolute_schedule(tmp_path, words):
    with echo() as server:
        run = pingpong(
            tmp_path,
            server.port,
            "--interval",
            1_000_000,
            "--spin",
            "--rounds",
            1000,
            *words,
        )
    assert run.status == 0, run.stderr
    intended, sent = signed(run.records["intended_ns"]), signed(run.records["sent_ns"])
    gaps = np.diff(intended)
    if words:
        # The mean and the deviation of 999 exponential gaps are both 1 ms
        # within 5 standard errors (3.2% and about 4.5%).
        assert np.mean(gaps) == pytest.approx(1e6, rel=0.16)
        assert np.std(gaps) == pytest.approx(1e6, rel=0.23)
    else:
        assert (gaps == 1_000_000).all()
    assert (sent >= intended).all()
    # A spinning loop that has a CPU reads the clock and polls the socket, far
    # below 20 us. It has one for a tenth of the time on any busy machine.
    assert np.quantile(sent - intended, 0.1) < 20_000
    assert (run.records["created_ns"] == run.records["intended_ns"]).all()


def test_open_loop_sends_on_while_replies_are_outstanding(tmp_path):
    seen: list[bytes] = []

    def serve(stream):
        seen.extend(peer.receive_message(stream) for _ in range(100))
        stream.sendall(b"".join(peer.reply_to(message) for message in seen))

    with tcp_peer(serve) as port:
        run = pingpong(
            tmp_path, port, "--interval", 100_000, "--rounds", 100, "--sizes", 40_000
        )
    assert run.status == 0, run.stderr
    assert run.summary["received"] == 100
    assert run.summary["corrupt"] == 0
