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
    with_hosts,
    with_range,
    without_rate,
    without_rate_caveats,
)

# A message's stamps are those of its last packet, and the others' time for the link
# passes in earlier stages: only these hold all of it, and so tell a bandwidth.
_WHOLE = {"one_way": "ready", "end_to_end": "read"}
_RATED = ("transit", *_WHOLE)
_COUNTS = ("protocol", "retransmits", "packets")
# Of transit's growth with size, what the stages before may grow by: the last bytes
# of a long message then did not wait for the first to be sent.
_HANDED_OVER = 0.15
# By how much hosts stamp the last packet of a message of many sooner or later than
# that of one: 2 us were seen, 0.04% of what 65 kB take at 100 Mbit/s.
_AROUND_STAMPS_NS = 5e3


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
    >>> whole = {"size_bytes": [100, 900], "send_ns": [0, 0], "xmit_ns": [9e3, 14e3]}
    >>> whole["arrive_ns"] = [1009e3, 1814e3]
    >>> round(with_rate(fit, "one_way", pd.DataFrame(whole)).host_share, 4)
    0.0212
    >>> found = with_rate(fit, "transit", pd.DataFrame(whole))
    >>> round(found.link_rate_range.low / 1e6, 2), round(found.host_share, 5)
    (97.78, 0.00625)
    """
    slowed = slowed_way(way, fit) if quantity in _RATED else None
    if slowed:
        return refused(fit, slowed)
    if quantity in _WHOLE:
        return with_hosts(fit, hosts_byte_ns(way, _WHOLE[quantity]))
    if quantity != "transit" or fit.model != "line":
        return without_rate(fit)
    handed_over = _handed_over(way)
    if handed_over > _HANDED_OVER:
        return without_rate(fit)
    stamps = min(1.0, _AROUND_STAMPS_NS / max(_growth(way, "xmit", "arrive"), 1))
    bare = replace(fit, host_share=stamps, caveats=without_rate_caveats(fit))
    return with_range(bare, max(0.0, handed_over) + stamps)


def hosts_byte_ns(way: pd.DataFrame, last: str) -> float:
    """Return what hosts took for a byte until a stamp, in ns; 0 if it is not known.

    It is known of datagrams: hosts work before and after the qdisc and the link do,
    not meanwhile.

    Parameters
    ----------
    way : DataFrame
        Messages of one direction.
    last : str
        The stamp, 'ready' or 'read'.

    Examples
    --------
    >>> way = {"protocol": "udp", "size_bytes": [100, 900], "send_ns": [0, 0]}
    >>> way |= {"queue_ns": [10, 90], "arrive_ns": [1010, 65090]}
    >>> hosts_byte_ns(pd.DataFrame(way | {"read_ns": [1020, 66300]}), "read")
    1.6
    """
    known = {"protocol", "queue_ns", "arrive_ns", f"{last}_ns"} <= set(way)
    if not known or way["protocol"].ne("udp").any():
        return 0.0
    took = way["queue_ns"] - way["send_ns"] + way[f"{last}_ns"] - way["arrive_ns"]
    typical = took.groupby(way["size_bytes"]).median().dropna()
    if len(typical) < 2:
        return 0.0
    more_ns = typical.iloc[-1] - typical.iloc[0]
    return float(more_ns / (typical.index[-1] - typical.index[0]))


def _handed_over(way: pd.DataFrame) -> float:
    """Return how handing over grows with size, as a share of how transit does."""
    return _growth(way, "send", "xmit") / max(_growth(way, "xmit", "arrive"), 1)


def slowed_way(messages: pd.DataFrame, fit: Fit) -> str | None:
    """Say why delays of these messages may be TCP's own doing; None if not."""
    if not {*_COUNTS} <= set(messages) or messages["protocol"].ne("tcp").all():
        return None
    again = int((messages["retransmits"] > 0).sum())
    slope = fit.slope_ns_per_byte
    return slowed_by_losses(len(messages), again) or (
        slowed_by_sender(
            float(messages["packets"].fillna(0).max()),
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
