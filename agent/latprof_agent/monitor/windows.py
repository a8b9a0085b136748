"""When to measure: always, or in windows where that would cost more than is allowed.

The hooks alone cost a busy host some percent, so below that only measuring less often
helps. Windows begin at random times, the pauses between them exponentially
distributed, so that nothing periodic hides. A window counts what begins in it, and
follows that to its end; what has not ended a while later is left out. So every message
has the same chance, whatever it takes. What was counted stands for the pause, too.

    pause | attach | window: what begins is counted | end: only what began | detach
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.capture.capture import Capture
from latprof_agent.errors import refusals_told
from latprof_agent.watched_thread import WatchedThread

WINDOW_SECONDS = 0.05
# How long what began in a window is followed behind its end.
SHORTEST_END_SECONDS = 0.01
LONGEST_END_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
# What the kernel's statistics do not see: the way into a program and back. 7 empty
# programs made a round trip of 14 runs 0.6 us longer.
HOOK_SECONDS = 45e-9
# How often to look whether measuring all the time has become possible, or too much.
LOOK_SECONDS = 2.0
# In between the number of messages tells, each of which takes about so much.
GLANCE_SECONDS = 0.1
MESSAGE_SECONDS = 2e-6
# Windows in which the kernel's statistics are on: they make it slower.
SAMPLED_WINDOWS = 8
# Back to measuring all the time below this share of the allowance.
WELL_BELOW = 0.7


@dataclass
class Coverage:
    """How much of the time was measured."""

    covered_seconds: float = 0.0
    attached_seconds: float = 0.0  # ends of windows included


class Windows:
    """Attaches and detaches the probes of a capture from `start` to `stop`.

    `counted` is called with two weights, behind each window and before each change.
    What began in the window and was counted since the last call stands for so many
    times as much as the first says. The second is of what is counted as long as the
    probes are attached, after the window's end, too.
    """

    def __init__(
        self,
        capture: Capture,
        counted: Callable[[float, float], None],
        slowest: Callable[[], float],
        messages: Callable[[], int],
        *,
        allowance: float = math.inf,
    ) -> None:
        """Begin with nothing attached.

        `slowest` tells how many seconds most messages take, `messages` how many have
        been counted; `allowance` is CPUs' worth of time.
        """
        self._messages = messages
        self._message_seconds = MESSAGE_SECONDS
        self._capture = capture
        self._counted = counted
        self._slowest = slowest
        self._allowance = allowance
        self._random = random.Random()
        self._ending = threading.Event()
        self._thread: WatchedThread | None = None
        self._lock = threading.Lock()
        self._full_share = 0.0  # of a CPU, while attached
        self._steady_share = 0.0  # of it, what pauses do not spare: a flight recorder
        self._steady_programs = frozenset(capture.steady_programs())
        self._agent_share = 0.0
        self._windows = 0
        self._accounted = 0.0
        self.coverage = Coverage()
        self.always = True

    def start(self) -> None:
        """Measure from now on; raises CaptureError where nothing can be attached."""
        self._accounted = time.monotonic()
        self._capture.start(draining=False)
        self._cpu_base = self._cpu_seconds(), time.monotonic()
        if math.isfinite(self._allowance):
            self._thread = WatchedThread("measuring in windows", self._run)
            self._thread.start()

    def stop(self) -> None:
        """Measure no more, and account for what was; once."""
        if self._ending.is_set():
            return
        self._ending.set()
        if self._thread:
            self._thread.join()
        if self.always:
            self._cover(time.monotonic())

    def check(self) -> None:
        """Raise LatprofError once where the probes could not be attached again."""
        if self._thread:
            self._thread.check()

    def settle(self) -> float:
        """Account for what was measured until now, where that is all the time.

        Returns this now, by time.monotonic.
        """
        with self._lock:
            now = time.monotonic()
            if self.always:
                self._cover(now)
            return now

    def _run(self) -> None:
        with refusals_told("cannot measure in windows"):
            while not self._ending.is_set():
                if self.always:
                    self._measure_always()
                else:
                    self._measure_once()

    def _measure_always(self) -> None:
        """Until it costs too much."""
        cost = self._capture.cost
        before, begun = self._messages(), time.monotonic()
        cost.open_sample()
        self._ending.wait(WINDOW_SECONDS)
        cost.close_sample()
        self._learn()
        rate = (self._messages() - before) / (time.monotonic() - begun)
        if rate:
            self._message_seconds = self._full_share / rate
        if self._is_too_much(self._full_share) or self._gets_too_much():
            with self._lock:
                self._cover(time.monotonic())
                self.always = False
                self._capture.pause()

    def _is_too_much(self, share: float) -> bool:
        return share + self._agent_share > self._allowance

    def _gets_too_much(self) -> bool:
        """Whether it does until the next look, by how many messages come."""
        until = time.monotonic() + LOOK_SECONDS
        before, begun = self._messages(), time.monotonic()
        while not self._ending.wait(GLANCE_SECONDS) and time.monotonic() < until:
            now, at = self._messages(), time.monotonic()
            if self._is_too_much((now - before) / (at - begun) * self._message_seconds):
                return True
            before, begun = now, at
        return False

    def _measure_once(self) -> None:
        """One pause and one window."""
        end = max(SHORTEST_END_SECONDS, min(self._slowest(), LONGEST_END_SECONDS))
        if self._ending.wait(self._pause(WINDOW_SECONDS + end)):
            return
        self._capture.resume()
        begun = time.monotonic()
        self._windows += 1
        if self._windows % SAMPLED_WINDOWS == 0:
            self._capture.cost.open_sample()
        self._ending.wait(WINDOW_SECONDS)
        self._capture.close_window()
        ended = time.monotonic()
        self._capture.cost.close_sample()
        self._ending.wait(end)
        with self._lock:
            self._capture.end_idle_exchanges(int(SHORTEST_END_SECONDS * NS_PER_SECOND))
            self._capture.pause()
            cycle = ended - self._accounted
            self._accounted = ended
            attached = time.monotonic() - begun
            self.coverage.covered_seconds += ended - begun
            self.coverage.attached_seconds += attached
            self._counted(cycle / (ended - begun), cycle / attached)
        self._learn()
        if self._full_share + self._agent_share < self._allowance * WELL_BELOW:
            with self._lock:
                self._capture.resume()
                self._accounted = time.monotonic()
                self.always = True

    def _cover(self, until: float) -> None:
        """All of the time since the last account was measured."""
        self.coverage.covered_seconds += until - self._accounted
        self.coverage.attached_seconds += until - self._accounted
        self._accounted = until
        self._counted(1.0, 1.0)

    def _learn(self) -> None:
        """What the probes take while they are attached, and what the agent does."""
        share = self._capture.cost.last_share(HOOK_SECONDS)
        if share is not None:
            self._full_share = share
            steady = self._capture.cost.last_share(HOOK_SECONDS, self._steady_programs)
            self._steady_share = steady or 0.0
        cpu, since = self._cpu_base
        now = self._cpu_seconds(), time.monotonic()
        if now[1] - since >= LOOK_SECONDS:
            self._agent_share = (now[0] - cpu) / (now[1] - since)
            self._cpu_base = now

    def _cpu_seconds(self) -> float:
        """What the agent took, its helper too."""
        return time.process_time() + self._capture.helper_cpu_seconds

    def _pause(self, attached: float) -> float:
        """So long on average that the share of time suits the allowance."""
        always = self._agent_share + self._steady_share
        left = max(self._allowance - always, self._allowance / 10)
        duty = min(0.9, left / max(self._full_share - self._steady_share, left))
        mean = attached * (1 - duty) / duty
        return min(self._random.expovariate(1 / mean), LONGEST_PAUSE_SECONDS)
