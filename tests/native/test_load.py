"""latprof-load against peers that know its wire only from its description."""

from __future__ import annotations

import time
from contextlib import ExitStack

import load_peer as peer
import numpy as np
import pytest
from load_peer import CLEAR, HEADER, Header, echo, pingpong, tcp_peer

WARMUP = 1
FIELDS = [
    "sequence",
    "size_bytes",
    "reply_bytes",
    "intended_ns",
    "created_ns",
    "sent_ns",
    "received_ns",
    "reply_created_ns",
    "request_end",
    "reply_end",
    "flags",
    "peer",
    "send_returned_ns",
    "train",
    "train_messages",
    "train_gap_ns",
]


def test_a_tcp_request_is_the_described_bytes_and_offsets_count_them(tmp_path):
    seen: list[bytes] = []

    def serve(stream):
        while message := peer.receive_message(stream):
            seen.append(message)
            stream.sendall(peer.reply_to(message, created_ns=7))

    with tcp_peer(serve) as port:
        run = pingpong(tmp_path, port, "--sizes", "18,64,5000", "--rounds", 30)
    assert run.status == 0, run.stderr
    records = run.records
    assert list(records.dtype.names) == FIELDS
    headers = [Header(*HEADER.unpack_from(m)) for m in seen]
    assert all(h.kind == 1 and h.version == 1 for h in headers)
    assert [h.sequence for h in headers] == list(range(1, 91))
    assert [h.size for h in headers] == records["size_bytes"].tolist()
    assert [h.created_ns for h in headers] == records["created_ns"].tolist()
    assert all(
        m[18:] == peer.payload(h.sequence, h.size)[18:]
        for m, h in zip(seen, headers, strict=True)
    )
    ends = np.cumsum([len(m) for m in seen])
    assert (records["request_end"] == peer.SENT_BEFORE + ends).all()
    assert (records["reply_end"] == peer.RECEIVED_BEFORE + ends).all()
    assert (records["reply_created_ns"] == 7).all()
    assert (records["sent_ns"] < records["received_ns"]).all()
    assert (records["flags"] == 0).all()


def test_echo_answers_each_request_anew_even_if_bytes_come_singly():
    first, second = peer.request(1, 40), peer.request(2, 3000)
    with echo() as server, peer.session(server.port, peer.hello()) as c:
        before_ns = time.monotonic_ns()
        for byte in first:
            c.sendall(bytes([byte]))
        c.sendall(second + second)
        replies = [peer.receive_message(c) for _ in range(3)]
        after_ns = time.monotonic_ns()
    assert [r[18:] for r in replies] == [first[18:], second[18:], second[18:]]
    for reply, sequence in zip(replies, (1, 2, 2), strict=True):
        header = Header(*HEADER.unpack_from(reply))
        assert header[:4] == (2, 1, len(reply), sequence)
        assert before_ns < header.created_ns < after_ns


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("wire", ["latprof", "clear"])
def test_every_size_goes_once_a_round_in_an_order_of_its_own(
    tmp_path, protocol, address, wire
):
    sizes = [18, 19, 64, 1472, 9000, 65507]
    words = ("--address", address, "--wire", wire)
    with echo(*words) as server:
        run = pingpong(
            tmp_path,
            server.port,
            *words,
            "--protocol",
            protocol,
            "--sizes",
            ",".join(map(str, sizes)),
            "--rounds",
            40,
            "--warmup",
            2,
        )
        served = server.stop()
    assert run.status == 0, run.stderr
    rounds = run.records["size_bytes"].reshape(42, len(sizes))
    assert (np.sort(rounds, axis=1) == sorted(sizes)).all()
    # 720 orders: 42 rounds with fewer than 30 different ones do not happen.
    assert len({tuple(r) for r in rounds}) >= 30
    assert (run.records["flags"] == [WARMUP] * 12 + [0] * 240).all()
    assert run.summary["received"] == run.summary["sent"] == 240
    assert (served["messages"], served["bytes"]) == (252, int(rounds.sum()))


def test_messages_of_10_megabytes_arrive_whole(tmp_path):
    for words in ((), ("--interval", 20_000_000)):
        with echo() as server:
            run = pingpong(
                tmp_path, server.port, "--sizes", "10000000,64", "--rounds", 5, *words
            )
        assert run.status == 0, run.stderr
        assert run.summary["received"] == 10
        assert run.summary["corrupt"] == 0


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_a_short_reply_has_its_size_and_the_request_is_checked_there(
    tmp_path, protocol
):
    words = ("--protocol", protocol, "--reply", 50, "--sizes", "64,20000")
    with echo() as server:
        run = pingpong(tmp_path, server.port, *words, "--rounds", 20)
        said = peer.hello(reply=50, transport=protocol == "udp")
        with ExitStack() as stack:
            if protocol == "tcp":
                c = stack.enter_context(peer.session(server.port, said))
            else:
                _, c = stack.enter_context(peer.datagram_session(server.port, said))
            c.sendall(bytearray(peer.request(5, 99))[:-1] + b"\0")
            reply = c.recv(1000)
            c.sendall(peer.request(6, 99))
            assert len(c.recv(1000)) == 50
        assert server.stop()["corrupt"] == 1
    assert run.status == 0, run.stderr
    assert (run.records["reply_bytes"] == 50).all()
    assert reply[18:] == peer.payload(5, 50)[18:]


def test_a_reply_of_another_size_than_was_asked_for_is_said(tmp_path):
    def serve(stream):
        message = peer.receive_message(stream)
        stream.sendall(peer.reply_to(message[:50]))

    with tcp_peer(serve) as port:
        run = pingpong(tmp_path, port)
    assert run.status == 1
    assert "reply has 50 bytes: 64 were asked for" in run.stderr
    assert run.stderr.count("\n") == 1


def test_the_clear_wire_is_that_of_the_seed(tmp_path):
    seen: list[bytes] = []

    def serve(stream):
        while head := peer.receive_exactly(stream, 18):
            rest = peer.receive_exactly(stream, CLEAR.unpack(head)[0] - 18)
            seen.append(head + rest)
            stream.sendall(head + rest)

    before_us = time.time_ns() // 1000
    with peer.raw_peer(serve) as port:
        run = pingpong(tmp_path, port, "--wire", "clear", "--sizes", "18,65535")
    after_us = time.time_ns() // 1000
    assert run.status == 0, run.stderr
    assert [len(m) for m in seen] == run.records["size_bytes"].tolist()
    for message in seen:
        size, seconds, microseconds = CLEAR.unpack_from(message)
        assert size == len(message)
        assert 0 <= microseconds < 1_000_000
        assert before_us <= seconds * 1_000_000 + microseconds <= after_us
