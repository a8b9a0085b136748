"""What a run captured and read, as its recording gives it step by step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.recording import Log, RecordLayout
from numpy.typing import NDArray

from latprof_agent.capture.recorded_flights import Watched
from latprof_agent.recorder import Cost, Recorder, Source
from latprof_agent.workload.generator_log import GeneratorLog
from latprof_agent.workload.measured_time import MeasuredTime
from latprof_agent.workload.mesh_log import MeshEnds, MeshLog


class RecordedCost:
    """When the probes' cost was measured, as far as the recording was read."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self._periods: dict[int, int] = {}

    def add(self, periods: NDArray[Any]) -> None:
        """Take in new ones; the last one's end may be another now."""
        self._periods |= zip(
            periods["from_ns"].tolist(), periods["until_ns"].tolist(), strict=True
        )

    def periods(self) -> NDArray[np.int64]:
        """All of them."""
        return np.array(list(self._periods.items()), "i8").reshape(-1, 2)

    def as_dict(self) -> dict[str, float]:
        """What the run said in the end."""
        return self.figures


@dataclass
class RecordedCapture:
    """Gives the records of one step after the other."""

    layout: RecordLayout
    ephemeral_ports: range
    cost: Cost
    drained_ns: int = 0
    counted: dict[str, int] = field(default_factory=dict)
    batch: Batch = field(default_factory=dict)
    flight: Watched | None = None

    def read(self) -> Batch:
        """Give those of this step."""
        return self.batch

    def counters(self) -> dict[str, int]:
        """What was counted until this step."""
        return dict(self.counted)

    def check(self) -> None:
        """There is nothing that could fail."""


class RecordedLog:
    """A log whose pieces come one by one."""

    def __init__(self) -> None:
        self.fresh = b""

    def __call__(self, _offset: int) -> bytes:
        fresh, self.fresh = self.fresh, b""
        return fresh


class RecordedSources:
    """Makes what knew of messages beside the probes, and gives each its logs."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._sources: list[Source] = []
        self._logs: list[list[RecordedLog]] = []

    def add(self, kind: str, **words: Any) -> None:
        """One begins to be asked."""
        logs: list[RecordedLog] = []
        if kind == "generator":
            logs.append(RecordedLog())
            self._begin(GeneratorLog(logs[0], **words), logs)
        elif kind == "mesh":
            places = {
                (address, port): host for address, port, host in words["responders"]
            }
            of = words["names"], places, words["senders"], words["otherwise"]
            protocol, one_clock = words["protocol"], words["one_clock"]
            self._begin(MeshLog(protocol, MeshEnds(*of), one_clock=one_clock), logs)
        elif kind == "measured time":
            self._begin(MeasuredTime(**words), logs)
        else:
            raise ValueError(f"a source of kind {kind}")

    def _begin(self, source: Source, logs: list[RecordedLog]) -> None:
        self._sources.append(source)
        self._logs.append(logs)
        self._recorder.add_source(source)

    def call(self, number: int, name: str, *arguments: Any) -> None:
        """Say to one what was said to it then."""
        source, logs = self._sources[number], self._logs[number]
        if isinstance(source, MeshLog) and name == "begin":
            logs[:] = [RecordedLog() for _ in range(source.hosts)]
            begin_ns, *start_ns = arguments  # of a recording of before none
            source.begin(begin_ns, logs, *start_ns)
        elif name in ("begin", "end", "counts", "is_void"):
            getattr(source, name)(*arguments)
        else:
            raise ValueError(f"a call of {name}")
        source.calls.clear()

    def put(self, logs: list[Log]) -> None:
        """Let them read this next."""
        for source, number, data in logs:
            self._logs[source][number].fresh += data
