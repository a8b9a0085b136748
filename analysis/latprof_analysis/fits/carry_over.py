"""Whether a delay depends on the message before: the mark of a link with a memory.

A token bucket hands out what came in while the sender rested, so a message waits
longer after a long one. Each direction of a full echo rests while the other sends,
which makes a good line of twice the link's rate. A link that serialises and a
closed loop have no such memory: sizes are in random order, so the size before is
as good as drawn by lot, and any dependence on it is an effect [1]_.

References
----------
.. [1] Jones and Kenward (2014). Design and Analysis of Cross-Over Trials, 3rd ed.:
   the carry-over effect.
"""

from __future__ import annotations

import math

import numpy as np

from latprof_analysis.fits.rounds import Floats, LowDelays

# Messages under a sixteenth of the largest cross in less than the hosts' own noise.
_LEAST_SIZE = 1 / 16
_LEAST_SHARE = 0.01
_LEAST_Z = 3.5  # one in 2000 links without a memory
_FEWEST = 20  # of each third


def carry_over(size_bytes: Floats, delay_ns: Floats, low: LowDelays) -> str | None:
    """Return how delays depend on the message before; None if they do not.

    Compares messages behind one of the longest third with those behind one of the
    shortest third: the mean of what they took above their size's low delay, as a
    share of what their bytes add to a delay, each at most 1.

    Parameters
    ----------
    size_bytes, delay_ns : ndarray, shape (n,)
        In the order in which they were sent. In another order nothing is found.
    low : LowDelays
        Of the same messages.

    Examples
    --------
    >>> from latprof_analysis.fits.rounds import low_delays
    >>> rng = np.random.default_rng(1)
    >>> size = np.concatenate([rng.permutation([2e3, 4e3, 8e3]) for _ in range(90)])
    >>> index, before = np.repeat(np.arange(90.0), 3), np.roll(size, 1)
    >>> serial, bucket = 80 * size, 80 * (size + before / 5)
    >>> low = low_delays(size, serial, index, fewest=10, resamples=100, seed=1)
    >>> carry_over(size, serial, low)
    >>> low = low_delays(size, bucket, index, fewest=10, resamples=100, seed=1)
    >>> carry_over(size, bucket, low)[:58]
    'messages behind a long one took 17.6% more of their time f'
    """
    if size_bytes.size < 2 or low.size_bytes.size < 2:
        return None
    span_ns = float(np.ptp(low.delay_ns)) / float(np.ptp(low.size_bytes))
    if span_ns <= 0:
        return None
    before, size, delay = size_bytes[:-1], size_bytes[1:], delay_ns[1:]
    floor = np.interp(size, low.size_bytes, low.delay_ns)
    share = np.minimum((delay - floor) / (span_ns * size), 1.0)
    first, last = np.quantile(before, [1 / 3, 2 / 3])
    chosen = (size >= _LEAST_SIZE * low.size_bytes[-1]) & (
        (before <= first) | (before >= last)
    )
    share, before = _against_own_size(share[chosen], size[chosen]), before[chosen]
    after_short, after_long = share[before <= first], share[before >= last]
    if min(after_short.size, after_long.size) < _FEWEST or first == last:
        return None
    more = float(after_long.mean() - after_short.mean())
    error = math.hypot(
        after_long.std() / math.sqrt(after_long.size),
        after_short.std() / math.sqrt(after_short.size),
    )
    if abs(more) < _LEAST_SHARE or abs(more) < _LEAST_Z * error:
        return None
    than = "more" if more > 0 else "less"
    return (
        f"messages behind a long one took {abs(more):.1%} {than} of their time for the"
        " link than messages behind a short one: it has a memory, as a token bucket"
        " has, and no factor of a round trip is certain"
    )


def _against_own_size(share: Floats, size: Floats) -> Floats:
    """Take from each the mean of its size, in case that the order was not random."""
    _, of_size = np.unique(size, return_inverse=True)
    sums = np.bincount(of_size, weights=share)
    less: Floats = share - (sums / np.bincount(of_size))[of_size]
    return less
