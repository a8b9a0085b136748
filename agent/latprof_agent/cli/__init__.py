"""The command line: parser, dispatch, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

SUBCOMMANDS = {
    "run": "send messages (or run a command) and show where they spent their time",
    "probes": "list what this kernel lets latprof measure",
    "lab": "clean up what labs of dead processes left",
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ")
        print(f"latprof: {text}; see {self.prog} --help", file=sys.stderr)
        raise SystemExit(2)


def _parser(wanted: str | None) -> argparse.ArgumentParser:
    """Make the parser; only the wanted subcommand's module is loaded."""
    parser = _Parser(
        prog="latprof",
        description="Where did my message spend its time? Per message, per stage, in "
        "nanoseconds, on an unmodified kernel and unmodified applications.",
        epilog="Exit status: 0 done, 1 failed, 2 wrong usage. "
        "See latprof COMMAND --help.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version="latprof 0.1.0")
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for name, text in SUBCOMMANDS.items():
        sub = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == wanted:
            module = import_module(f"latprof_agent.cli.{name}")
            module.add_options(sub)
            sub.set_defaults(run=module.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    wanted = next((word for word in words if word in SUBCOMMANDS), None)
    try:
        return _run(_parser(wanted).parse_args(words))
    except KeyboardInterrupt:
        text = "interrupted: ended without a summary; what was written is kept"
        print(f"latprof: {text}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # the reader of our output is gone: nothing is left to say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(options: argparse.Namespace) -> int:
    from latprof_agent.errors import LatprofError

    try:
        status = int(options.run(options))
        sys.stdout.flush()
    except LatprofError as error:
        print(f"latprof: {error}", file=sys.stderr)
        return error.exit_code
    return status
