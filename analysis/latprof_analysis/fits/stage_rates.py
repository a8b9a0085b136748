"""Which stages' slopes are a link's rate, and which are only the hosts' work."""

from __future__ import annotations

import math
from dataclasses import replace

import pandas as pd

from latprof_analysis.fits.fit_result import Fit
from latprof_analysis.fits.rate_caveats import (
    refused,
    slowed_by_losses,
    slowed_by_sender,
    with_range,
    without_rate,
    without_rate_caveats,
)

# A message's stamps are those of its last packet, and the others' time for the link
# passes in earlier stages: only these hold all of it, and so tell a bandwidth.
_WHOLE = ("one_way", "end_to_end")
_RATED = ("transit", *_WHOLE)
_COUNTS = ("protocol", "retransmits", "packets")
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
    >>> from latprof_analysis.fits.fit_result import Estimate
    >>> rate = Estimate(100e6, 99e6, 101e6, 100)
    >>> fit = Fit("line", "", (), 0, 1, 5, 20, 100, 0.95, rate, host_share=0.02)
    >>> whole = {"size_bytes": [100, 900], "send_ns": [0, 0], "xmit_ns": [10, 15]}
    >>> whole["arrive_ns"] = [1010, 1815]
    >>> with_rate(fit, "one_way", pd.DataFrame(whole)).host_share
    0.02
    >>> found = with_rate(fit, "transit", pd.DataFrame(whole))
    >>> found.host_share, round(found.link_rate_range.low / 1e6, 2)
    (None, 98.39)
    """
    slowed = slowed_way(way, fit) if quantity in _RATED else None
    if slowed:
        return refused(fit, slowed)
    if quantity in _WHOLE:
        return fit
    if quantity != "transit" or fit.model != "line":
        return without_rate(fit)
    handed_over = _growth(way, "send", "xmit") / max(_growth(way, "xmit", "arrive"), 1)
    if handed_over > _HANDED_OVER:
        return without_rate(fit)
    bare = replace(fit, host_share=None, caveats=without_rate_caveats(fit))
    return with_range(bare, max(0.0, handed_over))


def slowed_way(messages: pd.DataFrame, fit: Fit) -> str | None:
    """Say why delays of these messages may be TCP's own doing; None if not."""
    if not {*_COUNTS} <= set(messages) or messages["protocol"].ne("tcp").all():
        return None
    again = int((messages["retransmits"] > 0).sum())
    slope = fit.slope_ns_per_byte
    return slowed_by_losses(len(messages), again) or (
        slowed_by_sender(
            float(messages["packets"].max()),
            slope.value / fit.factor,
            _growth(messages, "queue", "arrive"),
        )
        if slope
        else None
    )


def _growth(way: pd.DataFrame, first: str, last: str) -> float:
    """Return by how much the largest messages take longer between two stamps, in ns.

    By 10th percentiles; infinite where it is not known.
    """
    if not {f"{first}_ns", f"{last}_ns"} <= set(way):
        return math.inf
    took = way[f"{last}_ns"] - way[f"{first}_ns"]
    low = took.groupby(way["size_bytes"]).quantile(0.1).dropna()
    return float(low.iloc[-1] - low.iloc[0]) if len(low) > 1 else math.inf
