"""The kernel's own stamps of a socket's packets: SO_TIMESTAMPING."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from dataclasses import dataclass, field

SO_TIMESTAMPING = SCM_TIMESTAMPING = 37
MSG_ERRQUEUE = 0x2000
TX_SOFTWARE, RX_SOFTWARE, REPORT_SOFTWARE = 1 << 1, 1 << 3, 1 << 4
OPT_ID, TX_SCHED, OPT_TSONLY, OPT_ID_TCP = 1 << 7, 1 << 8, 1 << 11, 1 << 16
RECEIVED_ERRORS = {
    (socket.IPPROTO_IP, 11),  # IP_RECVERR
    (socket.IPPROTO_IPV6, 25),  # IPV6_RECVERR
}
SENT, SCHEDULED = 0, 1  # SCM_TSTAMP_SND, SCM_TSTAMP_SCHED

_CMSG_BYTES = 512


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME less CLOCK_MONOTONIC, from the closest pair of readings."""

    def sample() -> tuple[int, int]:
        before = time.monotonic_ns()
        real = time.time_ns()
        after = time.monotonic_ns()
        return after - before, real - (before + after) // 2

    return min(sample() for _ in range(500))[1]


def _software_stamp(data: bytes) -> int:
    seconds, nanoseconds = struct.unpack("qq", data[:16])
    return int(seconds * 1_000_000_000 + nanoseconds)


@dataclass
class Stamps:
    """Software stamps by message number, CLOCK_REALTIME in ns."""

    sched_ns: dict[int, int] = field(default_factory=dict)
    sent_ns: dict[int, int] = field(default_factory=dict)
    received_ns: list[int | None] = field(default_factory=list)


def stamp_sent(sender: socket.socket) -> None:
    """Have all that is sent from now on stamped at the qdisc and at the driver."""
    flags = TX_SCHED | TX_SOFTWARE | REPORT_SOFTWARE | OPT_ID | OPT_TSONLY
    if sender.type == socket.SOCK_STREAM:
        flags |= OPT_ID_TCP
    sender.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)


def stamp_received(receiver: socket.socket) -> None:
    """Have all that is received from now on stamped at its arrival."""
    flags = RX_SOFTWARE | REPORT_SOFTWARE
    receiver.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPING, flags)


def receive_stamped(receiver: socket.socket, stamps: Stamps, size: int) -> None:
    """Receive one message and its stamp; the first may come without."""
    data, ancillary, _, _ = receiver.recvmsg(size, _CMSG_BYTES)
    assert len(data) == size
    found = {kind: content for _, kind, content in ancillary}
    stamp = found.get(SCM_TIMESTAMPING)
    stamps.received_ns.append(_software_stamp(stamp) if stamp else None)


def collect_sent(sender: socket.socket, stamps: Stamps) -> None:
    """Take the stamps of sent messages from the error queue.

    A datagram is named by its number, from 0; in a stream it is the offset of
    the last byte, from 0.
    """
    with contextlib.suppress(BlockingIOError):
        while True:
            flags = MSG_ERRQUEUE | socket.MSG_DONTWAIT
            _, ancillary, _, _ = sender.recvmsg(1, _CMSG_BYTES, flags)
            found = {(level, kind): content for level, kind, content in ancillary}
            (key,) = found.keys() & RECEIVED_ERRORS
            _, _, _, _, _, what, number = struct.unpack("IBBBBII", found[key][:16])
            stamp = _software_stamp(found[socket.SOL_SOCKET, SCM_TIMESTAMPING])
            chosen = {SENT: stamps.sent_ns, SCHEDULED: stamps.sched_ns}[what]
            chosen[number] = stamp
