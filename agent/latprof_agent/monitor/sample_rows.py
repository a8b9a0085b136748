"""Rows of a sample: sampled halves -> messages, both ends' turns -> exchanges.

What it takes in is all that a recording has to keep, and nothing here looks elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from latprof_analysis.records.arrays import Batch, Records
from latprof_analysis.records.joiner import Joiner, Pairs
from latprof_analysis.records.message_rows import MESSAGE, Messages, messages_of
from latprof_analysis.records.recording import RecordLayout
from numpy.typing import NDArray

from latprof_agent.monitor.turns import Exchanged, Turns

HALVES = ("sent_messages", "received_ranges")
RECORDS = (*HALVES, "turns")
FLOWS_KEPT = 1 << 13
NAMES_KEPT = 1 << 12


@dataclass(frozen=True)
class SampledMessages:
    """Messages, and which of them were seen at both ends."""

    rows: Messages
    both_ends: NDArray[np.bool_]


class SampleRows:
    """Takes batches of the rings; bounded."""

    def __init__(
        self,
        layout: RecordLayout,
        server_role: int,
        ephemeral: range,
        slack_ns: int = 0,
        flows_kept: int = FLOWS_KEPT,
        restamp: Callable[[Messages], None] | None = None,
    ) -> None:
        """`ephemeral` are clients' ports; `slack_ns` as of `Joiner`.

        `restamp` puts the stamps of joined rows on another clock.
        """
        self.joiner = Joiner(layout, flows_kept, ephemeral, slack_ns)
        self._restamp = restamp
        self._sampled = layout.flags["RECORD_SAMPLED"]
        self._turns = Turns(layout.rings["turns"], server_role)

    def name(self, batch: Batch, processes: Mapping[int, str]) -> None:
        """Take in names: those in the batch, and `processes` that were looked up."""
        names = self.joiner.names
        names.add(batch["tasks"])
        for pid, name in processes.items():
            names.note(pid, name, 0)
        names.keep(NAMES_KEPT)

    def messages(self, batch: Batch, drained_ns: int) -> SampledMessages | None:
        """Take in halves drained before `drained_ns`; return what is whole now."""
        chosen = {ring: self._chosen(batch[ring]) for ring in HALVES}
        return self._rows(self.joiner.feed(batch | chosen, drained_ns))

    def exchanges(self, batch: Batch) -> Exchanged | None:
        """Take in turns; return the exchanges that both ends have reported."""
        exchanged = self._turns.add(self._chosen(batch["turns"]))
        return exchanged if len(exchanged.client) else None

    def finish(self) -> SampledMessages | None:
        """Return what waits; nothing more will come."""
        return self._rows(self.joiner.finish())

    def _chosen(self, records: Records) -> Records:
        return with_flag(records, self._sampled)

    def _rows(self, pairs: Pairs) -> SampledMessages | None:
        if not len(pairs.sent_index):
            return None
        rows = messages_of(self.joiner, pairs, _no_kinds)
        if self._restamp:
            self._restamp(rows)
        none = np.zeros(len(rows), "i8")
        rows.set_retransmits(self.joiner.retransmits_of(*rows.retransmit_range))
        rows.set_created(none)
        rows.mark_statistics(none > 0)
        both = (pairs.sent_index >= 0) & (pairs.received_index >= 0)
        return SampledMessages(rows, both)


def with_flag(records: Records, flag: int) -> Records:
    """Return the records of which it is set."""
    found: Records = records[(records["flags"] & flag) != 0]
    return found


def _no_kinds(flows: NDArray[np.generic]) -> NDArray[np.int64]:
    return np.full(len(flows), MESSAGE)
