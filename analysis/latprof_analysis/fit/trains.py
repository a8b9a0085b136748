"""Dispersion of trains: how far apart back-to-back messages arrive.

It gives the bandwidth without a factor and without a reply, for each direction of
messages.csv. `fit_dispersion` takes trains as they are, `stage_dispersions` finds
them among messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.estimates import (
    Estimate,
    check_options,
    column_of,
    rate_of,
)
from latprof_analysis.fit.rounds import Floats, nth_in_run
from latprof_analysis.fit.slopes import theil_sen
from latprof_analysis.fit.trips import FLOW, Ints, checked_columns, flows
from latprof_analysis.fit.wire import Packets
from latprof_analysis.read.rows import Columns
from latprof_analysis.stages import (
    BLANK,
    LOADED,
    LOADED_REPLY,
    TRAIN,
    TRAIN_REPLY,
    WARMUP,
)
from latprof_analysis.stats import Result
from latprof_analysis.stats.quantiles import quantile_ci

if TYPE_CHECKING:
    import pandas as pd

FEWEST_PACKETS = 16  # of a train; half of them are used
FEWEST_TRAINS = 6  # below, order statistics bound no median at 95%
# All packets but this share found another one before them.
_ALL_BUT = 0.1
_DID_NOT_WAIT = "did not wait for the link"
_POINTS = 400  # of a longer train so many are looked at, evenly spaced
_COUNTS = ("size_bytes", "packets", "retransmits")
_NEEDED = (*FLOW, "kind", *_COUNTS, "queue_ns", "arrive_ns", "read_ns")
# A long stream is cut into trains of so many messages.
_PIECE = 256
_FULL_PACKETS = 10


@dataclass(frozen=True)
class Dispersion(Result):
    """The rate at which back-to-back packets arrive."""

    state: Literal["measured", "none"]
    reason: str  # why there is a number, or none
    trains: int  # what it rests on
    packets: int
    left_out: dict[str, int]  # trains that say nothing of the link, by why
    confidence: float
    # Of the slowest link on the way, of the bytes that were given; its `n` is trains.
    bandwidth_bits_per_second: Estimate | None = None


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
    took = arrive - sent[order]
    waited = None if sent_ns is None else took - took.min(initial=np.inf)
    bounds = np.flatnonzero(np.diff(index[order], prepend=np.nan, append=np.nan))
    slopes: list[float] = []
    used, left_out = 0, Counter[str]()
    for start, end in pairwise(bounds):
        waits = None if waited is None else waited[start:end]
        found = _train_slope(arrive[start:end], wire[start:end], waits)
        if isinstance(found, str):
            left_out[found] += 1
        else:
            slopes.append(found)
            used += int(end - start)
    return _dispersion(np.array(slopes), used, dict(left_out), confidence)


def stage_dispersions(
    messages: Columns | pd.DataFrame,
    *,
    packets: Mapping[str, Packets] | None = None,
    confidence: float = 0.95,
) -> dict[tuple[str, str], Dispersion]:
    """Measure by protocol and direction at what rate back-to-back messages arrive.

    A train is what one flow sent while something of it was still on its way; a long
    one is cut into pieces. `arrive` of a message of many packets is that of its
    last, with all its bytes: messages take the place of packets. Trains in which
    segments were sent again, or datagrams of many packets lost, are left out: some
    of those packets crossed too, and how many is not known.

    Parameters
    ----------
    messages : DataFrame
        Columns of messages.csv.
    packets : mapping of str to Packets, optional
        By protocol, how messages are cut. Without it bandwidth is that of payload.

    Returns
    -------
    dict of (protocol, kind) to Dispersion

    Examples
    --------
    >>> import numpy as np, pandas as pd
    >>> nth = np.arange(600)
    >>> start = 50_000_000 * (nth // 100)
    >>> messages = pd.DataFrame({
    ...     "protocol": "udp", "source_address": "a", "source_port": 1,
    ...     "destination_address": "b", "destination_port": 2, "kind": "message",
    ...     "size_bytes": 1500, "packets": 1, "retransmits": 0,
    ...     "queue_ns": start + nth, "arrive_ns": start + 120_000 * (nth % 100 + 1)})
    >>> messages["read_ns"] = messages["arrive_ns"]
    >>> found = stage_dispersions(messages)["udp", "message"]
    >>> round(found.bandwidth_bits_per_second.value / 1e6, 3), found.trains
    (100.0, 6)
    """
    rows = checked_columns(messages, _NEEDED)
    found: dict[tuple[str, str], Dispersion] = {}
    for (protocol, kind), at in rows.split("protocol", "kind"):
        if protocol is None or kind in (None, WARMUP, LOADED, LOADED_REPLY):
            continue
        cut = (packets or {}).get(protocol, Packets())
        whole = rows.at(at)
        if protocol == "tcp" and kind in (TRAIN, TRAIN_REPLY):
            whole = whole.at(_of_many_packets(whole, cut))
        (train, queue_ns, arrive_ns, wire_bytes), spoilt = _arrivals(whole, cut)
        dispersion = fit_dispersion(
            train, arrive_ns, wire_bytes, sent_ns=queue_ns, confidence=confidence
        )
        if spoilt:
            why = "packets were lost or sent again"
            dispersion = replace(
                dispersion,
                left_out=dispersion.left_out | {why: spoilt},
                reason=f"{dispersion.reason}; {spoilt} trains left out: {why}",
            )
        found[protocol, kind] = dispersion
    return found


def _of_many_packets(rows: Columns, cut: Packets) -> NDArray[np.bool_]:
    """Return which messages are so long that it is known what they are on the wire.

    TCP puts what waits into full packets: those of ten share at most one with others.
    """
    least = _FULL_PACKETS * (cut.mss_bytes or 0)
    return np.asarray(rows.numbers["size_bytes"] >= least)


def _train_slope(arrive: Floats, wire: Floats, waited: Floats | None) -> float | str:
    """Return ns per byte of a train's second half, or why it says nothing."""
    if arrive.size < FEWEST_PACKETS:
        return f"fewer than {FEWEST_PACKETS} packets"
    half = slice(arrive.size // 2, None)
    come = np.cumsum(wire)[half]
    points = np.unique(np.linspace(0, come.size - 1, _POINTS).astype(int))
    x, y = come[points], arrive[half][points]
    slope = theil_sen(x, y - y[0])[0]
    if slope <= 0:
        return "arrived all at once"
    if waited is not None:
        own_ns = slope * float(np.mean(wire[half]))
        if float(np.quantile(waited[half], _ALL_BUT)) < own_ns:
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
            state, reason = "measured", f"median of {slopes.size} trains"
            bandwidth = rate_of(
                Estimate(median.value, median.low, median.high, slopes.size)
            )
    if left_out:
        causes = ", ".join(f"{n} {why}" for why, n in left_out.items())
        reason = f"{reason}; left out: {causes}"
    return Dispersion(
        state, reason, slopes.size, packets, left_out, confidence, bandwidth
    )


def _arrivals(
    rows: Columns, packets: Packets
) -> tuple[tuple[Ints, Ints, Ints, Floats], int]:
    """Return messages that arrived in whole trains, and how many trains are spoilt.

    Of each message its train, when it was queued and when it arrived, and the bytes on
    the wire. Of a spoilt train packets crossed that no row has.
    """
    rows = rows.at(rows.numbers["queue_ns"] != BLANK)
    flow = flows(rows)
    order = np.lexsort((rows.numbers["queue_ns"], flow))
    rows, flow = rows.at(order), flow[order]
    numbers = rows.numbers
    queue, arrive, read = (numbers[f"{n}_ns"] for n in ("queue", "arrive", "read"))
    train = _trains(flow, queue, np.where(arrive == BLANK, read, arrive))

    lost = (read == BLANK) & (arrive == BLANK)
    unseen = lost & (numbers["packets"] > 1) | (numbers["retransmits"] > 0)
    spoilt = np.isin(train, train[unseen])
    # Bytes of messages without a stamp go to the next of the train that has one.
    stamped = np.flatnonzero(arrive != BLANK)
    to = np.searchsorted(stamped, np.arange(len(rows)))
    wire = packets.wire_bytes(rows.floats("size_bytes"))
    come = ~lost & (to < stamped.size) & ~np.isnan(wire)
    come[come] = train[come] == train[stamped[to[come]]]
    sums = np.bincount(to[come], wire[come], stamped.size).astype(np.float64)
    # messages of no bytes, where headers are not known, space out nothing
    whole = ~spoilt[stamped] & (sums > 0)
    at = stamped[whole]
    lost_trains = np.unique(train[stamped][spoilt[stamped]]).size
    return (train[at], queue[at], arrive[at], sums[whole]), lost_trains


def _trains(flow: Ints, queue_ns: Ints, come_ns: Ints) -> Ints:
    """Return the train of each row; a new one begins where nothing is on its way."""
    begins = np.diff(flow, prepend=-1) != 0
    of_flow = np.split(come_ns, np.flatnonzero(begins)[1:])
    # of each flow the latest so far; BLANK is before all times
    so_far = np.concatenate([np.maximum.accumulate(part) for part in of_flow])
    before = np.append(BLANK, so_far[:-1])
    idle = (before != BLANK) & (queue_ns > before)
    train = np.cumsum(begins | idle)
    piece = nth_in_run(begins | idle) // _PIECE
    return np.asarray(train * (1 + flow.size // _PIECE) + piece)
