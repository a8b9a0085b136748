"""Which stages' slopes are a link's rate, and which are only the hosts' work."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from latprof_analysis.fits.fit_result import Fit, PacketCost
from latprof_analysis.fits.rate_caveats import (
    slowed_by_losses,
    without_rate_caveats,
)

# A message's stamps are those of its last packet, and the others' time for the link
# passes in earlier stages: only these hold all of it, and so tell a bandwidth.
_WHOLE = ("one_way", "end_to_end")
_RATED = ("transit", *_WHOLE)
# Of transit's growth with size, what the stages before may grow by: the last bytes
# of a long message then did not wait for the first to be sent.
_HANDED_OVER = 0.15


def with_rate(fit: Fit, quantity: str, way: pd.DataFrame) -> Fit:
    """Return the fit of a quantity of one direction, with a rate if it has one.

    Stages of hosts have none. Transit has one where messages were handed over
    whole, as a datagram is: then it holds the time of all their bytes, and none of
    the hosts' work on them.

    Examples
    --------
    >>> fit = Fit("line", "", (), 0, 1, 5, 20, 100, 0.95, host_share=0.02)
    >>> whole = {"size_bytes": [100, 900], "send_ns": [0, 0], "xmit_ns": [10, 15]}
    >>> whole["arrive_ns"] = [1010, 1815]
    >>> with_rate(fit, "one_way", pd.DataFrame(whole)).host_share
    0.02
    >>> with_rate(fit, "transit", pd.DataFrame(whole)).host_share
    """
    slowed = slowed_way(way) if quantity in _RATED else None
    if slowed:
        return refused(fit, slowed)
    if quantity in _WHOLE:
        return fit
    if quantity == "transit" and fit.model == "line" and _handed_over_whole(way):
        return replace(fit, host_share=None, caveats=without_rate_caveats(fit))
    return without_rate(fit)


def slowed_way(messages: pd.DataFrame) -> str | None:
    """Say why delays of these messages may be TCP's own doing; None if not."""
    if "retransmits" not in messages:
        return None
    return slowed_by_losses(len(messages), int((messages["retransmits"] > 0).sum()))


def refused(fit: Fit, reason: str) -> Fit:
    """Return the fit as none, with a reason before that of its model."""
    return replace(without_rate(fit), model="none", reason=f"{reason} ({fit.reason})")


def _handed_over_whole(way: pd.DataFrame) -> bool:
    times = {
        "before": way["xmit_ns"] - way["send_ns"],
        "transit": way["arrive_ns"] - way["xmit_ns"],
    }
    low = pd.DataFrame(times).groupby(way["size_bytes"]).quantile(0.1).dropna()
    if len(low) < 2:
        return False
    growth = low.iloc[-1] - low.iloc[0]
    return bool(growth["before"] < _HANDED_OVER * growth["transit"])


def without_rate(fit: Fit) -> Fit:
    """Return the fit without what only a link's rate could mean."""
    hinge = fit.hinge
    if hinge:
        below, above = (
            replace(side, bandwidth_bits_per_second=None)
            for side in (hinge.below, hinge.above)
        )
        hinge = replace(hinge, below=below, above=above)
    return replace(
        fit,
        bandwidth_bits_per_second=None,
        goodput_bits_per_second=None,
        host_limited=None,
        hinge=hinge,
        packet_cost=_without_bandwidth(fit.packet_cost),
        host_share=None,
        caveats=without_rate_caveats(fit),
    )


def _without_bandwidth(cost: PacketCost | None) -> PacketCost | None:
    return replace(cost, bandwidth_bits_per_second=None) if cost else None
