"""`latprof run`: a lab, a workload, and where its messages spent their time."""

from __future__ import annotations

import argparse
import os
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from latprof_analysis import units
from latprof_analysis.extras import need_extra
from latprof_analysis.say import say_document, say_error

from latprof_agent.cli import bulk_options, mesh_options, ops_options
from latprof_agent.cli.echo import DEFAULT_LEND_BYTES
from latprof_agent.cli.option_rules import contradiction
from latprof_agent.cli.presets import with_preset
from latprof_agent.cli.root import require_root
from latprof_agent.cli.run_forms import (
    ATTACH,
    COMMAND,
    PING_PONG,
    form_of,
)
from latprof_agent.cli.run_options import (
    ANY_CPU,
    DEFAULT_DELAY_NS,
    DEFAULT_RATE_BPS,
    DEFAULT_SECONDS,
    add_options,
)
from latprof_agent.cli.story_options import make_room_for_stories
from latprof_agent.cli.sweep import is_sweep, run_sweep

if TYPE_CHECKING:
    from latprof_agent.interrupts import Interrupt

__all__ = ["add_options", "form_of", "run"]


def run(options: argparse.Namespace) -> int:
    """Do the run, or several of a sweep, and show what it found."""
    options = with_preset(options)
    if is_sweep(options):
        return run_sweep(options, _checked)
    from latprof_agent.interrupts import Interrupt

    interrupt = Interrupt()
    with interrupt.caught():
        checked = _checked(options)
        require_root("run")
        if notice := checked.plan.notice():
            say_error(notice)
        if options.lend_until_eof:
            return _lend(options, checked, interrupt)
        from latprof_agent import session
        from latprof_agent.cli.progress_bar import progress_bar
        from latprof_agent.join.own_run import joined_with_others

        with progress_bar(enabled=not options.quiet) as progress:
            outcome = session.run(checked, progress, interrupt, notice=_warn)
            shown = outcome.summary
            if not outcome.failure:
                shown = joined_with_others(outcome.folder, shown, progress, _warn)
    say_document(shown, as_json=options.json, everything=options.all)
    if outcome.failure:
        say_error(str(outcome.failure))
        return outcome.failure.exit_code
    return 0


def _lend(options: argparse.Namespace, checked: Any, interrupt: Interrupt) -> int:
    """Do the run for another host, which takes its recording; leave nothing here."""
    from latprof_agent import session
    from latprof_agent.workload.attached_there import UntilEof, folder_for_a_while

    asked = UntilEof(interrupt, options.lend_until_eof)
    with folder_for_a_while() as folder:
        outcome = session.run(replace(checked, out=folder), asked, interrupt)
        if outcome.failure:
            say_error(str(outcome.failure))
            return outcome.failure.exit_code
        asked.send(folder)
    return 0


def _warn(text: str) -> None:
    say_error(f"warning: {text}")


def _link(options: argparse.Namespace) -> Any:
    from latprof_agent.lab.link import LinkSpec

    shaped, bulk = options.qdisc is not None, _is_bulk(options)
    delay = options.delay
    if delay is None:
        delay = 0 if shaped or bulk or options.rate == 0 else DEFAULT_DELAY_NS
    return LinkSpec(
        rate_bps=_default_rate(options) if options.rate is None else options.rate,
        burst_bytes=options.burst,
        qdisc=options.qdisc,
        leaf=options.leaf,
        delay_ns=delay,
        loss=options.loss,
        loss_burst=options.loss_burst,
        queue_bytes=options.queue,
        mtu=options.mtu,
        offloads=not options.no_offloads,
        ipv6=options.ipv6,
        # the generator sets its own, which needs no leave of the host
        congestion=options.congestion if not _has_generator(options) else None,
        emulator=options.emulator,
        seed=options.seed or 1,
    )


def _default_rate(options: argparse.Namespace) -> int:
    if options.qdisc:
        return DEFAULT_RATE_BPS if options.qdisc in ("tbf", "htb") else 0
    return 0 if _is_bulk(options) else DEFAULT_RATE_BPS


def _is_bulk(options: argparse.Namespace) -> bool:
    return bool(options.form == "bulk")


def _has_generator(options: argparse.Namespace) -> bool:
    return bool(options.form == PING_PONG)


def _cpus(options: argparse.Namespace) -> tuple[int | None, int | None]:
    """Choose where sender and responder run.

    In a closed loop only one of them has work at a time. On one CPU neither waits
    until another CPU has woken up, which takes tens of microseconds. While a train is
    on its way, or the reader is busy, both have: on one CPU each would wait for the
    other's work.
    """
    wanted = options.client_cpu, options.server_cpu
    offered = os.sched_getaffinity(0)
    both_work = options.train or options.busy
    if wanted == (None, None) and (options.train or not options.interval):
        first, *others = sorted(offered, reverse=True)
        return first, others[0] if both_work and others else first
    for option, cpu in zip(("--client-cpu", "--server-cpu"), wanted, strict=True):
        if isinstance(cpu, int) and cpu not in offered:
            text = f"{option}: must be one of {sorted(offered)} or any, got {cpu}"
            _refuse(options, text)
    client, server = (None if cpu == ANY_CPU else cpu for cpu in wanted)
    return client, server


def _responder(options: argparse.Namespace) -> dict[str, Any]:
    """Where the responder of --to is, for plans that have one; nothing in a lab."""
    if not options.to:
        return {}
    ((host, port),) = options.to
    return {"to": host, "port": port, "secret_file": options.secret_file}


def _ping_pong(options: argparse.Namespace, protocols: tuple[str, ...]) -> Any:
    from latprof_agent.workload.generator import DEFAULT_SIZES, DEFAULT_WARMUP, PingPong
    from latprof_agent.workload.remote import RemotePingPong

    where = _responder(options)
    kind = RemotePingPong if where else PingPong
    rounds = options.rounds or 0
    client_cpu, server_cpu = _cpus(options)
    plan = kind(
        sizes=options.sizes or DEFAULT_SIZES,
        rounds=rounds,
        duration_seconds=0.0 if rounds else options.duration or DEFAULT_SECONDS,
        warmup_rounds=DEFAULT_WARMUP if options.warmup is None else options.warmup,
        interval_ns=options.interval,
        train_messages=options.train,
        train_gap_ns=options.train_gap,
        poisson=options.poisson,
        spin=options.spin,
        reply_bytes=None if options.reply == units.FULL else options.reply,
        wire=options.wire,
        client_cpu=client_cpu,
        server_cpu=server_cpu,
        congestion=options.congestion,
        nagle=options.nagle,
        timeout_ns=options.timeout,
        seed=options.seed,
        load=_loads(options),
        think_ns=options.think,
        busy_ns=options.busy,
        priority=options.priority,
        max_acks=options.max_acks,
        **where,
    )
    for protocol in protocols:
        plan.check(protocol)
    return plan


def _loads(options: argparse.Namespace) -> tuple[Any, ...]:
    if not options.load:
        return ()
    from latprof_agent.workload.load_plan import Load

    link = _link(options)
    return tuple(Load(*one).at_rate_of(link) for one in options.load)


def _ops(options: argparse.Namespace, _protocols: tuple[str, ...]) -> Any:
    return ops_options.plan_of(options, *_cpus(options), **_responder(options))


def _bulk(options: argparse.Namespace, protocols: tuple[str, ...]) -> Any:
    _cpus(options)  # refuses one that is not there
    return bulk_options.plan_of(options, protocols, **_responder(options))


def _mesh(options: argparse.Namespace, _protocols: tuple[str, ...]) -> Any:
    return mesh_options.plan_of(options)


def _target(options: argparse.Namespace, _protocols: tuple[str, ...]) -> Any:
    from latprof_agent.cli.filter_options import filter_of
    from latprof_agent.workload.attached import Target

    chosen, seconds = filter_of(options), float(options.duration or 0)
    if not (hosts := getattr(options, "with")):
        return Target(chosen, seconds)
    from latprof_agent.workload import attached_there

    attached_there.check_kinds(chosen.words)
    there = tuple(attached_there.SshHost(*host) for host in hosts)
    return attached_there.TargetOfHosts(
        chosen, seconds, others=there, story_ns=options.story
    )


def _command(options: argparse.Namespace, _protocols: tuple[str, ...]) -> Any:
    from latprof_agent.workload.user_command import CommandPlan

    return CommandPlan(
        words=tuple(options.words),
        server=options.server,
        user=_user(options),
        in_lab=not options.no_lab,
        ports=tuple(options.ports),
    )


_PLANS = {
    PING_PONG: _ping_pong,
    "ops": _ops,
    "mesh": _mesh,
    "bulk": _bulk,
    ATTACH: _target,
    COMMAND: _command,
}
_DEFAULT_PROTOCOL = {"ops": "tcp", "mesh": "tcp"}  # else both
_WITH_SEVERAL = ("mesh",)  # of other hosts, in --to


def _refuse(options: argparse.Namespace, text: str) -> None:
    from latprof_agent.errors import UsageError

    raise UsageError(f"{text}; see {options.parser.prog} --help")


def _check_together(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other; most of it is in `option_rules`."""
    if text := contradiction(options):
        _refuse(options, text)
    for wrong, text in (
        (
            options.form == ATTACH and not options.filter_words,
            "attach: needs which traffic, by --port, --comm, --pid or others",
        ),
        (
            options.form == COMMAND and not options.words,
            "--: needs a COMMAND after it",
        ),
        (
            options.find_knee and options.protocol == "udp" and options.loss,
            "--find-knee: over udp excludes --loss, which leaves messages behind at "
            "any interval",
        ),
        (
            len(options.to) > 1 and options.form not in _WITH_SEVERAL,
            f"--to: must be one host, got {len(options.to)}; use `latprof run mesh`, "
            "or --sweep to=HOST,HOST",
        ),
    ):
        if wrong:
            _refuse(options, text)
    try:
        shlex.split(options.server)
    except ValueError as error:
        _refuse(options, f"--server: {str(error).lower()} in {options.server}")


def _protocols(options: argparse.Namespace) -> tuple[str, ...]:
    """Return what is sent, or of others' programs recorded."""
    asked = options.protocol or _DEFAULT_PROTOCOL.get(options.form, "both")
    return ("tcp", "udp") if asked == "both" else (asked,)


def _user(options: argparse.Namespace) -> Any:
    """Whom COMMAND runs as."""
    from latprof_analysis.calling_user import calling_user, find_user

    if options.user is None:
        return calling_user()
    try:
        return find_user(options.user)
    except KeyError:
        _refuse(
            options, f"--user: must be a user's name or number, got {options.user!r}"
        )


def _checked(options: argparse.Namespace) -> Any:
    from latprof_agent.session import RunOptions

    _check_together(options)
    for option, asked in (("--parquet", options.parquet), ("--train", options.train)):
        if asked:
            need_extra("analysis", option)
    if options.story is not None:
        make_room_for_stories()
    protocols = _protocols(options)
    return RunOptions(
        link=_link(options),
        plan=_PLANS[options.form](options, protocols),
        protocols=protocols,
        record=options.probes if _is_bulk(options) else not options.no_probes,
        pieces=options.pieces,
        ring_bytes=options.ring_bytes,
        responder_bytes=options.responder_bytes or DEFAULT_LEND_BYTES,
        story_ns=options.story,
        out=options.out,
        name=options.name or "",
        recording=not options.no_recording,
        parquet=options.parquet,
        arguments=options.arguments,
    )
