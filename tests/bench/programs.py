"""What the measurements run: latprof itself, its generator, C programs of theirs."""

from __future__ import annotations

import csv
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from latprof_agent.executables import find_executable
from latprof_agent.lab.lab import Lab
from latprof_agent.lab.link import LinkSpec

HERE = Path(__file__).parent
LATPROF = [sys.executable, "-m", "latprof_agent"]
PLAIN_VETH = ["--rate", "0", "--delay", "0"]


def compiled(name: str, folder: Path) -> str:
    """Compile a C program of this folder, the way anybody would."""
    program = folder / name
    command = ["gcc", "-O2", "-o", str(program), str(HERE / f"{name}.c")]
    subprocess.run(command, check=True)
    return str(program)


def generator() -> str:
    """Find latprof's own generator."""
    return str(find_executable("latprof-load"))


def plain_lab() -> Lab:
    """Make two namespaces joined by veth, nothing shaped."""
    return Lab(LinkSpec(rate_bps=0, delay_ns=0))


@dataclass(frozen=True)
class Run:
    """What one `latprof run` left."""

    folder: Path
    summary: dict[str, Any]

    def median_rtt_ns(self) -> float:
        """The median of round_trips.csv itself, not of its histogram."""
        with (self.folder / "round_trips.csv").open() as file:
            return statistics.median(int(r["rtt_ns"]) for r in csv.DictReader(file))


def latprof_run(folder: Path, *words: str) -> Run:
    """Run latprof quietly in a new run folder."""
    command = [*LATPROF, "run", *words, "--quiet", "--json", "--out", str(folder)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return Run(folder, json.loads(done.stdout))


def cpus() -> list[int]:
    """Which CPUs the measurements may use."""
    return sorted(os.sched_getaffinity(0))


def placements() -> dict[str, tuple[int, int]]:
    """Where client and server may stand to each other, by a name for it."""
    found = cpus()
    one = {"both ends on one CPU": (found[0], found[0])}
    if len(found) == 1:
        return one
    return one | {"an end on each CPU": (found[0], found[1])}


@contextmanager
def responder(lab: Lab, *words: str) -> Iterator[str]:
    """Run a program at the lab's end b; give the first line that it prints."""
    process = lab.start("b", words, stdout=subprocess.PIPE, text=True)
    try:
        yield process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


def output_of(lab: Lab, *words: str) -> str:
    """Run a program at the lab's end a to its end; give what it printed."""
    process = lab.start("a", words, stdout=subprocess.PIPE, text=True)
    text, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, words)
    return str(text)
