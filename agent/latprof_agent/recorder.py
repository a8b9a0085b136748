"""From rings to files and figures: the loop that every run shares.

    drain -> join -> hold -> created, retransmits -> figures, messages.csv

Rows are held for a while before they are written, since the generator's log and
late retransmissions tell more of them.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.scans.totals import MessageTotals

from latprof_agent.capture.capture import Capture
from latprof_agent.capture.untraced_time import UntracedTime
from latprof_agent.join.joiner import Joiner
from latprof_agent.join.message_rows import MESSAGE, Messages, messages_of
from latprof_agent.sinks.round_trip_totals import RoundTripTotals
from latprof_agent.sinks.run_files import RunFolder
from latprof_agent.workload import generator_log
from latprof_agent.workload.generator_log import Created, LogTail

STEP_SECONDS = 0.02
# To join often makes it neither faster nor more exact.
JOIN_NS = 100_000_000
HOLD_NS = 1_500_000_000
LOG_KEEP_NS = 10_000_000_000


@dataclass
class Source:
    """One generator run that is being recorded."""

    created: Created
    totals: RoundTripTotals
    log: LogTail


@dataclass
class Recorder:
    """Takes in what the probes and the generator say until `finish`."""

    capture: Capture
    folder: RunFolder
    joiner: Joiner = field(init=False)
    messages: MessageTotals = field(default_factory=lambda: MessageTotals(most=0))
    sources: list[Source] = field(default_factory=list)
    records: int = 0
    hidden: UntracedTime = field(default_factory=UntracedTime)
    _held: deque[tuple[int, Messages]] = field(default_factory=deque)
    _joined_ns: int = 0

    def __post_init__(self) -> None:
        """Make the joiner for the layout that was captured."""
        self.joiner = Joiner(self.capture.layout)

    def add_source(self, source: Source) -> None:
        """Also record a generator run, from now on."""
        self.sources.append(source)

    def step(self) -> None:
        """Join what was drained and write what is ready, if it is time."""
        if time.monotonic_ns() - self._joined_ns >= JOIN_NS:
            self._join()

    def _join(self) -> None:
        self._joined_ns = time.monotonic_ns()
        batch = self.capture.read()
        drained_ns = self.capture.drained_ns
        self.hidden.add(batch["hidden_spells"])
        count = sum(map(len, batch.values()))
        self.records += count
        if count or self.joiner.waiting():
            self._hold(self.joiner.feed(batch, drained_ns), drained_ns)
        self._read_logs()
        self._write(drained_ns - HOLD_NS)

    def finish(self) -> None:
        """Write everything, halves too; the capture must have stopped."""
        self._join()
        now = time.monotonic_ns()
        self._hold(self.joiner.finish(), now)
        self._read_logs()
        self._write(now + 1)

    def _hold(self, pairs: Any, now_ns: int) -> None:
        if len(pairs.sent_index):
            rows = messages_of(self.joiner, pairs, self._kinds)
            self._held.append((now_ns, rows))

    def _kinds(self, flows: Any) -> Any:
        kinds = np.full(len(flows), MESSAGE)
        for source in self.sources:
            kinds = np.maximum(kinds, source.created.kinds_of(flows))
        return kinds

    def _read_logs(self) -> None:
        for source in self.sources:
            records = source.log.read()
            if not len(records):
                continue
            source.created.add(records)
            warmup = (records["flags"] & generator_log.WARMUP_FLAG) != 0
            measured = records[~warmup]
            source.totals.add(measured)
            columns = generator_log.csv_columns(
                source.created.protocol, measured, source.totals.open_loop
            )
            self.folder.add_round_trips(columns, len(measured))

    def _write(self, until_ns: int) -> None:
        while self._held and self._held[0][0] < until_ns:
            _, rows = self._held.popleft()
            self._complete(rows)
            self.messages.add(rows)
            self.folder.add_messages(rows)
        for source in self.sources:
            source.created.forget_before(until_ns - LOG_KEEP_NS)

    def _complete(self, rows: Messages) -> None:
        """Put in what became known while the rows were held."""
        rows.set_retransmits(self.joiner.retransmits_of(*rows.retransmit_range))
        created = np.zeros(len(rows), "i8")
        kinds, words = rows.texts["kind"]
        send_ns = np.maximum(rows.numbers["send_ns"], 0)
        for source in self.sources:
            mine = np.flatnonzero(source.created.rows_of(rows))
            found, named = generator_log.created_of(
                source.created,
                kinds[mine],
                rows.numbers["sequence"][mine],
                send_ns[mine],
            )
            created[mine] = found
            kinds[mine] = named
        # made before it was sent, or it is not the same message
        rows.set_created(np.where(created <= send_ns, created, 0))
        rows.texts["kind"] = kinds, words
