"""Live traffic in histograms: from the probes' tables to `Totals`."""

from __future__ import annotations

import math
import resource
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from latprof_analysis.records.arrays import Batch, stacked
from latprof_analysis.stats.kernel_histogram import CoarseHistogram
from latprof_analysis.text import NS_PER_SECOND, printable
from numpy.typing import NDArray

from latprof_agent import _drain
from latprof_agent.capture.capture import MORE_MEMORY, Capture, open_capture
from latprof_agent.capture.cost import cost_capability
from latprof_agent.capture.flight import NEVER_NS
from latprof_agent.capture.histograms import GROUPS, GroupState, GroupTables
from latprof_agent.containers.container_names import ContainerNames
from latprof_agent.containers.runtime import List, list_containers
from latprof_agent.errors import CaptureError
from latprof_agent.filters.words import gone, gone_said, refreshed
from latprof_agent.monitor.group_room import GroupRoom, memory
from latprof_agent.monitor.groups import GroupNames, key_types
from latprof_agent.monitor.late_names import LateNames
from latprof_agent.monitor.limits import ROUND_SECONDS, Limits
from latprof_agent.monitor.losses import Losses
from latprof_agent.monitor.sample_rate import SampleRate
from latprof_agent.monitor.sample_rows import RECORDS
from latprof_agent.monitor.sampled import Sampled
from latprof_agent.monitor.totals import (
    Counted,
    Group,
    GroupTotals,
    Own,
    Quantity,
    Totals,
    Waiting,
    sums,
)
from latprof_agent.monitor.windows import Windows
from latprof_agent.probes import catalogue
from latprof_agent.probes.catalogue import (
    BOTH,
    BY_FILTER,
    IDLE_EXCHANGES,
    PROBES,
    STORIES,
    Probe,
)
from latprof_agent.probes.filter import Filter, Word
from latprof_agent.probes.flight_probes import FLIGHT_PROBES, NOT_LIVE
from latprof_agent.probes.grouping import Grouping
from latprof_agent.probes.kernel_functions import KernelFunctions
from latprof_agent.probes.loss_probes import LOSS_PROBES, REPLACED
from latprof_agent.sinks.sink import Sink
from latprof_agent.story.live_stories import LiveStories, TakesStory

STEP_SECONDS = 0.2
STORY_STEP_SECONDS = 0.05
# Samples only: what they need not be, as each CPU has its own.
RING_BYTES = 1 << 18
# A join costs the same for few records as for thousands (13 ms), so they wait for
# others, or until somebody asks.
JOINED_RECORDS = 4_000
JOIN_SECONDS = 30.0
FRESH_SECONDS = 0.9  # where the state is asked for
# As the fields of struct group_counts, whose names they have.
COUNTED = tuple(Counted)
# An exchange is over when its client has read nothing more for so long.
IDLE_NS = 1_000_000_000
# Its times without tracing are not used by counts of histograms.
UNUSED = REPLACED | NOT_LIVE | {"untraced time"}


class TakesSample(Protocol):
    """Who keeps what the sample is made from."""

    @property
    def step_seconds(self) -> float:
        """How long what was drained may wait until it is added; changes at any time."""

    def begin(self, capture: Capture, watched: str) -> None:
        """The probes are loaded; what came before counts no more."""

    def add(self, batch: Batch, drained_ns: int, processes: Mapping[int, str]) -> None:
        """Take what is joined next; `processes` have names that no record has."""

    def finish(self) -> None:
        """Nothing more will come."""


class Monitor:
    """Watches from `start` to `stop`; everything counts from the start.

    Raises CaptureError where the probes cannot be loaded.
    """

    def __init__(
        self,
        watched: Filter,
        grouping: Grouping,
        *,
        max_overhead: float = math.inf,
        slow_ns: int = 0,
        stories: bool = False,
        table: tuple[Probe, ...] = PROBES + LOSS_PROBES,
        switch_on: Callable[[], int] = _drain.statistics,
        ask_runtime: List = list_containers,
    ) -> None:
        """Nothing is loaded yet.

        `max_overhead`: CPUs' worth of time, of probes and agent. `slow_ns`:
        what takes longer becomes an exemplar; 0: the slowest of each group.
        `stories`: with a flight recorder, which shows why.
        `switch_on` switches on the kernel's statistics of programs, as only root may,
        until the descriptor that it gives is closed; raises OSError. `ask_runtime`
        lists containers, for groups by their names; raises ContainerError.
        """
        self._switch_on = switch_on
        self._slow_ns = slow_ns
        self.sinks: list[Sink] = []  # who gets the joined sample, too
        self.takes_sample: TakesSample | None = None  # before it is joined
        # who says that something the filter names has gone, or has come again
        self.notice: Callable[[str], None] = lambda _text: None
        self._gone: dict[str, Word] = {}
        self._containers = ContainerNames(ask_runtime, self._say)
        self._watched = watched
        self._allowance = max_overhead
        self.grouping = grouping
        table += FLIGHT_PROBES if stories else ()
        self._table = tuple(p for p in table if p.quantity not in UNUSED)
        self._with_stories = stories
        self._stories: LiveStories | None = None
        self.takes_stories: list[TakesStory] = []  # who gets each, too
        self._capture: Capture | None = None
        self._functions = KernelFunctions()  # while we may read them

    def load(self) -> None:
        """Load, without a thread; else `start` does."""
        catalogue.require_counting()
        # of any filter: `watch` may ask for another one
        needs = BY_FILTER | {IDLE_EXCHANGES}
        if self._with_stories:
            needs |= {STORIES}
        capabilities = catalogue.capabilities(BOTH, self._table, needs)
        catalogue.require_both_halves(capabilities, self._watched.needs)
        self._capture = open_capture(
            self._watched,
            capabilities,
            self._table,
            RING_BYTES,
            self.grouping,
            # the recorder does not look for slow ones by itself: the probes report them
            story_ns=NEVER_NS if self._with_stories else None,
        )
        self._capture.cost.switch_on = self._switch_on
        by_rights = self._functions.capability, cost_capability(self._switch_on)
        offered = (*self._capture.capabilities, *by_rights)
        self._capabilities = [c.as_dict() for c in offered]
        for lacks in (c for c in by_rights if c.reason):
            self.notice(f"{lacks.quantity}: {lacks.reason}; {lacks.remedy}")
        self._names = self._group_names()
        self._losses = Losses(
            self._capture.layout,
            self._capture.entries,
            lambda: self._tables.segments[: self._tables.room],
            self._functions,
        )
        self._windows = Windows(
            self._capture,
            self,
            self._slowest_seconds,
            self._tables.messages,
            allowance=self._allowance,
        )
        self._stories = None
        if self.capture.flight:
            self._stories = LiveStories(
                self.capture.flight,
                self.capture.layout,
                self._slow_ns,
                self.takes_stories,
            )
        self._sampled = Sampled(
            self.capture.layout,
            self.capture.ephemeral_ports,
            self.sinks,
            self._stories,
        )
        self._late_names = LateNames(self._sampled.joiner.names, RECORDS)
        self._held: list[tuple[Batch, dict[int, str]]] = []  # to be joined
        if self.takes_sample:
            self.takes_sample.begin(self.capture, str(self._watched))
        self._rate = SampleRate(self._allowance)
        self.capture.sample(*self._rate.bits())
        self._limits = Limits(self.capture.layout, self.capture.put, self._slow_ns)
        self._room = GroupRoom(self._tables, self.capture.taken_groups, memory)
        try:
            self._room.begin()
        except OSError as error:
            raise CaptureError(
                f"cannot load the probes: no memory for histograms "
                f"({error.strerror}); {MORE_MEMORY}"
            ) from error
        self._limits.begin(GROUPS)
        self._covered = 0.0
        # of groups by number, and what they were made of
        self._made: dict[int, tuple[GroupState, GroupTotals]] = {}

    @property
    def step_seconds(self) -> float:
        """How often `step` is due; a flight recorder holds less than rings do."""
        return STORY_STEP_SECONDS if self._with_stories else STEP_SECONDS

    def start(self) -> None:
        """Attach."""
        if not self._capture:
            self.load()
        self._started = self._limited = self._ended = time.monotonic()
        self._joined = self._taken = self._started
        self._drained = 0
        self._waiting: NDArray[Any] | None = None  # not looked at yet
        self._windows.start()

    @property
    def _tables(self) -> GroupTables:
        tables = self.capture.tables
        assert tables
        return tables

    def account(self, seconds: float, attached: float, pause: float) -> None:
        """Take in what was counted; see `windows.Counts`."""
        self._tables.account(seconds, pause)
        self._losses.account(seconds, attached, pause)

    def stand_for(self, seconds: float) -> None:
        """Let it stand for so much time after it."""
        self._tables.stand_for(seconds)
        self._losses.stand_for(seconds)

    def _slowest_seconds(self) -> float:
        """How long all but a few of what is measured takes."""
        counts = np.rint(self._tables.all_counts()).astype("i8")
        return (CoarseHistogram(counts).quantile(0.999) or 0.0) / NS_PER_SECOND

    @property
    def capture(self) -> Capture:
        """The probes, once they are loaded."""
        assert self._capture
        return self._capture

    def step(self) -> None:
        """Do what is due, every `step_seconds`."""
        batch = self.capture.follow()
        drained = sum(map(len, batch.values()))
        if drained:
            self._late_names.look(batch)
            self._drained += drained
        if self._stories:
            self._stories.notice(batch)
            self._stories.step(time.monotonic_ns())
        if not math.isfinite(self._allowance):
            self.capture.cost.sample()
        self._windows.glance()
        now = time.monotonic()
        if now - self._ended >= IDLE_NS / NS_PER_SECOND:
            if self._windows.always:
                self._waiting = self.capture.end_idle_exchanges(IDLE_NS)
            self._look_for_names()
            self._ended = now
        self._make_room(now)
        waits = self._stories is not None and self._stories.noticed
        join_seconds = FRESH_SECONDS if waits else JOIN_SECONDS
        if self._drained >= JOINED_RECORDS or now - self._joined >= join_seconds:
            self._join()
        elif self.takes_sample and now - self._taken >= self.takes_sample.step_seconds:
            self._hold()
        if now - self._limited >= ROUND_SECONDS:
            self._windows.settle()
            self._limits.update(self._tables)
            self._limited = now
        self._sampled.samples.step(time.monotonic_ns())

    def _make_room(self, now: float) -> None:
        """Let new groups find a number: of those that were idle, where it is full."""
        if self._room.settled(now) and self._windows.are_settled():
            self._move(self._room.settled(now))
            self._room.give()
        leaving, again = self._room.step(now, lambda: list(self._names.read()))
        for number in leaving:
            key = self._names.key(number)
            if key:
                self.capture.take("groups", key)
        if again:
            self.capture.look_again()

    def _move(self, numbers: list[int]) -> None:
        """What these groups have counted is of others from now on."""
        moves = self._names.heirs(numbers)
        self._tables.move(moves)
        self._losses.move(moves, self.capture.take)
        self._sampled.move(moves)
        self._limits.move(moves)
        self._names.forget(numbers)

    def _join(self) -> None:
        now = time.monotonic()
        seconds, self._joined, self._drained = now - self._joined, now, 0
        batch, processes = self._take()
        if self._held:
            held = [*self._held, (batch, processes)]
            batch = {ring: stacked(*(of[ring] for of, _ in held)) for ring in batch}
            processes = {pid: name for _, of in held for pid, name in of.items()}
            self._held.clear()
        names = self._names.read()
        records = self._sampled.add(batch, self.capture.drained_ns, names, processes)
        covered = self._windows.coverage.covered_seconds
        if self._windows.always:
            covered = self._covered + seconds
        if self._rate.adapt(records, seconds, covered - self._covered):
            self.capture.sample(*self._rate.bits())
        self._covered = covered

    def _take(self) -> tuple[Batch, dict[int, str]]:
        """Read what was drained, with names that no record has."""
        batch, self._taken = self.capture.read(), time.monotonic()
        self._late_names.look(batch)
        processes = self._late_names.take()
        if self.takes_sample:
            self.takes_sample.add(batch, self.capture.drained_ns, processes)
        return batch, processes

    def _hold(self) -> None:
        """Read, and join it later: that takes as long for few records as for many."""
        batch, processes = self._take()
        self._held.append(({r: of.copy() for r, of in batch.items()}, processes))

    def _look_for_names(self) -> None:
        """A namespace may go, and come again as another one of its name."""
        later = refreshed(self._watched)
        if later != self._watched:
            self.watch(later)
        gone_now = {str(word): word for word in gone(later)}
        for name in gone_now.keys() - self._gone.keys():
            self.notice(printable(gone_said(gone_now[name])))
        for name in self._gone.keys() - gone_now.keys():
            self.notice(printable(f"{name}: it is there again"))
        self._gone = gone_now

    def totals(self) -> Totals:
        """A new state of everything."""
        self._windows.check()
        self.capture.check()
        if time.monotonic() - self._joined >= FRESH_SECONDS:
            self._join()
        now = self._windows.settle()
        self.capture.look_at_listeners()  # first, as it may be the first of a group
        names = self._names.read()
        states = self._tables.states()
        for number, state in states.items():
            if number not in self._made or self._made[number][0] is not state:
                self._made[number] = state, self._group_totals(state)
        by_number = {n: self._made[n][1].copy() for n in states if n in names}
        for (number, quantity), found in self._sampled.histograms().items():
            if number in by_number:
                by_number[number].histograms[quantity] = found.copy()
        groups = sums((names[number], found) for number, found in by_number.items())
        self._losses.add_to(groups, names)
        return Totals(
            t_ns=time.monotonic_ns(),
            unix_seconds=time.time(),
            groups=groups,
            own=self._own(now - self._started),
            fits=self._sampled.samples.fits(_alone(names)),
            exemplars=list(self._sampled.exemplars.last),
            capabilities=self._capabilities,
            waiting=self._waiting_requests(names),
            gone=tuple(sorted(self._gone)),
            renamed=self._names.renamed,
            **(self._stories.totals() if self._stories else {}),
        )

    def _waiting_requests(self, names: dict[int, Group]) -> dict[Group, Waiting] | None:
        """Requests that waited for an answer when they were looked at last."""
        records = self._waiting
        if records is None or not self._windows.always:
            return None
        now_ns = time.monotonic_ns()
        found: dict[Group, Waiting] = {}
        for number in np.unique(records["group"]).tolist():
            begin_ns = records["begin_ns"][records["group"] == number]
            oldest = (now_ns - int(begin_ns.min())) / NS_PER_SECOND
            if number in names:
                more = Waiting(len(begin_ns), oldest)
                before = found.get(names[number])
                found[names[number]] = before + more if before else more
        return found

    def watch(self, watched: Filter) -> None:
        """Watch other sockets from now on."""
        self._watched = watched
        self.capture.watch(watched)

    def group_by(self, grouping: Grouping) -> None:
        """Group traffic otherwise: everything counts anew."""
        self._unload()
        self.grouping = grouping
        self.start()

    def stop(self) -> None:
        """Detach; what was counted stays to be read."""
        if self._windows.always:
            self.capture.end_idle_exchanges(0)
        self._windows.stop()
        self.capture.stop()
        self._windows.freeze()
        self._join()
        if self._stories:
            self._stories.step(time.monotonic_ns())
        self._sampled.finish()
        if self.takes_sample:
            self.takes_sample.finish()

    def close(self) -> None:
        """Unload everything."""
        self._unload()
        self._functions.close()

    def _say(self, text: str) -> None:
        self.notice(printable(text))

    def _unload(self) -> None:
        if self._capture:
            self._windows.stop()  # its thread uses what is closed
            self._capture.close()
        self._capture = None

    def __enter__(self) -> Monitor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _group_names(self) -> GroupNames:
        capture, layout = self.capture, self.capture.layout
        key, value = key_types(layout)
        return GroupNames(
            layout,
            self.grouping,
            lambda: capture.entries("groups", key, value),
            self._containers,
        )

    def _group_totals(self, state: GroupState) -> GroupTotals:
        found, fields = GroupTotals(), len(COUNTED)
        for name, number in self.capture.layout.quantities.items():
            if number in state.counts:
                found.histograms[Quantity(name)] = CoarseHistogram(
                    state.counts[number],
                    state.sums_ns[number],
                    state.scaled[fields + number] - state.measured[fields + number],
                    state.variance[fields + number],
                )
        for at, counted in enumerate(COUNTED):
            if state.scaled[at]:
                found.counted[counted] = state.scaled[at]
                found.measured[counted] = state.measured[at]
                found.variance[counted] = state.variance[at]
        return found

    def _own(self, seconds: float) -> Own:
        counters = self.capture.counters()
        lost = {
            name.removeprefix("lost_"): count
            for name, count in counters.items()
            if name.startswith("lost_")
        }
        usage = resource.getrusage(resource.RUSAGE_SELF)
        attached = self._windows.coverage.attached_seconds
        runs, took = self.capture.cost.by_program(attached)
        return Own(
            seconds=seconds,
            covered_seconds=self._windows.coverage.covered_seconds,
            lost_records=lost,
            unmatched={
                name: count
                for name, count in counters.items()
                if not name.startswith("lost_")
            }
            | self._sampled.joiner.unmatched
            | self.capture.missed(),
            program_runs=runs,
            program_seconds=took,
            agent_cpu_seconds=usage.ru_utime
            + usage.ru_stime
            + self.capture.helper_cpu_seconds,
            agent_rss_bytes=_resident_bytes(),
            groups=self._room.state(time.monotonic()),
        )


def _alone(names: dict[int, Group]) -> dict[int, Group]:
    """Names that one group has: a line through one of several is not that of all."""
    called = Counter(names.values())
    return {number: group for number, group in names.items() if called[group] == 1}


def _resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()
