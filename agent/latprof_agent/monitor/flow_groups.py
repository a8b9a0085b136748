"""Which groups the two ends of a sampled flow are counted in."""

from __future__ import annotations

from typing import Any

import numpy as np
from latprof_analysis.records.flows import SIDE_SENDER
from latprof_analysis.records.newest import drop_oldest
from numpy.typing import NDArray

from latprof_agent.monitor.samples import NO_GROUP

# Flows are announced when they are sampled first; older ones may be asked for again.
KEPT = 1 << 14

Ints = NDArray[np.int64]


class FlowGroups:
    """Groups by flow number, of senders and receivers apart; bounded."""

    def __init__(self) -> None:
        self._groups: tuple[dict[int, int], dict[int, int]] = ({}, {})

    def add(self, flows: NDArray[Any]) -> None:
        """Take in announcements."""
        for side, known in enumerate(self._groups):
            mine = flows[(flows["side"] == SIDE_SENDER) == (side == 0)]
            known.update(
                zip(mine["flow"].tolist(), mine["group"].tolist(), strict=True)
            )
            drop_oldest(known, KEPT)

    def move(self, moves: dict[int, int]) -> None:
        """Let flows of these groups be of others."""
        for known in self._groups:
            gone = {flow: moves[n] for flow, n in known.items() if n in moves}
            known.update(gone)

    def of_senders(self, flows: NDArray[np.uint64]) -> Ints:
        """The group of the end that sends each flow, NO_GROUP unknown."""
        return self._of(flows, 0)

    def of_receivers(self, flows: NDArray[np.uint64]) -> Ints:
        """The group of the end that receives each flow."""
        return self._of(flows, 1)

    def _of(self, flows: NDArray[np.uint64], side: int) -> Ints:
        known = self._groups[side]
        found = [known.get(flow, NO_GROUP) for flow in flows.tolist()]
        return np.array(found, "i8")
