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

# Of fewer any bend passes for what packets take: with seven, short messages that
# sleeping CPUs delayed by 40 us made 10 us a packet, with certainty.
FEWEST_SIZES = 8
# How far packets must stand off a line through the bytes, in packets (rms).
_OUT_OF_STEP = 0.1


def packet_cost(crossing: Crossing, low: LowDelays, confidence: float) -> PacketCost:
    """Fit D = a bytes + c packets + b to low delays by least squares.

    Intervals come from the resampled delays, or, where the plane leaves more than
    their noise, from what it leaves: delays of another shape give wide ones. Several
    links in a row let c be negative: a message of one packet crosses them one after
    the other.

    Examples
    --------
    Packets of 1500 B on a link of 100 Mbit/s, and 5 us for each:

    >>> from latprof_analysis.fits.rounds import low_delays
    >>> from latprof_analysis.wire import Packets
    >>> rng = np.random.default_rng(1)
    >>> rounds, nth = np.divmod(np.arange(400), 8)
    >>> size = np.array([64.0, 256, 700, 1400, 2500, 4000, 9000, 20_000])[nth]
    >>> crossing = Crossing.one_way(size, Packets.tcp())
    >>> delay = 1e6 + 80 * crossing.wire_bytes + 5000 * crossing.packets
    >>> low = low_delays(size, delay + rng.exponential(2000, 400), rounds,
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
    draws, freedom = _draws(plane, low)
    byte_ns, packet_ns, _ = draws.T
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


def _draws(plane: Floats, low: LowDelays) -> tuple[Floats, float]:
    """Return draws of the plane's figures, and of how many degrees they are known.

    The first is the estimate. Where the plane leaves more of the delays than their
    noise would in one of twenty, it is what the others' spread comes from.
    """
    from scipy.special import chdtri  # slow to import

    solve = np.linalg.pinv(plane)
    draws = np.vstack([low.delay_ns, low.resampled_ns]) @ solve.T
    residual = low.delay_ns - plane @ draws[0]
    freedom = residual.size - plane.shape[1]
    left = float(residual @ residual) / freedom
    noise = float(np.mean(low.noise_ns**2)) + CLOCK_NS**2
    if left <= noise * chdtri(freedom, 0.05) / freedom:
        return draws, math.inf
    spread = np.sqrt(left * (solve**2).sum(axis=1))
    return draws[0] + np.outer([0, 1, -1], spread), float(freedom)
