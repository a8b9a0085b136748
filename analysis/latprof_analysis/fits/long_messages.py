"""Whether long messages see the same line as all do.

A bend at the short end is too small for a hinge to matter, and still bears on a
line through medians where most sizes are short: behind a token bucket that hands
out what came in while the sender rested, it was 1.7% of the bandwidth.
"""

from __future__ import annotations

import numpy as np

from latprof_analysis.fits.rounds import Floats, LowDelays
from latprof_analysis.fits.theilsen import weighted_theil_sen

FEWEST_LONG = 4
_LONG = 0.125  # of the largest size
_DIFFERENCE = 0.005  # of the slope
_ERRORS = 2.576  # standard errors: 99% of a normal law


def long_messages_differ(wire_bytes: Floats, low: LowDelays) -> str | None:
    """Return how the slope of the long messages differs; None if it does not.

    Compares the slope of the low delays of all sizes and of
    those over an eighth of the largest, if there are 4 of these. It differs if by
    0.5% and if the bootstrap of whole rounds bears that out at 99%.

    Examples
    --------
    >>> from latprof_analysis.fits.rounds import low_delays
    >>> size = np.tile(np.geomspace(64, 64000, 20), 20)
    >>> rounds = np.repeat(np.arange(20.0), 20)
    >>> def differ(delay_ns):
    ...     low = low_delays(
    ...         size, delay_ns + rounds, rounds, fewest=10, resamples=100, seed=1)
    ...     return long_messages_differ(low.size_bytes, low)
    >>> differ(1e6 + 80 * size)
    >>> differ(80 * np.maximum(size, 2000))
    'of messages over 8000 bytes a byte takes 2.8% more than of all'
    """
    if low.size_bytes.size == 0:
        return None
    least = _LONG * low.size_bytes[-1]
    long = low.size_bytes > least
    if long.sum() < FEWEST_LONG or long.all():
        return None
    delays = np.vstack([low.delay_ns, low.resampled_ns])
    whole, _ = weighted_theil_sen(wire_bytes, delays)
    upper, _ = weighted_theil_sen(wire_bytes[long], delays[:, long])
    more = upper / whole - 1
    if abs(more[0]) < max(_DIFFERENCE, _ERRORS * float(more[1:].std())):
        return None
    than = "more" if more[0] > 0 else "less"
    return (
        f"of messages over {least:.0f} bytes a byte takes {abs(more[0]):.1%} {than}"
        " than of all"
    )
