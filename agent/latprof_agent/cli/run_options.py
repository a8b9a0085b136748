"""The options of `latprof run`."""

from __future__ import annotations

import argparse
import re
from functools import partial
from pathlib import Path
from typing import Any

from latprof_analysis import units

from latprof_agent.cli import bulk_options, mesh_options, ops_options
from latprof_agent.cli.echo import DEFAULT_PORT
from latprof_agent.cli.filter_options import add_filter_options
from latprof_agent.cli.host_option import HostPort, host_and_port, ssh_hosts
from latprof_agent.cli.lab_options import add_link
from latprof_agent.cli.presets import add_preset
from latprof_agent.cli.run_forms import (
    ATTACH,
    COMMAND,
    FORMS,
    RARE,
    WITHOUT_NAME,
    Group,
    presets_of,
    where_else,
)
from latprof_agent.cli.sweep_options import add_sweep
from latprof_agent.values import story_above

DEFAULT_RATE_BPS = 100_000_000
DEFAULT_DELAY_NS = 1_000_000
DEFAULT_SECONDS = 6.0  # for a p99, of 1000 messages or more
ANY_CPU = "any"
END = """
Ctrl-C ends a run early, with its summary; a second one ends at once. Exit
status: 0 done, 1 failed, 2 wrong usage.
"""
UNITS = """
RATE is like 100mbit, TIME like 250us or 5s, BYTES like 64 or 16k, SHARE 1%.
"""


def add_options(parser: Any, form: str = WITHOUT_NAME) -> None:
    """Add those of one form of the command, else of all that have no name."""
    one = FORMS[form]
    group = partial(Group, parser, one.options)
    parser.usage = one.usage
    parser.description = one.text + UNITS
    parser.epilog = (
        "\n".join(["examples:", *(f"  {e}" for e in one.examples)]) + "\n" + END
    )
    if form == ATTACH:
        add_filter_options(parser, "one of these is needed")
    _add_messages(group("messages"), form)
    mesh_options.add_options(group("mesh"))
    _add_timing(group("timing"), form)
    ops_options.add_options(group("operations"))
    bulk_options.add_options(group("transfers"))
    _add_hosts(group("other hosts"))
    _add_command(group("the program"))
    add_link(group("lab link, the same in both directions"), bare=form == "bulk")
    add_sweep(group("several runs"))
    add_preset(group("presets"), tuple(presets_of(form)))
    _add_output(group("recording and output"))
    if form == COMMAND:
        parser.add_argument(
            "words", nargs="*", metavar="COMMAND", help=argparse.SUPPRESS
        )
    parser.hide(RARE)
    parser.elsewhere = where_else(form)
    parser.beside = "; a COMMAND goes with `latprof run -- COMMAND`"
    parser.set_defaults(words=[], form=form, default_of=parser.get_default)


def _hosts_and_ports(text: str) -> tuple[HostPort, ...]:
    one = host_and_port(DEFAULT_PORT)
    return tuple(one(part.strip()) for part in text.split(","))


_PROTOCOL = {
    "mesh": "(default: tcp)",
    **dict.fromkeys((ATTACH, COMMAND), "watch these sockets only (default: both)"),
}


def _add_messages(group: Any, form: str) -> None:
    group.add_argument(
        "--to",
        type=_hosts_and_ports,
        default=(),
        metavar="HOST[:PORT],..." if form == "mesh" else "HOST[:PORT]",
        help=f"send to `latprof echo` there (default: in a lab; port: {DEFAULT_PORT})",
    )
    group.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="shared with --to (default: none)",
    )
    group.add_argument(
        "--responder-bytes",
        type=units.within(units.size, "64KiB", "1024GiB"),
        metavar="BYTES",
        help="take so much at most of what `latprof echo --lend` recorded of this run "
        "(default: 1GiB)",
    )
    group.add_argument(
        "--protocol",
        choices=["tcp", "udp"] if form == "mesh" else ["tcp", "udp", "both"],
        help=_PROTOCOL.get(form, "both: one after the other (default: both)"),
    )
    group.add_argument(
        "--sizes",
        type=units.sizes,
        metavar="BYTES,...",
        help="of requests, each once a round in random order (default: "
        + ("see above)" if form == "mesh" else "18,256,1024,4096,16384,32768,65507)"),
    )
    group.add_argument(
        "--reply",
        type=units.either(units.FULL, units.size),
        metavar="BYTES",
        help="of replies, or full: an echo "
        f"(default: {150 if form == 'mesh' else units.FULL})",
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


def _add_hosts(group: Any) -> None:
    group.add_argument(
        "--with",
        type=ssh_hosts,
        default=(),
        metavar="ssh:HOST,...",
        help="record the same on these hosts meanwhile, by `ssh` without questions "
        "(keys), as root or by `sudo -n`, and keep their recordings beside this one; "
        "HOST may be USER@HOST:PORT; with --duration (default: this host alone)",
    )
    group.add_argument(
        "--lend-until-eof",
        type=units.within(units.duration_seconds, "1s", "2000h"),
        help=argparse.SUPPRESS,  # of who has --with: see workload/attached_there.py
    )


_DURATION = {
    "bulk": "of each part (default: 3s; with --find-rate 3 times --trial)",
    ATTACH: "(default: until Ctrl-C)",
}
_DURATION_OF_OWN = f"per protocol (default: {DEFAULT_SECONDS:g}s)"


def _add_timing(group: Any, form: str) -> None:
    length = group.add_mutually_exclusive_group()
    length.add_argument(
        "--duration",
        type=units.within(units.duration_seconds, "1ms", "1000h"),
        metavar="TIME",
        help=_DURATION.get(form, _DURATION_OF_OWN),
    )
    length.add_argument(
        "--rounds",
        type=units.within(units.count, "1", "1000000000"),
        metavar="N",
        help="of each operation of each size once (default: 10)"
        if form == "ops"
        else "measured rounds, instead of a duration",
    )
    group.add_argument(
        "--warmup",
        type=units.within(units.count, "0", "1000000000"),
        metavar="N",
        help=f"rounds before the measurement (default: {1 if form == 'ops' else 5})",
    )
    group.add_argument(
        "--interval",
        type=units.within(units.time_ns, "1ns", "60s"),
        default=0,
        metavar="TIME",
        help="open loop: a message every TIME, timed from when it was due (default: "
        + ("50ms)" if form == "mesh" else "each after the reply to the one before)"),
    )
    group.add_argument(
        "--train",
        type=units.within(units.count, "2", "4096"),
        default=0,
        metavar="N",
        help="and trains of N messages back to back: LogGP, and the rate of the link "
        "both ways (default: none)",
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
        help="then the same beside bulk flows, e.g. tcp:4:up,udp:1:down:20mbit, of udp "
        "at RATE (default: up, the link's rate)",
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
    _add_ports(group)
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


def _add_ports(group: Any) -> None:
    for name, text in (
        (
            "--port",
            "of its sockets only those with one of these ports at either end "
            "(default: any)",
        ),
        ("--ports", argparse.SUPPRESS),
    ):
        group.add_argument(
            name,
            dest="ports",
            action="extend",
            type=units.ports,
            default=[],
            metavar="PORT,...",
            help=text,
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
        help="new run folder (default: in runs/)",
    )
    group.add_argument(
        "--name",
        type=_name,
        metavar="NAME",
        help="the run is runs/NAME (default: DATE-TIME)",
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
        help="the summary as JSON on stdout, all else on stderr",
    )
    group.add_argument(
        "-v",
        "--verbose",
        "--all",
        dest="all",
        action="store_true",
        help="show all that is known (default: one screen)",
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
        help="record what CPUs do, and tell why what took longer was slow; TIME is "
        "else the running p99.9, from 100 us on, and 1 ms until 10,000 came (default: "
        "no recorder)",
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
