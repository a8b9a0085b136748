"""The live view's loop: windows in time, orders obeyed, sums kept. A made clock."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from latprof_agent.cli.filter_options import parse_filter
from latprof_agent.interrupts import Interrupt
from latprof_agent.live.chosen import Order
from latprof_agent.live.loop import STEP_SECONDS, Loop
from latprof_agent.live.shown import Watched
from latprof_agent.monitor.totals import Counted, Quantity
from latprof_agent.probes.grouping import Grouping
from made_monitor import REDIS, MadeMonitor


@dataclass
class Script:
    """Waits in no time, and asks for what is planned at a time."""

    plan: dict[float, tuple[Order, str]] = field(default_factory=dict)
    stops: dict[float, float] = field(default_factory=dict)  # at a time, so long
    now: float = 100.0
    shown: list[str] = field(default_factory=list)

    def wait(self, seconds):
        assert 0 <= seconds <= STEP_SECONDS
        self.now += seconds + 1e-9
        for at in [at for at in self.stops if self.now >= 100 + at]:
            self.now += self.stops.pop(at)
        due = [at for at in self.plan if self.now >= 100 + at]
        return [self.plan.pop(at) for at in due]

    def show(self, text):
        self.shown.append(text)


@dataclass
class Kept:
    """A taker that keeps windows, and when each came."""

    script: Script
    windows: list = field(default_factory=list)
    times: list = field(default_factory=list)
    begun: list = field(default_factory=list)

    def begin(self, watched):
        self.begun.append(watched)

    def take(self, window):
        self.windows.append(window)
        self.times.append(round(self.script.now - 100, 3))


@pytest.fixture
def watch():
    def watch(
        duration=math.inf,
        most=math.inf,
        interrupt=None,
        left_out=(),
        silent=False,
        **script,
    ):
        asking = Script(**script)
        kept, monitor = Kept(asking), MadeMonitor(None, None)
        monitor.left_out = set(left_out)
        monitor.silent = silent
        loop = Loop(
            monitor,
            Watched(),
            [kept],
            asking,
            interval_seconds=2.0,
            duration_seconds=duration,
            most_windows=most,
            read_filter=parse_filter,
            read_grouping=lambda text, now: Grouping(tuple(text.split(",")) or now.by),
            clock=lambda: asking.now,
        )
        loop.run(interrupt or Interrupt())
        return loop, kept, monitor

    return watch


def sent(totals):
    return totals.groups[REDIS].counted[Counted.SENT_MESSAGES]


def test_intervals_end_when_they_are_due_and_the_last_with_the_duration(watch):
    _, kept, _ = watch(duration=5.0)
    assert kept.times == [2.0, 4.0, 5.0]
    _, once, _ = watch(most=1)
    assert once.times == [2.0]


def test_an_interval_that_the_budget_left_out_goes_on(watch):
    # step 0 is the zero; of the first three intervals two were not measured
    _, kept, _ = watch(duration=8.0, left_out={1, 2})
    assert kept.times == [6.0, 8.0]
    assert [w.interval.own.seconds for w in kept.windows] == [3.0, 1.0]
    _, once, _ = watch(most=1, left_out={1})
    assert (once.times, sent(once.windows[0].interval)) == ([4.0], 1000)
    _, never, _ = watch(duration=3.0, left_out=range(1, 9))
    assert never.times == [3.0]  # what ends is told, with how little it is


def test_an_interval_in_which_nothing_came_is_told(watch):
    # on a busy machine only a part of the time is measured, also without traffic
    _, kept, _ = watch(duration=6.0, left_out={1}, silent=True)
    assert kept.times == [4.0, 6.0]
    assert all(not window.interval.groups for window in kept.windows)


def test_windows_sum_to_the_whole(watch):
    loop, kept, monitor = watch(plan={7.0: (Order.QUIT, "")})
    assert kept.times == [2.0, 4.0, 6.0, 7.0]  # what came before the end, too
    assert sum(sent(w.interval) for w in kept.windows) == sent(loop.last.whole)
    counts = [w.interval.groups[REDIS].histograms for w in kept.windows]
    whole = loop.last.whole.groups[REDIS].histograms
    for quantity in (Quantity.SERVER, Quantity.QDISC):
        summed = sum(h[quantity].counts for h in counts)
        assert (summed == whole[quantity].counts).all()
    assert sent(loop.last.whole) == 1000 * monitor.steps


def test_an_interrupt_ends_it_with_what_there_is(watch):
    _, kept, _ = watch(interrupt=Interrupt(seen=True))
    assert len(kept.windows) == 1


def test_a_stop_makes_one_long_interval_and_no_burst(watch):
    _, kept, _ = watch(duration=30.0, stops={3.0: 20.0})
    assert kept.times[:3] == [2.0, 23.0, 25.0]


def test_other_groups_begin_anew(watch):
    plan = {3.0: (Order.GROUPING, "comm,remote"), 5.5: (Order.QUIT, "")}
    loop, kept, monitor = watch(plan=plan)
    assert [w.grouping.by for w in kept.begun] == [("service",), ("comm", "remote")]
    assert monitor.calls == [f"group_by {Grouping(('comm', 'remote'))}"]
    # the new groups' totals are not less than nothing
    assert all(sent(w.interval) > 0 for w in kept.windows)
    assert sent(loop.last.whole) == sum(sent(w.interval) for w in kept.windows[1:])


def test_a_filter_is_set_and_a_wrong_one_told(watch):
    plan = {
        1.0: (Order.FILTER, "x"),
        3.0: (Order.FILTER, "port=80"),
        5.0: (Order.QUIT, ""),
    }
    loop, kept, monitor = watch(plan=plan)
    assert "filter: must be KIND=VALUE, got 'x'" in kept.script.shown
    assert monitor.calls == ["watch port=80"]
    assert loop.watched.filter == "port=80"
    assert [w.watched.filter for w in kept.windows] == ["", "port=80", "port=80"]


def test_a_zero_begins_sums_anew(watch):
    loop, kept, _ = watch(plan={3.0: (Order.ZERO, ""), 5.0: (Order.QUIT, "")})
    assert len(kept.begun) == 2
    assert sent(loop.last.whole) == sum(sent(w.interval) for w in kept.windows[1:])
