"""How late the generator sends in an open loop that spins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figure import Figure, figure
from latprof_agent.workload.generator_log import LogTail, log_in
from programs import generator, output_of, placements, plain_lab, responder
from progress import Progress

ROUNDS = 7
COUNT = 1000
INTERVAL_NS = 1_000_000


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """A message every millisecond; sent_ns less intended_ns."""
    client, server = list(placements().values())[-1]
    for protocol in ("tcp", "udp"):
        late: dict[int, list[float]] = {50: [], 99: []}
        for i in range(ROUNDS):
            progress(f"{protocol}, round {i + 1} of {ROUNDS}")
            found = _lateness_us(folder, protocol, client, server)
            for percent, values in late.items():
                values.append(float(np.percentile(found, percent)))
        name = f"{protocol} lateness of an open loop, 1 ms, spinning"
        yield figure(f"{name}, p50", "us", late[50], bar=1.0)
        yield figure(f"{name}, p99", "us", late[99])


def _lateness_us(folder: Path, protocol: str, client: int, server: int) -> np.ndarray:
    log = folder / "lateness.log"
    log.unlink(missing_ok=True)
    with plain_lab() as lab:
        words = ["--address", lab.b_address]
        echo = [generator(), "echo", *words, "--port", "0", "--cpu", str(server)]
        with responder(lab, *echo) as line:
            words += ["--port", line.split()[1], "--cpu", str(client)]
            words += ["--protocol", protocol]
            words += ["--sizes", "64", "--rounds", str(COUNT), "--output", str(log)]
            words += ["--interval", str(INTERVAL_NS), "--spin"]
            output_of(lab, generator(), "pingpong", *words)
    with log.open("rb") as file:
        records = LogTail(log_in(file.fileno())).read()
    late_ns = records["sent_ns"].astype("i8") - records["intended_ns"].astype("i8")
    return late_ns / 1e3
