"""What a packet takes beyond its bytes, told apart from the link's rate.

A line against bytes takes whatever grows with a message for the link's work on its
bytes. Hosts and devices also spend time on each packet, and between messages of one
packet and those of several the two do not grow in step.
"""

from __future__ import annotations

import math

import numpy as np

from latprof_analysis.fits.crossing import Crossing
from latprof_analysis.fits.fit_result import PacketCost
from latprof_analysis.fits.rounds import Floats, LowDelays
from latprof_analysis.fits.scale import Scale
from latprof_analysis.fits.verdict import CLOCK_NS

FEWEST_SIZES = 5  # one more than the plane has figures, and one
# How far packets must stand off a line through the bytes, in packets (rms).
_OUT_OF_STEP = 0.1


def packet_cost(crossing: Crossing, low: LowDelays, confidence: float) -> PacketCost:
    """Fit D = a bytes + c packets + b to low delays by least squares.

    Intervals come from the resampled delays, and are widened by what the plane
    leaves of the delays beyond their noise (Birge's ratio [1]_), so that a delay of
    another shape gives wide ones. Several links in a row let c be negative: a
    message of one packet crosses them one after the other.

    References
    ----------
    .. [1] Birge (1932). The calculation of errors by the method of least squares.
       Physical Review 40, 207-227.

    Examples
    --------
    Packets of 1500 B on a link of 100 Mbit/s, and 5 us for each:

    >>> from latprof_analysis.fits.rounds import low_delays
    >>> from latprof_analysis.wire import Packets
    >>> rng = np.random.default_rng(1)
    >>> rounds, size = np.divmod(np.arange(300), 6)
    >>> size = np.array([64.0, 700, 1400, 4000, 9000, 20_000])[size]
    >>> crossing = Crossing.one_way(size, Packets.tcp())
    >>> delay = 1e6 + 80 * crossing.wire_bytes + 5000 * crossing.packets
    >>> low = low_delays(size, delay + rng.exponential(2000, 300), rounds,
    ...                  fewest=10, resamples=200, seed=1)
    >>> sizes = Crossing.one_way(low.size_bytes, Packets.tcp())
    >>> found = packet_cost(sizes, low, confidence=0.95)
    >>> found.per_packet_ns.low < 5000 < found.per_packet_ns.high
    True
    >>> round(found.bandwidth_bits_per_second.value / 1e6)
    100
    """
    unknown = _unknown(crossing)
    if unknown:
        return PacketCost(unknown)
    known = np.ones_like(crossing.wire_bytes)
    plane = np.column_stack([crossing.wire_bytes, crossing.packets, known])
    solve = np.linalg.pinv(plane)
    figures = np.vstack([low.delay_ns, low.resampled_ns]) @ solve.T
    times, freedom = _widening(low.delay_ns - plane @ figures[0], low)
    centre = figures[0]
    byte_ns, packet_ns, _ = (centre + times * (figures - centre)).T
    scale = Scale(low.count, confidence, 1, 1.0, (freedom, freedom))
    cost = scale.estimate(packet_ns, freedom=freedom)
    if cost.high < 0:
        return PacketCost(
            f"packets seem to take {cost.value / 1e3:.3g} us each: the bytes of short"
            " messages take longer than those of long ones, as on several links in a"
            " row"
        )
    told = f"{cost.value / 1e3:.3g} us [{cost.low / 1e3:.3g}, {cost.high / 1e3:.3g}]"
    return PacketCost(
        reason=(
            f"a packet takes {told} beyond its bytes"
            if cost.low > 0
            else f"what a packet takes beyond its bytes is not told from none: {told}"
        ),
        per_packet_ns=cost,
        bandwidth_bits_per_second=scale.bandwidth(byte_ns),
    )


def _unknown(crossing: Crossing) -> str | None:
    """Say why bytes and packets cannot be told apart, if so."""
    if crossing.cut.mss_bytes is None:
        return "how messages are cut into packets is not known"
    sizes = crossing.wire_bytes.size
    if sizes < FEWEST_SIZES:
        return f"{FEWEST_SIZES} sizes are needed, got {sizes}"
    x, packets = crossing.wire_bytes, crossing.packets
    if np.ptp(packets) == 0:
        return "all messages are of as many packets"
    step = np.polynomial.Polynomial.fit(x, packets, 1)
    if float(np.sqrt(np.mean((packets - step(x)) ** 2))) < _OUT_OF_STEP:
        return "packets grow in step with bytes: send sizes of one packet, too"
    return None


def _widening(residual: Floats, low: LowDelays) -> tuple[float, float]:
    """Return by how much to widen the draws, and of how many degrees that is known.

    What chance may leave in one of twenty planes is no reason to.
    """
    from scipy.special import chdtri  # slow to import

    freedom = residual.size - 3
    noise = float(np.mean(low.noise_ns**2))
    left = float(residual @ residual) / freedom
    if left <= noise * chdtri(freedom, 0.05) / freedom:
        return 1.0, math.inf
    return math.sqrt(left / max(noise, CLOCK_NS**2)), float(freedom)
