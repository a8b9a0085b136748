"""The recording of live traffic: the sample as it was drained, histograms by minute.

`rebuild_live` makes the run folder again from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from latprof_analysis.records.arrays import Batch

from latprof_agent.capture.recording_writer import RecordingWriter, recording_header
from latprof_agent.live.histogram_rows import Histograms
from latprof_agent.monitor.totals import Totals
from latprof_agent.monitor.totals_json import as_json

if TYPE_CHECKING:
    from latprof_agent.capture.capture import Capture

KIND = "live"  # of the recording, in its header

Open = Callable[[], Callable[[bytes], None]]


class SampleRecording:
    """Takes what `Monitor` takes in, from `begin` to `end`."""

    def __init__(self, open_file: Open) -> None:
        """`open_file` makes the file, and gives what writes to its end."""
        self._open = open_file
        self._writer: RecordingWriter | None = None

    @property
    def step_seconds(self) -> float:
        """How long what was drained may wait until it is added: until it is joined."""
        return math.inf

    def begin(self, capture: Capture, watched: str) -> None:
        """Begin, or begin anew with other groups: flows are not known any more."""
        if self._writer:
            self._writer.note(anew=True)
            return
        header = recording_header(
            capture.layout,
            capture.capabilities,
            capture.ephemeral_ports,
            kind=KIND,
            watched=watched,
            server_role=capture.layout.roles["server"],
        )
        rings = capture.layout.rings
        self._writer = RecordingWriter(self._open(), rings, header)

    def add(self, batch: Batch, drained_ns: int, processes: Mapping[int, str]) -> None:
        """Keep a step of the sample; `processes` were looked up by pid."""
        if self._writer:
            self._writer.note(processes=list(processes.items()))
            self._writer.step(drained_ns, batch)

    def finish(self) -> None:
        """Keep that nothing more will come of the sample."""
        self._note(finish=True)

    def describe(self, run: dict[str, Any]) -> None:
        """Keep what the run says of itself while it runs."""
        self._note(running=run)

    def add_histograms(
        self, found: Histograms, begin_ns: int, end_ns: int, totals: Totals
    ) -> None:
        """Keep what came between, and what there is since the start."""
        of = as_json(dict(found))
        self._note(
            histograms=of, begin_ns=begin_ns, end_ns=end_ns, totals=_figures(totals)
        )

    def end(self, totals: Totals, **what: Any) -> None:
        """Keep what the run says in the end, and end."""
        if self._writer:
            self._writer.end(end=what, totals=_figures(totals))
            self._writer = None

    def _note(self, **what: Any) -> None:
        if self._writer:
            self._writer.note(**what)
            self._writer.step(None, {})


def _figures(totals: Totals) -> Any:
    """Return all but what stands elsewhere already."""
    return as_json(replace(totals, stories={}, capabilities=[]))
