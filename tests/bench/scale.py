"""How long ten million messages take to sum up, and how much memory; pandas, too."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from big_run import write_messages
from figure import Figure, figure
from latprof_analysis.read.run_folder import write_parquet
from programs import LATPROF
from progress import Progress

ROWS = 10_000_000
ROUNDS = 3
COMMAND_ROUNDS = 7
SCAN = "import sys, latprof_analysis as lp; lp.scan_runs(sys.argv[1])"
# The same percentiles by what everybody has: all stages by protocol, kind and size.
PANDAS = """\
import sys
import pandas as pd
from latprof_analysis.stages import STAGES
by = ["protocol", "kind", "size_bytes"]
stages = [f"{stage}_ns" for stage in (*STAGES, "wakeup", "end_to_end")]
frame = pd.read_csv(
    sys.argv[1] + "/messages.csv",
    usecols=[*by, *stages],
    dtype={"protocol": "category", "kind": "category"},
)
frame.groupby(by, observed=True)[stages].quantile([0.5, 0.9, 0.99, 0.999])
"""
# ... and by duckdb, whose quantiles are exact too.
DUCKDB = """\
import sys
import duckdb
from latprof_analysis.stages import STAGES
stages = [f"{stage}_ns" for stage in (*STAGES, "wakeup", "end_to_end")]
duckdb.sql("SET enable_progress_bar = false")
found = ", ".join(f"quantile_disc({s}, [0.5, 0.9, 0.99, 0.999])" for s in stages)
duckdb.sql(
    f"SELECT protocol, kind, size_bytes, {found} "
    f"FROM '{sys.argv[1]}/messages.csv' GROUP BY ALL"
).fetchall()
"""


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Each in a process of its own, from its start to its end."""
    run = folder / "run"
    run.mkdir()
    progress(f"writing {ROWS} rows")
    write_messages(run / "messages.csv", ROWS)
    yield from _scan("CSV", run, progress, seconds=(8, 5), gigabytes=(1, 1))
    for name, code in (("pandas", PANDAS), ("duckdb", DUCKDB)):
        progress(name)
        if not find_spec(name):
            progress(f"{name} is not installed: left out")
            continue
        wall, cpu, peak = _measured(code, run)
        yield figure(f"  {name}, {ROWS:.0e} rows from CSV", "s", [wall])
        yield figure(f"  {name}, of its CPU time", "s", [cpu])
        yield figure(f"  {name}, peak memory", "GB", [peak])
    yield from _commands(folder, run, progress)
    progress("writing Parquet")
    write_parquet(run)
    yield from _scan("Parquet", run, progress, seconds=(2.5, 1.5), gigabytes=(1, 1))


def _scan(
    source: str,
    run: Path,
    progress: Progress,
    seconds: tuple[float, float],
    gigabytes: tuple[float, float],
) -> Iterator[Figure]:
    rounds = []
    for i in range(ROUNDS):
        progress(f"{source}, round {i + 1} of {ROUNDS}")
        rounds.append(_measured(SCAN, run))
    wall, cpu, peak = zip(*rounds, strict=True)
    name = f"summary of {ROWS:.0e} rows from {source}"
    yield figure(name, "s", wall, bar=seconds[0], goal=seconds[1])
    yield figure("  of its CPU time", "s", cpu)
    yield figure(
        "  of its peak memory", "GB", peak, bar=gigabytes[0], goal=gigabytes[1]
    )


def _commands(folder: Path, large: Path, progress: Progress) -> Iterator[Figure]:
    """The commands as a person starts them."""
    small = folder / "small"
    progress("latprof run")
    words = [*LATPROF, "run", "--out", str(small)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    seconds = []
    for i in range(COMMAND_ROUNDS):
        progress(f"analyze, round {i + 1} of {COMMAND_ROUNDS}")
        seconds.append(_seconds("analyze", small))
    yield figure("latprof analyze of a default run", "s", seconds, bar=0.6, goal=0.4)
    if find_spec("vl_convert"):
        progress(f"report of {ROWS} rows")
        page = folder / "report.html"
        taken = [_seconds("report", large, "--out", str(page))]
        yield figure(f"latprof report, {ROWS:.0e} rows", "s", taken, bar=12)


def _seconds(command: str, run: Path, *more: str) -> float:
    began = time.monotonic()
    words = [*LATPROF, command, str(run), *more]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _measured(code: str, run: Path) -> tuple[float, float, float]:
    """Wall and CPU time in seconds, and peak memory in GB, of a program.

    Memory is that of all its processes; what they share counts once.
    """
    began, before = time.monotonic(), _cpu_seconds()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(run)], start_new_session=True
    )
    peak, ended = 0, threading.Event()
    waiter = threading.Thread(target=lambda: (process.wait(), ended.set()))
    waiter.start()
    while not ended.wait(0.05):
        peak = max(peak, _session_bytes(process.pid))
    waiter.join()
    wall = time.monotonic() - began
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return wall, _cpu_seconds() - before, peak / 1e9


def _session_bytes(session: int) -> int:
    total = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(folder.name)) == session:
                text = (folder / "smaps_rollup").read_text()
                total += 1024 * int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])
    return total


def _cpu_seconds() -> float:
    """CPU time of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
