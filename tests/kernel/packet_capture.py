"""What passes an interface, by a packet socket with the kernel's stamps."""

from __future__ import annotations

import contextlib
import socket
import struct
from dataclasses import dataclass

from latprof_agent.lab.lab import Lab
from recording import socket_in
from timestamping import realtime_offset_ns

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_TIMESTAMPNS = SCM_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
TCPI_TOTAL_RETRANS = 100  # bytes into struct tcp_info


@dataclass(frozen=True)
class Segment:
    """A TCP segment with payload; offsets count from the stream's first byte."""

    t_ns: int
    start: int
    end: int
    outgoing: bool


def total_retransmits(sender: socket.socket) -> int:
    """What TCP_INFO says was sent again."""
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("I", info, TCPI_TOTAL_RETRANS)[0])


def _payload(packet: bytes) -> tuple[int, int, int, int]:
    """Source port, sequence number, payload bytes and flags of a TCP packet."""
    if packet[0] >> 4 == 4:
        header, total = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
        protocol = packet[9]
    else:
        header, total = 40, 40 + int.from_bytes(packet[4:6], "big")
        protocol = packet[6]
    if protocol != socket.IPPROTO_TCP:
        return 0, 0, 0, 0
    tcp = packet[header:]
    port, _, sequence, _, words, flags = struct.unpack("!HHIIBB", tcp[:14])
    return port, sequence, total - header - (words >> 4) * 4, flags


class PacketCapture:
    """Packets of one end of a lab since it was made."""

    def __init__(self, lab: Lab, end: str) -> None:
        """Open the socket; it must be before the connection begins."""
        name = lab.netns_of(end)
        self._socket = socket_in(name, socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._socket.bind((lab.interface, ETH_P_ALL))
        self._socket.setblocking(False)
        self._offset_ns = realtime_offset_ns()

    def segments(self, source_port: int) -> list[Segment]:
        """Take the segments with payload of one direction of one connection."""
        found, first = [], 0
        with self._socket, contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, address = self._socket.recvmsg(120, 128)
                port, sequence, size, flags = _payload(data)
                if port != source_port:
                    continue
                if flags & 2:  # SYN
                    first = sequence + 1
                if size > 0:
                    start = (sequence - first) % 2**32
                    t_ns = self._stamp(ancillary)
                    out = address[2] == PACKET_OUTGOING
                    found.append(Segment(t_ns, start, start + size, out))
        return found

    def _stamp(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        content = next(c for _, kind, c in ancillary if kind == SCM_TIMESTAMPNS)
        seconds, nanoseconds = struct.unpack("qq", content[:16])
        return int(seconds * 1_000_000_000 + nanoseconds - self._offset_ns)
