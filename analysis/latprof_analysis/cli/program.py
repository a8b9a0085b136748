"""A program of subcommands: parser, dispatch, exit status.

A subcommand is a module with `add_options(parser)` and `run(options) -> int`. Only
the wanted one is loaded, so that `--help` needs neither numpy nor pandas.

Before anything is done the process must have its streams, and room by its limits:
below these libraries fail in the middle of something, with pages of their own words,
with the wrong reason, or they wait for good.
"""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from io import TextIOWrapper
from types import MappingProxyType
from typing import Any, NoReturn

from latprof_analysis.cli.installation import check_processor, not_loaded
from latprof_analysis.errors import REFUSALS, LatprofError, refused
from latprof_analysis.extras import need_extra
from latprof_analysis.say import say_error
from latprof_analysis.text import did_you_mean

OPEN_FILES = 240  # a run with stories has 150
USUAL_FILES = 1024  # as a shell's soft limit is
_BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def open_standard_streams() -> None:
    """Open /dev/null in place of closed ones, whose numbers our files would get."""
    for number, (name, mode) in enumerate(
        (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))
    ):
        try:
            os.fstat(number)
        except OSError:
            # the lowest number that is free, so this one; children have it, too
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, closefd=False))


def check_limits(address_space_bytes: int) -> None:
    """Raise LatprofError where a limit of this process is too low for any work."""
    if not find_spec("resource"):
        return  # the analysis on a system that has none
    import resource

    need_open_files(OPEN_FILES)
    limits = (
        ("AS", address_space_bytes, "bytes of address space", "ulimit -v"),
        # most of the address space is libraries, and room that is never used
        ("DATA", address_space_bytes // 2, "bytes of data", "ulimit -d"),
    )
    for name, least, what, word in limits:
        allowed = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        if allowed != resource.RLIM_INFINITY and allowed < least:
            raise _too_low(what, allowed, least, word)


def need_open_files(least: int) -> None:
    """Let this process have so many files open.

    Raises LatprofError where its hard limit is lower. A soft limit below the usual one
    is raised to that, as far as it may be: a mesh needs more for each of its hosts.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    bounds = hard != resource.RLIM_INFINITY
    if bounds and hard < least:
        raise _too_low("open files", hard, least, "ulimit -n")
    wanted = max(least, USUAL_FILES)
    if bounds:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _too_low(what: str, allowed: int, least: int, word: str) -> LatprofError:
    return LatprofError(
        f"cannot start: {what} are limited to {allowed}, and {least} are needed; "
        f"raise `{word}`"
    )


def keep_blas_small() -> None:
    """Let NumPy begin no threads: each takes 40 MB of address space, and none has work.

    Only the libraries see it: os.environ, which a COMMAND gets, stays as it is.
    """
    if _BLAS_THREADS not in os.environ:
        os.putenv(_BLAS_THREADS, "1")


class _HelpAll(argparse.Action):
    def __init__(self, **options: Any) -> None:
        super().__init__(nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: Any, *_: Any) -> None:
        parser.rare = ()
        parser.print_help()
        parser.exit()


DESCRIPTION = (
    "Where did my message spend its time? Per message, per stage, in nanoseconds, "
    "on an unmodified kernel and unmodified applications."
)


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@dataclass(frozen=True)
class Subcommand:
    """What it does, the module that does it, and the room that its libraries take.

    `forms` are words that may follow its name, and what is done then: the module finds
    with `form_of(words)` which is meant, and adds the options of one. `extra` is what
    it cannot do without, and what is not installed everywhere.
    """

    what: str
    module: str
    address_space_mib: int = 512
    forms: Mapping[str, str] = field(default_factory=dict)
    extra: str | None = None


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line; `rare` options are in `--help-all` only.

    `elsewhere` names who has an option that this one has not.
    """

    rare: Collection[str] = ()
    elsewhere: Mapping[str, str] = MappingProxyType({})
    words: Collection[str] = ()  # that may be said first
    beside: str = ""  # of a word that is no option

    def hide(self, rare: Collection[str]) -> None:
        """Leave these out of the help, and have another that has them."""
        self.rare = rare
        self.add_argument(
            "--help-all", action=_HelpAll, help="show all options and exit"
        )

    def format_help(self) -> str:
        """Return the help without rare options."""
        helps = {action: action.help for action in self._actions}
        for action in helps:
            if action.dest in self.rare:
                action.help = argparse.SUPPRESS
        try:
            return super().format_help()
        finally:
            for action, text in helps.items():
                action.help = text

    def error(self, message: str) -> NoReturn:
        text = re.sub("^argument ([^:]+): must ", r"\1 must ", message)
        text = text.removeprefix("argument ")
        say_error(f"{text}; see {self.prog} --help")
        raise SystemExit(2)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        choices = list(map(str, action.choices or ()))
        if choices and value not in choices:
            hint = did_you_mean(value, choices)
            text = f"must be one of {', '.join(choices)}, got {value!r}{hint}"
            raise argparse.ArgumentError(action, text)

    def refuse_unknown(self, extra: Sequence[str], *, in_command: bool) -> NoReturn:
        """Say that these arguments are none, and what may have been meant."""
        first = extra[0].partition("=")[0]
        if in_command:
            hint = "; put -- before the COMMAND"
        else:
            other = self.elsewhere.get(first)
            known = [*self._option_string_actions, *self.words]
            hint = f"; it is of `{other}`" if other else did_you_mean(first, known)
            if first == "--" or not first.startswith("-"):
                hint = did_you_mean(first, self.words) or self.beside or hint
        self.error(f"unrecognized arguments: {' '.join(extra)}{hint}")


def build_parser(
    subcommands: dict[str, Subcommand],
    version: str,
    wanted: Collection[str],
    form: str | None = None,
) -> _Parser:
    """Make the parser, with the options of the wanted subcommands only.

    `form`: of the one that has several.
    """
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
        if name in wanted:
            module = import_module(subcommand.module)
            if form is not None and subcommand.forms:
                sub.prog += f" {form}" * (form in subcommand.forms)
                module.add_options(sub, form)
            else:
                module.add_options(sub)
            sub.words = [] if form in subcommand.forms else [*subcommand.forms]
            sub.set_defaults(run=module.run, parser=sub, named_forms=subcommand.forms)
    parser.set_defaults(subcommands=subcommands)
    return parser


def parsers_of(subcommands: dict[str, Subcommand], version: str) -> dict[str, Any]:
    """Make the parsers of all subcommands and of their forms, by what is typed."""
    found = subparsers_of(build_parser(subcommands, version, subcommands))
    for name, subcommand in subcommands.items():
        for form in subcommand.forms:
            parser = build_parser(subcommands, version, [name], form)
            found[f"{name} {form}"] = subparsers_of(parser)[name]
    return found


def subparsers_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return the parsers of subcommands by name."""
    found = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return dict(next(found).choices)


def _options(parser: _Parser, words: list[str]) -> argparse.Namespace:
    """Parse, with the subcommand's own words for what it does not know."""
    first = words[0].partition("=")[0] if words else ""
    if first.startswith("-") and first not in parser._option_string_actions:
        parser.refuse_unknown(words[:1], in_command=False)
    options, extra = parser.parse_known_args(words)
    if extra:
        command: list[str] = getattr(options, "words", [])
        inside = bool(command) and words.index(command[0]) < words.index(extra[0])
        options.parser.refuse_unknown(extra, in_command=inside)
    return options


def _named(subcommands: dict[str, Subcommand], words: Sequence[str]) -> str:
    """Return the first subcommand that words name, or nothing."""
    return next((word for word in words if word in subcommands), "")


def parsed(
    subcommands: dict[str, Subcommand], version: str, words: Sequence[str]
) -> argparse.Namespace:
    """Parse a command line; it exits with a line where that is wrong.

    Of a subcommand with several forms the words choose one; `arguments` are as they
    were given, `own_words` those behind its name and its form's.
    """
    name = _named(subcommands, words)
    before, rest, form = [*words], [], None
    if name:
        at = words.index(name) + 1
        before, rest = [*words[:at]], [*words[at:]]
        if subcommands[name].forms:
            form, rest = import_module(subcommands[name].module).form_of(rest)
    parser = build_parser(subcommands, version, [name] if name else [], form)
    options = _options(parser, [*before, *rest])
    options.arguments, options.own_words = tuple(words), tuple(rest)
    return options


def run_program(
    subcommands: dict[str, Subcommand],
    version: str,
    arguments: Sequence[str] | None = None,
) -> int:
    """Run one subcommand; returns the exit status.

    Expected failures, and what the system refuses, are one line; a bug is a traceback.
    """
    open_standard_streams()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # as ASCII, where that is all
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(subcommands, version, words)
    except LatprofError as error:
        notes = getattr(error, "__notes__", [])  # of what could not be undone
        return _complain(str(error), error.exit_code, notes)
    except KeyboardInterrupt:
        return _complain(
            "interrupted: ended without a summary; what was written is kept"
        )
    except ImportError as error:
        return _complain(str(not_loaded(error)))
    except BrokenPipeError:
        _output_fails()  # its reader is gone: nothing is left to say
        return 1
    except REFUSALS as error:
        full = isinstance(error, OSError) and error.errno in _FULL
        what = "write the output" if _output_fails() or full else "go on"
        return _complain(str(refused(f"cannot {what}", error)))


def _run(subcommands: dict[str, Subcommand], version: str, words: list[str]) -> int:
    if name := _named(subcommands, words):
        check_limits(subcommands[name].address_space_mib << 20)
        check_processor()
        keep_blas_small()
    try:
        options = parsed(subcommands, version, words)
        if extra := subcommands[name].extra:
            need_extra(extra, f"latprof {name}")
        status = int(options.run(options))
    except SystemExit:  # --help and the like
        sys.stdout.flush()
        raise
    sys.stdout.flush()
    return status


def _complain(text: str, status: int = 1, notes: Sequence[str] = ()) -> int:
    _output_fails()  # or Python would say so at its end, at length
    with suppress(OSError):
        for line in (text, *notes):
            say_error(line)
    return status


def _output_fails() -> bool:
    """Say whether what was printed cannot be written: then it is dropped."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
