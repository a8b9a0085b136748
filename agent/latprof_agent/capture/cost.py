"""What measuring costs: CPU time of the probes; CPU time and memory of the agent."""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Callable, Container
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.probes.catalogue import Capability

SAMPLE_SECONDS = 0.01
PERIOD_SECONDS = 1.0
PERIODS_KEPT = 1 << 16
# What was sent earlier before a sample lasted longer than that, which makes what the
# statistics add to it less than one part in ten thousand.
ON_THE_WAY_NS = 10_000_000
_EVER_NS = 1 << 62


@dataclass(frozen=True)
class _Sampled:
    """All samples together."""

    seconds: float = 0.0
    by_program: dict[str, tuple[int, int]] = field(default_factory=dict)  # runs, ns


@dataclass(frozen=True)
class _Published:
    """What was said of so many seconds in all, and the samples known then."""

    until_seconds: float = 0.0
    sampled: _Sampled = field(default_factory=_Sampled)
    # a second
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)
    runs: dict[str, float] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def until(self, seconds: float, sampled: _Sampled) -> _Published:
        """Say it of more seconds, by these samples; nothing before the first."""
        if not sampled.seconds:
            return self
        rates, more = self.rates, seconds - self.until_seconds
        if sampled is not self.sampled:
            rates = _rates_between(self.sampled, sampled)
        return _Published(
            seconds,
            sampled,
            rates,
            {p: self.runs.get(p, 0.0) + r * more for p, (r, _) in rates.items()},
            {p: self.seconds.get(p, 0.0) + t * more for p, (_, t) in rates.items()},
        )


def _rates_between(before: _Sampled, after: _Sampled) -> dict[str, tuple[float, float]]:
    took = after.seconds - before.seconds
    found = {}
    for program, (runs, ns) in after.by_program.items():
        known = before.by_program.get(program, (0, 0))
        found[program] = (runs - known[0]) / took, (ns - known[1]) / 1e9 / took
    return found


def cost_capability(switch_on: Callable[[], int] = _drain.statistics) -> Capability:
    """Try the kernel's statistics of programs, which show what the probes take."""
    try:
        os.close(switch_on())
    except OSError:
        return Capability(
            *("cost of the probes", "unavailable", ""),
            "kernel refuses its statistics of programs: --max-overhead bounds the "
            "agent's own time only",
            "add CAP_SYS_ADMIN, which they need",
            (),
        )
    source = "statistics of programs"
    return Capability("cost of the probes", "exact", source, "", "", ())


class ProbeCost:
    """CPU time of the probes, from samples with the kernel's statistics on.

    Statistics cost 20 to 40 ns a run, so they are on 1% of the time, and
    `beside_statistics` finds messages that may be slower for it. By when they were
    sent: to ask which were on the way in a sample would choose those that take long.
    """

    def __init__(self, drain: _drain.Drain, programs: list[str]) -> None:
        self.sampled_seconds = 0.0
        self.probe_seconds = 0.0
        self.runs = 0
        # the kernel's statistics, until the descriptor is closed; raises OSError
        self.switch_on: Callable[[], int] = _drain.statistics
        self._drain = drain
        self._programs = programs
        self._statistics: int | None = None  # the kernel's, while they are on
        self._started = math.inf  # then no sample begins
        # of all samples, begin and end by CLOCK_MONOTONIC; switching is in them
        self._periods: list[tuple[int, int]] = []
        self._base: dict[str, tuple[int, int]] = {}
        # replaced whole, as another thread reads them
        self._sampled = _Sampled()
        self._published = _Published()
        # of the last sample: its seconds, runs and ns of each program
        self._last: tuple[float, dict[str, tuple[int, int]]] = (0.0, {})

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
        since = time.monotonic() - self._started
        if self._statistics is None:
            if since >= PERIOD_SECONDS:
                self.open_sample()
        elif since >= SAMPLE_SECONDS:
            self.close_sample()

    def open_sample(self) -> None:
        """Begin a sample now."""
        self._started = time.monotonic()
        self._base = self._costs()
        self._periods.append((time.monotonic_ns(), _EVER_NS))
        del self._periods[:-PERIODS_KEPT]
        try:
            self._statistics = self.switch_on()
        except OSError:
            self._started = math.inf  # refused: stays unknown
            self._periods.pop()

    def close_sample(self) -> None:
        """End the sample that was begun, if one was."""
        if self._statistics is None:
            return
        since = time.monotonic() - self._started
        self.stop()
        took = self._since_base(self._costs())
        self.sampled_seconds += since
        self._sampled = _Sampled(self.sampled_seconds, self._add(took))
        self._last = since, took

    def last_share(
        self, hook_seconds: float, programs: Container[str] | None = None
    ) -> float | None:
        """CPUs' worth of time in the last sample; each run takes so much more.

        Of all programs, or of these.
        """
        seconds, took = self._last
        if not seconds:
            return None
        counted = [took[p] for p in took if programs is None or p in programs]
        return sum(ns / 1e9 + runs * hook_seconds for runs, ns in counted) / seconds

    def as_dict(self) -> dict[str, float | None]:
        """For summary.json."""
        return {
            "probes_cpu_share": self.cpu_share(),
            "probes_sampled_seconds": self.sampled_seconds,
            "probes_sampled_runs": self.runs,
        }

    def by_program(self, seconds: float) -> tuple[dict[str, float], dict[str, float]]:
        """Runs, and seconds, of each program in so many seconds, by the samples.

        Both only grow, as `seconds` does: the increase since the last call is estimated
        from the samples since then or, where there are none, from those before.
        """
        self._published = published = self._published.until(seconds, self._sampled)
        return published.runs, published.seconds

    def _costs(self) -> dict[str, tuple[int, int]]:
        return {program: self._drain.cost(program) for program in self._programs}

    def _since_base(
        self, now: dict[str, tuple[int, int]]
    ) -> dict[str, tuple[int, int]]:
        base = self._base
        return {p: (n - base[p][0], ns - base[p][1]) for p, (n, ns) in now.items()}

    def _add(self, more: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
        found = {}
        for program, (runs, took) in more.items():
            known = self._sampled.by_program.get(program, (0, 0))
            found[program] = known[0] + runs, known[1] + took
            self.runs += runs
            self.probe_seconds += took / 1e9
        return found

    def stop(self) -> None:
        """Switch the statistics off; a sample that has begun does not count."""
        if self._statistics is not None:
            os.close(self._statistics)
            self._statistics = None
            self._periods[-1] = self._periods[-1][0], time.monotonic_ns()

    def periods(self) -> NDArray[np.int64]:
        """All samples until now: when each began and ended, which may be yet to come.

        Shape (n, 2), in ns of CLOCK_MONOTONIC.
        """
        return np.array(self._periods, "i8").reshape(-1, 2)


def beside_statistics(
    periods: NDArray[np.int64], sent_ns: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which of the messages sent at these times may have met the statistics."""
    before = np.full((1, 2), -_EVER_NS)
    begin, end = np.concatenate([before, periods]).T
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
