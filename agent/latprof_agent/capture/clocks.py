"""All clocks of this host at one moment, and what the kernel says of their error."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from latprof_analysis.records.recording import CLOCKS, SIDE_COLUMNS
from numpy.typing import NDArray

from latprof_agent import _drain

_NS_PER_US = 1000
# Of these readings the one with the narrowest bounds counts: an interrupt widens some.
_READINGS = 3


def read_clocks() -> NDArray[Any]:
    """Return one record of CLOCKS: times in ns, `frequency_ppb` as adjtimex(2) has it.

    CLOCK_MONOTONIC is the middle of two readings around those of the other clocks,
    which are so apart as `width_ns` says.
    """
    others = time.CLOCK_REALTIME, time.CLOCK_TAI
    width_ns, begin_ns, (realtime_ns, tai_ns) = narrowest_reading(*others)
    found = np.zeros(1, SIDE_COLUMNS[CLOCKS])
    found["monotonic_ns"] = begin_ns + width_ns // 2
    found["realtime_ns"], found["tai_ns"] = realtime_ns, tai_ns
    found["width_ns"] = width_ns
    synchronised, largest_us, estimated_us, frequency_ppb = _drain.clock_error()
    found["largest_error_ns"] = largest_us * _NS_PER_US
    found["estimated_error_ns"] = estimated_us * _NS_PER_US
    found["frequency_ppb"] = frequency_ppb
    found["synchronised"] = synchronised
    return found


def narrowest_reading(*clocks: int) -> tuple[int, int, list[int]]:
    """Read clocks one after the other, between two readings of CLOCK_MONOTONIC.

    Returns how far these two are apart, when the first was, and all times, in ns.
    Raises OSError where one of the clocks cannot be read.
    """
    return min(_reading(clocks) for _ in range(_READINGS))


def _reading(clocks: Sequence[int]) -> tuple[int, int, list[int]]:
    begin_ns = time.monotonic_ns()
    times_ns = [time.clock_gettime_ns(clock) for clock in clocks]
    return time.monotonic_ns() - begin_ns, begin_ns, times_ns
