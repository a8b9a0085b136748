"""What the agent itself costs: its CPU time and memory."""

from __future__ import annotations

import resource
import time
from dataclasses import dataclass, field


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass
class Usage:
    """The cost since it was made; peak memory is that of the process so far."""

    started: float = field(default_factory=time.monotonic)
    base: float = field(default_factory=_cpu_seconds)

    def as_dict(self) -> dict[str, float]:
        """Seconds, bytes, and the share of one CPU."""
        wall = time.monotonic() - self.started
        cpu = _cpu_seconds() - self.base
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return {
            "agent_cpu_seconds": cpu,
            "wall_seconds": wall,
            "agent_cpu_share": cpu / wall,
            "agent_peak_bytes": peak,
        }
