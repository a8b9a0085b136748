"""Trains of latprof-load: which go, how, and what a shaper makes of them."""

from __future__ import annotations

import os
import socket
import struct
from collections import Counter
from contextlib import contextmanager, suppress

import load_peer as peer
import numpy as np
import pytest
from latprof_agent import netns
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec
from load_peer import HEADER, OPENS, echo, finish, load, pingpong, tcp_peer
from stamped import BUFFER_BYTES, SO_RCVBUFFORCE, SO_TIMESTAMPNS

ETH_P_IP = 0x0800
MS = 1_000_000
TCP_INFO_DATA_SEGS_IN = 152  # offset in struct tcp_info of the u32


def signed(column):
    return column.astype("i8")


def turns(records):
    """The records of each turn, in order: alone, or of one train."""
    heads = np.flatnonzero((records["train"] == 0) | (starts(records["train"])))
    return np.split(records, heads[1:])


def starts(trains):
    return np.concatenate([[True], trains[1:] != trains[:-1]])


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_round_holds_each_size_alone_back_to_back_and_with_a_gap(tmp_path, protocol):
    sizes, count, gap_ns, rounds = [64, 1000, 9000], 5, 300_000, 20
    with echo() as server:
        words = ("--protocol", protocol, "--sizes", ",".join(map(str, sizes)))
        words += ("--train", count, "--train-gap", gap_ns, "--warmup", 1)
        run = pingpong(tmp_path, server.port, *words, "--rounds", rounds)
        served = server.stop()
    assert run.status == 0, run.stderr
    records = run.records
    measured = len(sizes) * (1 + 2 * count) * rounds
    assert run.summary["sent"] == run.summary["received"] == measured
    assert run.summary["warmup"] == len(records) - measured == measured // rounds
    assert served["messages"] == len(records)
    assert served["bytes"] == records["size_bytes"].sum()
    of_turns = turns(records)
    kinds = []
    for turn in of_turns:
        head = turn[0]
        assert len(turn) == head["train_messages"]
        fields = ["size_bytes", "train", "train_messages", "train_gap_ns"]
        assert (turn[fields] == head[fields]).all()
        assert (np.diff(signed(turn["intended_ns"])) == head["train_gap_ns"]).all()
        kinds.append(tuple(head[["size_bytes", "train_messages", "train_gap_ns"]]))
    ways = [(1, 0), (count, 0), (count, gap_ns)]
    wanted = Counter((size, *way) for size in sizes for way in ways)
    shape = (rounds + 1, len(wanted))
    assert len(kinds) == shape[0] * shape[1]
    by_round = [kinds[i : i + len(wanted)] for i in range(0, len(kinds), len(wanted))]
    assert all(Counter(one) == wanted for one in by_round)
    # 9! orders: 21 rounds with fewer than 20 different ones do not happen.
    assert len(set(map(tuple, by_round))) >= 20
    trains = [turn[0]["train"] for turn in of_turns if turn[0]["train"]]
    assert trains == list(range(1, len(trains) + 1))


def test_a_closed_loops_turn_begins_when_the_one_before_is_answered(tmp_path):
    """The responder answers what it has when nothing more comes."""
    batches: list[int] = []

    def serve(stream):
        held: list[bytes] = []
        stream.settimeout(0.02)
        while True:
            try:
                message = peer.receive_message(stream)
                if not message:
                    return
                held.append(message)
            except TimeoutError:
                stream.sendall(b"".join(map(peer.reply_to, held)))
                batches.extend([len(held)] if held else [])
                held.clear()

    with tcp_peer(serve) as port:
        run = pingpong(tmp_path, port, "--train", 7, "--rounds", 10)
    assert run.status == 0, run.stderr
    ends = np.cumsum([len(turn) for turn in turns(run.records)])
    # A machine that stands still within a train may cut it, but no two are one.
    assert set(ends) <= set(np.cumsum(batches))
    assert max(batches) == 7
    assert run.summary["loop"] == "closed"


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_the_sends_of_a_train_follow_each_other_and_tell_how_long_they_took(
    tmp_path, protocol
):
    with echo() as server:
        words = ("--protocol", protocol, "--train", 10, "--rounds", 50)
        run = pingpong(tmp_path, server.port, *words)
    assert run.status == 0, run.stderr
    trains = [turn for turn in turns(run.records) if len(turn) > 1]
    assert len(trains) == 50
    before_ns = 0
    for turn in turns(run.records):
        sent, returned = signed(turn["sent_ns"]), signed(turn["send_returned_ns"])
        assert (sent < returned).all()
        assert (returned[:-1] <= sent[1:]).all()
        assert sent[0] >= before_ns  # of all replies to the turn before
        before_ns = signed(turn["received_ns"]).max()
        assert (signed(turn["created_ns"]) <= sent).all()
        assert (turn["created_ns"] == turn["created_ns"][0]).all()
    if protocol == "udp":
        numbers = OPENS + np.arange(1, 50 * 11 + 1)
        assert (run.records["request_end"] == numbers).all()


def test_each_message_of_a_train_over_tcp_is_a_segment_of_its_own(tmp_path):
    """Counted by the receiver's kernel. A paced sender would join them: reno."""
    segments = 0

    def serve(stream):
        nonlocal segments
        while message := peer.receive_message(stream):
            stream.sendall(peer.reply_to(message))
            info = stream.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            segments = struct.unpack_from("I", info, TCP_INFO_DATA_SEGS_IN)[0]

    with tcp_peer(serve) as port:
        words = ("--train", 8, "--rounds", 20, "--congestion", "reno")
        run = pingpong(tmp_path, port, *words)
    assert run.status == 0, run.stderr
    handshake = 2  # HELLO and PROOF
    assert len(run.records) == 20 * 9
    # On a busy machine a few are sent twice, as probes of a tail.
    assert 20 * 9 <= segments - handshake <= 20 * 9 + 5


def test_an_open_loops_turns_are_due_at_the_interval(tmp_path):
    with echo() as server:
        words = ("--train", 4, "--train-gap", 100_000, "--interval", 2 * MS)
        run = pingpong(tmp_path, server.port, *words, "--rounds", 30)
    assert run.status == 0, run.stderr
    due = [signed(turn["intended_ns"]) for turn in turns(run.records)]
    assert (np.diff([one[0] for one in due]) == 2 * MS).all()
    assert len(due) == 90
    assert (signed(run.records["sent_ns"]) >= signed(run.records["intended_ns"])).all()


@contextmanager
def packet_socket(namespace):
    """What a namespace's interfaces receive, with the kernel's stamps of it."""
    kind = (socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_IP))
    with netns.run_in(namespace, lambda: socket.socket(*kind)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
        yield sock


def requests_in(sock, port):
    """Sequence and stamp (ns) of each request that came to a UDP port."""
    with suppress(BlockingIOError):
        while True:
            data, control, _, sender = sock.recvmsg(65536, 64)
            payload = data[28:]
            to = int.from_bytes(data[22:24], "big")
            if data[9] != socket.IPPROTO_UDP or to != port or payload[:2] == b"LP":
                continue
            assert sender[2] == socket.PACKET_HOST
            seconds, ns = struct.unpack("qq", control[0][2])
            yield HEADER.unpack_from(payload)[3], seconds * 10**9 + ns


@pytest.fixture
def trains_through(tmp_path):
    """Send trains from end to end of a lab: their records, and when each came in."""

    def send(spec, *words):
        output = tmp_path / "records"
        with (
            Lab(spec, registry=tmp_path / "labs") as lab,
            packet_socket(lab.b_netns) as sock,
            echo("--netns", lab.b_netns, "--address", lab.b_address) as server,
        ):
            client = load(
                *("pingpong", "--netns", lab.a_netns, "--protocol", "udp"),
                *("--peer", f"{lab.b_address}:{server.port}", "--reply", 18),
                *("--output", output, *words),
            )
            run = finish(client, output)
            seen = dict(requests_in(sock, server.port))
        assert run.status == 0, run.stderr
        assert run.summary["lost"] == 0
        assert list(seen) == run.records["sequence"].tolist()
        return run.records, np.array(list(seen.values()))

    return send


@pytest.mark.timed
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")
def test_the_dispersion_of_a_train_is_the_shapers_rate(trains_through):
    size, count, rate_bps = 1400, 100, 100_000_000
    packet_bits = 8 * (size + 20 + 8 + 14)  # IPv4, UDP, Ethernet: as tbf counts
    spec = LinkSpec(rate_bps=rate_bps, emulator="never")
    words = ("--sizes", size, "--train", count, "--rounds", 20)
    records, stamps_ns = trains_through(spec, *words)
    spacings = []
    for begin in np.flatnonzero(starts(records["train"]) & (records["train"] > 0)):
        # Behind the bucket's burst, 32 KiB: 23 packets. The median of a
        # difference over many packets: one late timer delays one packet.
        second_half = stamps_ns[begin + count // 2 : begin + count]
        far = len(second_half) // 2
        spacings.append(np.median(second_half[far:] - second_half[:-far]) / far)
    assert len(spacings) == 20
    truth_ns = packet_bits / rate_bps * 1e9  # 115.36 us
    assert np.median(spacings) == pytest.approx(truth_ns, rel=0.01)


@pytest.mark.timed
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root for namespaces")
def test_a_train_with_a_gap_arrives_with_that_gap(trains_through):
    gap_ns, count = 2 * MS, 20
    words = ("--train", count, "--train-gap", gap_ns, "--rounds", 10)
    records, stamps_ns = trains_through(LinkSpec(), *words)
    with_gap = records["train_gap_ns"] == gap_ns
    same = (with_gap[1:] & with_gap[:-1]) & (np.diff(signed(records["train"])) == 0)
    gaps_ns = np.diff(stamps_ns)[same]
    assert len(gaps_ns) == 10 * (count - 1)
    # A wake-up each, of tens of us: what two of them differ by.
    assert np.quantile(np.abs(gaps_ns - gap_ns), 0.1) < 0.05 * gap_ns
    together = (records["train"] > 0) & ~with_gap
    same = (together[1:] & together[:-1]) & (np.diff(signed(records["train"])) == 0)
    # A send call is a few us, and nothing else is between two of them.
    assert np.quantile(np.diff(stamps_ns)[same], 0.1) < 50_000


@pytest.mark.timed
@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_receive_call_is_told_that_found_its_reply_there(tmp_path, protocol):
    words = ("--protocol", protocol, "--sizes", "64,9000", "--rounds", 50)
    with echo() as server:
        run = pingpong(tmp_path, server.port, *words, "--train", 4)
        alone = pingpong(tmp_path, server.port, *words)
    records = run.records
    called = signed(records["receive_called_ns"])
    received = signed(records["received_ns"])
    # one host has one clock: the reply was made before the call that found it
    assert (signed(records["reply_created_ns"]) < called).all()
    assert (called < received).all()
    # a call that waited would have taken as long as the reply's way
    single = records["train"] == 0
    way = received - signed(records["sent_ns"])
    assert np.median((received - called)[single] / way[single]) < 0.5
    # without trains a call may wait for its reply, and so does not tell
    assert (alone.records["receive_called_ns"] == 0).all()
