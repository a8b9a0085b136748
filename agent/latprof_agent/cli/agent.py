"""`latprof agent`: live traffic all the time, for Prometheus."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latprof_analysis.say import say, say_error

from latprof_agent.cli.filter_options import add_filter_options
from latprof_agent.cli.grouping_options import add_grouping_options
from latprof_agent.cli.overhead_options import add_overhead_options
from latprof_agent.cli.root import require_capabilities
from latprof_agent.cli.story_options import (
    add_story_folder_options,
    make_room_for_stories,
)

if TYPE_CHECKING:
    from latprof_agent.containers.runtime import List
    from latprof_agent.service.config import Config
    from latprof_agent.service.service import Monitor

TEXT = """\
Measure live traffic all the time, and serve it to Prometheus at /metrics. Starts as
root, and becomes a user with the few capabilities that probes need. Without options
it watches all traffic of the host, tells it apart by service, and listens on
127.0.0.1:9989.
"""
EPILOG = """\
The configuration is TOML; what the command line says wins over it. Its keys, all of
which may be missing:
  listen = "127.0.0.1:9989"       # [::1]:9989; :9989 is all addresses
  user = "latprof"                # whom to run as
  max_overhead = "2%"
  story_dir = "/var/lib/latprof/stories"  # why what was slow was slow; else nothing
  story_above = "p99.9"           # or a time like "20ms"
  story_count = 200               # the newest half, and the slowest of those before
  story_bytes = "20MB"
  story_group = "adm"             # who may read them, beside the agent's user
  samples = true                  # give them to latprof fleet, at /samples
  by = ["service"]
  hosts = ["node7.example.org"]   # names to be asked by, beside this host's own
  [filter]                        # what is watched: keys as the options have names
  port = [80, 443]
  not = { comm = "curl" }
  [containers]                    # whose names by = ["pod", "workload"] asks for
  runtime = "unix:///run/containerd/containerd.sock"    # else those that are found
  [buckets]                       # classic ones, in place of 70
  stages = ["10us", "100us", "1ms", "10ms"]
  others = ["100us", "1ms", "10ms", "100ms"]
  [tls]
  certificate = "/etc/latprof/agent.crt"
  key = "/etc/latprof/agent.key"
  [users]                         # basic auth; without it, stories need the
                                  # token in story_dir as password
  prometheus = "$scrypt$ln=14,..."  # by latprof agent --hash-password

Signals: SIGHUP reads it again, and goes on as before where it is wrong; listen, user,
max_overhead, runtime, samples and story_... wait for the next start; with another by
all counts begin anew.
SIGTERM and Ctrl-C end.

examples:
  latprof agent
  latprof agent --listen :9989 --by service,remote
  latprof agent --not remote=10.0.0.0/8 --protocol tcp
  latprof agent --config agent.toml --check-config
  latprof agent --story-dir /var/lib/latprof/stories --story 20ms
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.description = TEXT
    parser.epilog = EPILOG
    parser.add_argument("--config", type=Path, metavar="FILE", help="read it first")
    parser.add_argument(
        "--listen",
        metavar="ADDRESS:PORT",
        help="where to serve (default: 127.0.0.1:9989)",
    )
    add_grouping_options(parser)
    add_filter_options(parser)
    add_overhead_options(parser, default=None)
    add_story_folder_options(parser)
    parser.add_argument(
        "--user",
        metavar="USER",
        help="run as this user (default: latprof, or a number that is nobody's)",
    )
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--check-config",
        action="store_true",
        help="say whether the configuration is right, and end",
    )
    other.add_argument(
        "--hash-password",
        action="store_true",
        help="read a password, print its hash for the configuration, and end",
    )


def run(options: argparse.Namespace) -> int:
    """Serve until a signal."""
    # as SIGTERM: in an import it would be reported as that import's failure
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if options.hash_password:
        return _hash_password()
    config = _config(options)
    if options.check_config:
        say("the configuration is right")
        return 0
    from latprof_agent.service.service import serve

    require_capabilities("agent")
    if config.story_dir is not None:
        make_room_for_stories()
    serve(config, lambda: _config(options), _monitor, say_error)
    return 0


def _config(options: argparse.Namespace) -> Config:
    from latprof_agent.service.config import read_config

    return read_config(options.config, _given(options))


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """What the command line says, by the names of the configuration's fields."""
    from latprof_agent.cli.filter_options import filter_of
    from latprof_agent.errors import UsageError
    from latprof_agent.service.config import address

    stories = ("story_above", "story_count", "story_bytes", "story_group")
    names = ("user", "max_overhead", "runtime", *stories, "by")
    given = {name: vars(options)[name] for name in names}
    if options.story_dir is not None:
        given["story_dir"] = options.story_dir.absolute()
    if options.filter_words:
        given["watched"] = replace(filter_of(options), older=True)
    try:
        given["listen"] = address(options.listen) if options.listen else None
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--listen {error}; see latprof agent --help") from error
    return {name: value for name, value in given.items() if value is not None}


def _monitor(config: Config, switch_on: Callable[[], int], ask: List) -> Monitor:
    from latprof_agent.monitor import monitor

    return monitor.Monitor(
        config.watched,
        config.by,
        max_overhead=config.max_overhead,
        slow_ns=config.story_above,
        stories=config.story_dir is not None,
        switch_on=switch_on,
        ask_runtime=ask,
    )


def _hash_password() -> int:
    from getpass import getpass

    from latprof_agent.errors import UsageError
    from latprof_agent.service.web.passwords import PasswordHash

    if sys.stdin.isatty():
        password = getpass("password: ")
        if getpass("again: ") != password:
            raise UsageError("the passwords must be the same; try again")
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise UsageError("the password must not be empty; give it on standard input")
    say(str(PasswordHash.of(password)))
    return 0
