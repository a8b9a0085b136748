"""Whether long messages see the same line as all do.

A bend at the short end is too small for a hinge to matter, and still bears on a
line through medians where most sizes are short: behind a token bucket that hands
out what came in while the sender rested, it was 1.7% of the bandwidth.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.fit import FEWEST_ROUND_TRIPS
from latprof_analysis.rounds import low_delays
from latprof_analysis.theilsen import theil_sen
from latprof_analysis.wire import Packets

FEWEST_LONG = 4
_LONG = 0.125  # of the largest size
_DIFFERENCE = 0.005  # of the slope
_ONE_SIDE = 0.005  # each tail of the difference's interval


def long_messages_differ(
    size_bytes: ArrayLike,
    delay_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    packets: Packets | None = None,
    resamples: int = 1000,
    seed: int = 1,
) -> str | None:
    """Return how the slope of the long messages differs; None if it does not.

    Compares the Theil-Sen slopes of the low delays of all sizes and of those over
    an eighth of the largest, if there are 4 of these. It differs if by 0.5% and if
    the bootstrap of whole rounds bears that out at 99%.

    Examples
    --------
    >>> size = np.tile(np.geomspace(64, 64000, 20), 20)
    >>> rounds = np.repeat(np.arange(20), 20)
    >>> long_messages_differ(size, 1e6 + 80 * size + rounds, rounds)
    >>> long_messages_differ(size, 80 * np.maximum(size, 2000) + rounds, rounds)
    'of messages over 8000 bytes a byte takes 13.7% more than of all'
    """
    size, delay, rounds = (
        np.asarray(column, dtype=np.float64)
        for column in (size_bytes, delay_ns, round_index)
    )
    low = low_delays(
        size, delay, rounds, fewest=FEWEST_ROUND_TRIPS, resamples=resamples, seed=seed
    )
    if low.size_bytes.size == 0:
        return None
    least = _LONG * low.size_bytes[-1]
    long = low.size_bytes > least
    if long.sum() < FEWEST_LONG or long.all():
        return None
    x = (packets or Packets()).wire_bytes(low.size_bytes)
    delays = np.vstack([low.delay_ns, low.resampled_ns])
    whole, _ = theil_sen(x, delays)
    upper, _ = theil_sen(x[long], delays[:, long])
    more = upper / whole - 1
    below, above = np.quantile(more[1:], [_ONE_SIDE, 1 - _ONE_SIDE])
    if abs(more[0]) < _DIFFERENCE or below <= 0 <= above:
        return None
    than = "more" if more[0] > 0 else "less"
    return (
        f"of messages over {least:.0f} bytes a byte takes {abs(more[0]):.1%} {than}"
        " than of all"
    )
