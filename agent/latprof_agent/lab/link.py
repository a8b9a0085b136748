"""What a lab's link shall be, and what is known of it from that alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from latprof_agent.errors import LabError, UsageError

LinkKind = Literal["veth", "emulator", "netem"]

QDISCS = ("tbf", "htb", "pfifo", "fq", "fq_codel")
SHAPERS = ("tbf", "htb")
LEAVES = ("pfifo", "codel", "fq_codel")

ETHERNET_HEADER_BYTES = 14
_IP_HEADER_BYTES = {False: 20, True: 40}
_TCP_HEADER_BYTES = 20 + 12  # with timestamps
_IPV6_FRAGMENT_HEADER_BYTES = 8

_IPV6_MTU_MIN = 1280
_MTU_RANGE_BYTES = (68, 65535)
_RATE_MIN_BPS = 1000
_RATE_MAX_BPS = 10**12
_SHAPER_RATE_MAX_BPS = 32 * 10**9  # pyroute2 passes 32 bits of bytes/s to the kernel
_BURST_MAX_S = 100.0  # the kernel counts 64 ns ticks in 32 bits
_DELAY_MAX_NS = 60 * 10**9
_QUEUE_MAX_BYTES = 256 << 20


def _require(holds: bool, option: str, rule: str, value: object) -> None:
    if not holds:
        raise UsageError(f"{option} must be {rule}, got {value}")


@dataclass(frozen=True)
class LinkSpec:
    """One link, the same in both directions; zero or None: not asked for.

    `qdisc` shapes or queues at the egress of both ends. Without it a rate is that
    of a token bucket on veth and netem, and of a serialising link in the emulator.
    `leaf` is the queue below a shaper; without it a shaper's own, which is a FIFO
    bounded in bytes (tbf) or packets (htb).
    Between the hosts of a lab of more than two are two such links, each of this
    rate and queue; delay and loss are those from host to host.
    `emulator_options` are further options of latprof-link's, for tests.
    """

    rate_bps: int = 0
    burst_bytes: int | None = None
    qdisc: str | None = None
    leaf: str | None = None
    delay_ns: int = 0
    loss: float = 0.0
    loss_burst: float = 0.0
    queue_bytes: int | None = None
    mtu: int = 1500
    offloads: bool = True
    ipv6: bool = False
    congestion: str | None = None
    emulator: Literal["auto", "always", "never"] = "auto"
    seed: int = 1
    emulator_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what cannot be, naming the option, the rule and the value."""
        self._check_packets()
        self._check_shaping()
        self._check_path()

    def _check_packets(self) -> None:
        low, high = _MTU_RANGE_BYTES
        rule = f"from {low} to {high} bytes"
        _require(low <= self.mtu <= high, "--mtu", rule, self.mtu)
        if self.ipv6:
            rule = f"at least {_IPV6_MTU_MIN} bytes for IPv6"
            _require(self.mtu >= _IPV6_MTU_MIN, "--mtu", rule, self.mtu)
        if self.congestion is not None:
            plain = self.congestion.replace("_", "").replace("-", "").isalnum()
            rule = "the name of a congestion control, as in cubic"
            _require(plain, "--congestion", rule, repr(self.congestion))

    def _check_shaping(self) -> None:
        rate, qdisc, burst = self.rate_bps, self.qdisc, self.burst_bytes
        rule = f"0 (no limit) or from {_RATE_MIN_BPS} to {_RATE_MAX_BPS} bit/s"
        _require(
            rate == 0 or _RATE_MIN_BPS <= rate <= _RATE_MAX_BPS, "--rate", rule, rate
        )
        rule = "one of " + ", ".join(QDISCS)
        _require(qdisc is None or qdisc in QDISCS, "--qdisc", rule, qdisc)
        if qdisc in SHAPERS and not rate:
            raise UsageError(f"--qdisc {qdisc} needs --rate")
        rule = "one of " + ", ".join(LEAVES)
        _require(self.leaf is None or self.leaf in LEAVES, "--leaf", rule, self.leaf)
        if self.leaf and qdisc not in SHAPERS:
            raise UsageError("--leaf needs a shaper above it: --qdisc tbf or htb")
        if qdisc == "fq" and rate:
            raise UsageError("--qdisc fq excludes --rate: it paces flows, not links")
        if burst is not None:
            if not rate:
                raise UsageError("--burst needs --rate")
            low, high = self.packet_bytes("veth"), int(rate / 8 * _BURST_MAX_S)
            rule = f"from {low} (one packet) to {high} bytes ({_BURST_MAX_S:g} s)"
            _require(low <= burst <= high, "--burst", rule, burst)
        if self.queue_bytes is not None:
            low, high = self.packet_bytes("veth"), _QUEUE_MAX_BYTES
            rule = f"from {low} (one packet) to {high} bytes"
            _require(low <= self.queue_bytes <= high, "--queue", rule, self.queue_bytes)

    def _check_path(self) -> None:
        rule = f"from 0 to {_DELAY_MAX_NS} ns"
        _require(0 <= self.delay_ns <= _DELAY_MAX_NS, "--delay", rule, self.delay_ns)
        _require(0 <= self.loss < 1, "--loss", "from 0 to below 1", self.loss)
        if self.loss_burst:
            low = max(1.0, self.loss / (1 - self.loss))
            rule = f"at least {low:g} packets at a loss of {self.loss:g}"
            burst = self.loss_burst
            _require(burst >= low and burst < math.inf, "--loss-burst", rule, burst)
        choices = ("auto", "always", "never")
        rule = "one of " + ", ".join(choices)
        _require(self.emulator in choices, "--emulator", rule, self.emulator)
        if self.emulator == "never" and self._only_emulator:
            raise UsageError(
                "--emulator never excludes --loss-burst and the emulator's options"
            )

    @property
    def _only_emulator(self) -> bool:
        # pyroute2 cannot give netem a list or a model.
        return bool(self.loss_burst or self.emulator_options)

    @property
    def has_path(self) -> bool:
        """Say if packets shall be delayed or lost, which no veth does."""
        return bool(self.delay_ns or self.loss or self._only_emulator)

    def kind(self, kernel_has_netem: bool) -> LinkKind:
        """Choose what makes the link; LabError where nothing can.

        A rate with a delay, and no qdisc asked for, is a serialising link: the
        emulator's, where a token bucket below netem would let bursts pass.
        """
        if self.emulator == "always" or self._only_emulator:
            return "emulator"
        if not self.has_path:
            return "veth"
        if self.emulator == "never" and not kernel_has_netem:
            raise LabError(
                "cannot delay or lose packets: this kernel has no netem; load"
                " sch_netem, or allow latprof's own link emulator"
            )
        serialises = self.rate_bps and self.qdisc is None
        if kernel_has_netem and (self.emulator == "never" or not serialises):
            return "netem"
        return "emulator"

    def shaper(self, kind: LinkKind) -> str | None:
        """Name the qdisc that holds the rate, if a qdisc does."""
        if self.qdisc in SHAPERS:
            return self.qdisc
        if self.rate_bps and (kind != "emulator" or self.qdisc is not None):
            return "tbf"
        return None

    @property
    def queue_kind(self) -> str | None:
        """Name the qdisc to be set that holds what waits, if any is.

        Below a shaper it is its leaf; the one that tbf begins with is not named.
        """
        if self.qdisc in SHAPERS:
            return self.leaf or {"tbf": None, "htb": "pfifo"}[self.qdisc]
        return self.qdisc

    def burst(self) -> int:
        """Bytes of the token bucket: asked for, or 2 ms, at least 32 KiB."""
        if self.burst_bytes is not None:
            return self.burst_bytes
        # Tokens above the burst are lost while the kernel's timer is late.
        return max(32768, self.rate_bps // 8 // 500, self.packet_bytes("veth"))

    def queue(self) -> int:
        """Bytes of the queue before the rate: asked for, or 100 ms of it."""
        if self.queue_bytes is not None:
            return self.queue_bytes
        least = 64 * self.packet_bytes("veth")  # a datagram of 64 KB at any MTU
        return min(max(self.rate_bps // 8 // 10, least, 1 << 17), _QUEUE_MAX_BYTES)

    def packet_bytes(self, kind: LinkKind) -> int:
        """Bytes that a full packet counts on the link."""
        return self.mtu + (0 if kind == "emulator" else ETHERNET_HEADER_BYTES)

    def known(self, kind: LinkKind, hosts: int = 2) -> dict[str, object]:
        """Say what is known of one direction before anything is measured.

        Delay and loss are those from host to host; `links` says how many links,
        each of this rate and queue, are between two hosts where that is not one.

        Goodputs are those of full packets: TCP with timestamps, UDP datagrams
        that are large against the MTU.
        """
        shaper, full = self.shaper(kind), self.packet_bytes(kind)
        ip = _IP_HEADER_BYTES[self.ipv6]
        tcp_bytes = self.mtu - ip - _TCP_HEADER_BYTES
        fragment = self.mtu - ip - (_IPV6_FRAGMENT_HEADER_BYTES if self.ipv6 else 0)
        # Fragments begin at multiples of 8 bytes.
        udp_full = full - fragment % 8
        udp_bytes = fragment - fragment % 8
        rate = self.rate_bps
        many = {"hosts": hosts, "links": 2} if hosts > 2 else {}
        leaf = {"leaf": self.leaf} if self.leaf else {}
        return {
            "kind": kind,
            **many,
            **leaf,
            "rate_bps": rate or None,
            "rate_is_token_bucket": shaper is not None,
            "burst_bytes": self.burst() if shaper else None,
            "queue_bytes": self.queue() if rate else None,
            "qdisc": self.qdisc or shaper,
            "delay_ns": self.delay_ns,
            "loss": self.loss,
            "mtu_bytes": self.mtu,
            "link_header_bytes": full - self.mtu,
            "tcp_goodput_bps": rate * tcp_bytes // full if rate else None,
            "udp_goodput_bps": rate * udp_bytes // udp_full if rate else None,
        }
