"""The arithmetic of a shaper, and what tc counts: oracles for queueing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from dropper import run_tc
from latprof_agent.lab.lab import Lab

ETHERNET_BYTES = 14
IP_BYTES = {False: 20, True: 40}
UDP_BYTES = 8
TCP_BYTES = 32  # with timestamps
FRAGMENT_BYTES = {False: 0, True: 8}


@dataclass
class Bucket:
    """A token bucket that begins full; times in ns.

    TBF lets a packet go when the tokens cover it; HTB when the debt of those
    before it is paid, so one packet earlier.
    """

    kind: str
    rate_bps: int
    burst_bytes: int
    clock_ns: float = 0.0  # tokens were counted at
    tokens_bytes: float = -1.0

    def _fill(self, now_ns: float) -> None:
        gained = (now_ns - self.clock_ns) * self.rate_bps / 8e9
        if self.tokens_bytes < 0 and self.clock_ns == 0:
            gained = float(2 * self.burst_bytes)
        self.tokens_bytes = min(self.burst_bytes, self.tokens_bytes + gained)
        self.clock_ns = now_ns

    def depart(
        self, entered_ns: float, packet_bytes: float, left_ns: float = 0.0
    ) -> float:
        """Tell when a packet is due that entered behind all the others.

        `left_ns` is when it really left, if that was later: tokens came meanwhile.
        """
        self._fill(max(entered_ns, self.clock_ns))
        needed = packet_bytes if self.kind == "tbf" else 0
        short = max(0.0, needed - self.tokens_bytes)
        self._fill(self.clock_ns + short * 8e9 / self.rate_bps)
        due_ns = self.clock_ns
        self._fill(max(due_ns, left_ns))
        self.tokens_bytes -= packet_bytes
        return due_ns


def datagram_packets(size_bytes: int, mtu: int, ipv6: bool) -> list[int]:
    """Bytes on the wire of each packet of a datagram, fragments in order."""
    header = ETHERNET_BYTES + IP_BYTES[ipv6]
    left = size_bytes + UDP_BYTES
    if left + IP_BYTES[ipv6] <= mtu:
        return [header + left]
    header += FRAGMENT_BYTES[ipv6]
    # fragments begin at multiples of 8 bytes
    most = (mtu - IP_BYTES[ipv6] - FRAGMENT_BYTES[ipv6]) // 8 * 8
    sizes = [most] * ((left - 1) // most)
    return [header + part for part in [*sizes, left - sum(sizes)]]


def depart_all(
    bucket: Bucket, entered_ns: float, packets: Sequence[float], left_ns: float = 0.0
) -> float:
    """Tell when the last of these packets is due, which left at `left_ns`."""
    for size in packets[:-1]:
        bucket.depart(entered_ns, size)
    return bucket.depart(entered_ns, packets[-1], left_ns)


def tcp_header_bytes(ipv6: bool) -> int:
    """Bytes on the wire around the payload of each segment."""
    return ETHERNET_BYTES + IP_BYTES[ipv6] + TCP_BYTES


@dataclass(frozen=True)
class TcCount:
    """What `tc -s` says of the root qdisc."""

    packets: int
    bytes: int
    drops: int

    def __sub__(self, before: TcCount) -> TcCount:
        return TcCount(
            self.packets - before.packets,
            self.bytes - before.bytes,
            self.drops - before.drops,
        )


def _root(lab: Lab, end: str) -> dict[str, int]:
    said = run_tc(lab, end, *f"-s -j qdisc show dev {lab.interface} root".split())
    return next(q for q in json.loads(said) if q.get("root"))


def tc_count(lab: Lab, end: str = "a") -> TcCount:
    """Ask tc what the root qdisc of one end has sent and dropped."""
    root = _root(lab, end)
    return TcCount(root["packets"], root["bytes"], root["drops"])


def tc_backlog(lab: Lab, end: str = "a") -> int:
    """Ask tc how many packets wait at one end."""
    return _root(lab, end)["qlen"]
