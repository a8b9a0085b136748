"""A mesh of 10 hosts: how late its clients send, and what all else costs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from figure import Figure, figure
from programs import PLAIN_VETH, latprof_run
from progress import Progress

ROUNDS = 3
HOSTS, SIZE, INTERVAL = "10", "1024", "10ms"
# a minute, against which to begin and to sum up (0.6 CPU seconds) is little
MESH = (
    *("mesh", "--hosts", HOSTS, "--sizes", SIZE),
    *("--interval", INTERVAL, "--messages", "6000", "--tests", "1"),
)


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """90 pairs, 1 KiB every 10 ms, recorded: 9000 round trips a second."""
    late: dict[int, list[float]] = {50: [], 99: []}
    shares: dict[str, list[float]] = {"agent": [], "probes": []}
    for i in range(ROUNDS):
        progress(f"mesh of {HOSTS} hosts, round {i + 1} of {ROUNDS}")
        run = latprof_run(folder / f"mesh{i}", *MESH, *PLAIN_VETH)
        for name, values in shares.items():
            values.append(run.summary["cost"][f"{name}_cpu_share"])
        trips = pd.read_csv(run.folder / "round_trips.csv")
        late_us = (trips["sent_ns"] - trips["intended_ns"]) / 1e3
        for percent, found in late.items():
            found.append(float(late_us.quantile(percent / 100)))
    name = f"mesh of {HOSTS} hosts, {SIZE} B every {INTERVAL}"
    yield figure(f"{name}, lateness p50", "us", late[50])
    yield figure(f"{name}, lateness p99", "us", late[99], bar=100.0)
    for of, found in shares.items():
        yield figure(f"{name}, {of}", "of a CPU", found)
    # all that is neither a generator nor a responder
    both = [sum(of_run) for of_run in zip(*shares.values(), strict=True)]
    yield figure(f"{name}, agent and probes", "of a CPU", both, bar=0.1)
