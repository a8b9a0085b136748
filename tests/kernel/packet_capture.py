"""What passes an interface, by a packet socket with the kernel's stamps."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from latprof_agent.lab.lab import Lab
from recording import socket_in
from timestamping import realtime_offset_ns

ETH_P_ALL = 3
PACKET_OUTGOING = 4
SO_TIMESTAMPNS = SCM_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
SO_ATTACH_FILTER = 26
TCPI_TOTAL_RETRANS = 100  # bytes into struct tcp_info


FIN, SYN, RST, ACK = 1, 2, 4, 16


@dataclass(frozen=True)
class Segment:
    """A TCP segment with payload; offsets count from the stream's first byte."""

    t_ns: int
    start: int
    end: int
    outgoing: bool


@dataclass(frozen=True)
class BareAck:
    """An ACK without payload; its number counts from the stream's first byte."""

    t_ns: int
    number: int
    outgoing: bool


def total_retransmits(sender: socket.socket) -> int:
    """What TCP_INFO says was sent again."""
    info = sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    return int(struct.unpack_from("I", info, TCPI_TOTAL_RETRANS)[0])


class _Header(NamedTuple):
    """What a TCP packet's headers say."""

    source: int
    destination: int
    sequence: int
    acknowledged: int
    payload_bytes: int
    flags: int


def _header(packet: bytes) -> _Header | None:
    """Read the headers of a packet; None: it is no TCP."""
    if packet[0] >> 4 == 4:
        header, total = (packet[0] & 15) * 4, int.from_bytes(packet[2:4], "big")
        protocol = packet[9]
    else:
        header, total = 40, 40 + int.from_bytes(packet[4:6], "big")
        protocol = packet[6]
    if protocol != socket.IPPROTO_TCP:
        return None
    *numbers, words, flags = struct.unpack("!HHIIBB", packet[header : header + 14])
    return _Header(*numbers, total - header - (words >> 4) * 4, flags)


class PacketCapture:
    """Packets of one end of a lab since it was made."""

    def __init__(self, lab: Lab, end: str, most_bytes: int = 0) -> None:
        """Open the socket; it must be before the connection begins.

        Of packets that are longer than `most_bytes` it gets nothing; 0: of none.
        """
        name = lab.netns_of(end)
        self._socket = socket_in(name, socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self._socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        if most_bytes:
            self._leave_out_above(most_bytes)
        self._socket.bind((lab.interface, ETH_P_ALL))
        self._socket.setblocking(False)
        self._offset_ns = realtime_offset_ns()

    def _leave_out_above(self, most_bytes: int) -> None:
        program = b"".join(
            struct.pack("HBBI", *instruction)
            for instruction in (
                (0x80, 0, 0, 0),  # ld len
                (0x25, 1, 0, most_bytes),  # jgt
                (0x06, 0, 0, 0xFFFF),  # ret: so many bytes of it
                (0x06, 0, 0, 0),
            )
        )
        kept = ctypes.create_string_buffer(program)
        attached = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(kept))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, attached)

    def segments(self, source_port: int) -> list[Segment]:
        """Take the segments with payload of one direction of one connection."""
        found, first = [], 0
        for t_ns, packet, outgoing in self._packets():
            if packet.source != source_port:
                continue
            if packet.flags & SYN:
                first = packet.sequence + 1
            if packet.payload_bytes > 0:
                start = (packet.sequence - first) % 2**32
                end = start + packet.payload_bytes
                found.append(Segment(t_ns, start, end, outgoing))
        return found

    def bare_acks(self, source_port: int) -> list[BareAck]:
        """Take the ACKs without payload for one direction of one connection."""
        found, first = [], 0
        for t_ns, packet, outgoing in self._packets():
            if packet.source == source_port and packet.flags & SYN:
                first = packet.sequence + 1
            if packet.destination != source_port or packet.payload_bytes:
                continue
            if packet.flags & (SYN | FIN | RST | ACK) == ACK:
                number = (packet.acknowledged - first) % 2**32
                found.append(BareAck(t_ns, number, outgoing))
        return found

    def clocks_ns(self) -> int:
        """How far its stamps may be off: CLOCK_REALTIME was slewed meanwhile."""
        return abs(realtime_offset_ns() - self._offset_ns)

    def _packets(self) -> Iterator[tuple[int, _Header, bool]]:
        """Take all of TCP, and end: when it passed, and whether it left."""
        with self._socket, contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, address = self._socket.recvmsg(120, 128)
                if packet := _header(data):
                    out = address[2] == PACKET_OUTGOING
                    yield self._stamp(ancillary), packet, out

    def _stamp(self, ancillary: list[tuple[int, int, bytes]]) -> int:
        content = next(c for _, kind, c in ancillary if kind == SCM_TIMESTAMPNS)
        seconds, nanoseconds = struct.unpack("qq", content[:16])
        return int(seconds * 1_000_000_000 + nanoseconds - self._offset_ns)
