"""`latprof echo` as another host has it: in a namespace of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from latprof_agent.lab.lab import Lab

LATPROF = [sys.executable, "-m", "latprof_agent"]
DEADLINE_SECONDS = 180
PORT = 7107

Served = dict[str, Any]


def at(lab: Lab, end: str) -> tuple[str, ...]:
    """Words before a command that run it at an end of a lab."""
    return ("nsenter", f"--net=/run/netns/{lab.netns_of(end)}")


def write_secret(path: Path, secret: bytes, mode: int = 0o600) -> Path:
    """Make the file of a secret."""
    path.write_bytes(secret)
    path.chmod(mode)
    return path


@contextmanager
def started_echo(
    *words: object, within: tuple[str, ...] = ()
) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Its process, which is killed after the block, and its port."""
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
        yield process, int(found[1])
    finally:
        process.kill()
        process.communicate()


def child_of(process: subprocess.Popen[str]) -> int:
    """The one process that `latprof echo` has started: who answers."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    (pid,) = children.read_text().split()
    return int(pid)


@contextmanager
def echo(*words: object, within: tuple[str, ...] = ()) -> Iterator[tuple[int, Served]]:
    """Its port; after the block, what it did. Meanwhile the number of its process."""
    with started_echo(*words, within=within) as (process, port):
        served: Served = {"pid": process.pid}
        yield port, served
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=DEADLINE_SECONDS)
        assert process.returncode == 0, stderr
        served.update(json.loads(stdout))


@contextmanager
def turned(lab: Lab, *ends: str) -> Iterator[None]:
    """What comes to these ends, b's without any, for PORT goes to the one above it.

    So a NAT between would do. Nothing there has PORT then: their sockets are as
    invisible to a filter of it as those of another host.
    """
    rules = (
        "add table ip turn",
        "add chain ip turn in { type nat hook prerouting priority -100 ; }",
        f"add rule ip turn in tcp dport {PORT} redirect to :{PORT + 1}",
        f"add rule ip turn in udp dport {PORT} redirect to :{PORT + 1}",
    )
    for end in ends or ("b",):
        for rule in rules:
            words = [*at(lab, end), "nft", rule]
            subprocess.run(words, check=True, timeout=DEADLINE_SECONDS)
    yield
