"""The options of `latprof run bulk`, and what they ask for."""

from __future__ import annotations

import argparse
from typing import Any

from latprof_analysis import units

from latprof_agent.cli.given_words import OldName

OWN = (
    *("channels", "datagram", "volume", "offer", "direction", "receive_buffer"),
    *("send_way", "receive_way", "find_rate", "trial", "probes"),
)
TEXT = """\
Send as much as goes, or what --offer says, over several channels at once, and show
throughput, loss, reordering and where datagrams were lost. Without probes, unless
--probes.
"""
_AS_FAST = "max"


def add_options(group: Any) -> None:
    """Add them."""
    group.add_argument(
        "--channels",
        type=units.listed(units.within(units.count, "1", "64")),
        metavar="N,...",
        help="sockets at each end, 1 to 64; each number is a part of the run, in "
        "random order (default: 1,2,4,8)",
    )
    group.add_argument(
        "--datagram",
        type=units.within(units.size, "24", "65507"),
        default=1400,
        metavar="BYTES",
        help="payload of each over udp; it must fit into a packet (default: 1400)",
    )
    group.add_argument(
        "--volume",
        type=units.within(units.size, "1", "1000000g"),
        metavar="BYTES",
        help="to send in each part and direction, all channels together, instead of "
        "a duration (default: for 3s)",
    )
    group.add_argument(
        "--offer",
        type=units.either(_AS_FAST, units.within(units.rate, "1kbit", "1000gbit")),
        default=_AS_FAST,
        metavar="RATE",
        help="of payload that all channels together send, or max: as fast as it goes "
        "(default: max)",
    )
    group.add_argument(
        "--direction",
        choices=["up", "down", "both"],
        default="up",
        help="up: from the client to the server (default: up)",
    )
    group.add_argument(
        "--receive-buffer",
        type=units.within(units.size, "1024", "256MiB"),
        metavar="BYTES",
        help="SO_RCVBUF of udp receivers, 1024 to 256MiB (default: the system's)",
    )
    group.add_argument(
        "--send-way",
        choices=["auto", "send", "sendmmsg", "gso"],
        help="one datagram in a call, many in a call, or many in a packet; auto: the "
        "fastest (default: auto on a bare link, else, as with --to, sendmmsg, so that "
        "each packet that is dropped is one datagram)",
    )
    group.add_argument(
        "--receive-way",
        choices=["auto", "recv", "recvmmsg", "gro"],
        help="the same of receivers (default: auto on a bare link, else recvmmsg)",
    )
    group.add_argument(
        "--find-rate",
        type=units.within(units.share, "0%", "50%"),
        metavar="SHARE",
        help="of udp: find the highest rate that loses at most so much, by trials of "
        "--trial, and confirm it by longer ones of --duration, 3 times --trial unless "
        "given (RFC 2544: 60s) (default: send at --offer)",
    )
    group.add_argument(
        "--trial",
        type=units.within(units.duration_seconds, "100ms", "1h"),
        metavar="TIME",
        help="of --find-rate: length of a trial; what a queue stores counts for less "
        "in a longer one (default: 2s)",
    )
    group.add_argument(
        "--probes",
        action="store_true",
        help="record each message, too, which costs throughput (default: no probes)",
    )
    group.add_argument(
        "--record",
        dest="probes",
        action=OldName,
        new="--probes",
        nargs=0,
        default=False,
    )


def plan_of(
    options: argparse.Namespace, protocols: tuple[str, ...], **responder: Any
) -> Any:
    """Make the plan; raises UsageError where options contradict each other.

    `responder`: where it is, if it is not the lab's.
    """
    from latprof_agent.workload import bulk
    from latprof_agent.workload.remote_bulk import RemoteBulkPlan

    shaped = options.rate or options.delay or options.loss or options.qdisc
    exact = shaped or options.emulator == "always" or options.probes or responder
    search = options.find_rate is not None
    _check(options, protocols)
    trial_seconds = options.trial or bulk.TRIAL_SECONDS
    confirm_seconds = bulk.CONFIRM_TIMES * trial_seconds
    default_seconds = confirm_seconds if search else bulk.DEFAULT_SECONDS
    seconds = options.duration or (0.0 if options.volume else default_seconds)
    _check_trials(options, trial_seconds)
    kind, where = bulk.BulkPlan, {}
    if responder:
        kind, where = RemoteBulkPlan, {**responder, "congestion": options.congestion}
    return kind(
        protocols=("udp",) if search else protocols,
        channels=options.channels or bulk.DEFAULT_CHANNELS,
        datagram_bytes=options.datagram,
        volume_bytes=options.volume or 0,
        duration_seconds=seconds,
        offer_bps=0 if options.offer == _AS_FAST else options.offer,
        direction=options.direction,
        receive_buffer_bytes=options.receive_buffer or 0,
        send_way=options.send_way or ("sendmmsg" if exact else "auto"),
        receive_way=options.receive_way or ("recvmmsg" if exact else "auto"),
        find_rate=options.find_rate,
        trial_seconds=trial_seconds,
        client_cpu=_cpu(options.client_cpu),
        server_cpu=_cpu(options.server_cpu),
        seed=options.seed,
        **where,
    )


def _check(options: argparse.Namespace, protocols: tuple[str, ...]) -> None:
    from latprof_agent.errors import UsageError
    from latprof_agent.workload.bulk import longest_datagram

    most = longest_datagram(options.mtu, ipv6=options.ipv6)
    search = options.find_rate is not None
    for wrong, text in (
        (
            # what leads to another host is looked at there
            "udp" in protocols and not options.to and options.datagram > most,
            f"--datagram must be at most {most} bytes, what a packet of --mtu "
            f"{options.mtu} holds, got {options.datagram}",
        ),
        (search and "udp" not in protocols, "--find-rate: is of udp, not of tcp"),
    ):
        if wrong:
            raise UsageError(f"{text}; see latprof run --help")


def _check_trials(options: argparse.Namespace, trial_seconds: float) -> None:
    from latprof_agent.errors import UsageError

    searches = options.find_rate is not None
    if searches and options.duration and options.duration < trial_seconds:
        raise UsageError(
            f"--duration must be at least --trial ({trial_seconds:g}s), since it "
            f"confirms the rate, got {options.duration:g}s; see latprof run --help"
        )


def _cpu(asked: int | str | None) -> int | None:
    return asked if isinstance(asked, int) else None
