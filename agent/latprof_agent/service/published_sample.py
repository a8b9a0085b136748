"""The sample as others may have it: steps of the newest time, while somebody asks.

A step is packed once, by itself, so that an answer costs no more than its bytes: the
recording's first ones, the steps that its asker lacks, and the end. Flows are announced
once in their lives; those that are known are kept, for whoever begins to ask.
"""

from __future__ import annotations

import math
import os
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from latprof_analysis.records.arrays import Batch, Records, stacked
from latprof_analysis.records.flows import SIDE_RECEIVER

from latprof_agent.capture.recording_writer import (
    STREAM_END,
    RecordingWriter,
    recording_header,
)
from latprof_agent.live.sample_recording import KIND

if TYPE_CHECKING:
    from latprof_agent.capture.capture import Capture

ASKED_SECONDS = 30.0  # after the last question nothing is kept
STEP_SECONDS = 1.0
MOST_BYTES = 8 << 20  # of steps, packed
FLOWS_KEPT = 1 << 13  # each has two ends
_CURSOR = re.compile(r"([0-9a-f]{16})\.(\d{1,18})\.(\d{1,18})", re.ASCII)


class Place(NamedTuple):
    """Where a caller is: how many steps there were, and records, since the start."""

    run: str  # another one where counting began anew
    steps: int
    records: int

    @classmethod
    def read(cls, text: str) -> Place | None:
        """Read what `str` writes; None where it is no place."""
        found = _CURSOR.fullmatch(text)
        return cls(found[1], int(found[2]), int(found[3])) if found else None

    def __str__(self) -> str:
        return ".".join(map(str, self))


@dataclass(frozen=True)
class Given:
    """A recording of the steps since a place."""

    recording: bytes
    next: Place
    lost_records: int  # that the caller has not got, and never will


class _Step(NamedTuple):
    before: Place
    packed: bytes
    flows: Records


class PublishedSample:
    """Takes what `Monitor` takes in, and gives it away, from any thread.

    Attributes
    ----------
    outcomes : Counter of str
        Records by what became of them: handed_out (to each who asked), fallen_out.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.outcomes: Counter[str] = Counter(handed_out=0, fallen_out=0)
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._asked = -math.inf
        self._writer: RecordingWriter | None = None
        self._written: list[bytes] = []
        self._steps: deque[_Step] = deque()
        self._bytes = 0

    @property
    def kept_bytes(self) -> int:
        """What is kept, but for the flows."""
        return self._bytes

    @property
    def step_seconds(self) -> float:
        """How long what was drained may wait until it is added."""
        return STEP_SECONDS if self._is_wanted() else math.inf

    def _is_wanted(self) -> bool:
        return time.monotonic() < self._asked + ASKED_SECONDS

    def begin(self, capture: Capture, watched: str) -> None:
        """Begin, or begin anew with other groups: flows are not known any more."""
        layout = capture.layout
        header = recording_header(
            layout,
            capture.capabilities,
            capture.ephemeral_ports,
            kind=KIND,
            watched=watched,
            server_role=layout.roles["server"],
        )
        with self._lock:
            self._forget_steps()
            self._flows: Records = np.empty(0, layout.rings["flows"])
            self._end = Place(os.urandom(8).hex(), 0, 0)
            self._writer = RecordingWriter(
                self._written.append, layout.rings, header, apart=True
            )
            self._head = self._take_written()

    def add(self, batch: Batch, drained_ns: int, processes: Mapping[int, str]) -> None:
        """Keep a step, if somebody has asked lately."""
        with self._lock:
            if not self._writer:
                return
            before, records = self._end, sum(map(len, batch.values()))
            self._end = Place(before.run, before.steps + 1, before.records + records)
            if not self._is_wanted():
                self._forget_steps()
                self._learn(batch["flows"])
                return
            self._writer.note(processes=list(processes.items()))
            self._writer.step(drained_ns, batch)
            step = _Step(before, self._take_written(), batch["flows"].copy())
            self._steps.append(step)
            self._bytes += len(step.packed) + step.flows.nbytes
            while self._bytes > self._most_bytes:
                self.outcomes["fallen_out"] += self._drop_oldest()

    def finish(self) -> None:
        """Nothing more will come."""

    def since(self, place: Place | None) -> Given | None:
        """Give the steps since a place, or all there are; None before `begin`."""
        with self._lock:
            self._asked = time.monotonic()
            if not self._writer:
                return None
            oldest = self._steps[0].before if self._steps else self._end
            known = place and place.run == self._end.run and place <= self._end
            parts, lost = [self._head], 0
            if not place or not known or place < oldest:
                parts.append(self._announcements())
                lost = oldest.records - place.records if place and known else 0
                place = oldest
            parts += [step.packed for step in self._steps if step.before >= place]
            self.outcomes["handed_out"] += self._end.records - place.records
            return Given(b"".join([*parts, STREAM_END]), self._end, lost)

    def _announcements(self) -> bytes:
        """Write a step of the flows from before those that are kept."""
        assert self._writer
        self._writer.step(None, {"flows": self._flows})
        return self._take_written()

    def _take_written(self) -> bytes:
        found = b"".join(self._written)
        self._written.clear()
        return found

    def _drop_oldest(self) -> int:
        """Drop a step; return how many records it had."""
        step = self._steps.popleft()
        self._bytes -= len(step.packed) + step.flows.nbytes
        self._learn(step.flows)
        after = self._steps[0].before if self._steps else self._end
        return after.records - step.before.records

    def _forget_steps(self) -> None:
        while self._steps:
            self._drop_oldest()

    def _learn(self, flows: Records) -> None:
        if len(flows):
            announced = flows[flows["side"] <= SIDE_RECEIVER]
            self._flows = stacked(self._flows, announced)[-2 * FLOWS_KEPT :]
