"""Which sockets the probes watch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from latprof_agent.probes.layout import Layout


@dataclass(frozen=True)
class Filter:
    """Which sockets are watched; empty means any."""

    netns: tuple[int, ...] = ()
    ports: tuple[int, ...] = ()
    cgroup: int = 0
    protocols: tuple[str, ...] = ("tcp", "udp")

    def as_record(self, layout: Layout, generation: int = 0) -> bytes:
        """The probes' struct options; another generation makes verdicts anew."""
        record = np.zeros((), layout.options)
        record["netns"][: len(self.netns)] = self.netns
        record["ports"][: len(self.ports)] = self.ports
        record["cgroup"] = self.cgroup
        record["generation"] = generation
        record["tcp"] = "tcp" in self.protocols
        record["udp"] = "udp" in self.protocols
        return record.tobytes()
