"""Groups that count nothing any more, while new ones find no room.

Containers and services come and go for months, and there is room for so many groups.
When it is full and a good part of it is idle, all is begun anew: counts restart, as
those of any service that was started again.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from latprof_agent.capture.histograms import GROUPS, OTHER_GROUPS, GroupState

IDLE_SECONDS = 3600.0
IDLE_SHARE = 1 / 4


@dataclass
class IdleGroups:
    """When each group counted last."""

    _last: dict[int, tuple[float, float]] = field(default_factory=dict)  # sum, when

    def are_in_the_way(self, states: dict[int, GroupState], now: float) -> bool:
        """Whether it is time to begin anew; `now` in seconds."""
        for number, state in states.items():
            counted = float(state.counted.sum())
            if self._last.get(number, (-1.0, now))[0] != counted:
                self._last[number] = counted, now
        full = len(states) == GROUPS - OTHER_GROUPS.start
        if not (full and any(states[n].counted.any() for n in OTHER_GROUPS)):
            return False
        idle = sum(now - when > IDLE_SECONDS for _, when in self._last.values())
        return idle > IDLE_SHARE * len(states)
