"""`latprof join`: one run folder from what several hosts recorded, on one clock."""

from __future__ import annotations

import argparse
from pathlib import Path

from latprof_analysis import units
from latprof_analysis.say import say_document

EPILOG = """\
Each FOLDER is what one host recorded by itself at the same time: of `run attach`,
`run --to`, `echo --record` or `watch --record`; its recording alone will do, too. It
needs no root, and leaves them as they are. Halves of messages meet by what both hosts
saw of them, also through NAT. The hosts' clocks are estimated from the packets
themselves, in both directions; each time between hosts has its interval.

  latprof join client-run server-run --out joined
  latprof join a b c --reference b --out joined
  latprof join a b --symmetric              # both ways take as long: narrower
  latprof report joined
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument(
        "folders",
        metavar="FOLDER",
        type=Path,
        nargs="+",
        help="a run folder or a recording of each host",
    )
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="the new folder (default: runs/DATE-TIME)",
    )
    parser.add_argument(
        "--reference",
        metavar="HOST",
        help="the host on whose clock all stamps will be, by name or folder (default: "
        "the one with a load generator, or else the first)",
    )
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument(
        "--symmetric",
        action="store_true",
        help="take it that both ways between two hosts last equally long where nothing "
        "queues (default: any way may be the longer one)",
    )
    ways.add_argument(
        "--asymmetry",
        type=units.signed_time_ns,
        metavar="TIME",
        help="what the way from an earlier FOLDER to a later one takes longer than "
        "the way back where nothing queues: --asymmetry=5ms, --asymmetry=-5ms",
    )
    parser.add_argument(
        "--wall-error",
        type=units.time_ns,
        metavar="TIME",
        help="how far any two hosts' wall clocks are apart at most, as of PTP: a bound "
        "beside that of packets (default: what chrony says, where it runs on both)",
    )
    parser.add_argument(
        "--parquet", action="store_true", help="write the tables as Parquet, too"
    )
    parser.add_argument(
        "--dask",
        metavar="ADDRESS",
        help="join on this Dask cluster, whose workers must see the same files: "
        "tcp://HOST:8786; gives the same, byte for byte",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="show no progress while it is joined"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )
    parser.add_argument("--all", action="store_true", help="show all figures")


def run(options: argparse.Namespace) -> int:
    """Join, and show what it gave."""
    from latprof_agent.cli.progress_bar import progress_bar
    from latprof_agent.join.estimate import Assumed
    from latprof_agent.join.join import JoinOptions, join

    wanted = JoinOptions(
        options.reference,
        Assumed(
            symmetric=options.symmetric,
            asymmetry_ns=options.asymmetry,
            wall_error_ns=options.wall_error,
        ),
        parquet=options.parquet,
        dask=options.dask,
    )
    with progress_bar(enabled=not options.quiet) as progress:
        joined = join(options.folders, options.out, progress, wanted)
    say_document(joined.summary, as_json=options.json, everything=options.all)
    return 0
