"""The options of the lab's link, and what they go with."""

from __future__ import annotations

from typing import Any

from latprof_analysis import units

FOR_LINK = (
    *("rate", "delay", "qdisc", "leaf", "burst", "queue", "loss", "loss_burst", "mtu"),
    *("ipv6", "no_offloads", "emulator", "congestion"),
)
FOR_LAB = (*FOR_LINK, "seed")


def add_link(group: Any, *, bare: bool = False) -> None:
    """Add them; `bare`: neither rate nor delay unless given."""
    group.add_argument(
        "--rate",
        type=units.rate,
        metavar="RATE",
        help=f"0: no limit (default: {0 if bare else '100mbit'})",
    )
    group.add_argument(
        "--delay",
        type=units.within(units.time_ns, "0", "60s"),
        metavar="TIME",
        help=f"one way (default: {0 if bare else '1ms; 0 with --qdisc, --rate 0'})",
    )
    group.add_argument(
        "--qdisc",
        choices=["tbf", "htb", "pfifo", "fq", "fq_codel"],
        help="at both ends (default: none)",
    )
    group.add_argument(
        "--leaf",
        choices=["pfifo", "codel", "fq_codel"],
        help="queue below the shaper of --qdisc tbf or htb (default: a FIFO, tbf's in "
        "bytes, htb's in packets)",
    )
    group.add_argument(
        "--burst",
        type=units.size,
        metavar="BYTES",
        help="token bucket size (default: 2 ms of the rate, at least 32 KiB)",
    )
    group.add_argument(
        "--queue",
        type=units.size,
        metavar="BYTES",
        help="queue before the link (default: 100 ms of its rate, at least 128 KiB)",
    )
    group.add_argument(
        "--loss",
        type=units.within(units.share, "0%", "99.9%"),
        default=0.0,
        metavar="SHARE",
        help="of packets; of messages of n packets 1-(1-SHARE)^n lose one or more "
        "(default: 0%%)",
    )
    group.add_argument(
        "--loss-burst",
        type=units.within(units.number, "0", "1000000"),
        default=0.0,
        metavar="N",
        help="mean packets in a burst of losses (default: independent losses)",
    )
    group.add_argument(
        "--mtu",
        type=units.within(units.size, "68", "65535"),
        default=1500,
        metavar="BYTES",
        help="(default: 1500)",
    )
    group.add_argument("--ipv6", action="store_true", help="(default: IPv4)")
    group.add_argument(
        "--no-offloads",
        action="store_true",
        help="switch GSO, TSO and GRO off (default: on)",
    )
    group.add_argument(
        "--emulator",
        choices=["auto", "always", "never"],
        default="auto",
        help="link emulator of latprof; auto: for a rate with delay or loss and no "
        "--qdisc, and where the kernel has no netem (default: auto)",
    )
