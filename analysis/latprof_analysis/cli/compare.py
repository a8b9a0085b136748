"""`latprof compare`: what changed from a baseline, and how surely."""

from __future__ import annotations

import argparse
import io
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from latprof_analysis import units
from latprof_analysis.cli.analyze import add_csv_options, csv_columns
from latprof_analysis.errors import LatprofError, UsageError
from latprof_analysis.say import say_json
from latprof_analysis.text import did_you_mean

if TYPE_CHECKING:
    from latprof_analysis.compare import Comparison, Side

EPILOG = """\
The first INPUT is the baseline. An INPUT is a run folder, a folder of runs (its
runs are repeats of one side), a pattern, or a file of another tool. Repeat each
side 3 times or more: single runs differ anyway.

  latprof compare runs/before runs/after
  latprof compare 'runs/main-*' 'runs/branch-*' --fail-if-slower 5% --only end_to_end
  latprof compare before after --fail-if-lossier 0.1% --fail-if-throughput-lower 5%
  latprof compare acks2.csv acks20.csv --latency-column wait --unit us
  latprof compare remote-ops.csv                      # its backends side by side

Exit status: 0 done, and within all limits with the whole interval; 1 failed, 2 wrong
usage; 3 beyond a limit with the whole interval; 4 undecided: the limit lies in the
interval, or nothing can be told. What that is of stands first, and how many values or
runs would decide. A percentile whose interval is wider than the limit is named, and
does not decide.
"""
# Columns of a table that goes to a file or a pipe, and of each side in it.
_FILE_WIDTH, _SIDE_WIDTH = 120, 28
_STATUS = {"passed": 0, "failed": 3, "undecided": 4}
_LIMITS = {
    "slower": "a latency (end_to_end, response, rtt; or what --only names) takes "
    "longer by more",
    "lossier": "more of all requests are lost: 1%% lets one in a hundred more be lost",
    "throughput-lower": "round trips a second are fewer by more",
}
_CORRECTIONS = {"bh": "benjamini-hochberg", "holm": "holm", "none": "none"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument("inputs", metavar="INPUT", nargs="+", help="what to compare")
    _add_choice(parser.add_argument_group("what is compared"))
    judging = parser.add_argument_group("how it is judged")
    judging.add_argument(
        "--smallest",
        metavar="SHARE",
        type=units.share,
        default=0.01,
        help="smaller changes count as none (default: 1%%)",
    )
    judging.add_argument(
        "--correction",
        choices=_CORRECTIONS,
        default="bh",
        help="for many comparisons: Benjamini-Hochberg, Holm, or none (default: bh)",
    )
    limits = parser.add_argument_group("limits, for scripts (exit status 3 and 4)")
    for name, what in _LIMITS.items():
        limits.add_argument(
            f"--fail-if-{name}", metavar="SHARE", type=units.share, help=what
        )
    limits.add_argument(
        "--accept-estimate",
        action="store_true",
        help="pass by the estimate alone, wherever its interval ends",
    )
    add_csv_options(parser)
    output = parser.add_argument_group("output")
    output.add_argument("--all", action="store_true", help="also what did not change")
    output.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )
    output.add_argument(
        "--csv", metavar="FILE", type=Path, help="also write all of it as CSV"
    )


def _add_choice(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--only",
        metavar="WORD,...",
        type=units.words,
        default=(),
        help="only these stages, protocols, kinds or ends: end_to_end, response, rtt, "
        "server, udp, reply",
    )
    group.add_argument(
        "--sizes", metavar="BYTES,...", type=units.sizes, default=(), help="only these"
    )
    group.add_argument(
        "--percentile",
        metavar="P,...",
        type=units.percentiles,
        default=(0.5, 0.9, 0.99),
        help="judge these (default: p50,p90,p99)",
    )
    group.add_argument(
        "--by", metavar="COLUMN", help="sides are the values of a column of the files"
    )
    group.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read run folders on this Dask cluster, which must see the same files: "
        "tcp://HOST:8786",
    )
    group.add_argument(
        "--baseline", metavar="NAME", help="the side that others are held against"
    )


def run(options: argparse.Namespace) -> int:
    """Compare, print, and say by the status whether the limits held."""
    from latprof_analysis.compare import document, gate

    columns = csv_columns(options)
    if options.csv:
        _check_csv(options.csv)
    try:
        compared = _compared(options, columns)
    except LatprofError:
        raise
    except ValueError as error:
        raise LatprofError(str(error)) from error
    found = document(compared)
    limits = {
        "slower": options.fail_if_slower,
        "lossier": options.fail_if_lossier,
        "throughput_lower": options.fail_if_throughput_lower,
    }
    limited = any(share is not None for share in limits.values())
    if options.accept_estimate and not limited:
        raise UsageError("--accept-estimate is of a limit; give --fail-if-slower, too")
    found["gate"] = (
        gate(
            found,
            **limits,
            stages=bool(options.only),
            accept_estimate=options.accept_estimate,
        )
        if limited
        else None
    )
    if options.csv:
        _write_csv(found, options.csv)
    if options.json:
        say_json(found)
    else:
        _print(found, options)
    return _STATUS[found["gate"]["outcome"]] if limited else 0


def _check_csv(path: Path) -> None:
    from latprof_analysis.write.whole_file import check_place

    if not path.parent.is_dir():
        raise LatprofError(f"cannot write {path}: no such folder; make it first")
    check_place(path, "--csv FILE")


def _write_csv(found: dict[str, Any], path: Path) -> None:
    from latprof_analysis.compare.document import write_csv
    from latprof_analysis.write.whole_file import write_file

    text = io.StringIO(newline="")
    write_csv(found, text)
    write_file(path, text.getvalue().encode("utf-8", "replace"))


def _compared(
    options: argparse.Namespace, columns: dict[str, str | None]
) -> Comparison:
    from latprof_analysis.compare import Choice, compare_sides, read_sides

    sides = read_sides(options.inputs, options.by, dask=options.dask, **columns)
    if len(sides) < 2:
        raise UsageError(
            "one input is nothing to compare; name two or more, the baseline first"
        )
    _check_words(options.only, sides)
    return compare_sides(
        _from_baseline(sides, options.baseline),
        percentiles=options.percentile,
        smallest=options.smallest,
        correction=_CORRECTIONS[options.correction],  # type: ignore[arg-type]
        choice=Choice(options.only, options.sizes),
    )


def _check_words(only: tuple[str, ...], sides: list[Side]) -> None:
    """Refuse a word of --only that no side has, as others would hide that it is."""
    known = {word for side in sides for group in side.groups for word in group.words}
    unknown = next((word for word in only if word not in known), None)
    if known and unknown is not None:
        named = ", ".join(ascii(word) for word in sorted(known))
        hint = did_you_mean(unknown, known)
        if re.fullmatch(r"p\d+(\.\d+)?", unknown):
            hint = f"; for percentiles: --percentile {unknown}"
        raise UsageError(f"--only must be of {named}, got {unknown!a}{hint}")


def _from_baseline(sides: list[Side], name: str | None) -> list[Side]:
    """Put the named side first."""
    if name is None:
        return sides
    chosen = [side for side in sides if side.name == name]
    if not chosen:
        known = ", ".join(ascii(side.name) for side in sides)
        hint = did_you_mean(name, [side.name for side in sides])
        raise UsageError(f"--baseline must be one of {known}, got {name!a}{hint}")
    return chosen + [side for side in sides if side.name != name]


def _print(found: dict[str, Any], options: argparse.Namespace) -> None:
    from latprof_analysis.report.compared import show
    from latprof_analysis.report.terminal import Terminal

    wide = max(_FILE_WIDTH, _SIDE_WIDTH * (1 + len(found["sides"])))
    width = None if sys.stdout.isatty() else wide
    console = Terminal(soft_wrap=width is not None, width=width)
    show(found, console, everything=options.all)
