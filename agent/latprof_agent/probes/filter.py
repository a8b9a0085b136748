"""Which sockets the probes watch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latprof_agent.probes.catalogue import (
    NEW_PROCESSES,
    NEW_SOCKETS,
    OPEN_SOCKETS,
    Need,
)
from latprof_agent.probes.layout import Layout

COMM_BYTES = 16  # of a task's name, the NUL at its end included


@dataclass(frozen=True)
class Filter:
    """Which sockets are watched; empty means any."""

    netns: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    cgroup: int = 0
    pids: tuple[int, ...] = ()  # and their descendants
    comms: tuple[str, ...] = ()
    peers: bool = False  # and the other ends of their connections, on this host
    older: bool = False  # sockets may be open already: look for them
    protocols: tuple[str, ...] = ("tcp", "udp")

    @property
    def needs(self) -> frozenset[Need]:
        """What of the probes chooses these sockets."""
        by_process = bool(self.pids or self.comms)
        found = {
            OPEN_SOCKETS: by_process or self.older,
            NEW_SOCKETS: by_process,
            NEW_PROCESSES: bool(self.pids),
        }
        return frozenset(need for need, asked in found.items() if asked)

    def as_record(self, layout: Layout, generation: int = 0) -> bytes:
        """The probes' struct options; another generation makes verdicts anew."""
        record = np.zeros((), layout.options)
        record["netns"][: len(self.netns)] = self.netns
        record["ports"][: len(self.ports)] = self.ports
        record["cgroup"] = self.cgroup
        for words, comm in zip(record["comms"], self.comms, strict=False):
            words[:] = _comm_words(comm)
        record["pids"] = bool(self.pids)
        record["peers"] = self.peers
        record["generation"] = generation
        record["tcp"] = "tcp" in self.protocols
        record["udp"] = "udp" in self.protocols
        return record.tobytes()


def _comm_words(comm: str) -> NDArray[np.uint64]:
    """A name as a task has it: cut, and filled with zeros."""
    whole = comm.encode()[: COMM_BYTES - 1].ljust(COMM_BYTES, b"\0")
    return np.frombuffer(whole, "<u8")
