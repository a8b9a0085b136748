"""What counts as slow in each group: the probes tell of it, a few times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from latprof_analysis.stats.kernel_histogram import BUCKETS, edges_ns
from latprof_analysis.stats.quantiles import samples_needed
from numpy.typing import NDArray

from latprof_agent.capture.histograms import GroupState
from latprof_agent.probes.layout import Layout

SLOW_SHARE = 0.999
# The share is that of what came in about so many rounds.
ROUNDS_KEPT = 6
ROUND_SECONDS = 10.0
# In each round a group may tell of so many.
TOKENS = 8
# So many buckets are one here.
_TOGETHER = 8
_FIRSTS = np.arange(0, BUCKETS, _TOGETHER)

# What the limits are of, and by which quantities: the slowest of them counts.
LIMITED = {
    "sent_ns": ("send_queue", "qdisc"),
    "received_ns": (
        "receive_stack",
        "receive_queue",
        "range_receive_stack",
        "range_receive_queue",
    ),
    "turn_ns": ("response", "server"),
}

Put = Callable[[str, bytes, bytes], None]  # into a map of the probes


@dataclass
class Limits:
    """Follows the slowest share of each group, or a limit of the user's."""

    layout: Layout
    put: Put
    fixed_ns: int = 0  # 0: the slowest share
    _before: dict[int, list[NDArray[np.float32]]] = field(default_factory=dict)

    def begin(self, groups: int) -> None:
        """Let a limit of the user's hold at once, of so many groups."""
        for number in range(groups if self.fixed_ns else 0):
            self._give(number, dict.fromkeys(LIMITED, self.fixed_ns))

    def update(self, states: dict[int, GroupState]) -> None:
        """Begin a round."""
        for number, state in states.items():
            now = self._coarse(state)
            kept = self._before.setdefault(number, [np.zeros_like(now)])
            recent = now - kept[0]
            if not recent.any():
                continue
            kept.append(now)
            del kept[:-ROUNDS_KEPT]
            self._give(
                number,
                {
                    name: self.fixed_ns or self._slowest(recent, quantities)
                    for name, quantities in LIMITED.items()
                },
            )

    def _give(self, number: int, limits: Mapping[str, float]) -> None:
        """Let a group tell of so many that are slower."""
        limit = np.zeros((), self.layout.group_limit)
        for name, limit_ns in limits.items():
            limit[name] = limit_ns
        limit["tokens"] = TOKENS
        self.put("group_limits", number.to_bytes(4, "little"), limit.tobytes())

    def _coarse(self, state: GroupState) -> NDArray[np.float32]:
        """Neighbours together: several rounds of all groups are kept."""
        found = np.zeros((self.layout.quantities["quantities"], len(_FIRSTS)), "f4")
        for quantity, counts in state.counts.items():
            found[quantity] = np.add.reduceat(counts, _FIRSTS)
        return found

    def _slowest(
        self, counts: NDArray[np.float32], quantities: tuple[str, ...]
    ) -> float:
        """0 where too few have come to tell."""
        places = [self.layout.quantities[name] for name in quantities]
        return max(_share_ends(counts[place]) for place in places)


def _share_ends(counts: NDArray[np.float32]) -> float:
    """Where the slowest share of one histogram begins; 0 where too few are in it."""
    up_to = np.cumsum(counts, dtype="f8")
    if up_to[-1] < samples_needed(SLOW_SHARE):
        return 0.0
    at = int(np.searchsorted(up_to, SLOW_SHARE * up_to[-1]))
    return float(edges_ns()[_FIRSTS[at]])
