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
from latprof_analysis.read.parquet_writing import write_parquet
from programs import LATPROF
from progress import Progress

ROWS = 10_000_000
ROUNDS = 3
FEW_ROWS, COMMAND_ROUNDS = 10_000, 7
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


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Each in a process of its own, from its start to its end."""
    run = folder / "run"
    run.mkdir()
    progress(f"writing {ROWS} rows")
    write_messages(run / "messages.csv", ROWS)
    progress("pandas")
    by_pandas = _measured(PANDAS, run)
    yield from _scan("CSV", run, progress, seconds=(12, 5), gigabytes=(2, 1))
    yield figure(f"  pandas, {ROWS:.0e} rows from CSV", "s", [by_pandas[0]])
    yield figure("  pandas, of its CPU time", "s", [by_pandas[1]])
    yield figure("  pandas, peak memory", "GB", [by_pandas[2]])
    yield from _commands(folder, run, progress)
    if not find_spec("pyarrow"):
        return
    progress("writing Parquet")
    write_parquet(run)
    yield from _scan("Parquet", run, progress, seconds=(3, 1.5), gigabytes=(2, 1))


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
    small.mkdir()
    write_messages(small / "messages.csv", FEW_ROWS)
    seconds = []
    for i in range(COMMAND_ROUNDS):
        progress(f"analyze, round {i + 1} of {COMMAND_ROUNDS}")
        seconds.append(_seconds("analyze", small))
    yield figure(f"latprof analyze, {FEW_ROWS} rows", "s", seconds, bar=1.5, goal=0.8)
    if find_spec("vl_convert"):
        progress(f"report of {ROWS} rows")
        page = folder / "report.html"
        taken = [_seconds("report", large, "--out", str(page))]
        yield figure(f"latprof report, {ROWS:.0e} rows", "s", taken, bar=30)


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
