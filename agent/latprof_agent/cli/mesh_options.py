"""The options of `latprof run mesh`, and the plan that they make."""

from __future__ import annotations

import argparse
from typing import Any

from latprof_analysis import units

OWN = ("hosts", "messages", "tests", "heartbeat_interval", "find_knee")
TEXT = """\
Every host sends messages of each size to every other, one size after the other,
and answers what it gets; heartbeats go besides. If not given, --interval is
50ms, --reply 150 bytes, and --sizes are 1, 5, 10, 100 and 200 KiB, over udp 1,
5 and 10 KiB. Of the link --delay and --loss are those from host to host, and
--rate is that of each host.
With --to HOST,HOST this host sends to each of those, on which `latprof echo`
runs: its half of the mesh, a star. The whole is the same command on each
host, which do not wait for each other.
"""


def add_options(group: Any) -> None:
    """Add those that only a mesh has."""
    group.add_argument(
        "--hosts",
        type=units.within(units.count, "2", "32"),
        metavar="N",
        help="hosts of the mesh, 2 to 32 (default: 3)",
    )
    group.add_argument(
        "--messages",
        type=units.within(units.count, "1", "1000000"),
        metavar="N",
        help="from each host to each other, per size and test (default: 100)",
    )
    group.add_argument(
        "--tests",
        type=units.within(units.count, "1", "1000"),
        metavar="N",
        help="tests of each size (default: 2)",
    )
    group.add_argument(
        "--heartbeat-interval",
        type=units.within(units.time_ns, "1ms", "1h"),
        metavar="TIME",
        help="between heartbeats of 150 bytes from each host to each other "
        "(default: 1s)",
    )
    group.add_argument(
        "--find-knee",
        action="store_true",
        help="search for the shortest interval of each size that is kept up with, "
        "and say what grows beyond it; about 30 s for each (default: no search)",
    )


def plan_of(options: argparse.Namespace) -> Any:
    """Make the plan; raises UsageError where it cannot be."""
    from latprof_agent.workload.mesh import MeshPlan, default_sizes

    protocol = options.protocol or "tcp"
    given = {
        "hosts": options.hosts,
        "sizes": options.sizes or default_sizes(protocol),
        "interval_ns": options.interval or None,
        "messages": options.messages,
        "tests": options.tests,
        "heartbeat_interval_ns": options.heartbeat_interval,
        "reply_bytes": options.reply,
        "warmup_rounds": options.warmup,
    }
    values = {name: value for name, value in given.items() if value is not None}
    if options.reply == units.FULL:
        values["reply_bytes"] = None
    kind: Any = MeshPlan
    if options.to:
        from latprof_agent.workload.remote_mesh import RemoteMeshPlan

        kind = RemoteMeshPlan
        others = {"to": options.to, "secret_file": options.secret_file}
        values |= {"hosts": 1 + len(options.to), **others}
    plan = kind(
        protocol=protocol,
        poisson=options.poisson,
        spin=options.spin,
        congestion=options.congestion,
        nagle=options.nagle,
        timeout_ns=options.timeout,
        seed=options.seed,
        find_knee=options.find_knee,
        **values,
    )
    plan.check()
    return plan
