"""Recordings of several hosts as one: steps in the order of time, on one clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.clocks import HostClocks
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.host_records import HostRecords
from latprof_analysis.records.recording import CLOCKS, PERIODS, Step

from latprof_agent.join.batches import ENOUGH, together
from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.recorder import JOIN_NS

_NOTHING_YET = -(1 << 62)
# As long steps wait to be joined, however few records they have.
_LONGEST_NS = 10_000_000_000
Rings = Mapping[str, np.dtype[Any]]


@dataclass
class MergedStep:
    """What all hosts recorded in some time.

    All records from before `drained_ns`, on the common clock, are in this one or one
    before. `steps` are those of the hosts that are in it, as they were recorded;
    `periods`, when the probes' own cost was measured on any of them, are on the common
    clock.
    """

    drained_ns: int
    batch: Batch
    periods: list[np.ndarray[Any, Any]]
    steps: list[tuple[int, Step]]
    share: float  # of all files that was read


@dataclass
class _Stream:
    """The steps of one host, one ahead."""

    host: JoinedHost
    moves: HostRecords
    clocks: HostClocks
    drained_ns: int = _NOTHING_YET
    share: float = 0.0
    _steps: Iterator[tuple[Step, float]] = field(init=False)
    next: Step | None = field(init=False)

    def __post_init__(self) -> None:
        self._steps = self.host.steps()
        self._advance()
        # before a recording's first reading of clocks nothing was recorded
        if self.next and len(self.next.beside[CLOCKS]):
            first = self.next.beside[CLOCKS]["monotonic_ns"][0]
            self.drained_ns = self._on_reference(int(first))

    def _advance(self) -> None:
        self.next, self.share = next(self._steps, (None, 1.0))

    def take(self) -> Step:
        """Give the next step; all that was drained until then is known now."""
        step = self.next
        assert step
        if step.drained_ns is not None:
            self.drained_ns = self._on_reference(step.drained_ns)
        self._advance()
        return step

    def periods(self, steps: Sequence[Step]) -> np.ndarray[Any, Any]:
        """When probes' own cost was measured, on the common clock."""
        found = np.concatenate([step.beside[PERIODS] for step in steps])
        for name in found.dtype.names or ():
            found[name] = self.clocks.to_reference(self.host.number, found[name])
        return found

    def _on_reference(self, time_ns: int) -> int:
        times = np.array([time_ns], "i8")
        return int(self.clocks.to_reference(self.host.number, times)[0])


class Merged:
    """Reads all hosts' recordings from the first to the last step."""

    def __init__(
        self,
        hosts: Sequence[JoinedHost],
        moves: Sequence[HostRecords],
        clocks: HostClocks,
        rings: Rings,
    ) -> None:
        """`moves` are of the hosts; `rings` lays out the records of the result."""
        self._rings = rings
        self._streams = [
            _Stream(host, move, clocks) for host, move in zip(hosts, moves, strict=True)
        ]

    def steps(self) -> Iterator[MergedStep]:
        """Give what was recorded by all hosts until one time after the other."""
        waiting: list[list[Batch]] = [[] for _ in self._streams]
        taken: list[tuple[int, Step]] = []
        given_ns, count = _NOTHING_YET, 0
        while left := [stream for stream in self._streams if stream.next]:
            behind = min(left, key=lambda stream: stream.drained_ns)
            step = behind.take()
            taken.append((behind.host.number, step))
            if step.drained_ns is not None:
                waiting[behind.host.number].append(step.rings)
            # a host whose recording has ended will not be heard of any more
            going = [stream.drained_ns for stream in left if stream.next]
            drained_ns = min(going, default=behind.drained_ns)
            count += sum(map(len, step.rings.values()))
            apart_ns = drained_ns - given_ns
            enough = apart_ns >= JOIN_NS and count >= ENOUGH
            if enough or apart_ns >= _LONGEST_NS or not going:
                given_ns = max(given_ns, drained_ns)
                whole, periods = self._whole(waiting), self._periods(taken)
                yield MergedStep(given_ns, whole, periods, taken, self._share())
                waiting, taken, count = [[] for _ in self._streams], [], 0

    def _whole(self, waiting: list[list[Batch]]) -> Batch:
        """Put the records of all hosts together, on the common clock."""
        moved = [
            stream.moves.moved(together(batches), self._rings)
            for stream, batches in zip(self._streams, waiting, strict=True)
            if batches
        ]
        none = {ring: np.empty(0, dtype) for ring, dtype in self._rings.items()}
        return together(moved) if moved else none

    def _periods(self, taken: Sequence[tuple[int, Step]]) -> list[np.ndarray[Any, Any]]:
        of_host = [
            [step for host, step in taken if host == stream.host.number]
            for stream in self._streams
        ]
        each = zip(self._streams, of_host, strict=True)
        return [stream.periods(steps) for stream, steps in each if steps]

    def _share(self) -> float:
        shares = [stream.share for stream in self._streams]
        return sum(shares) / len(shares)


def moves_of(host: JoinedHost, clocks: HostClocks) -> HostRecords:
    """Return what puts the records of a host on the common clock."""
    number = host.number
    return HostRecords(number, lambda times: clocks.to_reference(number, times))
