"""Both ends of a bulk channel, written from its documented wire alone."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import load_peer as peer

BULK = 2  # the workload
PLAN, READY, GO, DATA, SENT, RESULT = range(16, 22)
FRAME = struct.Struct(">BI")
DATAGRAM = struct.Struct(">4sIQQ")  # magic, channel, number, sent_ns
MAGIC = b"LPbd"
PLAN_FIELDS = (
    *("channel", "channels", "direction", "unit_bytes", "units", "duration_ns"),
    *("rate_bps", "slot_ns", "receive_buffer_bytes", "send_way", "receive_way"),
    "spin",
)
SENT_FIELDS = (
    *("sent", "bytes", "calls", "would_block", "no_buffers", "start_ns", "first_ns"),
    *("last_ns", "retransmits", "congestion_window", "srtt_ns", "rttvar_ns"),
    *("min_rtt_ns", "delivery_rate_bps", "busy_ns", "receive_window_limited_ns"),
    *("send_buffer_limited_ns", "stopped", "error", "way"),
)
RECEIVED_FIELDS = (
    *("received", "bytes", "calls", "start_ns", "first_ns", "last_ns"),
    *("receive_buffer_bytes", "lost", "lost_in_socket", "loss_runs", "duplicates"),
    *("reordered", "extent_max", "extent_sum", "stale", "socket_drops", "strays"),
    "way",
)
UP, DOWN, BOTH = range(3)
LENGTHS = 64


class Received(NamedTuple):
    totals: dict[str, int]
    slots: list[int]
    lengths: list[int]
    runs: list[list[int]]


def bulk_plan(**fields: int) -> dict[str, int]:
    """A plan of one channel to the responder, but for what is given."""
    usual = {
        "channels": 1,
        "unit_bytes": DATAGRAM.size,
        "units": 1,
        "slot_ns": 10**8,
    }
    return {**dict.fromkeys(PLAN_FIELDS, 0), **usual, **fields}


def words(values: Sequence[int]) -> bytes:
    return struct.pack(f">{len(values)}Q", *values)


def send_frame(stream: socket.socket, kind: int, values: Sequence[int] = ()) -> None:
    body = words(values)
    stream.sendall(FRAME.pack(kind, len(body)) + body)


def receive_frame(stream: socket.socket) -> tuple[int, list[int]]:
    kind, size = FRAME.unpack(peer.receive_exactly(stream, FRAME.size))
    body = peer.receive_exactly(stream, size)
    return kind, list(struct.unpack(f">{size // 8}Q", body))


def expect_frame(stream: socket.socket, kind: int) -> list[int]:
    found, values = receive_frame(stream)
    assert found == kind
    return values


def send_sent(stream: socket.socket, sent: int, stopped: int = 0) -> None:
    totals = dict.fromkeys(SENT_FIELDS, 0) | {"sent": sent, "stopped": stopped}
    send_frame(stream, SENT, [*totals.values(), 10**8, 0])


def read_sent(values: list[int]) -> dict[str, int]:
    totals = dict(zip(SENT_FIELDS, values, strict=False))
    slot_ns, count, *slots = values[len(SENT_FIELDS) :]
    assert slot_ns and len(slots) == count
    assert sum(slots) == totals["bytes"]
    return totals


def read_received(values: list[int]) -> Received:
    totals = dict(zip(RECEIVED_FIELDS, values, strict=False))
    slot_ns, count, *rest = values[len(RECEIVED_FIELDS) :]
    assert slot_ns
    slots, rest = rest[:count], rest[count:]
    lengths, (run_count, *flat) = rest[:LENGTHS], rest[LENGTHS:]
    assert len(flat) == 4 * run_count
    runs = [flat[i : i + 4] for i in range(0, len(flat), 4)]
    return Received(totals, slots, lengths, runs)


def datagram(number: int, channel: int = 0, size: int = DATAGRAM.size) -> bytes:
    return DATAGRAM.pack(MAGIC, channel, number, 1).ljust(size, b"\0")


@contextmanager
def sending_session(
    port: int, plan: dict[str, int]
) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A channel over UDP with an echo that may begin: its two sockets."""
    with peer.datagram_session(port, channel_hello(1, plan)) as (control, data):
        begin(control, plan)
        yield control, data


@contextmanager
def stream_session(port: int, plan: dict[str, int]) -> Iterator[socket.socket]:
    """The same over TCP: its one socket."""
    with peer.session(port, channel_hello(0, plan)) as control:
        begin(control, plan)
        yield control


def channel_hello(transport: int, plan: dict[str, int]) -> bytes:
    """What the client of a channel asks for."""
    return peer.hello(
        workload=BULK,
        transport=transport,
        largest=plan["unit_bytes"],
        duration_ns=10**10,
    )


def begin(control: socket.socket, plan: dict[str, int]) -> None:
    """Agree on a plan with an echo, and let it go."""
    control.settimeout(peer.DEADLINE_S)
    send_frame(control, PLAN, list(plan.values()))
    assert expect_frame(control, READY) == []
    send_frame(control, GO)


def waiting_bytes(data: socket.socket) -> int:
    """What stands unread at the other end, as the kernel says."""
    port, peer_port = data.getsockname()[1], data.getpeername()[1]
    for line in Path("/proc/net/udp").read_text().splitlines()[1:]:
        local, remote, _, queues = line.split()[1:5]
        if local.endswith(f":{peer_port:04X}") and remote.endswith(f":{port:04X}"):
            return int(queues.split(":")[1], 16)
    raise AssertionError("the responder's socket has gone")


def bulk(port: int, *options: object) -> tuple[int, dict[str, Any], str]:
    """Run the client to its end: status, its JSON, what it said."""
    client = peer.load("bulk", "--port", port, *options)
    stdout, stderr = client.communicate(timeout=peer.DEADLINE_S)
    return client.returncode, json.loads(stdout) if stdout else {}, stderr
