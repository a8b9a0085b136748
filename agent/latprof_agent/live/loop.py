"""The one loop of a live view: measure, take windows, obey keys."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from latprof_analysis.say import say_error

from latprof_agent.errors import LatprofError
from latprof_agent.interrupts import Interrupt
from latprof_agent.live.chosen import Order
from latprof_agent.live.shown import Watched, Window
from latprof_agent.monitor.producer import Producer
from latprof_agent.monitor.totals import Totals
from latprof_agent.probes.filter import Filter
from latprof_agent.probes.grouping import Grouping

STEP_SECONDS = 0.05


class WindowSink(Protocol):
    """What becomes of windows: a view, lines on a pipe, a recording."""

    def begin(self, watched: Watched) -> None:
        """Other sums begin: what was taken is not continued."""

    def take(self, window: Window) -> None:
        """Take an interval that is over."""


class Input(Protocol):
    """Where the user can ask for something while it goes on."""

    def wait(self, seconds: float) -> list[tuple[Order, str]]:
        """Wait so long, or until something was asked for; with its text."""

    def show(self, text: str) -> None:
        """Show a message, as what an order did."""


class NoInput:
    """Nobody asks: a pipe."""

    def wait(self, seconds: float) -> list[tuple[Order, str]]:
        """Wait."""
        time.sleep(seconds)
        return []

    def show(self, text: str) -> None:
        """On stderr, beside what is printed."""
        say_error(text)


class Loop:
    """Follows a producer until it has to end.

    Parameters
    ----------
    duration_seconds, most_windows : float, int
        Where it ends by itself.
    read_filter, read_grouping : callables
        From words as on the command line; raise `LatprofError` where they are wrong.
    """

    def __init__(
        self,
        producer: Producer,
        watched: Watched,
        takers: Sequence[WindowSink],
        asking: Input,
        *,
        interval_seconds: float,
        duration_seconds: float = math.inf,
        most_windows: float = math.inf,
        read_filter: Callable[[str], Filter],
        read_grouping: Callable[[str, Grouping], Grouping],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watched = watched
        self.last: Window | None = None
        self._producer = producer
        self._takers = takers
        self._asking = asking
        self._interval = interval_seconds
        self._duration = duration_seconds
        self._left = most_windows
        self._read_filter = read_filter
        self._read_grouping = read_grouping
        self._clock = clock
        self._quit = False
        self._zero = self._before = Totals()

    def run(self, interrupt: Interrupt) -> None:
        """Go on until the time is over, or the user has had enough."""
        self._begin(self.watched)
        due = self._clock() + self._interval
        end = self._clock() + self._duration
        while not (self._quit or interrupt.seen):
            self._producer.step()
            now = self._clock()
            if now >= end:
                break
            if now >= due:
                self._take_measured()
                if not self._left:
                    return
                due += self._interval
                if due <= now:  # we were stopped (Ctrl-Z): no burst of what was due
                    due = now + self._interval
            left = min(due, end) - self._clock()
            for order, text in self._asking.wait(max(0.0, min(STEP_SECONDS, left))):
                self._obey(order, text)
        self._producer.step()
        # what came since: the sums of all windows are those of the whole
        self._take(self._producer.totals())

    def _begin(self, watched: Watched) -> None:
        self.watched = watched
        self._zero = self._before = self._producer.totals()
        for taker in self._takers:
            taker.begin(watched)

    def _take_measured(self) -> None:
        """Take what there is; an interval that the budget left out goes on.

        One in which nothing came is shown, though: that, too, was measured.
        """
        now = self._producer.totals()
        if now.own.covered_seconds != self._before.own.covered_seconds:
            self._take(now)

    def _take(self, now: Totals) -> None:
        interval, self._before = now.since(self._before), now
        self.last = Window(self.watched, interval, now, self._zero)
        self._left -= 1
        for taker in self._takers:
            taker.take(self.last)

    def _obey(self, order: Order, text: str) -> None:
        obeyed = {
            Order.QUIT: self._end,
            Order.FILTER: self._filter,
            Order.GROUPING: self._group,
            Order.ZERO: self._zeroed,
        }
        try:
            answer = obeyed[order](text)
        except LatprofError as error:
            answer = str(error)
        self._asking.show(answer)

    def _end(self, _text: str) -> str:
        self._quit = True
        return ""

    def _filter(self, text: str) -> str:
        wanted = self._read_filter(text)
        self._producer.watch(wanted)
        self._begin(replace(self.watched, filter=str(wanted)))
        return f"filter: {wanted}" if str(wanted) else "no filter: all sockets"

    def _group(self, text: str) -> str:
        grouping = self._read_grouping(text, self.watched.grouping)
        self._asking.show(f"grouping by {', '.join(grouping.by)}: a moment")
        self._producer.group_by(grouping)
        self._begin(replace(self.watched, grouping=grouping))
        return f"grouped by {', '.join(grouping.by)}"

    def _zeroed(self, _text: str) -> str:
        self._begin(self.watched)
        return "all sums begin anew"
