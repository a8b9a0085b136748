"""`latprof completion`: what lets a shell complete options, from the parser itself."""

from __future__ import annotations

import argparse
import sys

from latprof_analysis.cli.program import build_parser, subparsers_of
from latprof_analysis.errors import LatprofError

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\
The set-up installs it for all users. By hand, for one:

  latprof completion bash > ~/.local/share/bash-completion/completions/latprof
  latprof completion fish > ~/.config/fish/completions/latprof.fish
"""
_FILES, _FOLDERS = ("PATH", "INPUT", "FILE"), ("DIR",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=SHELLS, help="the shell that shall know it")


def run(options: argparse.Namespace) -> int:
    """Print the shell's script."""
    try:
        import shtab
    except ImportError as error:
        raise LatprofError(
            "cannot make completions: shtab is not installed; install latprof with "
            "its extra shell, or pip install shtab"
        ) from error
    names = options.subcommands
    parser = build_parser(names, "", names)
    for action in (a for one in subparsers_of(parser).values() for a in one._actions):
        if action.metavar in _FILES:
            action.complete = shtab.FILE
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")
    return 0
