"""`latprof rebuild`: a run folder again, from the recording in it."""

from __future__ import annotations

import argparse
from pathlib import Path

from latprof_analysis.say import say_document

EPILOG = """\
FOLDER is a run folder with a recording, of `run`, `watch --record` or `echo --record`,
of this or another host. What the probes recorded then is joined and summed up again,
by this version of latprof. It needs neither root nor that kernel, and leaves FOLDER as
it is.

  latprof rebuild runs/latest
  latprof rebuild runs/20261126-101500 --out again --json
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="a run folder")
    parser.add_argument(
        "--out",
        metavar="DIR",
        type=Path,
        help="the new folder (default: beside FOLDER, its name with -rebuilt)",
    )
    parser.add_argument(
        "--parquet",
        action="store_true",
        help="write the tables as Parquet, too (default: if FOLDER has them so)",
    )
    parser.add_argument(
        "--quiet", action="store_true", help="show no progress while it is rebuilt"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )
    parser.add_argument("--all", action="store_true", help="show all figures")


def run(options: argparse.Namespace) -> int:
    """Rebuild, and show what it gave."""
    from latprof_analysis.read.paths import behind_link

    from latprof_agent.cli.progress_bar import progress_bar
    from latprof_agent.rebuild.rebuild import rebuild

    folder = behind_link(options.folder)
    out = options.out or folder.parent / f"{folder.resolve().name}-rebuilt"
    parquet = options.parquet or (folder / "messages.parquet").exists()
    with progress_bar(enabled=not options.quiet) as progress:
        rebuilt = rebuild(folder, out, progress, parquet=parquet)
    shown = rebuilt.summary
    if rebuilt.is_live and not options.json:
        from latprof_analysis.study.analysis import analyze

        shown = analyze(rebuilt.folder).document
    say_document(shown, as_json=options.json, everything=options.all)
    return 0
