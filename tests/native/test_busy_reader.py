"""A responder that is busy between reads: what it has not read waits in its socket."""

from __future__ import annotations

import itertools
import socket
from pathlib import Path

import load_peer as peer
import pytest
from load_peer import (
    HEADER,
    Header,
    datagram_session,
    echo,
    hello,
    pingpong,
    session,
)

MS = 1_000_000
BURST, SIZE, BUSY_NS = 6, 100, 100 * MS
TRANSPORTS = {"tcp": 0, "udp": 1}

pytestmark = pytest.mark.timed


def waiting(protocol: str, ours: socket.socket, port: int) -> int:
    """What waits in the responder's socket, as the kernel tells: bytes, or memory."""
    ends = [f"{port:04X}", f"{ours.getsockname()[1]:04X}"]
    for line in Path(f"/proc/net/{protocol}").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if [end.partition(":")[2] for end in (local, remote)] == ends:
            return int(queues.partition(":")[2], 16)
    raise AssertionError(f"no socket {ends}")


def burst(protocol: str, stream: socket.socket, port: int) -> tuple[list[int], ...]:
    """Send some messages at once; when each was answered, and what waited then."""
    requests = [peer.request(number, SIZE) for number in range(1, BURST + 1)]
    if protocol == "tcp":
        stream.sendall(b"".join(requests))
    else:
        for one in requests:
            stream.send(one)
    made, unread = [], []
    for number in range(1, BURST + 1):
        reply = peer.receive_exactly(stream, SIZE)
        unread.append(waiting(protocol, stream, port))
        header = Header(*HEADER.unpack_from(reply))
        assert header.sequence == number
        made.append(header.created_ns)
    return made, unread


def session_of(protocol: str, port: int):
    said = hello(transport=TRANSPORTS[protocol], own=[BUSY_NS])
    return (session if protocol == "tcp" else datagram_session)(port, said)


@pytest.mark.parametrize("protocol", TRANSPORTS)
def test_it_reads_one_message_computes_and_reads_the_next(protocol):
    with echo() as server, session_of(protocol, server.port) as opened:
        stream = opened if protocol == "tcp" else opened[1]
        made, unread = burst(protocol, stream, server.port)
    # it looks at the clock until the time is over
    assert all(b - a >= BUSY_NS for a, b in itertools.pairwise(made))
    # the i-th has left the socket when it is answered, and no other has
    each = unread[0] / (BURST - 1)
    assert each == SIZE if protocol == "tcp" else each >= SIZE
    assert unread == [each * left for left in range(BURST - 1, -1, -1)]


def test_without_it_the_responder_takes_all_that_is_there_out_of_its_socket():
    thinking = hello(think_ns=BUSY_NS)
    with echo() as server, session(server.port, thinking) as stream:
        stream.sendall(b"".join(peer.request(n, SIZE) for n in range(1, BURST + 1)))
        for _ in range(2):  # the first may have come alone
            peer.receive_exactly(stream, SIZE)
        assert waiting("tcp", stream, server.port) == 0


@pytest.mark.parametrize("protocol", TRANSPORTS)
@pytest.mark.parametrize("words", [(), ("--reply", 5000), ("--interval", "1ms")])
def test_messages_of_all_sizes_come_through_whole(tmp_path, protocol, words):
    sizes = ("--sizes", "18,19,1000,60000", "--rounds", 20, "--busy", "10us")
    with echo() as server:
        run = pingpong(tmp_path, server.port, "--protocol", protocol, *sizes, *words)
        served = server.stop()
    assert run.status == 0, run.stderr
    assert (run.summary["received"], run.summary["corrupt"]) == (80, 0)
    assert (served["messages"], served["corrupt"], served["rejected"]) == (80, 0, 0)
    assert run.summary["busy_ns"] == 10_000
