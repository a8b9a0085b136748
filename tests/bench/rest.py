"""What the agent takes, by default, where little or nothing happens.

Of its budget it takes the first part itself: what it needs at rest is missing where
there is traffic, and then it measures less of the time.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from figure import Figure, figure
from programs import Agent
from progress import Progress

SERVICES = 150
MESSAGES_PER_SECOND = (0, 1_000)
SETTLE_SECONDS, SLICE_SECONDS = 10.0, 20.0
LOOKS = 5
# A connection each, and round trips on one of them, drawn anew for each.
TRAFFIC = """\
import random, selectors, socket, sys, threading, time
services, rate = int(sys.argv[1]), float(sys.argv[2])
selector, clients = selectors.DefaultSelector(), []
for _ in range(services):
    listener = socket.create_server(("127.0.0.1", 0))
    clients.append(socket.create_connection(listener.getsockname()))
    server, _ = listener.accept()
    selector.register(server, selectors.EVENT_READ, listener)
def serve():
    while True:
        for key, _ in selector.select():
            key.fileobj.send(key.fileobj.recv(4096))
threading.Thread(target=serve, daemon=True).start()
print("ready", flush=True)
due = time.monotonic()
while True:
    if not rate:
        time.sleep(60)
        continue
    client = random.choice(clients)
    client.send(bytes(64))
    client.recv(4096)
    due += 2 / rate
    time.sleep(max(0.0, due - time.monotonic()))
"""


def measure(_folder: Path, progress: Progress) -> Iterator[Figure]:
    """Without traffic, and with some of it."""
    for rate in MESSAGES_PER_SECOND:
        with _traffic(rate), Agent() as agent:
            progress(f"{SERVICES} services, {rate} messages/s")
            time.sleep(SETTLE_SECONDS)
            found = []
            for _ in range(LOOKS):
                before, begun = agent.on_cpu_seconds(), time.monotonic()
                time.sleep(SLICE_SECONDS)
                took = agent.on_cpu_seconds() - before
                found.append(100 * took / (time.monotonic() - begun))
            covered = agent.coverage()
        what = f"agent's CPU, {SERVICES} services, {rate} messages/s"
        bars: dict[str, float] = {} if rate else {"bar": 0.3}
        yield figure(what, "%", found, **bars)
        if rate:
            yield figure(
                "  of the time measured, by the default budget",
                "x",
                [covered],
                more_is_better=True,
                bar=0.5,
                goal=0.9,
            )


@contextmanager
def _traffic(rate: int) -> Iterator[None]:
    words = [sys.executable, "-c", TRAFFIC, str(SERVICES), str(rate)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            if process.stdout.readline() != "ready\n":
                raise RuntimeError("the services must run")
            yield
        finally:
            process.kill()
