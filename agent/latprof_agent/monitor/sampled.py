"""What the probes tell as records while they count: joined samples, and exemplars.

rings -> sampled halves -> joiner -> rows -> histograms and fits of both ends
      -> sampled turns -> exchanges -> network RTT
      -> slow ones -> exemplars, stories
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping

import numpy as np
from latprof_analysis.records.arrays import Batch, Records
from latprof_analysis.records.joiner import Joiner, Pairs
from latprof_analysis.records.message_rows import MESSAGE, Messages, messages_of
from latprof_analysis.stats.kernel_histogram import CoarseHistogram, bucket_of
from numpy.typing import NDArray

from latprof_agent.monitor.exemplars import Exemplars
from latprof_agent.monitor.flow_groups import FlowGroups
from latprof_agent.monitor.samples import NO_GROUP, Samples
from latprof_agent.monitor.totals import Group, Quantity
from latprof_agent.monitor.turns import Exchanged, Turns
from latprof_agent.probes.layout import Layout
from latprof_agent.process_table import comm_of
from latprof_agent.story.live_stories import LiveStories

HALVES = ("sent_messages", "received_ranges")
RECORDS = (*HALVES, "turns")
FLOWS_KEPT = 1 << 13
NAMES_KEPT = 1 << 12

Ints = NDArray[np.int64]
TakesRows = Callable[[Messages], None]
TakesExchanges = Callable[[Exchanged], None]


class Sampled:
    """Takes batches of the rings; bounded."""

    def __init__(
        self,
        layout: Layout,
        ephemeral: range,
        takes_rows: list[TakesRows],
        takes_exchanges: list[TakesExchanges],
        stories: LiveStories | None = None,
    ) -> None:
        """All of the lists get what is joined, too; `ephemeral` are clients' ports."""
        self._stories = stories
        self.joiner = Joiner(layout, FLOWS_KEPT, ephemeral)
        self.samples = Samples()
        self.exemplars = Exemplars(self._process, layout.roles["server"])
        self.rtt_ns: defaultdict[int, CoarseHistogram] = defaultdict(CoarseHistogram)
        self._takes_rows = takes_rows
        self._takes_exchanges = takes_exchanges
        self._sampled = layout.flags["RECORD_SAMPLED"]
        self._slow = layout.flags["RECORD_SLOW"]
        self._turns = Turns(layout.rings["turns"], layout.roles["server"])
        self._flows = FlowGroups()

    def add(self, batch: Batch, drained_ns: int, names: Mapping[int, Group]) -> int:
        """Take in what was drained before `drained_ns`; how many records it was."""
        self._flows.add(batch["flows"])
        self._add_slow(batch, names)
        self.name_processes(batch)
        chosen = {ring: self._with(batch[ring], self._sampled) for ring in HALVES}
        self._give_out(self.joiner.feed(batch | chosen, drained_ns))
        if self._stories:
            self._stories.add(batch, self.joiner)
        exchanged = self._turns.add(self._with(batch["turns"], self._sampled))
        if len(exchanged.client):
            self._add_exchanges(exchanged)
        return sum(len(batch[ring]) for ring in RECORDS)

    def finish(self) -> None:
        """Give out what waits; nothing more will come."""
        self._give_out(self.joiner.finish())

    def _with(self, records: Records, flag: int) -> Records:
        found: Records = records[(records["flags"] & flag) != 0]
        return found

    def _add_slow(self, batch: Batch, names: Mapping[int, Group]) -> None:
        sent, received, turns = (
            self._with(batch[ring], self._slow) for ring in RECORDS
        )
        groups = self._flows.of_senders(sent["flow"])
        self.exemplars.add_sent(sent, groups.tolist(), names)
        groups = self._flows.of_receivers(received["flow"])
        self.exemplars.add_received(received, groups.tolist(), names)
        self.exemplars.add_turns(turns, names)

    def name_processes(self, batch: Batch) -> None:
        """Look up who sent and read where the probes have not named them.

        As soon as records are drained: many processes are gone when they are joined.
        """
        names = self.joiner.names
        names.add(batch["tasks"])
        for ring in RECORDS:
            for pid in set(batch[ring]["pid"].tolist()):
                if pid not in names and (name := comm_of(pid)):
                    names.note(pid, name, 0)
        names.keep(NAMES_KEPT)

    def _process(self, pid: int) -> str:
        name = self.joiner.names.newest(pid) or comm_of(pid)
        return f"{name} (pid {pid})" if name else f"pid {pid}"

    def _give_out(self, pairs: Pairs) -> None:
        if not len(pairs.sent_index):
            return
        rows = messages_of(self.joiner, pairs, _no_kinds)
        none = np.zeros(len(rows), "i8")
        rows.set_retransmits(self.joiner.retransmits_of(*rows.retransmit_range))
        rows.set_created(none)
        rows.mark_statistics(none > 0)
        flow = rows.retransmit_range[0]
        # who has one half alone tells nothing of the way between
        both = (pairs.sent_index >= 0) & (pairs.received_index >= 0)
        sent = np.where(both, self._flows.of_senders(flow), NO_GROUP)
        received = np.where(both, self._flows.of_receivers(flow), NO_GROUP)
        self.samples.add(rows, sent, received)
        for takes in self._takes_rows:
            takes(rows)

    def _add_exchanges(self, exchanged: Exchanged) -> None:
        rtt_ns = exchanged.network_rtt_ns()
        for end in (exchanged.client, exchanged.server):
            for group in np.unique(end["group"]).tolist():
                of_group = rtt_ns[(end["group"] == group) & (rtt_ns >= 0)]
                if len(of_group):
                    found = self.rtt_ns[group]
                    np.add.at(found.counts, bucket_of(of_group), 1)
                    found.sum_ns += int(of_group.sum())
        for takes in self._takes_exchanges:
            takes(exchanged)

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


def _no_kinds(flows: NDArray[np.generic]) -> Ints:
    return np.full(len(flows), MESSAGE)
