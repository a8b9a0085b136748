"""`latprof completion`: what lets a shell complete options, from the parser itself."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from latprof_analysis.cli.program import Subcommand, build_parser, subparsers_of
from latprof_analysis.extras import has_extra, needed

# Each, and where the build puts its script below share/.
SHELLS = {
    "bash": "bash-completion/completions/latprof",
    "zsh": "zsh/site-functions/_latprof",
    "fish": "fish/vendor_completions.d/latprof.fish",
}
EPILOG = """\
Packages and the set-up install it for all users. By hand, for one:

  latprof completion bash > ~/.local/share/bash-completion/completions/latprof
  latprof completion fish > ~/.config/fish/completions/latprof.fish
"""
_FILES, _FOLDERS = ("PATH", "INPUT", "FILE"), ("DIR",)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument("shell", choices=[*SHELLS], help="the shell that shall know it")


def _forms(parser: Any, subcommand: Subcommand) -> Iterator[Any]:
    """Let words follow a subcommand's name, each with options of its own."""
    added = parser.add_subparsers(metavar="FORM")
    module = import_module(subcommand.module)
    for form, what in subcommand.forms.items():
        one = added.add_parser(form, help=what)
        module.add_options(one, form)
        yield one


def run(options: argparse.Namespace) -> int:
    """Print the shell's script: the one that was built with us, where shtab lacks."""
    built = Path(sys.prefix, "share", SHELLS[options.shell])
    if not has_extra("shell") and built.is_file():
        sys.stdout.write(built.read_text())
        return 0
    with needed("make completions"):
        import shtab
    names = options.subcommands
    parser = build_parser(names, "", names)
    parsers = subparsers_of(parser)
    every = [*parsers.values()]
    for name, subcommand in names.items():
        if subcommand.forms:
            every += _forms(parsers[name], subcommand)
    for action in (a for one in every for a in one._actions):
        if action.metavar in _FILES:
            action.complete = shtab.FILE
        elif action.metavar in _FOLDERS:
            action.complete = shtab.DIRECTORY
    sys.stdout.write(shtab.complete(parser, options.shell) + "\n")
    return 0
