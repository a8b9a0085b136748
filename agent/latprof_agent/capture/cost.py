"""What measuring costs: CPU time of the probes; CPU time and memory of the agent."""

from __future__ import annotations

import math
import os
import resource
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from latprof_agent import _drain

SAMPLE_SECONDS = 0.01
PERIOD_SECONDS = 1.0
# What was sent earlier before a sample lasted longer than that, which makes what the
# statistics add to it less than one part in ten thousand.
ON_THE_WAY_NS = 10_000_000
_EVER_NS = 1 << 62


class ProbeCost:
    """CPU time of the probes, from samples with the kernel's statistics on.

    Statistics cost 20 to 40 ns a run, so they are on 1% of the time, and `met` tells
    which messages are slower for it. By when they were sent: to ask which were on the
    way in a sample would choose those that take long.
    """

    def __init__(self, drain: _drain.Drain, programs: list[str]) -> None:
        self.sampled_seconds = 0.0
        self.probe_seconds = 0.0
        self.runs = 0
        self._drain = drain
        self._programs = programs
        self._statistics: int | None = None  # the kernel's, while they are on
        self._started = math.inf  # then no sample begins
        # of all samples, begin and end by CLOCK_MONOTONIC; switching is in them
        self._periods: list[tuple[int, int]] = []
        self._base = (0, 0)

    def cpu_share(self) -> float | None:
        """CPUs' worth of time that the probes took, None if never sampled."""
        if not self.sampled_seconds:
            return None
        return self.probe_seconds / self.sampled_seconds

    def begin(self) -> None:
        """Take samples from now on; the first later, as short runs are for messages."""
        if self._programs:
            self._started = time.monotonic() - PERIOD_SECONDS / 2

    def sample(self) -> None:
        """Begin or end a sample, if it is time."""
        now = time.monotonic()
        since = now - self._started
        if self._statistics is None:
            if since >= PERIOD_SECONDS:
                self._started = now
                self._base = self._total()
                self._periods.append((time.monotonic_ns(), _EVER_NS))
                try:
                    self._statistics = _drain.statistics()
                except OSError:
                    self._started = math.inf  # refused: stays unknown
                    self._periods.pop()
        elif since >= SAMPLE_SECONDS:
            self.stop()
            runs, nanoseconds = self._total()
            self.runs += runs - self._base[0]
            self.probe_seconds += (nanoseconds - self._base[1]) / 1e9
            self.sampled_seconds += since

    def as_dict(self) -> dict[str, float | None]:
        """For summary.json."""
        return {
            "probes_cpu_share": self.cpu_share(),
            "probes_sampled_seconds": self.sampled_seconds,
            "probes_sampled_runs": self.runs,
        }

    def _total(self) -> tuple[int, int]:
        costs = [self._drain.cost(program) for program in self._programs]
        return sum(c[0] for c in costs), sum(c[1] for c in costs)

    def stop(self) -> None:
        """Switch the statistics off; a sample that has begun does not count."""
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None
            self._periods[-1] = self._periods[-1][0], time.monotonic_ns()

    def met(self, sent_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which of the messages sent at these times may have met the statistics."""
        periods = [(-_EVER_NS, -_EVER_NS), *self._periods]
        begin, end = (np.array(times, "i8") for times in zip(*periods, strict=True))
        last = np.searchsorted(begin - ON_THE_WAY_NS, sent_ns, "right") - 1
        return np.asarray(sent_ns <= end[last])


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass
class AgentCost:
    """The agent's since it was made; peak memory is that of the process so far."""

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
