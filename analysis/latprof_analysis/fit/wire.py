"""Bytes on the wire: of a message, and of all that crosses while a delay lasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.estimates import ReplyMode
from latprof_analysis.fit.rounds import Floats

_IP_HEADER_BYTES = {4: 20, 6: 40}
_IPV6_FRAGMENT_HEADER_BYTES = 8
_TCP_HEADER_BYTES = 20
_TCP_TIMESTAMPS_BYTES = 12
_UDP_HEADER_BYTES = 8
# What any path carries in one packet: IPv6's least MTU less headers and TCP's times.
_ALWAYS_ONE_PACKET_BYTES = 1280 - 40 - 32
# The bytes of a fragment, but for the last, are a multiple of this (RFC 791).
_FRAGMENT_UNIT_BYTES = 8


@dataclass(frozen=True)
class Packets:
    """How messages are cut into packets, and what is added to each.

    Bytes are those of the IP packet; add a link's header to `overhead_bytes` to
    count it too. Without arguments: a wire that adds nothing.

    Parameters
    ----------
    mss_bytes : int or None
        Bytes of the message in one packet at most; None: one packet takes all.
    overhead_bytes : int
        Header bytes of each packet.
    message_bytes : int
        Bytes added once to a message before it is cut: UDP's header.

    Examples
    --------
    >>> Packets.tcp(mtu_bytes=1500)
    Packets(mss_bytes=1448, overhead_bytes=52, message_bytes=0)
    >>> Packets.tcp(mtu_bytes=1500).wire_bytes([18, 1448, 1449])
    array([  70., 1500., 1553.])
    >>> Packets.udp(mtu_bytes=1500).wire_bytes([18, 1472, 1473])
    array([  46., 1500., 1521.])
    """

    mss_bytes: int | None = None
    overhead_bytes: int = 0
    message_bytes: int = 0

    def __post_init__(self) -> None:
        if self.mss_bytes is not None and self.mss_bytes < 1:
            raise ValueError(f"mss_bytes must be 1 or more, got {self.mss_bytes}")
        for name in ("overhead_bytes", "message_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)}")

    @classmethod
    def tcp(
        cls, mtu_bytes: int = 1500, ip_version: int = 4, timestamps: bool = True
    ) -> Packets:
        """Return TCP's packets on a path of this MTU."""
        overhead = _ip_header(ip_version) + _TCP_HEADER_BYTES
        overhead += _TCP_TIMESTAMPS_BYTES if timestamps else 0
        return cls(_room(mtu_bytes, overhead), overhead)

    @classmethod
    def udp(cls, mtu_bytes: int = 1500, ip_version: int = 4) -> Packets:
        """Return UDP's packets: a datagram above the MTU travels in fragments.

        The fragment header of IPv6 is counted in datagrams of one packet too,
        which do not have it.
        """
        overhead = _ip_header(ip_version)
        overhead += _IPV6_FRAGMENT_HEADER_BYTES if ip_version == 6 else 0
        room = _room(mtu_bytes, overhead)
        return cls(room - room % _FRAGMENT_UNIT_BYTES, overhead, _UDP_HEADER_BYTES)

    def wire_bytes(self, size_bytes: ArrayLike) -> NDArray[np.float64]:
        """Return the bytes on the wire of messages of these sizes."""
        carried = np.asarray(size_bytes, dtype=np.float64) + self.message_bytes
        return carried + self.packets(size_bytes) * self.overhead_bytes

    def longest_bytes(self, size_bytes: ArrayLike) -> NDArray[np.float64]:
        """Return the bytes of the longest packet of messages of these sizes.

        >>> Packets.udp(mtu_bytes=1500).longest_bytes([18, 1472, 9000])
        array([  46., 1500., 1500.])
        """
        carried = np.asarray(size_bytes, dtype=np.float64) + self.message_bytes
        return np.minimum(carried, self.mss_bytes or np.inf) + self.overhead_bytes

    def packets(self, size_bytes: ArrayLike) -> NDArray[np.float64]:
        """Return in how many packets messages of these sizes go."""
        carried = np.asarray(size_bytes, dtype=np.float64) + self.message_bytes
        return np.ceil(carried / (self.mss_bytes or np.inf)).clip(1)

    def say_packets(self, size_bytes: ArrayLike) -> bool:
        """Return whether it is known in how many packets messages of these sizes go.

        >>> Packets().say_packets([64, 1024]), Packets().say_packets([64, 9000])
        (True, False)
        """
        longest = float(np.max(size_bytes))
        return self.mss_bytes is not None or longest <= _ALWAYS_ONE_PACKET_BYTES

    @property
    def payload_share(self) -> float:
        """Bytes of payload in a byte on the wire, of a long message."""
        if self.mss_bytes is None:
            return 1.0
        return self.mss_bytes / (self.mss_bytes + self.overhead_bytes)


def _ip_header(version: int) -> int:
    if version not in _IP_HEADER_BYTES:
        raise ValueError(f"ip_version must be 4 or 6, got {version}")
    return _IP_HEADER_BYTES[version]


def _room(mtu_bytes: int, overhead_bytes: int) -> int:
    if mtu_bytes <= overhead_bytes:
        raise ValueError(
            f"mtu_bytes must be more than the headers' {overhead_bytes},"
            f" got {mtu_bytes}"
        )
    return mtu_bytes - overhead_bytes


@dataclass(frozen=True)
class Crossing:
    """Of messages of each size, and of their replies where the delay holds them."""

    wire_bytes: Floats  # shape (k,), headers are counted
    packets: Floats  # shape (k,)
    cut: Packets  # how the messages are cut

    @classmethod
    def one_way(cls, size_bytes: Floats, cut: Packets) -> Crossing:
        """Return what crosses in one direction."""
        return cls(cut.wire_bytes(size_bytes), cut.packets(size_bytes), cut)

    @classmethod
    def round_trip(
        cls, size_bytes: Floats, cut: Packets, reply_mode: ReplyMode
    ) -> Crossing:
        """Return what crosses until the reply is there."""
        request = cls.one_way(size_bytes, cut)
        if reply_mode == "echo":
            return cls(2 * request.wire_bytes, 2 * request.packets, cut)
        wire_bytes = request.wire_bytes + cut.wire_bytes(reply_mode)
        return cls(wire_bytes, request.packets + cut.packets(reply_mode), cut)
