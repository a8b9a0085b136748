"""Measure latprof's own speed: `python tests/bench [NAME ...]`, as root.

Every figure stands beside its bar (what must hold) and its goal. Ratios are
between runs that alternate, so that a busy machine slows both; absolute times
are only as good as the machine was idle, so its load is printed, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from figure import Figure
from programs import probes_of_all
from progress import Progress

# compares states of one machine in pairs, of which there may be more or fewer
PAIRED = ("cost", "redis", "unwatched", "live")
MEASUREMENTS = (
    *PAIRED,
    "rest",
    "generator",
    "bulk",
    "lateness",
    "ops",
    "mesh",
    "story",
    "drain",
    "flood",
    "recording",
    "memory",
    "help",
    "scale",
    "scrape",
    "fleet",
)


def _machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo").read_text()
    models = [
        line.partition(":")[2].strip()
        for line in cpuinfo.splitlines()
        if line.startswith("model name")
    ]
    return {
        "processor": models[0] if models else platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "attached_probes_of_others": probes_of_all(),
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"which to measure, of: {', '.join(MEASUREMENTS)} (all)",
    )
    parser.add_argument(
        "--pairs",
        type=int,
        default=7,
        metavar="N",
        help=f"rounds with and without probes, of {', '.join(PAIRED)} (default: 7)",
    )
    parser.add_argument("--json", action="store_true", help="one document on stdout")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(MEASUREMENTS))
    if unknown:
        parser.error(f"no measurement named {', '.join(unknown)}; see --help")
    if options.pairs < 1:
        parser.error(f"--pairs must be 1 or more, got {options.pairs}")
    if os.geteuid():
        parser.error("probes and namespaces need root; try again with sudo")
    return options


def _measured(name: str, options: argparse.Namespace) -> list[Figure]:
    progress = Progress(name)
    found = []
    measure = import_module(name).measure
    if name in PAIRED:
        measure = partial(measure, pairs=options.pairs)
    with tempfile.TemporaryDirectory(prefix="latprof-bench-") as folder:
        for figure in measure(Path(folder), progress):
            progress.done()
            found.append(figure)
            if not options.json:
                print(figure.line(), flush=True)
    progress.done()
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; a bar that is missed is shown, no failure."""
    options = _options(arguments)
    machine = _machine()
    if not options.json:
        print(", ".join(f"{key.replace('_', ' ')} {v}" for key, v in machine.items()))
    figures = []
    for name in options.names or MEASUREMENTS:
        figures += _measured(name, options)
    machine["load_after"] = os.getloadavg()[0]
    if options.json:
        document = {"machine": machine, "figures": [f.as_dict() for f in figures]}
        json.dump(document, sys.stdout, indent=2)
        print()
    else:
        print(f"load after {machine['load_after']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
