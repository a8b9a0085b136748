"""Repeat an experiment that the machine itself has disturbed.

A packet that leaves from a timer (a shaper's), or arrives in its wake, borrows
the process that it interrupts. There are machines where no BPF program runs
while that is a thread of process 1, so no probe can see such a packet. Which
thread was borrowed is told by the kernel's own trace events, not by probes.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

EVENTS = ("net_dev_start_xmit", "netif_receive_skb")
ATTEMPTS = 25

_T = TypeVar("_T")


@contextmanager
def _trace_instance(folder: Path) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tracefs", "nodev", str(folder)], check=True)
    instance = folder / "instances" / f"latprof-test-{secrets.token_hex(4)}"
    instance.mkdir()
    try:
        yield instance
    finally:
        instance.rmdir()
        subprocess.run(["umount", str(folder)], check=True)


def _watch(instance: Path, interface: str) -> None:
    threads = [int(path.name) for path in Path("/proc/1/task").iterdir()]
    borrowed = " || ".join(f"common_pid == {thread}" for thread in threads)
    for event in EVENTS:
        folder = instance / "events" / "net" / event
        (folder / "filter").write_text(f'name == "{interface}" && ({borrowed})')
        (folder / "enable").write_text("1")


def undisturbed(folder: Path, interface: str, experiment: Callable[[], _T]) -> _T:
    """Return what the experiment gave when no packet of it was out of sight."""
    with _trace_instance(folder / "tracefs") as instance:
        _watch(instance, interface)
        for _ in range(ATTEMPTS):
            (instance / "trace").write_text("")
            result = experiment()
            lines = (instance / "trace").read_text().splitlines()
            if all(line.startswith("#") for line in lines):
                return result
    raise AssertionError(f"disturbed {ATTEMPTS} times")
