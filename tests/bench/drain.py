"""What it costs to read a record from the rings into an array.

It is a copy of memory that another CPU has written, so it is held against a copy
of the same records from one array to another, too: where that takes long, the
machine's memory is slow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from figure import Figure, figure
from latprof_agent.capture.capture import Capture
from latprof_agent.capture.rings import Batch
from latprof_agent.probes.catalogue import capabilities
from latprof_agent.probes.filter import Filter
from programs import compiled, cpus, output_of, plain_lab, responder
from progress import Progress

ROUNDS = 15
# a flood of this long leaves 30,000 records: rings of the default size nearly full,
# and twenty times what the agent finds there, which drains every 5 ms
SENT_SECONDS = "0.1"
PORT = "5001"


def copy_ns(batch: Batch) -> int:
    """How long a copy of these records takes, into memory that is there already."""
    rooms = [(records.copy(), records) for records in batch.values()]
    began_ns = time.thread_time_ns()
    for room, records in rooms:
        np.copyto(room, records)
    return time.thread_time_ns() - began_ns


def measure(folder: Path, progress: Progress) -> Iterator[Figure]:
    """Fill the rings with a real flood that nobody drains, then read them."""
    flood = compiled("flood", folder)
    costs: list[float] = []
    copies: list[float] = []
    counts: list[int] = []
    with plain_lab() as lab:
        watched = Filter(netns=(lab.a_inode, lab.b_inode), protocols=("udp",))
        with Capture(watched, capabilities(("udp",))) as capture:
            capture.start(draining=False)
            with responder(lab, flood, "sink", str(cpus()[-1]), PORT):
                for i in range(ROUNDS):
                    progress(f"round {i + 1} of {ROUNDS}")
                    to = [lab.b_address, PORT, "64", SENT_SECONDS]
                    output_of(lab, flood, "send", str(cpus()[0]), *to)
                    began_ns = time.thread_time_ns()
                    capture.drain()
                    took_ns = time.thread_time_ns() - began_ns
                    batch = capture.read()
                    counts.append(sum(map(len, batch.values())))
                    costs.append(took_ns / counts[-1])
                    copies.append(took_ns / copy_ns(batch))
                    del batch
    yield figure(
        "drain, from the rings into arrays",
        "ns/record",
        costs,
        bar=15,
        goal=8,
        note=f"{min(counts)}..{max(counts)} records a round",
    )
    yield figure(
        "drain, beside a copy of the same records",
        "x",
        copies,
        note="the time that it takes as a multiple",
    )
