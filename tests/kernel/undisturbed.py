"""Repeat an experiment that the machine itself has disturbed.

A packet that leaves from a timer (a shaper's), or arrives in its wake, borrows
the process that it interrupts. There are machines where no BPF program runs
while that is a thread of process 1, so no probe can see such a packet. Which
thread was borrowed is told by the kernel's own trace events, not by probes.
"""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

# A qdisc that is full drops what TCP's timer sends again: of that the first tells.
EVENTS = ("net_dev_queue", "net_dev_start_xmit", "netif_receive_skb")
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


def _watch(instance: Path, interfaces: Sequence[str]) -> None:
    threads = [int(path.name) for path in Path("/proc/1/task").iterdir()]
    borrowed = " || ".join(f"common_pid == {thread}" for thread in threads)
    named = " || ".join(f'name == "{name}"' for name in interfaces)
    for event in EVENTS:
        folder = instance / "events" / "net" / event
        (folder / "filter").write_text(f"({named}) && ({borrowed})")
        (folder / "enable").write_text("1")


def _packet_bytes(instance: Path) -> list[int]:
    """How long the packet of each event was, all its segments together."""
    lines = (instance / "trace").read_text().splitlines()
    return [
        int(line.partition(" len=")[2].split()[0])
        for line in lines
        if not line.startswith("#")
    ]


@contextmanager
def hidden_messages(
    folder: Path, interfaces: Sequence[str]
) -> Iterator[Callable[[int], int]]:
    """Tell how many messages of so many bytes were out of sight, at most.

    A packet may be told more than once, and that of TCP may hold many messages.
    """
    with _trace_instance(folder / "tracefs") as instance:
        _watch(instance, interfaces)
        yield lambda size: sum(1 + n // size for n in _packet_bytes(instance))


def undisturbed(
    folder: Path, interface: str | Sequence[str], experiment: Callable[[], _T]
) -> _T:
    """Return what the experiment gave when no packet of it was out of sight."""
    interfaces = [interface] if isinstance(interface, str) else interface
    with _trace_instance(folder / "tracefs") as instance:
        _watch(instance, interfaces)
        for _ in range(ATTEMPTS):
            (instance / "trace").write_text("")
            result = experiment()
            if not _packet_bytes(instance):
                return result
    raise AssertionError(f"disturbed {ATTEMPTS} times")
