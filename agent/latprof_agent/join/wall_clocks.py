"""A host's wall clock by its CLOCK_MONOTONIC: how far ahead it is, and if it was set.

The kernel makes both run fast or slow alike, so that what lies between them is one
number, until the wall clock is set (or the host slept, or a second was inserted).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

_ROUNDED_NS = 1


class WallClock(NamedTuple):
    """What a recording's readings of both clocks say.

    Attributes
    ----------
    ahead_ns, error_ns : int
        How far the wall clock was ahead of CLOCK_MONOTONIC at last.
    times_set : int
        How often it was set between two readings.
    by_ns, by_error_ns : int
        By how much altogether.
    """

    ahead_ns: int
    error_ns: int
    times_set: int
    by_ns: int
    by_error_ns: int


def wall_clock(clocks: NDArray[Any]) -> WallClock:
    """Compare all readings (CLOCKS), of which there is one, in the order of time.

    A wall clock was read between two readings of the other one, `width_ns` apart. It
    was set where no number lies within the bounds that follow from that.
    """
    width = clocks["width_ns"].astype("i8")
    begin = clocks["monotonic_ns"].astype("i8") - width // 2
    wall = clocks["realtime_ns"].astype("i8")
    lows = (wall - begin - width - _ROUNDED_NS).tolist()
    highs = (wall - begin + _ROUNDED_NS).tolist()
    leads = [(lows[0], highs[0])]
    for low, high in zip(lows[1:], highs[1:], strict=True):
        both = max(low, leads[-1][0]), min(high, leads[-1][1])
        if both[0] <= both[1]:
            leads[-1] = both
        else:
            leads.append((low, high))
    (first, first_error), (last, last_error) = map(_middle, (leads[0], leads[-1]))
    error_ns = first_error + last_error
    return WallClock(last, last_error, len(leads) - 1, last - first, error_ns)


def _middle(bounds: tuple[int, int]) -> tuple[int, int]:
    low, high = bounds
    return (low + high) // 2, (high - low + 1) // 2
