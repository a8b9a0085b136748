"""What it costs to read a record from the rings into an array."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from figure import Figure, figure
from latprof_agent.capture.capture import Capture
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.probes.filter import Filter
from programs import compiled, cpus, plain_lab, repeated, responder
from progress import Progress

ROUNDS = 15
# a flood of this long leaves 30,000 records: rings of the default size nearly full,
# and twenty times what the agent finds there, which drains every 5 ms
SENT_SECONDS = "0.1"
PORT = "5001"


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Fill the rings with a real flood that nobody drains, then read them."""
    flood = compiled("flood", folder)
    costs: list[float] = []
    counts: list[int] = []
    with plain_lab() as lab:
        watched = Filter(netns=(lab.a_inode, lab.b_inode), protocols=("udp",))
        with Capture(watched, capabilities(("udp",))) as capture:
            capture.start(draining=False)
            to = (lab.b_address, PORT, "64", SENT_SECONDS)
            with (
                responder(lab, flood, "sink", str(cpus()[-1]), PORT),
                repeated(lab, flood, "send", str(cpus()[0]), *to) as send,
            ):
                for i in range(ROUNDS):
                    progress(f"round {i + 1} of {ROUNDS}")
                    send()
                    began_ns = time.thread_time_ns()
                    capture.drain()
                    took_ns = time.thread_time_ns() - began_ns
                    batch = capture.read()
                    counts.append(sum(map(len, batch.values())))
                    costs.append(took_ns / counts[-1])
                    del batch
    yield figure(
        "drain, from the rings into arrays",
        "ns/record",
        costs,
        bar=15,
        goal=8,
        note=f"{min(counts)}..{max(counts)} records a round",
    )
