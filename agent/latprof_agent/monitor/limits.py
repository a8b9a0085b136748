"""What counts as slow in each group: of it the probes make a few records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from latprof_analysis.stages import RECEIVER, SENDER, stages_at
from latprof_analysis.stats.kernel_histogram import BUCKETS, edges_ns
from latprof_analysis.stats.quantiles import samples_needed
from numpy.typing import NDArray

from latprof_agent.capture.histograms import Floats, GroupTables, Ints
from latprof_agent.probes.layout import Layout

SLOW_SHARE = 0.999
# The share is that of what came in about so many rounds.
ROUNDS_KEPT = 6
ROUND_SECONDS = 10.0
# Slow records that a group may make in each round.
TOKENS = 8
# So many buckets are one here.
_TOGETHER = 8
_FIRSTS = np.arange(0, BUCKETS, _TOGETHER)

# What the limits are of, and by which quantities: the slowest of them counts.
LIMITED = {
    "sent_ns": stages_at(SENDER)[1:],  # when it was made no probe sees
    "received_ns": (
        *stages_at(RECEIVER),
        *(f"range_{stage}" for stage in stages_at(RECEIVER)),
    ),
    "turn_ns": ("response", "server"),
}

Coarse = NDArray[np.float32]  # (quantities that are limited, buckets together)
Put = Callable[[str, bytes, bytes], None]  # into a map of the probes


@dataclass
class Limits:
    """Follows the slowest share of each group, or a limit of the user's."""

    layout: Layout
    put: Put
    fixed_ns: int = 0  # 0: the slowest share
    # what each busy group had counted in the last rounds in which it did
    _before: dict[int, deque[Coarse]] = field(default_factory=dict)
    # how many values of each quantity groups had, after each of the last rounds
    _values: deque[Floats] = field(default_factory=lambda: deque(maxlen=ROUNDS_KEPT))
    _active: Ints = field(default_factory=lambda: np.zeros(0, "i8"))

    def begin(self, groups: int) -> None:
        """Let a limit of the user's hold at once, of so many groups."""
        for number in range(groups if self.fixed_ns else 0):
            self._give(number, dict.fromkeys(LIMITED, self.fixed_ns))

    def update(self, tables: GroupTables) -> None:
        """Begin a round."""
        changed = self._changed(tables.active())
        if self.fixed_ns:
            for number in changed.tolist():
                self._give(number, dict.fromkeys(LIMITED, self.fixed_ns))
            return
        values = tables.values(self._places())
        busy = changed[self._are_busy(values)[changed]]
        for number in self._before.keys() & set(changed.tolist()) - set(busy.tolist()):
            self._forget(number)
        numbers, counts = tables.together(self._places(), _FIRSTS, busy)
        if len(numbers):
            self._follow(numbers, counts)
        self._values.append(values)

    def _are_busy(self, values: Floats) -> NDArray[np.bool_]:
        """Of groups, by number: whether they have values enough for the share.

        Of all others nothing more is looked at: a host may have thousands.
        """
        lately = values.copy()
        if self._values:
            lately[: len(self._values[0])] -= self._values[0]
        return np.asarray((lately >= samples_needed(SLOW_SHARE)).any(axis=1))

    def _follow(self, numbers: Ints, counts: Coarse) -> None:
        recent = np.stack(
            [
                now - self._kept(number, now)[0]
                for number, now in zip(numbers.tolist(), counts, strict=True)
            ]
        )
        for number, now, ends in zip(
            numbers.tolist(), counts, _share_ends(recent), strict=True
        ):
            self._before[number].append(now)
            places = dict(zip(self._places(), ends, strict=True))
            self._give(
                number,
                {
                    name: max(places[self.layout.quantities[q]] for q in quantities)
                    for name, quantities in LIMITED.items()
                },
            )

    def _changed(self, active: Ints) -> Ints:
        """Numbers of groups that have counted since the last round."""
        before = np.zeros_like(active)
        before[: len(self._active)] = self._active[: len(active)]
        self._active = active
        return np.flatnonzero(active != before)

    def _kept(self, number: int, now: Coarse) -> deque[Coarse]:
        if number not in self._before:
            # what it counted before the last rounds is not known apart: begin anew
            oldest = self._values[0] if self._values else np.zeros((0, 1))
            is_older = bool(oldest[number : number + 1].any())
            first = now if is_older else np.zeros_like(now)
            self._before[number] = deque([first], maxlen=ROUNDS_KEPT)
        return self._before[number]

    def _forget(self, number: int) -> None:
        """Nothing is slow there any more."""
        del self._before[number]
        self._give(number, dict.fromkeys(LIMITED, 0))

    def move(self, moves: Mapping[int, int]) -> None:
        """Let what groups have counted be others'."""
        for number, other in moves.items():
            for values in self._values:
                if max(number, other) < len(values):
                    values[other] += values[number]
                    values[number] = 0
            gone = self._before.get(number)
            if gone:
                self._forget(number)
            if gone and other in self._before:
                later = (counts + gone[-1] for counts in self._before[other])
                self._before[other] = deque(later, maxlen=ROUNDS_KEPT)

    def _places(self) -> list[int]:
        """Numbers of all that is limited."""
        named = (q for quantities in LIMITED.values() for q in quantities)
        return [self.layout.quantities[name] for name in named]

    def _give(self, number: int, limits: Mapping[str, float]) -> None:
        """Let a group make TOKENS records of what is slower than these limits."""
        limit = np.zeros((), self.layout.group_limit)
        for name, limit_ns in limits.items():
            limit[name] = limit_ns
        limit["tokens"] = TOKENS
        self.put("group_limits", number.to_bytes(4, "little"), limit.tobytes())


def _share_ends(counts: NDArray[np.float32]) -> list[list[float]]:
    """Where the slowest share of each histogram begins; 0 where too few are in it.

    Of an array (groups, quantities, buckets).
    """
    up_to = np.cumsum(counts, axis=2, dtype="f8")
    n = up_to[..., -1]
    at = (up_to < SLOW_SHARE * n[..., None]).sum(axis=2)
    edges = edges_ns()[_FIRSTS][np.minimum(at, len(_FIRSTS) - 1)]
    found: list[list[float]] = np.where(
        n < samples_needed(SLOW_SHARE), 0.0, edges
    ).tolist()
    return found
