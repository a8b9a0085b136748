"""`latprof echo` where a test wants it: in a network namespace of a lab, or here."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from latprof_agent.lab.lab import Lab

LATPROF = [sys.executable, "-m", "latprof_agent"]
DEADLINE_SECONDS = 60

Served = dict[str, Any]


def at(lab: Lab, end: str) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{lab.netns_of(end)}")


@contextmanager
def echo(*words: object, within: tuple[str, ...] = ()) -> Iterator[tuple[int, Served]]:
    """Its port; after the block, what it did. Meanwhile the number of its process."""
    served: Served = {}
    process = subprocess.Popen(
        [*within, *LATPROF, "echo", "--json", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    try:
        line = process.stderr.readline()
        found = re.search(r"port (\d+)", line)
        assert found, line
        served["pid"] = process.pid
        yield int(found[1]), served
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, stderr
        served.update(json.loads(stdout))
    finally:
        process.kill()
        process.communicate()
