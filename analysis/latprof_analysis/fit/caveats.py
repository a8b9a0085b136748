"""What else than the link may be in the slope of a line, and so in its bandwidth.

A line against bytes takes whatever grows with a message for the link's work on its
bytes. Hosts and devices also spend time on each packet, and between messages of one
packet and those of several the two do not grow in step: so they are separated.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from latprof_analysis.fit.estimates import (
    Estimate,
    Fit,
    PacketCost,
    RateRange,
    Scale,
    chi_square_tail,
)
from latprof_analysis.fit.rounds import CLOCK_NS, Floats, LowDelays
from latprof_analysis.fit.wire import Crossing
from latprof_analysis.text import NS_PER_SECOND, rate, rate_span

# Of fewer any bend passes for what packets take: with seven, short messages that
# sleeping CPUs delayed by 40 us made 10 us a packet, with certainty.
FEWEST_SIZES = 8
# How far packets must stand off a line through the bytes, in packets (rms).
_OUT_OF_STEP = 0.1
# Hosts spend about 0.1 ns a byte (0.15 us a segment): over 10% of such a slope.
HOST_NS_PER_BYTE = 1.0
# Where nothing of a message moves before it is copied whole, as of a datagram above
# the MTU, 1.0 to 1.7 ns a byte at each crossing were measured (Xeon, 2.3 GHz).
_COPY_NS_PER_BYTE = 1.7
# Medians of stages need not add up to the quantile that a line goes through.
_STAGES_MISS = 1.1
_HIDES = 0.01
# Where hosts may do more of a slope than this, it is theirs more than a link's.
MOST_OF_HOSTS = 1 / 3
_MOST_RESENT = 0.03
# A sender's first window lets ten packets by at once.
_PACED_PACKETS = 10
_QUEUED_BYTES = 3 * 1500
_PACKETS_UNKNOWN = (
    "headers and what else packets take are in the slope, since how messages are cut"
    " into packets is not known"
)
_BEGINNINGS = ("no bandwidth of", "up to", "a packet takes", "headers and")


def packet_cost(crossing: Crossing, low: LowDelays, confidence: float) -> PacketCost:
    """Fit D = a bytes + c packets + b to low delays by least squares.

    Intervals come from the resampled delays, or, where the plane leaves more than
    their noise, from what it leaves: delays of another shape give wide ones. Several
    links in a row let c be negative: a message of one packet crosses them one after
    the other.
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
    text = f"{cost.value / 1e3:.3g} us [{cost.low / 1e3:.3g}, {cost.high / 1e3:.3g}]"
    return PacketCost(
        reason=(
            f"a packet takes {text} beyond its bytes"
            if cost.low > 0
            else f"what a packet takes beyond its bytes is not told from none: {text}"
        ),
        per_packet_ns=cost,
        bandwidth_bits_per_second=scale.bandwidth(byte_ns),
    )


def with_range(fit: Fit, missing_share: float = 0.0) -> Fit:
    """Return the fit with the range of the link's own rate, and what is in it.

    What packets take beside their bytes is in the range also where it may be none:
    packets may then still take as much as its interval reaches. Where nobody
    knows how messages are cut, headers and packets may take any part of the slope:
    5 us a packet on 100 Mbit/s made a line of 92.8, and there is no upper end.

    Parameters
    ----------
    missing_share : float
        What a delay may miss of the link's time, as a share of the slope.
    """
    bandwidth, share = fit.bandwidth_bits_per_second, fit.host_share or 0.0
    if bandwidth is None:
        return fit
    alone, cost = of_bytes_alone(fit), fit.packet_cost
    rates = [bandwidth, alone or bandwidth]
    low, high = min(one.low for one in rates), max(one.high for one in rates)
    reasons = []
    if share > _HIDES:
        reasons.append(
            f"up to {share:.1%} of the slope may be the hosts' own work on each byte"
        )
    if missing_share > _HIDES:
        reasons.append(
            f"up to {missing_share:.1%} of the link's time may be missing, since first"
            " packets crossed while later ones were handed over"
        )
    if cost and cost.per_packet_ns and cost.bandwidth_bits_per_second:
        at_most = cost.bandwidth_bits_per_second.high
        if at_most > (1 + _HIDES) * high:
            high, most_us = at_most, cost.per_packet_ns.high / 1e3
            reasons.append(f"up to {most_us:.3g} us a packet may be beyond its bytes")
    if not fit.packets_told:
        reasons.append(_PACKETS_UNKNOWN)
    most = high / (1 - share) if share < 1 and fit.packets_told else None
    within = RateRange(low / (1 + missing_share), most, ", and ".join(reasons))
    caveats = list(fit.caveats)
    if alone and cost:
        without = f"without that they cross at {rate(alone.value)}"
        caveats.append(f"{cost.reason}; {without}")
    if within.reason:
        span = rate_span(within.low, within.high)
        caveats.append(f"{within.reason}: the link's own rate is {span}")
    return replace(fit, link_rate_range=within, caveats=tuple(caveats))


def with_hosts(fit: Fit, measured_ns: float) -> Fit:
    """Return the fit with what hosts were seen to do of its slope left to them.

    Beside programs that want their caches hosts copied at 2.4 ns a byte, and ranges
    by what idle ones take ended at 99.4 of 100 Mbit/s. Where over a third of the
    slope was theirs, it gives no bandwidth: datagrams of 65 kB that a token bucket
    of 100 Mbit/s let by at once made a line of 2.1 Gbit/s.

    Parameters
    ----------
    measured_ns : float
        What hosts spent on a byte at each crossing, while nothing of it crossed.
    """
    bandwidth = fit.bandwidth_bits_per_second
    if bandwidth is None or fit.host_share is None:
        return fit
    slope_ns = 8 * NS_PER_SECOND / bandwidth.value
    if _STAGES_MISS * measured_ns > MOST_OF_HOSTS * slope_ns:
        bare = without_rate(fit)
        caveats = (*bare.caveats, hosts_hide(slope_ns))
        return replace(bare, host_limited=True, caveats=caveats)
    share = host_share(slope_ns, measured_ns)
    bare = replace(fit, host_share=share, caveats=without_rate_caveats(fit))
    return with_range(bare)


def refused(fit: Fit, reason: str) -> Fit:
    """Return the fit as none, with a reason before that of its model."""
    return replace(without_rate(fit), model="none", reason=f"{reason} ({fit.reason})")


def without_rate(fit: Fit) -> Fit:
    """Return the fit without what only a link's rate could mean."""
    hinge, cost = fit.hinge, fit.packet_cost
    if hinge:
        below, above = (
            replace(side, bandwidth_bits_per_second=None)
            for side in (hinge.below, hinge.above)
        )
        hinge = replace(hinge, below=below, above=above)
    return replace(
        fit,
        bandwidth_bits_per_second=None,
        link_rate_range=None,
        goodput_bits_per_second=None,
        host_limited=None,
        hinge=hinge,
        packet_cost=cost and replace(cost, bandwidth_bits_per_second=None),
        host_share=None,
        caveats=without_rate_caveats(fit),
    )


def without_rate_caveats(fit: Fit) -> tuple[str, ...]:
    """Return the caveats of a fit without those of its bandwidth."""
    return tuple(c for c in fit.caveats if not c.startswith(_BEGINNINGS))


def slowed_by_losses(messages: int, resent: int) -> str | None:
    """Say why delays of TCP may be its own doing, not the link's; None if not.

    After a loss TCP sends slower than the link carries, and the 10th percentile
    follows where that is so of many messages: on a link of 100 Mbit/s fits of one
    way were within 0.8% where up to 2% of the messages had retransmitted segments, and
    1.6 to 5.6% low, or no line, at 5 to 28% (BBR and CUBIC, losses of 0.05 to 3%).

    Parameters
    ----------
    messages, resent : int
        How many there were, and how many of them had retransmitted segments.
    """
    if resent <= _MOST_RESENT * messages:
        return None
    return (
        f"segments of {resent / messages:.1%} of the messages were sent again, and"
        " after a loss TCP sends slower than the link carries"
    )


def slowed_by_sender(packets: float, slope_ns: float, waited_ns: float) -> str | None:
    """Say why delays of TCP may be its own pace, not the link's; None if not.

    Where the link is slower than the sender, a long message's last packet stands
    behind others before the link. If it does not, TCP sent no faster than that:
    by its window, or paced (BBR on 500 Mbit/s and 10 ms gave a line of 126 Mbit/s).

    Parameters
    ----------
    packets : float
        Of the longest messages.
    slope_ns : float
        For a byte, of one crossing.
    waited_ns : float
        By how much their last packet took longer, from the device queue to the
        receiver, than the shortest messages did.
    """
    if packets < _PACED_PACKETS or waited_ns >= _QUEUED_BYTES * slope_ns:
        return None
    return (
        "the last packets of long messages did not wait behind others for the link,"
        " so TCP itself may have sent at this rate, by its window or its pace"
    )


def host_share(slope_ns: float, measured_ns: float = 0.0) -> float:
    """Return what share of a slope, in ns a byte, may be the hosts' own work.

    `measured_ns` is what they were seen to spend on a byte, if that is known.
    """
    most_ns = max(_COPY_NS_PER_BYTE, _STAGES_MISS * measured_ns)
    return min(1.0, most_ns / float(slope_ns))


def hosts_hide(slope_ns: float) -> str:
    """Say why so small a slope gives no bandwidth."""
    return (
        "no bandwidth of the link: hosts and link together take"
        f" {slope_ns:.2g} ns a byte, over a tenth of it the hosts' own work; a"
        " token bucket with a burst above the largest message looks the same"
    )


def of_bytes_alone(fit: Fit) -> Estimate | None:
    """Return the rate without what packets take, where that differs by over 1%."""
    cost, bandwidth = fit.packet_cost, fit.bandwidth_bits_per_second
    if cost is None or cost.per_packet_ns is None or cost.per_packet_ns.low <= 0:
        return None
    alone = cost.bandwidth_bits_per_second
    if alone is None or bandwidth is None:
        return None
    return alone if alone.value > (1 + _HIDES) * bandwidth.value else None


def _unknown(crossing: Crossing) -> str | None:
    """Say why bytes and packets cannot be kept apart, if so."""
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
    solve = np.linalg.pinv(plane)
    draws = low.draws_ns @ solve.T
    residual = low.delay_ns - plane @ draws[0]
    freedom = residual.size - plane.shape[1]
    left = float(residual @ residual) / freedom
    noise = float(np.mean(low.noise_ns**2)) + CLOCK_NS**2
    if chi_square_tail(freedom, left * freedom / noise) >= 0.05:
        return draws, math.inf
    spread = np.sqrt(left * (solve**2).sum(axis=1))
    return draws[0] + np.outer([0, 1, -1], spread), float(freedom)
