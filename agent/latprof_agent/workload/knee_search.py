"""The shortest interval that is kept up with: a search by halving ratios."""

from __future__ import annotations

import math

# The longest interval that is not kept up with is at most this much shorter.
RESOLUTION = 1.02
_LEAST_NS, _MOST_NS = 20_000, 2_000_000_000
_MOST_TIMES_BEGIN = 4


class KneeSearch:
    """Asks for one interval after the other; geometric bisection between bounds.

    It begins at an interval and goes down by halves, or up, until it has one that is
    kept up with and one that is not. Up it gives up after a few, since what is lost
    however little is sent is lost at any interval.
    """

    def __init__(self, begin_ns: int) -> None:
        self._kept: int | None = None  # the shortest
        self._left: int | None = None  # the longest
        self._next: int | None = begin_ns
        self._most_ns = max(_MOST_NS, _MOST_TIMES_BEGIN * begin_ns)

    def next_ns(self) -> int | None:
        """The interval to try; None: found, or none of those that there are."""
        return self._next

    def add(self, kept_up: bool) -> None:
        """Say how it was."""
        assert self._next
        if kept_up:
            self._kept = self._next
        else:
            self._left = self._next
        self._next = self._choose()

    def _choose(self) -> int | None:
        kept, left = self._kept, self._left
        if left is None:
            assert kept
            shorter = max(kept // 2, _LEAST_NS)
            return shorter if shorter < kept else None
        if kept is None:
            longer = min(2 * left, self._most_ns)
            return longer if longer > left else None
        if kept <= RESOLUTION * left:
            return None
        return round(math.sqrt(kept * left))
