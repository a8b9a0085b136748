"""Live counts under churn for a while: exact, in memory that does not grow.

A minute by itself; LATPROF_SOAK_SECONDS=1800 (`make soak`) for half an hour.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from functools import reduce

import pytest
from latprof_process import Latprof

SECONDS = float(os.environ.get("LATPROF_SOAK_SECONDS", "60"))
SIZE = 100
# Of Python's own allocator, and of what is kept of flows until it is full.
GROWTH_BYTES = 12 << 20
WARM_UP = 0.4  # of the time


def serve(listening: socket.socket) -> None:
    while True:
        try:
            end, _ = listening.accept()
        except OSError:
            return  # closed: it is over
        with end:
            while end.recv(SIZE, socket.MSG_WAITALL):
                end.sendall(bytes(SIZE))


def churn(port: int, until: float) -> tuple[int, int]:
    """Short connections of one to eight exchanges; how many of both."""
    connections = exchanges = 0
    while time.monotonic() < until:
        with socket.create_connection(("127.0.0.1", port)) as client:
            for _ in range(1 + connections % 8):
                client.sendall(bytes(SIZE))
                client.recv(SIZE, socket.MSG_WAITALL)
                exchanges += 1
        connections += 1
    return connections, exchanges


@pytest.mark.thorough
def test_counts_stay_exact_and_memory_flat_under_churn():
    listening = socket.create_server(("127.0.0.1", 0), backlog=128)
    port = listening.getsockname()[1]
    threading.Thread(target=serve, args=(listening,), daemon=True).start()
    only = ("--port", str(port))  # whatever else this machine does
    options = ("--json", "--interval", "1s", "--max-overhead", "none", *only)
    watch = Latprof("watch", *options)
    documents: list[dict] = []
    try:
        out = watch.process.stdout
        documents.append(json.loads(out.readline()))  # it measures
        reader = threading.Thread(target=lambda: documents.extend(map(json.loads, out)))
        reader.start()
        connections, exchanges = churn(port, time.monotonic() + SECONDS)
        listening.close()
        watch.signal(signal.SIGINT)
        reader.join()
        assert watch.process.wait() == 0
    finally:
        listening.close()
        watch.process.kill()

    def total(role, *keys):
        name = f"tcp {role} {port}"
        groups = [g for d in documents for g in d["groups"] if g["name"] == name]
        return sum(reduce(dict.__getitem__, keys, group) for group in groups)

    assert connections > 100 * SECONDS / 10
    for role in ("client", "server"):
        assert total(role, "messages") == exchanges
        assert total(role, "bytes") == exchanges * SIZE
        assert total(role, "exchanges", "exchanges") == exchanges
    assert all(not any(d["lost_records"].values()) for d in documents)
    resident = [d["cost"]["agent_resident_bytes"] for d in documents]
    warm = resident[int(len(resident) * WARM_UP)]
    assert resident[-1] - warm < GROWTH_BYTES, [r >> 20 for r in resident]
