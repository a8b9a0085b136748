"""`latprof analyze`: what run folders and other tools' files hold."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from latprof_analysis import units
from latprof_analysis.errors import LatprofError, UsageError
from latprof_analysis.say import say_document

if TYPE_CHECKING:
    from latprof_analysis.study.analysis import Study

# What takes less is done before anybody wonders.
_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.2


def show_progress() -> Callable[[int, int], None] | None:
    """Return what shows rows read of rows in all on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        return None
    began = shown_at = time.monotonic()

    def show(done: int, planned: int) -> None:
        nonlocal shown_at
        now = time.monotonic()
        if done >= planned and shown_at > began:
            sys.stderr.write("\r\x1b[K")
        elif now - began > _QUIET_SECONDS and now - shown_at > _EVERY_SECONDS:
            left = (now - began) * (planned - done) / max(1, done)
            shown_at = now
            sys.stderr.write(
                f"\r\x1b[Kread {done:,} of about {planned:,} rows, {left:.0f} s left"
            )
        sys.stderr.flush()

    return show


EPILOG = """\
A PATH is a run folder, a folder of them, a file of another tool or a pattern; several
are taken together, but for runs of different set-ups. What a file is stands in it:
ping, fping, mtr, iperf3, iperf 2, irtt, sockperf, netperf, flent, owping, wrk, wrk2,
hey, oha, ab, k6, vegeta, JMeter, redis-benchmark, memtier, HdrHistogram (--unit), pcap
and pcapng, bcc, netstacklat, ProxyStore, TMSN, CLEAR. Any other CSV: --latency-column
and --unit, and --size-column.

  latprof analyze runs/2026-11-21T10-00-00
  latprof analyze 'runs/host-*' --json > summary.json
  latprof analyze times.csv --latency-column rtt --unit ms --size-column bytes
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    add_input_options(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="every table: also by size, packets and hops, tails with intervals, the "
        "order of time, a line for each stage, and rival estimators",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )


def add_input_options(parser: argparse.ArgumentParser) -> None:
    """Add what names the input, for each command that reads one."""
    parser.add_argument("paths", metavar="PATH", nargs="+", help="what to read")
    add_csv_options(parser)
    parser.add_argument(
        "--pool",
        action="store_true",
        help="take runs of different set-ups together, which are told apart else",
    )
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="read run folders on this Dask cluster, which must see the same files: "
        "tcp://HOST:8786",
    )
    parser.add_argument(
        "--reply",
        metavar="echo|BYTES",
        type=units.either("echo", units.size),
        help="how the responder answered, where the file does not tell: the factor of "
        "the fit D = aS + b follows from it",
    )


def add_csv_options(parser: argparse.ArgumentParser) -> None:
    """Add what names the columns of a CSV, and how it is to be read."""
    csv = parser.add_argument_group("any other CSV")
    csv.add_argument("--latency-column", metavar="NAME", help="column of latencies")
    csv.add_argument(
        "--unit",
        choices=["ns", "us", "ms", "s"],
        help="unit of the latencies, or of a histogram that has none (HdrHistogram's)",
    )
    csv.add_argument("--size-column", metavar="NAME", help="column of sizes in bytes")
    csv.add_argument(
        "--delimiter",
        choices=["comma", "semicolon", "tab", "pipe", "blank"],
        help="what cuts cells, where the header does not show it",
    )
    csv.add_argument(
        "--numbers",
        choices=["decimal-comma", "thousands"],
        help="what a comma in a number means, where that cannot be seen",
    )
    csv.add_argument(
        "--lost-if",
        metavar="VALUE,...|empty|none",
        help="cells that stand for a loss, as --lost-if=-1,timeout (default: words as "
        "timeout, -, NaN, and -1; empty ones where there is no other column)",
    )
    csv.add_argument(
        "--where",
        metavar="COLUMN=TEXT",
        action="append",
        help="rows to read, where a column names what is measured (several may be "
        "given)",
    )


def csv_columns(options: argparse.Namespace) -> dict[str, Any]:
    """Return what names the columns of a CSV, as readers take it; no part of it."""
    rest = ("size_column", "delimiter", "numbers", "lost_if", "where")
    names = ("latency_column", "unit", *rest)
    found: dict[str, Any] = {name: getattr(options, name) for name in names}
    if found["latency_column"] is not None and found["unit"] is None:
        raise UsageError("--latency-column goes with --unit")
    for name in rest:
        if found[name] and found["latency_column"] is None:
            option = name.replace("_", "-")
            raise UsageError(f"--{option} goes with --latency-column and --unit")
    found["where"] = found["where"] or ()
    if found["latency_column"] is not None:
        from latprof_analysis.read.loss_cells import LossCells
        from latprof_analysis.read.row_choice import RowChoice

        try:
            LossCells.of(found["lost_if"], only_column=False)
            RowChoice.of(found["where"])
        except ValueError as error:
            raise UsageError(f"--{str(error).replace('_', '-', 1)}") from error
    return found


def read_study(
    options: argparse.Namespace,
    *,
    thorough: bool = False,
    modes: bool = True,
    stories: bool = False,
) -> Study:
    """Read what the options name; `LatprofError` in one line where it cannot be."""
    from latprof_analysis.study.analysis import analyze

    columns = csv_columns(options)
    try:
        return analyze(
            options.paths,
            **columns,
            reply_mode=options.reply,
            thorough=thorough,
            modes=modes,
            pool=options.pool,
            stories=stories,
            progress=show_progress(),
            dask=options.dask,
        )
    except LatprofError:
        raise
    except ValueError as error:
        raise LatprofError(str(error)) from error


def run(options: argparse.Namespace) -> int:
    """Analyze, and print."""
    # which no screen shows but that of all
    modes = options.all or options.json
    found = read_study(options, thorough=options.all, modes=modes)
    say_document(found.document, as_json=options.json, everything=options.all)
    return 0
