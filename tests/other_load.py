"""Other programs that want the CPUs and the network, while a test looks at one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

HOG = "while True: pass"
# Two ends that play a datagram back and forth on loopback, for as long as they live.
TRAFFIC = """
import socket, threading
a, b = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in "ab")
for end in (a, b):
    end.bind(("127.0.0.1", 0))
def echo():
    while True:
        b.sendto(b.recv(2000), a.getsockname())
threading.Thread(target=echo, daemon=True).start()
while True:
    a.sendto(bytes(1000), b.getsockname())
    a.recv(2000)
"""


@contextmanager
def other_load() -> Iterator[None]:
    """Each CPU has somebody else who computes, and there is other traffic.

    The calling thread, and what it starts meanwhile, goes before them: else it would
    wait for a CPU first, and the story would say so.
    """
    programs = [HOG] * (os.cpu_count() or 1) + [TRAFFIC]
    started = [subprocess.Popen([sys.executable, "-c", p]) for p in programs]
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    try:
        yield
        assert all(process.poll() is None for process in started)
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        for process in started:
            process.kill()
            process.wait()
