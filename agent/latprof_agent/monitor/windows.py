"""When to measure: always, or in windows where that would cost more than is allowed.

The hooks alone cost a busy host some percent, so below that only measuring less often
helps. Windows begin at random times, the pauses between them exponentially
distributed, so that nothing periodic hides. A window counts what begins in it, and
follows that to its end; what has not ended a while later is left out. So every message
has the same chance, whatever it takes. What was counted stands for half of the pauses
before and after it, too; what the last one counted for all the time since.

    pause | attach | window: what begins is counted | end: only what began | detach
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from latprof_analysis.text import NS_PER_SECOND

from latprof_agent.capture.capture import Capture
from latprof_agent.errors import refusals_in_one_line
from latprof_agent.watched_thread import WatchedThread

WINDOW_SECONDS = 0.05
# To attach and detach costs the agent so much (measured; the first guess) ...
SWITCH_SECONDS = 0.005
# ... for which a part of the allowance is spent: then windows are longer, and fewer.
SWITCH_SHARE = 1 / 10
LONGEST_WINDOW_SECONDS = 2.0
# What the agent takes is the mean of about so long: it works in bursts.
AGENT_SECONDS = 30.0
# How long what began in a window is followed behind its end.
SHORTEST_END_SECONDS = 0.01
LONGEST_END_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 10.0
# What the kernel's statistics do not see: the way into a program and back. 7 empty
# programs made a round trip of 14 runs 0.6 us longer.
HOOK_SECONDS = 45e-9
# How often to look whether measuring all the time has become possible, or too much.
LOOK_SECONDS = 2.0
# In between the number of messages says it, each of which takes about so much. At rest
# a wakeup is most of what the agent costs, so whoever has woken anyway glances at it.
GLANCE_SECONDS = 0.2
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


class Counts(Protocol):
    """Who takes in what was counted."""

    def account(self, seconds: float, attached: float, pause: float) -> None:
        """Add what was counted since the last time, in a window of so many seconds.

        It stands for half of the pause before it, too, as what came before the pause
        does. Some is counted as long as the probes are attached, after the window's
        end, too.
        """

    def stand_for(self, seconds: float) -> None:
        """Let what was counted last stand for so much time after it."""


class Windows:
    """Attaches and detaches the probes of a capture from `start` to `freeze`."""

    def __init__(
        self,
        capture: Capture,
        counts: Counts,
        slowest: Callable[[], float],
        messages: Callable[[], int],
        *,
        allowance: float = math.inf,
    ) -> None:
        """Begin with nothing attached.

        `counts` takes in what was counted. `slowest` gives how many seconds most
        messages take, `messages` how many were counted; `allowance` is CPUs' worth of
        time.
        """
        self._messages = messages
        self._message_seconds = MESSAGE_SECONDS
        self._capture = capture
        self._counts = counts
        self._begun: float | None = None  # of the window, while there is one
        self._frozen = False
        self._slowest = slowest
        self._allowance = allowance
        self._random = random.Random()
        self._ending = threading.Event()
        self._hurry = threading.Event()  # look now: too much came, or it ends
        self._glanced = 0, math.inf  # messages, and when
        self._thread: WatchedThread | None = None
        self._lock = threading.Lock()
        self._full_share = 0.0  # of a CPU, while attached
        self._steady_share = 0.0  # of it, what pauses do not spare: a flight recorder
        self._steady_programs = frozenset(capture.steady_programs())
        self._agent_share = 0.0
        self._switch_seconds = SWITCH_SECONDS
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
        """Measure no more from windows to windows; what is attached goes on."""
        self._ending.set()
        self._hurry.set()
        if self._thread:
            self._thread.join()

    def freeze(self) -> None:
        """Account for all of the time until now, once: nothing is counted any more."""
        self.settle()
        self._frozen = True

    def check(self) -> None:
        """Raise LatprofError once where the probes could not be attached again."""
        if self._thread:
            self._thread.check()

    def settle(self) -> float:
        """Account for the time until now, or until the window that is open.

        Returns until when, by time.monotonic.
        """
        with self._lock:
            if self._frozen:
                return self._accounted
            if self.always:
                self._cover(time.monotonic())
            else:
                until = self._begun or time.monotonic()
                self._counts.stand_for(until - self._accounted)
                self._accounted = until
            return self._accounted

    def are_settled(self) -> bool:
        """Account for the time until now; False where a window is open."""
        self.settle()
        return self.always or self._begun is None

    def _run(self) -> None:
        with refusals_in_one_line("cannot measure in windows"):
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
        with self._lock:
            self._hurry.clear()
            self._glanced = self._messages(), time.monotonic()
        if self._ending.is_set():
            return False
        return self._hurry.wait(LOOK_SECONDS) and not self._ending.is_set()

    def glance(self) -> None:
        """Notice where more messages come than may be measured; cheap, at any time."""
        with self._lock:
            (before, begun), at = self._glanced, time.monotonic()
            if not self.always or at - begun < GLANCE_SECONDS:
                return
            now = self._messages()
            if self._is_too_much((now - before) / (at - begun) * self._message_seconds):
                self._hurry.set()
            self._glanced = now, at

    def _measure_once(self) -> None:
        """One pause and one window."""
        end = max(SHORTEST_END_SECONDS, min(self._slowest(), LONGEST_END_SECONDS))
        window = self._window_seconds()
        if self._ending.wait(self._pause(window + end)):
            return
        before = time.thread_time()
        self._capture.resume()
        with self._lock:
            begun = self._begun = time.monotonic()
        self._windows += 1
        # the first, too: what was on trial in the look before it is detached now
        if self._windows % SAMPLED_WINDOWS == 1:
            self._capture.cost.open_sample()
        self._ending.wait(window)
        self._capture.close_window()
        ended = time.monotonic()
        self._capture.cost.close_sample()
        self._ending.wait(end)
        with self._lock:
            self._capture.end_idle_exchanges(int(SHORTEST_END_SECONDS * NS_PER_SECOND))
            self._capture.pause()
            attached = time.monotonic() - begun
            self.coverage.covered_seconds += ended - begun
            self.coverage.attached_seconds += attached
            self._counts.account(ended - begun, attached, begun - self._accounted)
            self._accounted, self._begun = ended, None
        self._switch_seconds += (
            time.thread_time() - before - self._switch_seconds
        ) / SAMPLED_WINDOWS
        self._learn()
        if self._full_share + self._agent_share < self._allowance * WELL_BELOW:
            with self._lock:
                self._capture.resume()
                self._accounted = time.monotonic()
                self.always = True

    def _cover(self, until: float) -> None:
        """All of the time since the last account was measured."""
        seconds = until - self._accounted
        self.coverage.covered_seconds += seconds
        self.coverage.attached_seconds += seconds
        self._accounted = until
        self._counts.account(seconds, seconds, 0.0)

    def _learn(self) -> None:
        """What the probes take while they are attached, and what the agent does."""
        share = self._capture.cost.last_share(HOOK_SECONDS)
        if share is not None:
            self._full_share = share
            steady = self._capture.cost.last_share(HOOK_SECONDS, self._steady_programs)
            self._steady_share = steady or 0.0
        cpu, since = self._cpu_base
        now = self._cpu_seconds(), time.monotonic()
        took = now[1] - since
        if took >= LOOK_SECONDS:
            share = (now[0] - cpu) / took
            new = min(1.0, took / AGENT_SECONDS)
            self._agent_share += new * (share - self._agent_share)
            self._cpu_base = now

    def _cpu_seconds(self) -> float:
        """What the agent took, its helper too."""
        return time.process_time() + self._capture.helper_cpu_seconds

    def _duty(self) -> float:
        """The share of time in windows that suits the allowance."""
        always = self._agent_share + self._steady_share
        left = max(self._allowance - always, self._allowance / 10)
        return min(0.9, left / max(self._full_share - self._steady_share, left))

    def _window_seconds(self) -> float:
        """So long that what attaching costs stays a small part of the allowance."""
        most = self._allowance * SWITCH_SHARE / self._switch_seconds  # a second
        return min(max(WINDOW_SECONDS, self._duty() / most), LONGEST_WINDOW_SECONDS)

    def _pause(self, attached: float) -> float:
        """So long on average that the share of time suits the allowance."""
        duty = self._duty()
        mean = attached * (1 - duty) / duty
        return min(self._random.expovariate(1 / mean), LONGEST_PAUSE_SECONDS)
