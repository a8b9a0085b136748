"""How long ten million messages take to sum up, and how much memory; pandas, too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from big_run import write_messages
from figure import Figure, figure
from latprof_analysis.readers.parquet_writing import write_parquet
from progress import Progress

ROWS = 10_000_000
ROUNDS = 3
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


def _measured(code: str, run: Path) -> tuple[float, float, float]:
    """Wall and CPU time in seconds, and peak memory in GB, of a program."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", code, str(run)])
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.monotonic() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, process.args)
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024 / 1e9
