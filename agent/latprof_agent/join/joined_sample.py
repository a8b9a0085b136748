"""Samples of what several hosts watched, joined: both ends chose the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latprof_analysis.records.host_records import PID_BITS
from latprof_analysis.records.in_flight import InFlight
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.records.recording import RecordLayout, Step

from latprof_agent.join.host_recordings import JoinedHost
from latprof_agent.join.merged import MergedStep
from latprof_agent.join.step_rows import Expecting
from latprof_agent.monitor.sample_rows import SampledMessages, SampleRows
from latprof_agent.sinks.sink import Sink, Tally


class JoinedSample:
    """Joins steps of the recordings of `latprof watch --record`."""

    def __init__(
        self,
        hosts: Sequence[JoinedHost],
        layout: RecordLayout,
        ephemeral: range,
        slack_ns: int,
    ) -> None:
        """`slack_ns` is by how much stamps of two hosts may be wrong."""
        role = int(hosts[0].header["server_role"])
        self._sample = SampleRows(layout, role, ephemeral, slack_ns)
        self._sink = Sink()
        self.stories = None
        self.in_flight: dict[str, InFlight] = {}  # which a sample does not show
        self._records = 0

    @property
    def joiner(self) -> Joiner:
        """Of the halves."""
        return self._sample.joiner

    @property
    def path_devices(self) -> list[dict[str, Any]]:
        """What `PathDevices.as_list` gives."""
        return self.joiner.path_devices.as_list()

    def hand_to(self, sink: Sink, totals: Expecting) -> None:
        """Give what is joined to this one; a sample has no round trips to expect."""
        self._sink = sink

    def take(self, host: int, step: Step) -> None:
        """Take in names that one host had looked up."""
        found = {}
        for note in step.notes:
            for pid, name in note.get("processes", ()):
                found[int(pid) | host << PID_BITS] = str(name)
        for pid, name in found.items():
            self.joiner.names.note(pid, name, 0)

    def join(self, step: MergedStep) -> None:
        """Join what all hosts drained."""
        batch, sample = step.batch, self._sample
        self._records += sum(map(len, batch.values()))
        sample.name(batch, {})
        self._add(sample.messages(batch, step.drained_ns))
        if exchanged := sample.exchanges(batch):
            self._sink.add_exchanges(exchanged.rows(self.joiner))

    def end(self) -> None:
        """Give out what waits."""
        self._add(self._sample.finish())
        self._sink.end(Tally(self._records, unmatched=dict(self.joiner.unmatched)))

    def stories_document(self) -> None:
        """A sample has no stories that could be made again."""

    def _add(self, found: SampledMessages | None) -> None:
        if found:
            self._sink.add_messages(found.rows)
