"""What the probes say as records while they count: joined samples, and exemplars.

rings -> sampled halves -> joiner -> rows -> histograms and fits of both ends
      -> sampled turns -> exchanges -> network RTT
      -> slow ones -> exemplars, stories
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
from latprof_analysis.records.arrays import Batch
from latprof_analysis.records.joiner import Joiner
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of
from numpy.typing import NDArray

from latprof_agent.monitor.exemplars import Exemplars
from latprof_agent.monitor.flow_groups import FlowGroups
from latprof_agent.monitor.sample_rows import (
    RECORDS,
    SampledMessages,
    SampleRows,
    with_flag,
)
from latprof_agent.monitor.samples import NO_GROUP, Samples
from latprof_agent.monitor.totals import Group, Quantity
from latprof_agent.monitor.turns import Exchanged
from latprof_agent.probes.layout import Layout
from latprof_agent.sinks.sink import Sink
from latprof_agent.story.live_stories import LiveStories

Ints = NDArray[np.int64]


class Sampled:
    """Takes batches of the rings; bounded."""

    def __init__(
        self,
        layout: Layout,
        ephemeral: range,
        sinks: list[Sink],
        stories: LiveStories | None = None,
    ) -> None:
        """All sinks get what is joined, too; `ephemeral` are clients' ports."""
        self._stories = stories
        server = layout.roles["server"]
        self._rows = SampleRows(layout, server, ephemeral)
        self.joiner: Joiner = self._rows.joiner
        self.samples = Samples()
        self.exemplars = Exemplars(self._process, server)
        self.rtt_ns: defaultdict[int, CoarseHistogram] = defaultdict(CoarseHistogram)
        self._sinks = sinks
        self._slow = layout.flags["RECORD_SLOW"]
        self._flows = FlowGroups()

    def add(
        self,
        batch: Batch,
        drained_ns: int,
        names: Mapping[int, Group],
        processes: Mapping[int, str],
    ) -> int:
        """Take in what was drained before `drained_ns`; how many records it was.

        `names` are of groups; `processes` were looked up, and are in no record.
        """
        self._flows.add(batch["flows"])
        self._rows.name(batch, processes)
        self._add_slow(batch, names)
        self._give_out(self._rows.messages(batch, drained_ns))
        if self._stories:
            self._stories.add(batch, self.joiner)
        exchanged = self._rows.exchanges(batch)
        if exchanged:
            self._add_exchanges(exchanged)
        return sum(len(batch[ring]) for ring in RECORDS)

    def finish(self) -> None:
        """Give out what waits; nothing more will come."""
        self._give_out(self._rows.finish())

    def _add_slow(self, batch: Batch, names: Mapping[int, Group]) -> None:
        sent, received, turns = (with_flag(batch[ring], self._slow) for ring in RECORDS)
        groups = self._flows.of_senders(sent["flow"])
        self.exemplars.add_sent(sent, groups.tolist(), names)
        groups = self._flows.of_receivers(received["flow"])
        self.exemplars.add_received(received, groups.tolist(), names)
        self.exemplars.add_turns(turns, names)

    def _process(self, pid: int) -> str:
        name = self.joiner.names.newest(pid)
        return f"{name} (pid {pid})" if name else f"pid {pid}"

    def _give_out(self, found: SampledMessages | None) -> None:
        if not found:
            return
        rows, both = found.rows, found.both_ends
        flow = rows.retransmit_range[0]
        # one half alone does not show the way between
        sent = np.where(both, self._flows.of_senders(flow), NO_GROUP)
        received = np.where(both, self._flows.of_receivers(flow), NO_GROUP)
        self.samples.add(rows, sent, received)
        for sink in self._sinks:
            sink.add_messages(rows)

    def _add_exchanges(self, exchanged: Exchanged) -> None:
        rtt_ns = exchanged.network_rtt_ns()
        for end in (exchanged.client, exchanged.server):
            for group in np.unique(end["group"]).tolist():
                of_group = rtt_ns[(end["group"] == group) & (rtt_ns >= 0)]
                if len(of_group):
                    found = self.rtt_ns[group]
                    np.add.at(found.counts, bucket_of(of_group), 1)
                    found.sum_ns += int(of_group.sum())
        if self._sinks:
            rows = exchanged.rows(self.joiner)
            for sink in self._sinks:
                sink.add_exchanges(rows)

    def move(self, moves: dict[int, int]) -> None:
        """Let what groups have be others', whose numbers these are."""
        self._flows.move(moves)
        self.samples.move(moves)
        for number, other in moves.items():
            if number in self.rtt_ns:
                self.rtt_ns[other] += self.rtt_ns.pop(number)

    def histograms(self) -> dict[tuple[int, Quantity], CoarseHistogram]:
        """Of groups by number."""
        found = self.samples.histograms()
        for group, rtt_ns in self.rtt_ns.items():
            found[group, Quantity.RTT_STAMPS] = rtt_ns
        return found
