"""Bandwidth from how far apart back-to-back packets arrive: no factor, no reply."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.fits.fit_input import check_options, column_of
from latprof_analysis.fits.fit_result import Estimate
from latprof_analysis.fits.rounds import Floats
from latprof_analysis.fits.theilsen import theil_sen
from latprof_analysis.fits.train_result import Dispersion
from latprof_analysis.quantiles import quantile_ci
from latprof_analysis.text import NS_PER_SECOND
from latprof_analysis.wire import Packets

FEWEST_PACKETS = 16  # of a train; half of them are used
FEWEST_TRAINS = 6  # below, order statistics bound no median at 95%
# All packets but this share found another one before them.
_ALL_BUT = 0.1
_DID_NOT_WAIT = "did not wait for the link"
_POINTS = 400  # of a longer train so many are looked at, evenly spaced


def fit_dispersion(
    train: ArrayLike,
    arrive_ns: ArrayLike,
    size_bytes: ArrayLike,
    *,
    sent_ns: ArrayLike | None = None,
    packets: Packets | None = None,
    confidence: float = 0.95,
) -> Dispersion:
    """Measure the rate at which the packets of trains arrive.

    Packets that wait for a link one behind the other leave it at its rate, so the
    time of arrival against the bytes that have come is a line of slope 1 / rate
    [1]_. Of each train the second half is taken, where a token bucket has run dry,
    and a Theil-Sen line drawn through it; the answer is the median of the trains,
    its interval that of order statistics. One clock is enough, and no reply.

    Parameters
    ----------
    train : array_like, shape (n,)
        To which train each packet or message belongs.
    arrive_ns : array_like, shape (n,)
        When its last byte arrived.
    size_bytes : array_like, shape (n,)
        Its bytes; on the wire with `packets`. Cross traffic within a train lowers
        the result: it is then the train's share of the link.
    sent_ns : array_like, shape (n,), optional
        When it was handed over. With it, trains that did not wait for the link are
        left out, since they show the sender's rate; where these are the most, the
        others waited by chance, and there is no answer. Any constant offset between
        the clocks is allowed.
    confidence : float
        Of the interval; it takes the trains as independent.

    References
    ----------
    .. [1] Dovrolis, Ramanathan, Moore (2004). Packet-dispersion techniques and a
       capacity-estimation methodology. IEEE/ACM Trans. Networking 12(6).

    Examples
    --------
    >>> train, nth = np.divmod(np.arange(300), 50)
    >>> found = fit_dispersion(train, 1e9 * train + 1.2e5 * nth, np.full(300, 1500))
    >>> round(found.bandwidth_bits_per_second.value / 1e6, 6), found.trains
    (100.0, 6)
    """
    index = column_of("train", train)
    arrive = column_of("arrive_ns", arrive_ns)
    size = column_of("size_bytes", size_bytes)
    sent = arrive if sent_ns is None else column_of("sent_ns", sent_ns)
    if not index.size == arrive.size == size.size == sent.size:
        raise ValueError(
            "train, arrive_ns, size_bytes and sent_ns must have equal length, got"
            f" {index.size}, {arrive.size}, {size.size} and {sent.size}"
        )
    if (size <= 0).any():
        raise ValueError(f"size_bytes must be more than 0, got {size.min():.0f}")
    check_options("echo", confidence, 100)

    wire = (packets or Packets()).wire_bytes(size)
    order = np.lexsort((arrive, index))
    arrive, wire = arrive[order], wire[order]
    waited = None
    if sent_ns is not None and sent.size:
        waited = arrive - sent[order] - (arrive - sent[order]).min()
    bounds = np.flatnonzero(np.diff(index[order], prepend=np.nan, append=np.nan))
    slopes: list[float] = []
    used = 0
    left_out: dict[str, int] = {}
    for start, end in pairwise(bounds):
        part = slice(start, end)
        found = _train_slope(arrive[part], wire[part], waited, part)
        if isinstance(found, str):
            left_out[found] = left_out.get(found, 0) + 1
        else:
            slopes.append(found)
            used += int(end - start)
    return _dispersion(np.array(slopes), used, left_out, confidence)


def _train_slope(
    arrive: Floats, wire: Floats, waited: Floats | None, part: slice
) -> float | str:
    """Return ns per byte of a train's second half, or why it says nothing."""
    if arrive.size < FEWEST_PACKETS:
        return f"fewer than {FEWEST_PACKETS} packets"
    half = slice(arrive.size // 2, None)
    come = np.cumsum(wire)[half]
    points = np.unique(np.linspace(0, come.size - 1, _POINTS).astype(int))
    x, y = come[points], arrive[half][points]
    slope = float(theil_sen(x, (y - y[0])[np.newaxis])[0][0])
    if slope <= 0:
        return "arrived all at once"
    if waited is not None:
        own_ns = slope * float(np.mean(wire[half]))
        if float(np.quantile(waited[part][half], _ALL_BUT)) < own_ns:
            return _DID_NOT_WAIT
    return slope


def _dispersion(
    slopes: Floats, packets: int, left_out: dict[str, int], confidence: float
) -> Dispersion:
    state: Literal["measured", "none"] = "none"
    bandwidth = None
    if slopes.size < FEWEST_TRAINS:
        reason = f"{FEWEST_TRAINS} trains that waited are needed, got {slopes.size}"
    elif left_out.get(_DID_NOT_WAIT, 0) >= slopes.size:
        reason = f"only {slopes.size} trains waited for the link, by chance it seems"
    else:
        median = quantile_ci(slopes, 0.5, confidence)
        reason = f"no interval of {confidence:.3g} from {slopes.size} trains"
        if np.isfinite([median.low, median.high]).all():
            rate = 8 * NS_PER_SECOND
            state, reason = "measured", f"median of {slopes.size} trains"
            bandwidth = Estimate(
                rate / median.value, rate / median.high, rate / median.low, slopes.size
            )
    if left_out:
        causes = ", ".join(f"{n} {why}" for why, n in left_out.items())
        reason = f"{reason}; left out: {causes}"
    return Dispersion(
        state, reason, slopes.size, packets, left_out, confidence, bandwidth
    )
