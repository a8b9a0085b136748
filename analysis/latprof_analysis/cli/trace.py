"""`latprof trace`: stories as a file that Perfetto draws."""

from __future__ import annotations

import argparse
from pathlib import Path

from latprof_analysis.errors import UsageError
from latprof_analysis.say import say

EPILOG = """\
FOLDER is what `latprof story` reads. Open the file at ui.perfetto.dev, which keeps it
in your browser: each slow message and exchange with its stages, an arrow from sender to
reader, what their threads and interrupts did, queues and windows. Of joined hosts it is
an archive: each is a machine, and the manifest in it says how their clocks compare
(Perfetto 58 or newer).

  latprof trace runs/latest
  latprof trace joined --out slow.tar
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of this subcommand."""
    parser.epilog = EPILOG
    parser.add_argument(
        "path",
        metavar="FOLDER",
        type=Path,
        help="a run folder, an agent's, or a file of stories",
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="file to write (default: trace.pftrace in the folder, of joined hosts "
        "trace.tar)",
    )


def run(options: argparse.Namespace) -> int:
    """Read, draw, write."""
    from latprof_analysis.read.paths import behind_link
    from latprof_analysis.report.story_trace import trace_of
    from latprof_analysis.write.whole_file import check_place, write_file

    if options.out and options.out.is_dir():
        raise UsageError(f"--out must be a file, got the folder {options.out}")
    path = behind_link(options.path)
    if options.out:
        check_place(options.out, "--out FILE")
    trace = trace_of(path)
    name = "trace.pftrace" if trace.machines == 1 else "trace.tar"
    out = options.out or (path if path.is_dir() else path.parent) / name
    write_file(out, trace.data)
    has = [f"stories: {trace.stories}"]
    if trace.without_stamps:
        has.append(f"{trace.without_stamps} without stamps left out")
    if trace.machines > 1:
        has.append(f"machines: {trace.machines}")
    say(f"trace: {out} ({', '.join(has)}); open it at ui.perfetto.dev")
    return 0
