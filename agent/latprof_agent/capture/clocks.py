"""All clocks of this host at one moment, and what the kernel says of their error."""

from __future__ import annotations

import time
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
    width_ns, begin_ns, realtime_ns, tai_ns = min(_reading() for _ in range(_READINGS))
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


def _reading() -> tuple[int, int, int, int]:
    begin_ns = time.monotonic_ns()
    realtime_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
    tai_ns = time.clock_gettime_ns(time.CLOCK_TAI)
    return time.monotonic_ns() - begin_ns, begin_ns, realtime_ns, tai_ns
