"""What else than the link may be in the slope of a line, and so in its bandwidth."""

from __future__ import annotations

from collections.abc import Iterator

from latprof_analysis.fits.fit_result import Estimate, Fit, PacketCost
from latprof_analysis.text import rate

# Hosts spend about 0.1 ns a byte (0.15 us a segment): over 10% of such a slope.
HOST_NS_PER_BYTE = 1.0
# Where nothing of a message moves before it is copied whole, as of a datagram above
# the MTU, 1.0 to 1.7 ns a byte at each crossing were measured (Xeon, 2.3 GHz).
_COPY_NS_PER_BYTE = 1.7
_HIDES = 0.01
_MOST_RESENT = 0.03
_BEGINNINGS = ("no bandwidth of", "up to", "a packet takes")


def host_share(slope_ns: float) -> float:
    """Return what share of a slope, in ns a byte, may be the hosts' own work."""
    return min(1.0, _COPY_NS_PER_BYTE / float(slope_ns))


def hosts_hide(slope_ns: float) -> str:
    """Say why so small a slope tells no bandwidth."""
    return (
        "no bandwidth of the link: hosts and link together take"
        f" {slope_ns:.2g} ns a byte, over a tenth of it the hosts' own work; a"
        " token bucket with a burst above the largest message looks the same"
    )


def about_rate(fit: Fit) -> Iterator[str]:
    """Say what besides the link's rate is in a fit's bandwidth, if it is over 1%."""
    bandwidth, share = fit.bandwidth_bits_per_second, fit.host_share
    if bandwidth is None:
        return
    alone = _of_bytes_alone(fit.packet_cost, bandwidth)
    if alone and fit.packet_cost:
        without = f"without that they cross at {rate(alone.value)}"
        yield f"{fit.packet_cost.reason}; {without}"
    if share is not None and _HIDES < share < 1:
        link = alone or bandwidth
        low, high = rate(link.low), rate(link.high / (1 - share))
        yield (
            f"up to {share:.1%} of the slope may be the hosts' own work on each byte:"
            f" the link's own rate is from {low} to {high}, and only fits of the stages"
            " tell it closer"
        )


def _of_bytes_alone(cost: PacketCost | None, bandwidth: Estimate) -> Estimate | None:
    """Return the rate without what packets take, where that differs."""
    if cost is None or cost.per_packet_ns is None or cost.per_packet_ns.low <= 0:
        return None
    alone = cost.bandwidth_bits_per_second
    much = alone is not None and alone.value > (1 + _HIDES) * bandwidth.value
    return alone if much else None


def slowed_by_losses(messages: int, resent: int) -> str | None:
    """Say why delays of TCP may be its own doing, not the link's; None if not.

    After a loss TCP sends slower than the link carries, and the 10th percentile
    follows where that is so of many messages: on a link of 100 Mbit/s fits of one
    way were within 0.8% where up to 2% of the messages had segments sent again, and
    1.6 to 5.6% low, or no line, at 5 to 28% (BBR and CUBIC, losses of 0.05 to 3%).

    Parameters
    ----------
    messages, resent : int
        How many there were, and how many of them had segments sent again.
    """
    if resent <= _MOST_RESENT * messages:
        return None
    return (
        f"segments of {resent / messages:.1%} of the messages were sent again, and"
        " after a loss TCP sends slower than the link carries"
    )


def without_rate_caveats(fit: Fit) -> tuple[str, ...]:
    """Return the caveats of a fit without those of its bandwidth.

    Examples
    --------
    >>> fit = Fit("line", "", ("few rounds", "up to 2% of it"), 0, 1, 5, 20, 100, 0.95)
    >>> without_rate_caveats(fit)
    ('few rounds',)
    """
    return tuple(c for c in fit.caveats if not c.startswith(_BEGINNINGS))
