"""Devices' queues, and whose sockets the packets in them came from."""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from latprof_analysis.story.device_queue import QueueAt, queues_of
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.capture.recorded_flights import NUMBER, numbered
from latprof_agent.probes.layout import Layout
from latprof_agent.process_table import PROC, comm_of

TABLE = "device_queues"
_SOCKET = "socket:["
_MOST_DESCRIPTORS = 1 << 16  # of a process that are looked through


class Queues:
    """What is noted beside copies of the ring `queued_packets`."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc
        self._owners: dict[int, tuple[int, str, int] | None] = {}
        self._entries: dict[tuple[int, int], Any] = {}  # by number and begin
        # when what of both was seen in a copy last
        self._seen_ns: dict[int | tuple[int, int], int] = {}
        self._lock = threading.Lock()  # one thread notes while another forgets

    def note(self, drain: _drain.Drain, layout: Layout, packets: NDArray[Any]) -> None:
        """Note what a copy's packets stood in, and who has their sockets now."""
        if not len(packets):
            return
        now_ns = time.monotonic_ns()
        keys, values = drain.entries(TABLE)
        numbers = np.frombuffer(keys, "u4").tolist()
        entries = np.frombuffer(values, layout.device_queue)
        found = {
            (number, int(entry["since_ns"])): entry
            for number, entry in zip(numbers, entries, strict=True)
        }
        inodes = set(np.unique(packets["inode"]).tolist()) - {0}
        with self._lock:
            self._entries |= found
            self._seen_ns |= dict.fromkeys((*found, *inodes), now_ns)
            fresh = inodes - self._owners.keys()
        if fresh:
            owners = dict.fromkeys(fresh) | owners_of(fresh, self._proc)
            with self._lock:
                self._owners |= owners

    def forget_before(self, time_ns: int) -> None:
        """Nobody will ask for what copies from before this time had.

        A number that a socket had is given to others later.
        """
        with self._lock:
            kept = {k: ns for k, ns in self._seen_ns.items() if ns >= time_ns}
            self._seen_ns = kept
            self._owners = {k: o for k, o in self._owners.items() if k in kept}
            self._entries = {k: e for k, e in self._entries.items() if k in kept}

    def owner(self, inode: int) -> tuple[int, str, int] | None:
        """Give the process of a socket: pid, name, how many have it; None unknown."""
        return self._owners.get(inode)

    def entries(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Give all that is known of queues, and the number of each first."""
        with self._lock:
            known = list(self._entries.items())
        found = np.zeros(len(known), numbered(dtype))
        for row, ((number, _), entry) in zip(found, known, strict=True):
            row[NUMBER] = number
            for name in dtype.names or ():
                row[name] = entry[name]
        return found

    def at(self) -> QueueAt:
        """Give queues by number and time."""
        with self._lock:
            entries = list(self._entries.items())
        return queues_of((number, entry) for (number, _), entry in entries)


def owners_of(inodes: set[int], proc: Path = PROC) -> dict[int, tuple[int, str, int]]:
    """Find who has these sockets open: the first process, and how many there are."""
    pids: dict[int, list[int]] = {}
    for folder in proc.glob("[0-9]*/fd"):
        with suppress(OSError):
            pid = int(folder.parent.name)
            for inode in {*_sockets_in(folder)} & inodes:
                pids.setdefault(inode, []).append(pid)
    return {
        inode: (min(found), comm_of(min(found), proc), len(found))
        for inode, found in pids.items()
    }


def _sockets_in(folder: Path) -> list[int]:
    found = []
    for entry in islice(os.scandir(folder), _MOST_DESCRIPTORS):
        with suppress(OSError):
            target = os.readlink(entry.path)  # noqa: PTH115
            if target.startswith(_SOCKET):
                found.append(int(target[len(_SOCKET) : -1]))
    return found
