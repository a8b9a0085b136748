"""A Dask cluster on the loopback interface, whose workers nobody starts again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import latprof_agent
import latprof_analysis
import pytest

distributed = pytest.importorskip("distributed", reason="dask is not installed")
PACKAGES = (latprof_analysis, latprof_agent)
PYTHONPATH = os.pathsep.join(str(Path(p.__file__).parents[1]) for p in PACKAGES)
WORKER = [sys.executable, "-m", "distributed.cli.dask_worker"]
WORKER += ["--no-nanny", "--no-dashboard"]

Start = Callable[..., list[subprocess.Popen]]


@contextmanager
def running_scheduler() -> Iterator[str]:
    """Run a scheduler without workers; gives its address."""
    with distributed.LocalCluster(
        n_workers=0, dashboard_address=None, silence_logs=50, host="127.0.0.1"
    ) as local:
        yield local.scheduler_address


@contextmanager
def starting_workers(scheduler: str, folder: Path) -> Iterator[Start]:
    """Give what starts workers as processes; all end with it."""
    started: list[subprocess.Popen] = []

    def start(
        count: int, threads: int = 1, options: Sequence[str] = (), **variables: str
    ) -> list[subprocess.Popen]:
        command = [*WORKER, "--nthreads", str(threads), *options]
        command += ["--local-directory", str(folder), scheduler]
        environment = {**os.environ, "PYTHONPATH": PYTHONPATH, **variables}
        fresh = [
            subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            for _ in range(count)
        ]
        started.extend(fresh)
        with distributed.Client(scheduler, set_as_default=False) as client:
            client.wait_for_workers(len(started), timeout=60)
        return fresh

    yield start
    for process in started:
        process.kill()
        process.wait()
    with distributed.Client(scheduler, set_as_default=False) as client:
        deadline = time.monotonic() + 30
        while client.nthreads() and time.monotonic() < deadline:
            client.sync(client.scheduler.identity)
