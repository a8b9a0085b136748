"""A program of subcommands: parser, dispatch, exit status.

A subcommand is a module with `add_options(parser)` and `run(options) -> int`. Only
the wanted one is loaded, so that `--help` needs neither numpy nor pandas.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import NoReturn

from latprof_analysis.errors import LatprofError

DESCRIPTION = (
    "Where did my message spend its time? Per message, per stage, in nanoseconds, "
    "on an unmodified kernel and unmodified applications."
)


@dataclass(frozen=True)
class Subcommand:
    """What it does, and the module that does it."""

    what: str
    module: str


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ")
        print(f"latprof: {text}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def _parser(
    subcommands: dict[str, Subcommand], version: str, wanted: str | None
) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="latprof",
        description=DESCRIPTION,
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage. "
        "See latprof COMMAND --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"latprof {version}")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for name, subcommand in subcommands.items():
        what = subcommand.what
        sub = commands.add_parser(
            name,
            help=what,
            description=what[0].upper() + what[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == wanted:
            module = import_module(subcommand.module)
            module.add_options(sub)
            sub.set_defaults(run=module.run)
    return parser


def run_program(
    subcommands: dict[str, Subcommand],
    version: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run one subcommand; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    wanted = next((word for word in words if word in subcommands), None)
    try:
        options = _parser(subcommands, version, wanted).parse_args(words)
        status = int(options.run(options))
        sys.stdout.flush()
    except LatprofError as error:
        print(f"latprof: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        text = "interrupted: ended without a summary; what was written is kept"
        print(f"latprof: {text}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader of our output is gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
