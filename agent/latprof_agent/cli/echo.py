"""`latprof echo`: answers what `latprof run --to` sends from another host."""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latprof_analysis import units
from latprof_analysis.extras import need_extra
from latprof_analysis.say import say, say_error, say_json

from latprof_agent.cli.root import require_root
from latprof_agent.interrupts import Interrupt

if TYPE_CHECKING:
    from latprof_agent.errors import LatprofError
    from latprof_agent.workload.lender import Lender
    from latprof_agent.workload.responder import Responder

DEFAULT_PORT = 7107
DEFAULT_LEND_BYTES = 1 << 30
LOOK_SECONDS = 0.2
_CPU = "1%", "819200%"
_HOSTS = (
    "An IPv4 address, or a /64 of IPv6. With --secret-file they are off unless given."
)
# Counters of the responder that are shown where they are not 0.
_SHOWN = {
    "corrupt": "requests that came changed",
    "rejected": "messages that no client sends",
    "unsent": "datagrams that the kernel did not take",
    "refused_version": "sessions refused, another version of latprof",
    "refused_workload": "sessions refused, a workload that is not answered here",
    "refused_message_bytes": "sessions refused, messages larger than --max-message",
    "refused_duration": "sessions refused, longer than --max-duration",
    "refused_busy": "sessions refused, as many as --max-sessions",
    "refused_memory": "sessions refused, as much memory as --max-memory",
    "refused_cpu": "sessions refused, more CPU time than --max-cpu",
    "refused_host_sessions": "sessions refused, as many as --max-host-sessions",
    "refused_host_memory": "sessions refused, as much as --max-host-memory",
    "refused_host_cpu": "sessions refused, more CPU time than --max-host-cpu",
    "refused_secret": "sessions refused, a wrong secret",
    "refused_terms": "sessions refused, terms that no client asks for",
    "strangers": "connections that were not of latprof",
    "unfinished": "connections that ended before a session",
    "crowded_out": "of these to make room",
    "ended_idle": "sessions ended, nothing came for --idle",
    "ended_overlong": "sessions ended, longer than --max-duration",
    "ended_cpu": "sessions ended, more CPU time than --max-cpu",
    "ended_host_cpu": "sessions ended, more CPU time than --max-host-cpu",
    "stray_datagrams": "datagrams of no session, not answered",
    "rate_waits": "answers held back by --max-rate",
}

TEXT = """\
Answer messages of `latprof run --to`, over TCP and UDP on one port, until Ctrl-C.
Listens on the loopback alone unless --bind names addresses. Needs no root, but for
--record.
"""
EPILOG = """\
examples:
  latprof echo                        # for this host alone
  openssl rand -hex 32 > secret; chmod 600 secret
  latprof echo --bind 0.0.0.0 --secret-file secret
  sudo latprof echo --bind :: --record there --lend --secret-file secret

A secret keeps strangers out; nothing is encrypted. Exit status: 0 done (also after
Ctrl-C), 1 failed, 2 wrong usage.
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.description = TEXT
    parser.epilog = EPILOG
    parser.add_argument(
        "--port",
        type=units.within(units.count, "0", "65535"),
        default=DEFAULT_PORT,
        metavar="PORT",
        help=f"of TCP and of UDP; 0: any that is free (default: {DEFAULT_PORT})",
    )
    parser.add_argument(
        "--bind",
        type=units.words,
        default=(),
        metavar="ADDRESS,...",
        help="addresses of this host to listen on, 0.0.0.0 or :: for all (default: "
        "127.0.0.1 and ::1)",
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        metavar="FILE",
        help="the secret that whoever comes must know, 16 bytes or more, readable by "
        "its owner alone (default: none is needed)",
    )
    _add_limits(parser.add_argument_group("limits"))
    _add_host_limits(parser.add_argument_group("limits of each host", _HOSTS))
    parser.add_argument(
        "--record",
        type=Path,
        metavar="DIR",
        help="write a new run folder of this end's half of the messages; needs root",
    )
    parser.add_argument(
        "--lend",
        action="store_true",
        help="let each client have, at its end, what was recorded of its host since it "
        "began: stamps and sizes of messages, names of the processes that answered, "
        "this host's name and what its kernel offers, but no payload; needs --record. "
        "Whoever reaches the port may ask, with --secret-file who knows the secret",
    )
    parser.add_argument(
        "--lend-bytes",
        type=units.within(units.size, "64KiB", "1024GiB"),
        metavar="BYTES",
        help="lend so much to a client at most (default: 1GiB)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the summary as JSON on stdout, all else on stderr",
    )


def _add_limits(group: Any) -> None:
    group.add_argument(
        "--workloads",
        type=units.words,
        default=(),
        metavar="NAME,...",
        help="answer these only (default: all)",
    )
    group.add_argument(
        "--max-sessions",
        type=units.within(units.count, "1", "4096"),
        metavar="N",
        help="at once (default: 64)",
    )
    group.add_argument(
        "--max-memory",
        type=units.within(units.size, "1MiB", "1024GiB"),
        metavar="BYTES",
        help="for messages of all sessions together, and what their UDP sockets hold "
        "(default: 1GiB)",
    )
    group.add_argument(
        "--max-cpu",
        type=units.within(units.share, *_CPU),
        metavar="SHARE",
        help="of one CPU (200%%: two), for all sessions together; where they take more "
        "for long, the busiest are ended (default: half of the CPUs, 100%% or more; "
        "with --secret-file unlimited)",
    )
    group.add_argument(
        "--max-message",
        type=units.within(units.size, "18", "64MiB"),
        metavar="BYTES",
        help="of a request or a reply (default: 64MiB)",
    )
    group.add_argument(
        "--max-rate",
        type=units.within(units.rate, "8kbit", "8000gbit"),
        metavar="RATE",
        help="of what is answered, all sessions together (default: unlimited)",
    )
    group.add_argument(
        "--max-duration",
        type=units.within(units.duration_seconds, "1s", "1000h"),
        metavar="TIME",
        help="of a session, which may take 75 s more to begin and to end where its"
        " client said a duration; seconds without a unit (default: unlimited)",
    )
    group.add_argument(
        "--idle",
        type=units.within(units.duration_seconds, "1s", "1000h"),
        metavar="TIME",
        help="end a session in which nothing came for so long (default: 10min)",
    )


def _add_host_limits(group: Any) -> None:
    group.add_argument(
        "--max-host-sessions",
        type=units.within(units.count, "1", "4096"),
        metavar="N",
        help="at once (default: 16)",
    )
    group.add_argument(
        "--max-host-memory",
        type=units.within(units.size, "1MiB", "1024GiB"),
        metavar="BYTES",
        help="of --max-memory (default: 256MiB)",
    )
    group.add_argument(
        "--max-host-cpu",
        type=units.within(units.share, *_CPU),
        metavar="SHARE",
        help="of one CPU (default: 100%%)",
    )


def run(options: argparse.Namespace) -> int:
    """Answer until it is enough, and say what was done."""
    _check_together(options)
    interrupt = Interrupt()
    with interrupt.caught():
        if options.record:
            require_root("echo --record")
        lender = _lender(options)
        responder = _responder(options, lender)
        failure = None
        try:
            if options.record:
                failure = _record(responder, options, interrupt, lender)
            else:
                _say_ready(responder, options)
                while not interrupt.seen and not responder.wait(LOOK_SECONDS):
                    pass
        finally:
            if lender:
                lender.close()
            done = responder.stop()
    if lender:
        done["lent"] = lender.lent
    _say_done(done, options)
    if failure:
        say_error(str(failure))
        return failure.exit_code
    return 0


def _check_together(options: argparse.Namespace) -> None:
    from latprof_agent.errors import UsageError

    for option, has, needs in (
        ("--lend", options.lend and not options.record, "--record"),
        ("--lend-bytes", options.lend_bytes and not options.lend, "--lend"),
    ):
        if has:
            raise UsageError(f"{option}: needs {needs}; see latprof echo --help")
    if options.lend:
        need_extra("analysis", "--lend")


def _lender(options: argparse.Namespace) -> Lender | None:
    if not options.lend:
        return None
    from latprof_agent.workload.lender import Lender

    return Lender(options.lend_bytes or DEFAULT_LEND_BYTES, options.max_rate)


def _responder(options: argparse.Namespace, lender: Lender | None) -> Responder:
    from latprof_agent.workload.responder import (
        Limits,
        Responder,
        limits_of_strangers,
        loopback_addresses,
    )

    given = {
        "cpu_percent": _percent(options.max_cpu),
        "host_sessions": options.max_host_sessions,
        "host_memory_bytes": options.max_host_memory,
        "host_cpu_percent": _percent(options.max_host_cpu),
    }
    strangers = {} if options.secret_file else limits_of_strangers(_cpus())
    limits = Limits(
        workloads=options.workloads,
        sessions=options.max_sessions,
        memory_bytes=options.max_memory,
        message_bytes=options.max_message,
        rate_bps=options.max_rate,
        duration_seconds=options.max_duration,
        idle_seconds=options.idle,
        **strangers | {name: n for name, n in given.items() if n is not None},
    )
    addresses = options.bind or loopback_addresses()
    hand_over = lender.process_end.fileno() if lender else None
    return Responder(addresses, options.port, limits, options.secret_file, hand_over)


def _percent(share: float | None) -> int | None:
    return None if share is None else round(100 * share)


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _record(
    responder: Responder,
    options: argparse.Namespace,
    interrupt: Interrupt,
    lender: Lender | None,
) -> LatprofError | None:
    """Record this end's half meanwhile; what went wrong with that."""
    from latprof_agent import session
    from latprof_agent.filters.words import filter_of_words
    from latprof_agent.lab.link import LinkSpec
    from latprof_agent.probes.filter import Word
    from latprof_agent.workload.attached import Target

    chosen = filter_of_words([Word("pid", str(responder.pid))])
    plan = Target(chosen, datagrams=True)
    if lender:
        from latprof_agent.workload.lender import LentTarget

        plan = LentTarget(chosen, datagrams=True, lender=lender)
    wanted = session.RunOptions(
        link=LinkSpec(),
        plan=plan,
        protocols=("tcp", "udp"),
        out=options.record,
        arguments=options.arguments,
    )
    first = iter([True])

    def progress(_what: str, _count: int, _done: float, _planned: float) -> None:
        if next(first, False):  # from now on all is recorded
            _say_ready(responder, options)

    return session.run(wanted, progress, interrupt).failure


def _say_ready(responder: Responder, options: argparse.Namespace) -> None:
    """Say where it listens, and for what; at once, for who waits for it."""
    out = sys.stderr if options.json else sys.stdout
    where = " and ".join(responder.addresses)
    secret = "with" if options.secret_file else "without"
    say(
        f"echo listens on {where}, port {responder.port} of TCP and UDP, {secret} a "
        f"secret: {', '.join(responder.workloads)}; Ctrl-C ends it",
        out,
    )
    out.flush()
    if not options.secret_file and not all(map(_is_loopback, responder.addresses)):
        say_error(
            "warning: whoever reaches this port is answered; use --secret-file, or a "
            "firewall"
        )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False  # a name


def _say_done(done: Mapping[str, Any], options: argparse.Namespace) -> None:
    if options.json:
        folder = str(options.record) if options.record else None
        say_json({**done, "folder": folder})
        return
    for line in _summary(done):
        say(line)
    if options.lend:
        say(f"recordings lent: {done['lent']}")
    if options.record:
        say(f"folder: {options.record}")


def _summary(done: Mapping[str, Any]) -> Iterator[str]:
    from latprof_analysis.text import counted, given_duration

    yield (
        f"answered {counted(done['messages'], 'message')} of {done['bytes']} bytes in "
        f"{counted(done['sessions'], 'session')}, "
        f"{given_duration(1e9 * done['seconds'])}"
    )
    yield from (f"{what}: {done[key]}" for key, what in _SHOWN.items() if done[key])
