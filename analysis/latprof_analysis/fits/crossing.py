"""What crosses the link while a delay lasts: bytes on the wire, and packets."""

from __future__ import annotations

from dataclasses import dataclass

from latprof_analysis.fits.fit_result import ReplyMode
from latprof_analysis.fits.rounds import Floats
from latprof_analysis.wire import Packets


@dataclass(frozen=True)
class Crossing:
    """Of messages of each size, and of their replies where the delay holds them.

    Attributes
    ----------
    wire_bytes, packets : ndarray, shape (k,)
        Headers are counted.
    cut : Packets
        How the messages are cut.
    """

    wire_bytes: Floats
    packets: Floats
    cut: Packets

    @classmethod
    def one_way(cls, size_bytes: Floats, cut: Packets) -> Crossing:
        """Return what crosses in one direction."""
        return cls(cut.wire_bytes(size_bytes), cut.packets(size_bytes), cut)

    @classmethod
    def round_trip(
        cls, size_bytes: Floats, cut: Packets, reply_mode: ReplyMode
    ) -> Crossing:
        """Return what crosses until the reply is there.

        Examples
        --------
        >>> import numpy as np
        >>> both = Crossing.round_trip(np.array([1000, 2000]), Packets.tcp(), 100)
        >>> both.wire_bytes, both.packets
        (array([1204., 2256.]), array([2., 3.]))
        """
        request = cls.one_way(size_bytes, cut)
        if reply_mode == "echo":
            return cls(2 * request.wire_bytes, 2 * request.packets, cut)
        wire_bytes = request.wire_bytes + cut.wire_bytes(reply_mode)
        return cls(wire_bytes, request.packets + cut.packets(reply_mode), cut)
