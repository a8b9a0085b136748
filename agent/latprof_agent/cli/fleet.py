"""`latprof fleet`: what the agents of many hosts sampled, joined live on one clock."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latprof_analysis import units
from latprof_analysis.say import say_error

if TYPE_CHECKING:
    from latprof_agent.fleet.fleet_config import FleetConfig

TEXT = """\
Ask the agents of many hosts for their samples, join the halves of messages that two
hosts saw, and serve to Prometheus what lies between hosts: one-way delays with how
sure they are, queueing, exchanges by part, and how far clocks are apart. Needs no root.
"""
EPILOG = """\
The configuration is TOML; what the command line says wins over it. Its keys, all of
which may be missing:
  agents = ["node7:9989", "node8"]
  agents_file = "/etc/latprof/agents"   # one host:port a line, # begins a comment
  dns = ["agents.example.org"]          # all addresses of names, asked each minute
  listen = "127.0.0.1:9990"
  interval = "2s"                       # how often each agent is asked
  hosts = ["fleet.example.org"]         # names to be asked by, beside this host's own
  [access]                              # how agents are asked
  user = "fleet"                        # of the agents' [users]
  password_file = "/etc/latprof/fleet.password"
  certificates = "/etc/latprof/ca.pem"  # then by https, with these authorities
  timeout = "5s"
  [tls]                                 # of our own pages, as of latprof agent
  [users]

Signals: SIGHUP reads it and the file of agents again, and goes on as before where it
is wrong; listen and interval wait for the next start. SIGTERM and Ctrl-C end.

examples:
  latprof fleet node7:9989 node8:9989
  latprof fleet --agents agents.txt --json --duration 1min
  latprof fleet --dns agents.example.org
  latprof fleet --config fleet.toml --listen :9990 --shard 1/4
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.description = TEXT
    parser.epilog = EPILOG
    parser.add_argument(
        "agents",
        metavar="HOST:PORT",
        nargs="*",
        help="an agent (default port: 9989)",
    )
    parser.add_argument(
        "--agents",
        dest="agents_file",
        type=Path,
        metavar="FILE",
        help="agents, one a line",
    )
    parser.add_argument(
        "--dns",
        action="append",
        metavar="NAME",
        help="all addresses of a name, which DNS is asked for again each minute; those "
        "that it has no more are left 5 minutes later",
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="read it first")
    parser.add_argument(
        "--interval",
        type=units.within(units.duration_seconds, "1s", "1h"),
        metavar="SECONDS",
        help="how often each agent is asked, and what is shown (default: 2)",
    )
    parser.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="where to serve (default: 127.0.0.1:9990)",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        default="1/1",
        help="of the pairs of hosts the I-th part of N only, and the agents of these: "
        "run one process for each, all with the same agents, written alike",
    )
    parser.add_argument(
        "--duration",
        type=units.within(units.duration_seconds, "1s", "10000h"),
        metavar="SECONDS",
        help="end after this time (default: until Ctrl-C)",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print one JSON document a line for each interval",
    )


def run(options: argparse.Namespace) -> int:
    """Watch until it is enough."""
    import math

    from latprof_agent.errors import UsageError
    from latprof_agent.fleet.fleet_config import shard
    from latprof_agent.fleet.fleet_run import Output, run_fleet

    config = _config(options)
    try:
        part = shard(options.shard)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--shard {error}; see latprof fleet --help") from error
    output = Output(options.json, options.duration or math.inf)
    run_fleet(config, lambda: _config(options), output, part, say_error)
    return 0


def _config(options: argparse.Namespace) -> FleetConfig:
    from latprof_agent.errors import UsageError
    from latprof_agent.fleet.fleet_config import agent_address, read_fleet_config
    from latprof_agent.service.config import address

    given: dict[str, Any] = {"interval_seconds": options.interval}
    if options.agents_file:
        given["agents_file"] = options.agents_file.absolute()
    try:
        name = "HOST:PORT"
        given["agents"] = tuple(map(agent_address, options.agents))
        name = "--dns"
        given["dns"] = tuple(map(agent_address, options.dns or ()))
        name = "--listen"
        given["listen"] = address(options.listen) if options.listen else None
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{name} {error}; see latprof fleet --help") from error
    config = read_fleet_config(options.config, given)
    config.all_agents()
    return config
