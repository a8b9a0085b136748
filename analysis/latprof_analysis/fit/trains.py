"""What trains of messages say of a link: dispersion, and the parameters of LogGP.

How far apart back-to-back packets arrive tells the bandwidth without a factor and
without a reply, for each direction of messages.csv. LogGP needs no factor 2, since
the reply cancels: a train's messages leave one behind the other, so the link's time
for each shows in the difference to a single message; what a reply adds is the same
for both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.estimates import (
    Dispersion,
    Estimate,
    LogGP,
    ReplyMode,
    Scale,
    check_options,
    column_of,
)
from latprof_analysis.fit.line import FEWEST_ROUND_TRIPS, FEWEST_SIZES
from latprof_analysis.fit.rounds import Floats, LowDelays, low_delays
from latprof_analysis.fit.slopes import theil_sen
from latprof_analysis.fit.trips import FLOW
from latprof_analysis.fit.verdict import fit_line, verdict
from latprof_analysis.fit.wire import Crossing, Packets
from latprof_analysis.stats.quantiles import quantile_ci
from latprof_analysis.text import NS_PER_SECOND

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


_NEEDED = (
    *FLOW,
    "kind",
    "size_bytes",
    "packets",
    "retransmits",
    "queue_ns",
    "arrive_ns",
    "read_ns",
)
# A long stream is cut into trains of so many messages.
_PIECE = 256


def stage_dispersions(
    messages: pd.DataFrame,
    *,
    packets: Mapping[str, Packets] | None = None,
    confidence: float = 0.95,
) -> dict[tuple[str, str], Dispersion]:
    """Measure by protocol and direction at what rate back-to-back messages arrive.

    A train is what one flow sent while something of it was still on its way; a long
    one is cut into pieces. `arrive` of a message of many packets is that of its
    last, with all its bytes: messages take the place of packets. Trains in which
    segments were sent again, or datagrams of many packets lost, are left out: some
    of those packets crossed too, and none tells how many.

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
    >>> import numpy as np
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
    missing = [name for name in _NEEDED if name not in messages]
    if missing:
        raise ValueError(f"messages must have the column {missing[0]}, got none")
    found: dict[tuple[str, str], Dispersion] = {}
    measured = messages[messages["kind"] != "warmup"]
    ways = measured.groupby(["protocol", "kind"], sort=True, observed=True)
    for (protocol, kind), rows in ways:
        cut = (packets or {}).get(str(protocol), Packets())
        arrivals = _arrivals(rows, cut)
        # messages of no bytes, where headers are not known, space out nothing
        whole = arrivals[~arrivals["spoilt"] & (arrivals["wire_bytes"] > 0)]
        dispersion = fit_dispersion(
            whole["train"],
            whole["arrive_ns"],
            whole["wire_bytes"],
            sent_ns=whole["queue_ns"],
            confidence=confidence,
        )
        spoilt = arrivals["train"][arrivals["spoilt"]].nunique()
        found[str(protocol), str(kind)] = _with_spoilt(dispersion, spoilt)
    return found


def _with_spoilt(found: Dispersion, trains: int) -> Dispersion:
    if not trains:
        return found
    why = "packets were lost or sent again"
    return replace(
        found,
        left_out=found.left_out | {why: trains},
        reason=f"{found.reason}; {trains} trains left out: {why}",
    )


def _arrivals(rows: pd.DataFrame, packets: Packets) -> pd.DataFrame:
    """Return messages that arrived, each with its train and bytes on the wire.

    ``spoilt`` marks trains of which packets crossed that no row tells of.
    """
    rows = rows[rows["queue_ns"].notna()]
    flow = rows.groupby(list(FLOW)).ngroup()
    rows = rows.assign(flow=flow).sort_values(["flow", "queue_ns"], kind="stable")
    rows["wire_bytes"] = packets.wire_bytes(
        rows["size_bytes"].to_numpy("float64", na_value=np.nan)
    )
    rows["train"] = _trains(rows)

    lost = rows["read_ns"].isna() & rows["arrive_ns"].isna()
    unseen = lost & (rows["packets"] > 1) | (rows["retransmits"] > 0)
    rows["spoilt"] = unseen.groupby(rows["train"]).transform("any")
    rows = rows[~lost]
    # Bytes of messages without a stamp go to the next of the train that has one.
    stamped = rows["arrive_ns"].notna()
    until = stamped[::-1].groupby(rows["train"][::-1]).cumsum()[::-1]
    rows["wire_bytes"] = (
        rows["wire_bytes"].groupby([rows["train"], until]).transform("sum")
    )
    return rows[stamped]


def _trains(rows: pd.DataFrame) -> pd.Series:
    """Return the train of each row; a new one begins where nothing is on its way."""
    come = rows["arrive_ns"].fillna(rows["read_ns"])
    so_far = come.groupby(rows["flow"]).cummax().groupby(rows["flow"]).ffill()
    new_flow = rows["flow"].ne(rows["flow"].shift())
    train = (new_flow | (rows["queue_ns"] > so_far.shift())).cumsum()
    piece = rows.groupby(train).cumcount() // _PIECE
    return train * (1 + len(rows) // _PIECE) + piece


Bools = NDArray[np.bool_]

# A delay between messages must show: their spacing exceeds the link's by so much.
_SPACED = 1.05
# A gap of no bytes may be so much below zero, as a share of the largest gap.
_BELOW_ZERO = 0.01


def fit_loggp(
    size_bytes: ArrayLike,
    messages: ArrayLike,
    delay_ns: ArrayLike,
    train_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    reply_mode: ReplyMode,
    packets: Packets | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> LogGP:
    """Fit the LogGP model [1]_ by Netgauge's differences [2]_.

    PRTT(n, d, s) is the time from the first of `n` messages of `s` bytes, each `d`
    after the last was handed over, to the reply that follows the last. In the model

        PRTT(1, 0, s) = 2 (L + 2 o) + (s - 1) G + (r - 1) G     for a reply of r bytes
        (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1) = g + (s - 1) G
        (PRTT(n, d, s) - PRTT(1, 0, s)) / (n - 1) = o + d       where that is longer

    What tells what: G and g need single messages and trains without a delay, of
    4 sizes or more; any reply does, since it cancels. G is the line's slope, g what
    it leaves for one byte. o needs trains with a delay above g + (s - 1) G as well.
    L needs o, and that both directions are alike: nothing in a round trip tells
    them apart. The published method fits medians by least squares; here they are
    10th percentiles, a Theil-Sen line, a bootstrap of whole rounds, and the test
    for a bend that round trips have: below a token bucket's burst the gap is not
    the link's.

    Parameters
    ----------
    size_bytes, messages, delay_ns, train_ns, round_index : array_like, shape (n,)
        One entry for each train: bytes of each message, their number (1 or more),
        the delay between them, its PRTT and its round. Of trains without a delay
        the longest are used.
    reply_mode : 'echo' or int
        Whether the one reply is as long as one message, or has so many bytes.
    packets : Packets, optional
        How the messages are cut; G is then per byte on the wire.

    References
    ----------
    .. [1] Alexandrov, Ionescu, Schauser, Scheiman (1995). LogGP: incorporating
       long messages into the LogP model. SPAA '95.
    .. [2] Hoefler, Lichei, Rehm (2007). Low-overhead LogGP parameter assessment
       for modern interconnection networks. IPDPS 2007.

    Examples
    --------
    >>> sizes = np.tile([1000.0, 4000, 16000, 64000], 20)
    >>> rounds = np.repeat(np.arange(20.0), 4)
    >>> one = 2e6 + 2 * 80 * (sizes - 1)
    >>> five = one + 4 * (3000 + 80 * (sizes - 1))
    >>> found = fit_loggp(
    ...     np.tile(sizes, 2), np.repeat([1, 5], 80), np.zeros(160),
    ...     np.append(one, five), np.tile(rounds, 2), reply_mode="echo")
    >>> round(found.gap_per_byte_ns.value, 3), round(found.gap_ns.value)
    (80.0, 3000)
    >>> found.missing["overhead_ns"]
    'no trains with a delay between their messages'
    """
    columns = {
        "size_bytes": column_of("size_bytes", size_bytes),
        "messages": column_of("messages", messages),
        "delay_ns": column_of("delay_ns", delay_ns),
        "train_ns": column_of("train_ns", train_ns),
        "round_index": column_of("round_index", round_index),
    }
    _check_trains(columns)
    check_options(reply_mode, confidence, resamples)
    trains = _Trains(columns, packets or Packets(), resamples, seed)
    none = LogGP("none", "", {}, columns["size_bytes"].size, confidence)
    return _fit_differences(trains, none, reply_mode)


def _fit_differences(trains: _Trains, none: LogGP, reply_mode: ReplyMode) -> LogGP:
    count, delay = trains.columns["messages"], trains.columns["delay_ns"]
    single = trains.low(count == 1)
    gaps = trains.spacing((count > 1) & (delay == 0), single, longest=True)
    sizes = 0 if gaps is None else gaps.size_bytes.size
    if gaps is None or sizes < FEWEST_SIZES:
        return _without(
            none,
            f"g and G need {FEWEST_SIZES} sizes with {FEWEST_ROUND_TRIPS} single"
            f" messages and as many trains without a delay each, got {sizes}",
        )
    line = fit_line(trains.packets.wire_bytes(gaps.size_bytes) - 1, gaps)
    scale = Scale(none.n, none.confidence, 1, 1.0)
    model, reason = verdict(line, gaps, scale.estimate(line.slopes))
    fitted = replace(none, model=model, reason=reason)
    if model != "line":
        return _without(fitted, f"the gap is no line of the size: {reason}")
    gap = scale.estimate(line.intercepts_ns)
    if gap.high < 0 and gap.value < -_BELOW_ZERO * float(gaps.delay_ns.max()):
        reason = (
            f"the gap of no bytes would be {gap.value / 1e3:.3g} us: something, such"
            " as a token bucket, lets the first bytes of a train by"
        )
        return _without(replace(none, reason=reason), reason)
    fitted = replace(
        fitted,
        gap_per_byte_ns=scale.estimate(line.slopes),
        gap_ns=gap,
        bandwidth_bits_per_second=scale.bandwidth(line.slopes),
    )
    overhead = trains.overhead(single, gaps)
    if isinstance(overhead, str):
        needs = f"it needs the overhead: {overhead}"
        missing = {"overhead_ns": overhead, "latency_ns": needs}
        return replace(fitted, missing=missing)
    latency = trains.latency(single, line.slopes, overhead, reply_mode)
    return replace(
        fitted,
        overhead_ns=scale.estimate(overhead),
        latency_ns=scale.estimate(latency),
    )


def _without(result: LogGP, reason: str) -> LogGP:
    names = ("gap_per_byte_ns", "gap_ns", "overhead_ns", "latency_ns")
    missing = dict.fromkeys((*names, "bandwidth_bits_per_second"), reason)
    return replace(result, reason=result.reason or reason, missing=missing)


@dataclass(frozen=True)
class _Trains:
    columns: dict[str, Floats]
    packets: Packets
    resamples: int
    seed: int

    def low(self, chosen: Bools) -> LowDelays:
        """Return the low times of these trains, per size."""
        return low_delays(
            self.columns["size_bytes"][chosen],
            self.columns["train_ns"][chosen],
            self.columns["round_index"][chosen],
            fewest=FEWEST_ROUND_TRIPS,
            resamples=self.resamples,
            seed=self.seed,
        )

    def spacing(
        self, chosen: Bools, single: LowDelays, *, longest: bool = False
    ) -> LowDelays | None:
        """Return (PRTT(n) - PRTT(1)) / (n - 1) per size; None of no trains."""
        count = self.columns["messages"]
        if not chosen.any():
            return None
        n = count[chosen].max()
        train = self.low(chosen & (count == n) if longest else chosen)
        _, i, j = np.intersect1d(
            train.size_bytes, single.size_bytes, return_indices=True
        )
        more = train.delay_ns[i] - single.delay_ns[j]
        drawn = train.resampled_ns[:, i] - single.resampled_ns[:, j]
        return LowDelays(
            size_bytes=train.size_bytes[i],
            delay_ns=more / (n - 1),
            resampled_ns=drawn / (n - 1),
            count=train.count + single.count,
            rounds=train.rounds,
            skipped_bytes=train.skipped_bytes,
        )

    def overhead(self, single: LowDelays, gaps: LowDelays) -> Floats | str:
        """Return draws of o, or why no train shows it."""
        count, delay = self.columns["messages"], self.columns["delay_ns"]
        delayed = (count > 1) & (delay > 0)
        if not delayed.any():
            return "no trains with a delay between their messages"
        shown = [np.empty((1 + self.resamples, 0))]
        for n, d in np.unique(np.column_stack([count, delay])[delayed], axis=0):
            spaced = self.spacing(delayed & (count == n) & (delay == d), single)
            if spaced is None:
                continue
            draws = np.vstack([spaced.delay_ns, spaced.resampled_ns])
            link_ns = np.interp(spaced.size_bytes, gaps.size_bytes, gaps.delay_ns)
            shown.append(draws[:, spaced.delay_ns > _SPACED * link_ns] - d)
        found = np.hstack(shown)
        if found.shape[1] == 0:
            return "no delay between messages was longer than the link's own gap"
        overhead: Floats = np.median(found, axis=1)
        return overhead

    def latency(
        self, single: LowDelays, slopes: Floats, overhead: Floats, reply: ReplyMode
    ) -> Floats:
        """Return draws of L: half of what a single message's bytes leave, less 2 o."""
        way = Crossing.round_trip(single.size_bytes, self.packets, reply)
        crossing = way.wire_bytes - 2
        both = np.vstack([single.delay_ns, single.resampled_ns])
        both = both - slopes[:, None] * crossing
        latency: Floats = np.median(both, axis=1) / 2 - 2 * overhead
        return latency


def _check_trains(columns: dict[str, Floats]) -> None:
    lengths = {column.size for column in columns.values()}
    if len(lengths) > 1:
        names = ", ".join(columns)
        raise ValueError(f"{names} must have equal length, got {sorted(lengths)}")
    for name, least in (
        ("size_bytes", 1),
        ("messages", 1),
        ("delay_ns", 0),
        ("train_ns", 1),
        ("round_index", 0),
    ):
        column = columns[name]
        if (column < least).any():
            raise ValueError(f"{name} must be {least} or more, got {column.min():.0f}")
