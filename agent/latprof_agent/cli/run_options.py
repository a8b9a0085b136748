"""The options of `latprof run`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from latprof_analysis import units

from latprof_agent.cli import bulk_options, mesh_options, ops_options
from latprof_agent.cli.echo import DEFAULT_PORT
from latprof_agent.cli.host_option import HostPort, host_and_port
from latprof_agent.cli.presets import LISTED, add_preset
from latprof_agent.cli.sweep_options import add_sweep
from latprof_agent.values import story_above

DEFAULT_RATE_BPS = 100_000_000
DEFAULT_DELAY_NS = 1_000_000
DEFAULT_SECONDS = 6.0  # for a p99, of 1000 messages or more
ANY_CPU = "any"
# What each workload of latprof's own has of the options that not all have.
FOR_WORKLOADS = {
    "pingpong": (
        *("to", "secret_file", "think", "busy", "priority", "max_acks"),
        *("sizes", "reply", "wire", "nagle", "duration", "rounds", "warmup"),
        *("interval", "train", "train_gap", "poisson", "spin", "timeout"),
        *("client_cpu", "server_cpu", "pieces", "load"),
    ),
    "ops": (
        *ops_options.OWN,
        *("to", "secret_file", "rounds", "warmup", "client_cpu", "server_cpu"),
    ),
    "mesh": (
        *mesh_options.OWN,
        *("to", "secret_file"),
        *("sizes", "reply", "nagle", "warmup", "interval", "poisson", "spin"),
        "timeout",
    ),
    "bulk": (
        *bulk_options.OWN,
        *("to", "secret_file", "duration", "client_cpu", "server_cpu"),
    ),
}
FOR_GENERATOR = (
    "workload",
    *dict.fromkeys(name for own in FOR_WORKLOADS.values() for name in own),
)
FOR_LINK = (
    *("rate", "delay", "qdisc", "leaf", "burst", "queue", "loss", "loss_burst", "mtu"),
    *("ipv6", "no_offloads", "emulator", "congestion"),
)
FOR_LAB = (*FOR_LINK, "seed")
# What is the lab's, or its responder's.
NOT_WITH_TO = (
    *(name for name in FOR_LINK if name != "congestion"),
    *("server_cpu", "priority", "no_lab", "load", "hosts"),
)
# What is the lab's, where a store runs already.
NOT_WITH_STORES = (*FOR_LINK, "server_cpu")
FOR_TCP = ("nagle", "congestion")
FOR_UDP = ("datagram", "receive_buffer", "send_way", "receive_way")

FOR_ATTACHING = ("pid", "comm", "cgroup", "ports")

TEXT = """\
Send messages between two network namespaces joined by a link of known rate and
delay, and show where each of them spent its time, with the known figures beside
the measured ones. Or run a COMMAND, and show the same of its sockets. Or attach
to what runs already: to sockets of a process, a name, a control group, a port.

RATE is in bit/s (100mbit, 2gbit), TIME has a unit (250us, 5ms, 2s), BYTES may
have one (64, 16k, 1MiB), SHARE is 1% or 0.01.
"""
ATTACH = """\
Until --duration is over, Ctrl-C, or the processes of --pid have ended. Where
several of these are given, all must hold; each but --cgroup takes several
values, with commas or given again, of which one must. The other ends of TCP
connections on this host are watched, too, unless a NAT is between.
"""
EXAMPLES = """\
examples:
  latprof run                         # a link of 100 Mbit/s and 1 ms each way
  latprof run --rate 0 --delay 0      # two namespaces joined by plain veth
  latprof run --protocol udp --interval 2ms --spin  # 70 of 100 Mbit/s
  latprof run --train 16              # LogGP: L, o, g and G
  latprof run --qdisc tbf --rate 20mbit --protocol tcp
  latprof run --load tcp:4 --protocol tcp  # latency idle, and under load
  latprof run --loss 1% --protocol udp --sizes 64,1400  # a packet is a message
  latprof run --workload mesh --hosts 10 --interval 10ms --sizes 1024
  latprof run --server 'iperf3 -s -1' -- iperf3 -c {server} -t 2
  latprof run --no-lab --name curl -- curl http://127.0.0.1/
  latprof run --workload ops --payload-sizes 1k,1m  # redis beside the floor
  latprof run --workload bulk --protocol udp  # 1, 2, 4 and 8 channels
  latprof run --workload bulk --find-rate 0.1% --rate 1gbit --qdisc tbf
  latprof run --port 80 --duration 5s
  latprof run --comm curl --duration 5s
  latprof run --to 192.0.2.7 --secret-file secret  # `latprof echo` is there
  latprof run --workload bulk --to 192.0.2.7 --secret-file secret
  latprof run --story 5ms --duration 1  # then latprof story runs/latest
  latprof run --sweep rate=10mbit,100mbit --repeat 3 --duration 1s
  latprof run --preset clear --scale 0.01

Ctrl-C ends a run early and shows what was recorded until then; a second Ctrl-C
ends at once. Exit status: 0 done, 1 failed, 2 wrong usage.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all of them."""
    parser.usage = "latprof run [options] [-- COMMAND [ARG ...]]"
    parser.description = TEXT
    parser.epilog = EXAMPLES
    _add_messages(parser.add_argument_group("messages"))
    mesh_options.add_options(parser.add_argument_group("mesh", mesh_options.TEXT))
    _add_timing(parser.add_argument_group("timing"))
    ops_options.add_options(parser.add_argument_group("operations on stores"))
    bulk_options.add_options(parser.add_argument_group("bulk transfers"))
    _add_command(parser.add_argument_group("your own program"))
    _add_attach(parser.add_argument_group("attach to what runs already", ATTACH))
    _add_link(parser.add_argument_group("lab link, the same in both directions"))
    add_sweep(parser.add_argument_group("several runs"))
    add_preset(parser.add_argument_group("presets", LISTED))
    _add_output(parser.add_argument_group("recording and output"))
    parser.add_argument("words", nargs="*", metavar="COMMAND", help=argparse.SUPPRESS)
    parser.set_defaults(default_of=parser.get_default)


def first_given(options: argparse.Namespace, names: tuple[str, ...]) -> str:
    """Return the first of these options that is not as by default, or nothing."""
    given = (n for n in names if getattr(options, n) != options.default_of(n))
    return next((f"--{name.replace('_', '-')}" for name in given), "")


def _hosts_and_ports(text: str) -> tuple[HostPort, ...]:
    one = host_and_port(DEFAULT_PORT)
    return tuple(one(part.strip()) for part in text.split(","))


def _add_messages(group: Any) -> None:
    group.add_argument(
        "--workload",
        choices=[*FOR_WORKLOADS],
        default="pingpong",
        help="pingpong: requests and replies; ops: GET, SET, EXISTS and EVICT on "
        "stores; mesh: every host sends to every other; bulk: throughput and loss "
        "over channels (default: pingpong)",
    )
    group.add_argument(
        "--to",
        type=_hosts_and_ports,
        default=(),
        metavar="HOST[:PORT],...",
        help="send to `latprof echo` on that host, with --workload mesh on each of "
        "several, without a lab; this host's half is told, of ops with the floor "
        f"(default: in a lab; port: {DEFAULT_PORT})",
    )
    group.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="the secret that the hosts of --to have, too (default: none)",
    )
    group.add_argument(
        "--protocol",
        choices=["tcp", "udp", "both"],
        help="both: one after the other (default: both)",
    )
    group.add_argument(
        "--sizes",
        type=units.sizes,
        metavar="BYTES,...",
        help="each round sends each size once, in random order; 18 to 10000000 over "
        "tcp, to 65507 over udp (default: 18,256,1024,4096,16384,32768,65507)",
    )
    group.add_argument(
        "--reply",
        type=units.either(units.FULL, units.size),
        metavar="BYTES",
        help="bytes of a reply, or full: echo the request (default: full)",
    )
    group.add_argument(
        "--wire",
        choices=["latprof", "clear"],
        default="latprof",
        help="wire format (default: latprof)",
    )
    group.add_argument(
        "--nagle",
        action="store_true",
        help="leave Nagle's algorithm on (default: off, by TCP_NODELAY)",
    )
    group.add_argument(
        "--congestion",
        metavar="NAME",
        help="TCP congestion control of both ends, with --to of this (default: none)",
    )


_MOST_FLOWS = 64  # of a part of --load
_MOST_FLOWS_TOGETHER = 128
_DIRECTIONS = ("up", "down", "both")


def _loads(text: str) -> tuple[tuple[str, int, str, int], ...]:
    """Read --load: protocol, flows, direction, rate (0: none) of each."""
    found = tuple(_load(part.strip(), text) for part in text.split(","))
    together = sum(flows for _, flows, *_ in found)
    if together > _MOST_FLOWS_TOGETHER:
        raise argparse.ArgumentTypeError(
            f"must be at most {_MOST_FLOWS_TOGETHER} flows together, got {together} in "
            f"{text!r}"
        )
    return found


def _load(part: str, text: str) -> tuple[str, int, str, int]:
    found = re.fullmatch(r"(tcp|udp):(\d{1,4})(?::(\w+))?(?::([\w.]+))?", part)
    protocol, flows, direction, rate = found.groups() if found else ("", "0", "", "")
    if direction and direction not in _DIRECTIONS and not rate:
        direction, rate = "up", direction
    if (
        not 1 <= int(flows) <= _MOST_FLOWS
        or (direction or "up") not in _DIRECTIONS
        or (rate and protocol == "tcp")
    ):
        raise argparse.ArgumentTypeError(
            f"must be like tcp:4, tcp:4:down or udp:1:both:50mbit, 1 to {_MOST_FLOWS} "
            f"flows each, a rate for udp only, got {text!r}"
        )
    bps = units.within(units.rate, "1kbit", "1000gbit")(rate) if rate else 0
    return protocol, int(flows), direction or "up", bps


def _add_timing(group: Any) -> None:
    length = group.add_mutually_exclusive_group()
    length.add_argument(
        "--duration",
        type=units.within(units.duration_seconds, "1ms", "1000h"),
        metavar="TIME",
        help=f"per protocol (default: {DEFAULT_SECONDS:g}s), of each part of a bulk "
        "run (default: 3s; with --find-rate of the trials that confirm: 3 times "
        "--trial), or attached (default: until Ctrl-C); seconds without a unit; what "
        "is late is waited for until nothing came for a few seconds",
    )
    length.add_argument(
        "--rounds",
        type=units.within(units.count, "1", "1000000000"),
        metavar="N",
        help="measured rounds, instead of a duration; ops: of each operation of each "
        "size once (default: 10)",
    )
    group.add_argument(
        "--warmup",
        type=units.within(units.count, "0", "1000000000"),
        metavar="N",
        help="rounds before the measurement (default: 5; of ops 1)",
    )
    group.add_argument(
        "--interval",
        type=units.within(units.time_ns, "1ns", "60s"),
        default=0,
        metavar="TIME",
        help="open loop: a message every TIME whether replies came or not, latency "
        "from the intended send time (default: closed loop, each after a reply)",
    )
    group.add_argument(
        "--train",
        type=units.within(units.count, "2", "4096"),
        default=0,
        metavar="N",
        help="each round sends of each size a train of N messages back to back, too: "
        "they tell LogGP's L, o, g and G, and the rate of the link both ways; with "
        "--interval so often a train or a message (default: single messages only)",
    )
    group.add_argument(
        "--train-gap",
        type=units.within(units.time_ns, "1ns", "1s"),
        default=0,
        metavar="TIME",
        help="and a train of N messages TIME apart (default: none)",
    )
    group.add_argument(
        "--load",
        type=_loads,
        default=(),
        metavar="PROTOCOL:N[:DIRECTION][:RATE],...",
        help="then the same again beside N bulk flows of tcp or udp, up (as requests "
        "go), down or both, 1 to 64 each and 128 together; RATE, in each direction, is "
        "for udp (default: up, the link's rate): tcp:4:up,udp:1:down:20mbit; flows of "
        "tcp have --congestion",
    )
    group.add_argument(
        "--poisson",
        action="store_true",
        help="exponential gaps with mean --interval (default: fixed gaps)",
    )
    group.add_argument(
        "--max-acks",
        type=units.within(units.count, "1", "1000000"),
        default=0,
        metavar="N",
        help="wait while N messages have no reply yet; with --interval (default: wait "
        "for none)",
    )
    group.add_argument(
        "--think",
        type=units.within(units.time_ns, "0", "1s"),
        default=0,
        metavar="TIME",
        help="the responder works so long for each message before it makes the reply "
        "(default: 0)",
    )
    group.add_argument(
        "--busy",
        type=units.within(units.time_ns, "0", "1s"),
        default=0,
        metavar="TIME",
        help="a busy reader: the responder reads one message at a time, and works so "
        "long after its reply before it reads the next, which waits in the receive "
        "queue (default: 0)",
    )
    group.add_argument(
        "--priority",
        type=_nice,
        default=0,
        metavar="N",
        help="nice level of the responder, -20 (first) to 19 (last) (default: 0)",
    )
    group.add_argument(
        "--spin",
        action="store_true",
        help="busy-wait, for exact send times (default: sleep)",
    )
    group.add_argument(
        "--timeout",
        type=units.within(units.time_ns, "1ns", "60s"),
        default=0,
        metavar="TIME",
        help="until a datagram counts as lost (default: adapts to the round "
        "trip, 20 ms to 1 s)",
    )
    for end, what in (("client", "sender"), ("server", "responder")):
        group.add_argument(
            f"--{end}-cpu",
            type=units.either(ANY_CPU, units.within(units.count, "0", "8191")),
            metavar="N",
            help=f"CPU of the {what}, or any (default: in a closed loop one for both, "
            "or with --busy one for each; with --train one for each; else any)",
        )
    group.add_argument(
        "--seed",
        type=units.within(units.count, "0", str(2**63 - 1)),
        default=1,
        metavar="N",
        help="of random sizes, gaps and losses (default: 1)",
    )


def _nice(text: str) -> int:
    if not re.fullmatch(r"-?\d{1,2}", text) or not -20 <= int(text) <= 19:
        raise argparse.ArgumentTypeError(f"must be from -20 to 19, got {text!r}")
    return int(text)


def _add_command(group: Any) -> None:
    group.add_argument(
        "--server",
        default="",
        metavar="COMMAND",
        help="run this first, at the other end of the lab's link; {server} in COMMAND "
        "is its address",
    )
    group.add_argument(
        "--no-lab",
        action="store_true",
        help="run COMMAND on this host, without namespaces",
    )
    group.add_argument(
        "--user",
        metavar="NAME",
        help="run COMMAND and --server's as this user, a name or a number; root keeps "
        "root (default: whoever typed sudo, else whoever started latprof)",
    )


def _pids(text: str) -> tuple[int, ...]:
    words = text.replace(",", " ").split()  # pidof puts spaces between
    if not words or not all(re.fullmatch(r"[1-9]\d{0,6}", word) for word in words):
        raise argparse.ArgumentTypeError(f"must be numbers of processes, got {text!r}")
    return tuple(map(int, words))


def _comms(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(","))
    if not all(found):
        raise argparse.ArgumentTypeError(f"must be names, got {text!r}")
    return found


def _add_attach(group: Any) -> None:
    group.add_argument(
        "--pid",
        action="extend",
        type=_pids,
        default=[],
        metavar="PID,...",
        help="processes and all their descendants; sockets that they have or make "
        "(default: any)",
    )
    group.add_argument(
        "--comm",
        action="extend",
        type=_comms,
        default=[],
        metavar="NAME,...",
        help="processes of this name, or with such a thread, as in `ps -o comm`, and "
        "those that come later "
        "(default: any)",
    )
    group.add_argument(
        "--cgroup",
        default="",
        metavar="PATH",
        help="sockets that were made in this control group or below, e.g. "
        "system.slice/redis-server.service (default: any)",
    )
    port_help = (
        "sockets with one of these ports at either end; with a COMMAND: "
        "only those of its sockets (default: any)"
    )
    for name, told in (("--port", port_help), ("--ports", argparse.SUPPRESS)):
        group.add_argument(
            name,
            dest="ports",
            action="extend",
            type=units.ports,
            default=[],
            metavar="PORT,...",
            help=told,
        )


def _add_link(group: Any) -> None:
    group.add_argument(
        "--rate",
        type=units.rate,
        metavar="RATE",
        help="of the link; 0: no limit (default: 100mbit; of bulk 0)",
    )
    group.add_argument(
        "--delay",
        type=units.within(units.time_ns, "0", "60s"),
        metavar="TIME",
        help="one way (default: 1ms; none with --qdisc or --rate 0)",
    )
    group.add_argument(
        "--qdisc",
        choices=["tbf", "htb", "pfifo", "fq", "fq_codel"],
        help="queueing discipline at both ends (default: none)",
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
        help="of packets that the link loses; of messages of n packets 1-(1-SHARE)^n "
        "lose one or more (default: 0%%)",
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


def _name(text: str) -> str:
    if not re.fullmatch(r"\w[\w.+=@-]{0,99}", text) or text == "latest":
        raise argparse.ArgumentTypeError(
            f"must be letters, digits and -_.+=@, and not latest, got {text!r}"
        )
    return text


def _add_output(group: Any) -> None:
    group.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="new run folder (default: in runs/, where latest leads to the newest)",
    )
    group.add_argument(
        "--name",
        type=_name,
        metavar="NAME",
        help="of the run: its folder is runs/NAME, or runs/NAME-2 where that is taken; "
        "reports say it (default: DATE-TIME)",
    )
    group.add_argument(
        "--pieces",
        action="store_true",
        help="a row for each send call, also where a message took several, as large "
        "ones do with --interval (default: a row for each message)",
    )
    group.add_argument(
        "--no-recording",
        action="store_true",
        help="leave out the recording, from which `latprof rebuild` makes the tables "
        "again (default: kept, 10 to 20 bytes a record)",
    )
    group.add_argument(
        "--parquet",
        action="store_true",
        help="write the tables as Parquet, too (default: CSV only)",
    )
    group.add_argument(
        "--json",
        action="store_true",
        help="print the summary as JSON on stdout, all else on stderr",
    )
    group.add_argument(
        "-v",
        "--verbose",
        "--all",
        dest="all",
        action="store_true",
        help="show all that is known: each way with p90, p99.9, max and n, the fit's "
        "caveats, counters, costs and partial stamps (default: one screen)",
    )
    group.add_argument(
        "--quiet", action="store_true", help="no progress bar (default: on a terminal)"
    )
    group.add_argument(
        "--story",
        type=story_above,
        nargs="?",
        const=0,
        metavar="TIME",
        help="keep in a recorder in the kernel what CPUs do, and of messages that "
        "take as long tell why: `latprof story`; without TIME of those above the "
        "running p99.9 and 100 us, or 1 ms until 10,000 tell it (default: no recorder)",
    )
    group.add_argument(
        "--ring-bytes",
        type=units.ring_bytes,
        metavar="BYTES",
        help="ring buffers of each CPU, a power of two: so many bytes for each of "
        "messages' halves, flows, devices and packets on stacked devices, and a "
        "sixteenth for the rest (default: 4 MiB, less with more than 25 CPUs)",
    )
    group.add_argument(
        "--no-probes",
        action="store_true",
        help="the same run without probes, to see what they cost",
    )
