"""Whole delays and fits of sampled messages, which need both ends.

A message counts for the group of its sender's end as sent, and for that of its
reader's as received. Histograms of transit and of the whole way grow; for the fits a
sample of the sample is kept (`reservoir`), of which one fit after the other is made
anew as far as an allowance of CPU time goes.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from latprof_analysis.fit.natural import DEVICE, WHOLE, Natural, fit_natural
from latprof_analysis.records.message_rows import Messages, joined_rows
from latprof_analysis.stages import (
    BLANK,
    RECEIVER,
    SENDER,
    STAGES,
    STAMPS,
    stages_at,
)
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of
from latprof_analysis.text import NS_PER_SECOND
from numpy.typing import NDArray

from latprof_agent.monitor.reservoir import DELAYS, Reservoir
from latprof_agent.monitor.totals import Fit, Group, Quantity

SENT, RECEIVED = 0, 1
NO_GROUP = -1
# What is kept of each direction, by the name of what is fitted.
COUNTED = (
    {"transit": Quantity.TRANSIT, WHOLE: Quantity.END_TO_END},
    {"transit": Quantity.RECEIVED_TRANSIT, WHOLE: Quantity.RECEIVED_END_TO_END},
)
FITTED = (
    # when it was made no probe sees
    {stage: Quantity(stage) for stage in stages_at(SENDER)[1:]} | COUNTED[SENT],
    {stage: Quantity(stage) for stage in stages_at(RECEIVER)} | COUNTED[RECEIVED],
)
# Rows wait until there are so many: by hundreds they would cost five times as much.
_TAKEN_TOGETHER = 2048
# Fits are made anew no sooner, and take no more than this share of a CPU.
FITTED_AGAIN_NS = 10_000_000_000
_CPU_SHARE = 0.002

Ints = NDArray[np.int64]
Target = tuple[int, int, str]  # group, direction, what is fitted


class Samples:
    """Takes joined rows and the groups of their ends; bounded whatever comes.

    Groups are numbers from 0, as few as the kernel has. Only of rows that the sample
    chose: those that came since they were slow would bias all of it.
    """

    def __init__(self, cpu_ns: Callable[[], int] = time.process_time_ns) -> None:
        """Begin with nothing; `cpu_ns` gives the CPU time of this process."""
        self._waiting: list[tuple[Messages, Ints, Ints]] = []
        self._waiting_rows = 0
        self._histograms: defaultdict[tuple[int, Quantity], CoarseHistogram]
        self._histograms = defaultdict(CoarseHistogram)
        self._reservoir = Reservoir()
        self._fits: dict[tuple[int, Quantity], Fit] = {}
        self._targets: deque[Target] = deque()
        self._cpu_ns = cpu_ns
        self._begun_ns = -FITTED_AGAIN_NS
        self._next_ns = 0

    def add(self, rows: Messages, sent: Ints, received: Ints) -> None:
        """Take rows; `sent` and `received` number the groups of their two ends.

        NO_GROUP where an end is in none, or where the sample did not choose the row.
        """
        self._waiting.append((rows, sent, received))
        self._waiting_rows += len(rows)
        if self._waiting_rows >= _TAKEN_TOGETHER:
            self._take_in()

    def histograms(self) -> dict[tuple[int, Quantity], CoarseHistogram]:
        """Return those of all groups; they go on growing."""
        self._take_in()
        return dict(self._histograms)

    def move(self, moves: Mapping[int, int]) -> None:
        """Let what groups have be others'; fits are of one group, and go."""
        self._take_in()
        for number, quantity in [key for key in self._histograms if key[0] in moves]:
            found = self._histograms.pop((number, quantity))
            self._histograms[moves[number], quantity] += found
        self._reservoir.forget(moves)
        self._targets = deque(t for t in self._targets if t[0] not in moves)
        self._fits = {key: f for key, f in self._fits.items() if key[0] not in moves}

    def fits(self, groups: Mapping[int, Group]) -> dict[tuple[Group, Quantity], Fit]:
        """Return the newest fits, of the groups that have a name."""
        return {
            (groups[number], quantity): fit
            for (number, quantity), fit in self._fits.items()
            if number in groups
        }

    def step(self, now_ns: int) -> None:
        """Make one fit anew, if it is time for one; up to some 25 ms of work.

        `now_ns` is CLOCK_MONOTONIC.
        """
        if now_ns < self._next_ns:
            return
        before_ns = self._cpu_ns()
        if self._targets:
            self._fit(*self._targets.popleft())
        elif now_ns >= self._begun_ns + FITTED_AGAIN_NS:
            self._begin(now_ns)
        self._next_ns = now_ns + int((self._cpu_ns() - before_ns) / _CPU_SHARE)

    def _begin(self, now_ns: int) -> None:
        """Plan a fit of whatever is there; what is there no more has none."""
        self._begun_ns = now_ns
        self._take_in()
        ends = self._reservoir.ends(now_ns)
        self._targets = deque(
            (group, way, name) for group, way in ends for name in FITTED[way]
        )
        kept = {(group, FITTED[way][name]) for group, way, name in self._targets}
        self._fits = {key: fit for key, fit in self._fits.items() if key in kept}

    def _fit(self, group: int, way: int, name: str) -> None:
        messages = self._reservoir.messages(group, way)
        key = group, FITTED[way][name]
        fit = _said(messages, name) if messages else None
        if fit:
            self._fits[key] = fit
        else:
            self._fits.pop(key, None)

    def _take_in(self) -> None:
        if not self._waiting:
            return
        parts, sent, received = zip(*self._waiting, strict=True)
        self._waiting, self._waiting_rows = [], 0
        rows = joined_rows(list(parts))
        delays = _delays(rows)
        for way, groups in enumerate((np.concatenate(sent), np.concatenate(received))):
            chosen = np.flatnonzero(groups != NO_GROUP)
            for name, quantity in COUNTED[way].items():
                self._count(groups[chosen], quantity, delays[name][chosen])
            self._reservoir.add(rows, delays, chosen, groups[chosen], way)

    def _count(self, groups: Ints, quantity: Quantity, delay_ns: Ints) -> None:
        there = delay_ns != BLANK
        groups, delay_ns = groups[there], delay_ns[there]
        order = np.argsort(groups, kind="stable")
        numbers, first = np.unique(groups[order], return_index=True)
        bounds = np.append(first, len(order))
        for number, (begin, end) in zip(
            numbers.tolist(), pairwise(bounds), strict=True
        ):
            values = delay_ns[order[begin:end]]
            found = self._histograms[number, quantity]
            np.add.at(found.counts, bucket_of(values), 1)
            found.sum_ns += int(values.sum())


def _delays(rows: Messages) -> dict[str, Ints]:
    """Return what is counted or fitted, by name; BLANK where a stamp is missing."""
    stamps = {stamp: rows.numbers[f"{stamp}_ns"] for stamp in STAMPS}
    between = dict(zip(STAGES, pairwise(STAMPS), strict=True))
    between |= {WHOLE: ("send", "read"), DEVICE: ("queue", "arrive")}
    found = {}
    for name in DELAYS:
        first, last = (stamps[stamp] for stamp in between[name])
        there = (first > 0) & (last >= first)
        found[name] = np.where(there, last - first, BLANK)
    return found


def _said(messages: Natural, name: str) -> Fit | None:
    """Fit one quantity; None where there is no line that gives a bandwidth."""
    found = fit_natural(messages, name)
    slope, fixed = found.slope_ns_per_byte, found.fixed_delay_seconds
    if found.model != "line" or not slope or not fixed:
        return None
    return Fit(
        bandwidth_bytes_per_second=NS_PER_SECOND / slope.value,
        bandwidth_low=NS_PER_SECOND / slope.high,
        bandwidth_high=NS_PER_SECOND / slope.low,
        fixed_delay_ns=fixed.value * NS_PER_SECOND,
        fixed_delay_low_ns=max(0.0, fixed.low * NS_PER_SECOND),
        fixed_delay_high_ns=fixed.high * NS_PER_SECOND,
        r_squared=1 - (found.unexplained_share or 0.0),
        messages=found.n,
    )
