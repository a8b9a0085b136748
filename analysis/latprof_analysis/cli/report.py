"""`latprof report`: what was found, as one page with figures."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from latprof_analysis.cli.analyze import add_input_options, read_study
from latprof_analysis.errors import UsageError
from latprof_analysis.say import say, say_json

FORMATS = ("html", "md", "pdf", "png")
EPILOG = """\
A PATH is what `latprof analyze` reads. The format follows from the name of --out:
html is one file that works offline, md has its pictures in a folder beside it, pdf
and png stand by themselves. Without --out it is report.html in the run folder, or
here if several files are read.

  latprof report runs/2026-11-21T10-00-00
  latprof report 'runs/*' --out all.html --csv figures/
  latprof report runs/latest --out report.pdf
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    add_input_options(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help="file to write")
    parser.add_argument("--format", choices=FORMATS, help="what to write")
    parser.add_argument(
        "--csv", metavar="DIR", type=Path, help="write each figure's data there, too"
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout"
    )


def run(options: argparse.Namespace) -> int:
    """Read, lay out, write."""
    from latprof_analysis.report.build import build_report
    from latprof_analysis.report.write import check_tools, write_csv, write_report
    from latprof_analysis.write.whole_file import check_place

    chosen = _format(options)
    out = options.out or _beside(options.paths, chosen)
    if out.is_dir():
        raise UsageError(f"--out must be a file, got the folder {out}")
    # before reading, which may take minutes
    check_tools(chosen)
    check_place(out, "--out FILE")
    if options.csv:
        check_place(options.csv / "figure.csv", "--csv DIR")
    found = read_study(options, stories=True)
    report = build_report(found, _title(options.paths, found.document))
    written = [out, *write_report(report, out, chosen)]
    if options.csv:
        written += write_csv(report, options.csv)
    if options.json:
        say(f"report: {out}", sys.stderr)
        paths = [str(path) for path in written]
        say_json({"report": paths, "study": found.document})
    else:
        for line in (*report.answer, f"report: {out}"):
            say(line)
    return 0


def _format(options: argparse.Namespace) -> str:
    ending = options.out.suffix.removeprefix(".").lower() if options.out else ""
    if options.format:
        return str(options.format)
    if ending and ending not in FORMATS:
        raise UsageError(
            f"--out must end in .{', .'.join(FORMATS)}, or --format say what to write; "
            f"got {options.out}"
        )
    return ending or FORMATS[0]


def _beside(paths: list[str], chosen: str) -> Path:
    from latprof_analysis.read.paths import behind_link

    only = behind_link(Path(paths[0]))
    folder = only if len(paths) == 1 and only.is_dir() else Path()
    return folder / f"report.{chosen}"


def _title(paths: list[str], document: dict[str, Any]) -> str:
    """Name one run by its own name and what it did, several by their folders."""
    from latprof_analysis.report.sentences import first_names, run_name, setup_title

    runs = document.get("runs") or {}
    if len(runs) == 1 and document["workload"]:
        ((folder, run),) = runs.items()
        return f"{run_name(folder, run)}: {setup_title(document)}"
    names = [Path(path).resolve().name for path in paths]
    return first_names(names)
