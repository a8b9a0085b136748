"""The line D = a S + b of delays that hold one crossing, or none.

The same low delays, line and verdict as of round trips (`fit`), for what has no
reply in it: a stage, or a one-way delay. There is no factor to get wrong.
"""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from latprof_analysis.fits.crossing import Crossing
from latprof_analysis.fits.fit import (
    FEWEST_ROUND_TRIPS,
    FEWEST_SIZES,
    fit_low_delays,
    fit_without_line,
)
from latprof_analysis.fits.fit_input import check_options, check_rows, column_of
from latprof_analysis.fits.fit_result import Fit
from latprof_analysis.fits.rounds import low_delays
from latprof_analysis.wire import Packets

NO_REPLY = 0  # as reply_mode of a Fit


def fit_one_way(
    size_bytes: ArrayLike,
    delay_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    packets: Packets | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> Fit:
    """Fit a line to delays of one direction.

    Parameters
    ----------
    size_bytes, delay_ns, round_index : array_like, shape (n,)
        One entry for each message. The delay may be 0.
    packets, confidence, resamples, seed
        As of `fit_round_trips`.

    Returns
    -------
    Fit
        With ``reply_mode`` 0 and ``factor`` 1; ``fixed_delay_seconds`` is that of
        the one way.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(7)
    >>> sizes = np.tile([64, 1000, 4000, 16000, 64000], 40)
    >>> rounds = np.repeat(np.arange(40), 5)
    >>> fit = fit_one_way(sizes, 1e6 + 80 * sizes + rng.uniform(0, 5e4, 200), rounds)
    >>> fit.model, fit.factor, round(fit.bandwidth_bits_per_second.value / 1e6)
    ('line', 1, 100)
    """
    sizes = column_of("size_bytes", size_bytes)
    delay = column_of("delay_ns", delay_ns)
    rounds = column_of("round_index", round_index)
    check_rows(sizes, delay, rounds, name="delay_ns")
    check_options("echo", confidence, resamples)
    packets = packets or Packets()

    low = low_delays(
        sizes, delay, rounds, fewest=FEWEST_ROUND_TRIPS, resamples=resamples, seed=seed
    )
    unfitted = fit_without_line(low, NO_REPLY, confidence)
    if low.size_bytes.size < FEWEST_SIZES:
        need = f"{FEWEST_SIZES} sizes with {FEWEST_ROUND_TRIPS} messages each"
        return replace(unfitted, reason=f"a line needs {need}, got {unfitted.sizes}")
    return fit_low_delays(Crossing.one_way(low.size_bytes, packets), low, unfitted)
