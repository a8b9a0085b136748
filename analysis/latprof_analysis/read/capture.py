"""Packet captures (pcap, pcapng): from a request to its answer, by their headers.

Of ICMP an echo request and the reply with its identifier and number. Of TCP a
ping-pong: from the last segment with payload that one end sent to the first with
payload of the other, where ends take turns; the one that begins asks. No payload is
read. Times are those of the capture: at the client a round trip, elsewhere from there.

A capture knows what was not answered only as far as it goes: requests of ICMP without
a reply are lost, unless they stand in its last second. Of TCP nothing is said of
losses.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from latprof_analysis.read.paths import opened
from latprof_analysis.read.result import (
    ReadError,
    Samples,
    Seen,
    Skipped,
    joined,
    losses_of,
    samples_of_file,
)

LATENCY = "from a request to its answer, by the headers of captured packets"
_MOST_PACKET = 256 << 10
_MOST_PORTS, _MOST_FLOWS = 1000, 1 << 16
_SYN, _SYN_ACK = 0x02, 0x12
_SEQUENCES, _AHEAD = 0xFFFFFFFF, 1 << 31
_SECOND_NS = 1_000_000_000
_LATEST_NS = 1 << 62
_PCAP = {
    b"\xd4\xc3\xb2\xa1": ("<", 1000),
    b"\xa1\xb2\xc3\xd4": (">", 1000),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
    b"\xa1\xb2\x3c\x4d": (">", 1),
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
# Bytes before the type of the network layer, and of that; None: the version says it.
_ETHERNET, _RAW, _SLL, _SLL2, _NULL = 1, (12, 101, 228, 229), 113, 276, (0, 108)
_VLANS = (0x8100, 0x88A8, 0x9100)
_IPV4, _IPV6 = 0x0800, 0x86DD
_ICMP, _TCP, _ICMP6 = 1, 6, 58
_ECHOES = {
    (_ICMP, 8): True,
    (_ICMP, 0): False,
    (_ICMP6, 128): True,
    (_ICMP6, 129): False,
}
_EXTENSIONS = (0, 43, 60)


class _Packet(NamedTuple):
    t_ns: int
    link: int
    data: bytes


class _Segment(NamedTuple):
    """What headers of IP say of a packet."""

    t_ns: int
    protocol: int
    ends: tuple[bytes, bytes]
    body: bytes
    length: int  # of the body on the wire


_End = tuple[bytes, int]


@dataclass
class _Flow:
    """A connection whose ends take turns; `asked_ns` is None once it was answered."""

    asks: _End
    asked_ns: int | None = None
    sent_up_to: dict[_End, int] = field(default_factory=dict)

    def is_new(self, end: _End, up_to: int) -> bool:
        """Whether a segment goes further than what an end had sent."""
        before = self.sent_up_to.get(end)
        ahead = 1 if before is None else (up_to - before) & _SEQUENCES
        if not 0 < ahead < _AHEAD:
            return False
        self.sent_up_to[end] = up_to
        return True


def matches(seen: Seen) -> bool:
    """Whether a file begins as a capture does."""
    return seen.start[:4] in _PCAP or seen.start.startswith(_PCAPNG)


def read_capture(path: Path) -> Samples:
    """Read a capture: ``kind`` is "ICMP echo" or "TCP answer from port N"."""
    skipped = Skipped(path)
    echoes, answers = _Echoes(), _Answers()
    last_ns = place = 0
    with opened(path) as file:
        try:
            for packet in _packets(file):
                place += 1
                last_ns = max(last_ns, packet.t_ns)
                segment = _segment(packet)
                if segment is None:
                    continue
                if segment.protocol == _TCP:
                    answers.add(segment)
                else:
                    echoes.add(segment)
        except (struct.error, ValueError, EOFError) as error:
            skipped.add(place + 1, f"the capture breaks off: {error}")
    parts = [*echoes.samples(path, last_ns), *answers.samples(path)]
    if not parts:
        why = (
            skipped.rows[0].why
            if skipped.rows
            else "no request with an answer is in it"
        )
        raise ReadError(path, why)
    found = joined(parts)
    found.skipped, found.skipped_rows = skipped.in_order(), skipped.count
    return found


def _exactly(file: BinaryIO, size: int) -> bytes:
    if not 0 <= size <= _MOST_PACKET:
        raise ValueError(f"a packet of {size} bytes")
    data = file.read(size)
    if len(data) < size:
        raise EOFError("its last packet is not whole")
    return data


def _packets(file: BinaryIO) -> Iterator[_Packet]:
    magic = file.read(4)
    if magic == _PCAPNG:
        yield from _of_pcapng(file)
        return
    order, unit_ns = _PCAP[magic]
    link = struct.unpack(f"{order}16xI", _exactly(file, 20))[0] & 0xFFFF
    while head := file.read(16):
        seconds, part, length, _ = struct.unpack(f"{order}IIII", head)
        data = _exactly(file, length)
        yield _Packet(seconds * _SECOND_NS + part * unit_ns, link, data)


def _of_pcapng(file: BinaryIO) -> Iterator[_Packet]:
    """Give the packets of a pcapng file, block by block."""
    order, interfaces = "<", list[tuple[int, int]]()
    magic = _PCAPNG
    while magic:
        size = file.read(4)
        if magic == _PCAPNG:
            marker = _exactly(file, 4)
            if marker not in _ORDERS:
                raise ValueError("a section without its order of bytes")
            order, interfaces = _ORDERS[marker], []
            _exactly(file, struct.unpack(f"{order}I", size)[0] - 12)
            magic = file.read(4)
            continue
        (length,) = struct.unpack(f"{order}I", size)
        body = _exactly(file, length - 8)
        (kind,) = struct.unpack(f"{order}I", magic)
        if kind == 1:
            interfaces.append(_interface(order, body))
        elif kind == 6:
            at, high, low, captured = struct.unpack_from(f"{order}IIII", body)
            if at >= len(interfaces):
                raise ValueError("a packet of an interface that is not described")
            link, per_second = interfaces[at]
            ticks = high << 32 | low
            t_ns = ticks * _SECOND_NS // per_second
            if t_ns > _LATEST_NS:
                raise ValueError("a packet of a time that no clock shows")
            yield _Packet(t_ns, link, body[20 : 20 + captured])
        magic = file.read(4)


def _interface(order: str, body: bytes) -> tuple[int, int]:
    """Return an interface's type of link and how many ticks make a second."""
    (link,) = struct.unpack_from(f"{order}H", body)
    at, per_second = 8, 10**6
    while at + 4 <= len(body) - 4:
        code, length = struct.unpack_from(f"{order}HH", body, at)
        if code == 9 and length:
            exponent = body[at + 4]
            base, power = (2, exponent & 0x7F) if exponent & 0x80 else (10, exponent)
            per_second = base ** min(power, 63)
        at += 4 + (length + 3) // 4 * 4
    return link, per_second


def _segment(packet: _Packet) -> _Segment | None:
    """Return what IP says of a packet of TCP or an echo; None of another."""
    data, link = packet.data, packet.link
    if link == _ETHERNET:
        at = 12
        while int.from_bytes(data[at : at + 2]) in _VLANS:
            at += 4
        data = data[at + 2 :]
    elif link == _SLL:
        data = data[16:]
    elif link == _SLL2:
        data = data[20:]
    elif link in _NULL:
        data = data[4:]
    elif link not in _RAW:
        raise ValueError(f"packets of link type {link}, which is not known")
    version = data[0] >> 4 if data else 0
    if version == 4 and len(data) >= 20:
        return _of_ipv4(packet.t_ns, data)
    return _of_ipv6(packet.t_ns, data) if version == 6 and len(data) >= 40 else None


def _of_ipv4(t_ns: int, data: bytes) -> _Segment | None:
    head = 4 * (data[0] & 15)
    length, flags = struct.unpack_from(">H2xH", data, 2)
    if flags & 0x1FFF or head < 20:  # a fragment that is not the first
        return None
    # 0 where the device was to cut it (TSO)
    length = (length or len(data)) - head
    ends = data[12:16], data[16:20]
    return _Segment(t_ns, data[9], ends, data[head:], length)


def _of_ipv6(t_ns: int, data: bytes) -> _Segment | None:
    length, protocol = struct.unpack_from(">HB", data, 4)
    at, length = 40, length or len(data) - 40
    while protocol in _EXTENSIONS and at + 2 <= len(data):
        size = 8 * (data[at + 1] + 1)
        protocol, at, length = data[at], at + size, length - size
    return _Segment(t_ns, protocol, (data[8:24], data[24:40]), data[at:], length)


@dataclass
class _Echoes:
    """Echo requests of ICMP, and their replies."""

    waiting: dict[tuple[object, ...], int] = field(default_factory=dict)
    sent_ns: array[int] = field(default_factory=lambda: array("q"))
    took_ns: array[float] = field(default_factory=lambda: array("d"))
    sizes: array[int] = field(default_factory=lambda: array("q"))

    def add(self, segment: _Segment) -> None:
        body = segment.body
        if len(body) < 8:
            return
        asks = _ECHOES.get((segment.protocol, body[0]))
        if asks is None:
            return
        source, target = segment.ends if asks else segment.ends[::-1]
        key = (source, target, body[4:8])
        if asks:
            self.waiting[key] = len(self.sent_ns)
            self.sent_ns.append(segment.t_ns)
            self.took_ns.append(np.nan)
            self.sizes.append(segment.length)
        elif (place := self.waiting.pop(key, None)) is not None:
            self.took_ns[place] = segment.t_ns - self.sent_ns[place]

    def samples(self, path: Path, last_ns: int) -> Iterator[Samples]:
        """Give the echoes, without those that the capture may not have waited for."""
        took, sent = np.array(self.took_ns), np.array(self.sent_ns)
        known = ~np.isnan(took) | (sent < last_ns - _SECOND_NS)
        # behind an answered one a reply would have been seen
        answered = np.flatnonzero(~np.isnan(took))
        if answered.size:
            known[: answered[-1]] = True
        if not known.any():
            return
        samples = samples_of_file(
            Skipped(path),
            "capture",
            {"latency": LATENCY, "reply_modes": {"ICMP echo": "echo"}},
            kind="ICMP echo",
            size_bytes=np.array(self.sizes)[known],
            latency_ns=np.maximum(took[known], 0),
            lost=np.isnan(took[known]),
        )
        samples.losses = losses_of(samples.frame)
        yield samples


@dataclass
class _Answers:
    """Answers of TCP's ends that take turns."""

    flows: dict[frozenset[_End], _Flow] = field(default_factory=dict)
    took_ns: dict[int, array[float]] = field(default_factory=dict)

    def add(self, segment: _Segment) -> None:
        """Take a segment: who opened a connection asks, or else who sends first."""
        body = segment.body
        if len(body) < 20:
            return
        ports = struct.unpack_from(">HH", body)
        here, there = zip(segment.ends, ports, strict=True)
        key = frozenset((here, there))
        size = segment.length - 4 * (body[12] >> 4)
        opens = body[13] & _SYN_ACK == _SYN
        begins = opens or (size > 0 and key not in self.flows)
        if begins and len(self.flows) < _MOST_FLOWS:
            self.flows[key] = _Flow(here)
        flow = self.flows.get(key)
        up_to = (int.from_bytes(body[4:8]) + size) & _SEQUENCES
        if flow is None or size <= 0 or not flow.is_new(here, up_to):
            return
        if here == flow.asks:
            flow.asked_ns = segment.t_ns
        elif flow.asked_ns is not None:
            took = self.took_ns.setdefault(here[1], array("d"))
            took.append(max(0, segment.t_ns - flow.asked_ns))
            flow.asked_ns = None

    def samples(self, path: Path) -> Iterator[Samples]:
        """Give the answers by the port that they came from."""
        for port, took in list(self.took_ns.items())[:_MOST_PORTS]:
            yield samples_of_file(
                Skipped(path),
                "capture",
                {"latency": LATENCY},
                kind=f"TCP answer from port {port}",
                size_bytes=None,
                latency_ns=np.array(took),
            )
