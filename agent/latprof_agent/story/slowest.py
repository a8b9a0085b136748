"""Which of the slow ones have a story: the slowest, and a sample for shares.

A flow that is slow throughout would take all places of the slowest, and a message that
stood behind it would have none: so some places are for the slowest of each flow. Shares
of causes are of a sample that each slow one is in with the same chance. It is drawn by
hashes, so that it does not depend on the order in which they come.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

MOST = 100  # stories, of which at most ...
MOST_FLOWS = 50  # ... so many are each flow's slowest
SAMPLE = 300
MOST_COUNTED = 1 << 16  # flows with a slow one
_MASK = (1 << 64) - 1


@dataclass
class Slow:
    """A slow message, or exchange.

    `identity` is no other's, and the same whenever it comes; `known` is what is known
    of it beside its row.
    """

    took_ns: int
    flow: int
    identity: tuple[int, ...]
    row: dict[str, Any]
    known: Any = None
    draw: int = field(init=False)

    def __post_init__(self) -> None:
        """Draw its number."""
        self.draw = mixed(self.identity)

    def __lt__(self, other: Slow) -> bool:
        return self.order < other.order

    @property
    def order(self) -> tuple[int, tuple[int, ...]]:
        """The slowest is the last; of two as slow always the same."""
        return self.took_ns, self.identity


def mixed(numbers: Iterable[int]) -> int:
    """Mix numbers to one of 64 bits, as splitmix64 does."""
    found = 0
    for number in numbers:
        found = (found ^ number) + 0x9E3779B97F4A7C15 & _MASK
        found = (found ^ found >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        found = (found ^ found >> 27) * 0x94D049BB133111EB & _MASK
        found ^= found >> 31
    return found


class Slowest:
    """Takes slow ones; keeps some of them.

    Attributes
    ----------
    seen : int
        Slow ones that came.
    """

    def __init__(self) -> None:
        self.seen = 0
        self._all: list[Slow] = []  # a heap: the fastest first
        self._of_flow: dict[int, Slow] = {}
        self._drawn: list[tuple[int, Any, Slow]] = []  # a heap: the largest draw first
        self._flows: set[int] = set()

    def offer(
        self,
        took_ns: int,
        flow: int,
        identity: tuple[int, ...],
        make: Callable[[], tuple[dict[str, Any], Any]],
    ) -> None:
        """Take one in; its row, and what else is known, are made only if it is kept."""
        self.seen += 1
        if len(self._flows) < MOST_COUNTED:
            self._flows.add(flow)
        one = Slow(took_ns, flow, identity, {})
        kept = [self._keep_slowest(one), self._keep_of_flow(one), self._draw(one)]
        if any(kept):
            one.row, one.known = make()

    def _keep_slowest(self, one: Slow) -> bool:
        if len(self._all) == MOST and not self._all[0] < one:
            return False
        heapq.heappush(self._all, one)
        if len(self._all) > MOST:
            heapq.heappop(self._all)
        return True

    def _keep_of_flow(self, one: Slow) -> bool:
        before = self._of_flow.get(one.flow)
        if before:
            if not before < one:
                return False
        elif len(self._of_flow) == MOST_FLOWS:
            fastest = min(self._of_flow.values())
            if not fastest < one:
                return False
            del self._of_flow[fastest.flow]
        self._of_flow[one.flow] = one
        return True

    def _draw(self, one: Slow) -> bool:
        key = -one.draw, one.identity
        if len(self._drawn) == SAMPLE and key <= self._drawn[0][:2]:
            return False
        heapq.heappush(self._drawn, (*key, one))
        if len(self._drawn) > SAMPLE:
            heapq.heappop(self._drawn)
        return True

    @property
    def kept(self) -> list[Slow]:
        """All that are kept, each once."""
        everyone = [
            *self._all,
            *self._of_flow.values(),
            *(one for *_, one in self._drawn),
        ]
        return list({one.identity: one for one in everyone}.values())

    @property
    def slowest(self) -> list[Slow]:
        """At most `MOST`: of each flow the slowest, then of all; the slowest first."""
        found = {one.identity: one for one in self._of_flow.values()}
        for one in sorted(self._all, reverse=True):
            if len(found) == MOST:
                break
            found[one.identity] = one
        return sorted(found.values(), reverse=True)

    @property
    def sample(self) -> list[Slow]:
        """At most `SAMPLE`, each slow one with the same chance."""
        return [one for *_, one in sorted(self._drawn, key=lambda one: one[:2])]

    @property
    def flows(self) -> int:
        """How many flows had a slow one; of very many, `MOST_COUNTED`."""
        return len(self._flows)

    @property
    def more_flows(self) -> bool:
        """Whether there may be more than were counted."""
        return len(self._flows) == MOST_COUNTED
