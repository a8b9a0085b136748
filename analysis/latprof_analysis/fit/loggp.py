"""LogGP's L, o, g and G from trains of messages, as Netgauge takes them.

A train of n messages takes longer than one message by what the slowest part of the
way needs for n - 1 of them. What is there and back once, the replies' way and the
hosts', is in both and cancels: no factor 2 can be wrong, and no clock but one is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.caveats import HOST_NS_PER_BYTE, hosts_hide
from latprof_analysis.fit.estimates import (
    Estimate,
    ReplyMode,
    Scale,
    check_options,
    column_of,
    rate_of,
)
from latprof_analysis.fit.line import FEWEST_ROUND_TRIPS, FEWEST_SIZES
from latprof_analysis.fit.rounds import (
    LOW,
    Floats,
    LowDelays,
    clock_step,
    low_delays,
    within_step,
)
from latprof_analysis.fit.slopes import FEWEST_BESIDE, weighted_theil_sen
from latprof_analysis.fit.wire import Packets
from latprof_analysis.stats import Result

Bools = NDArray[np.bool_]
# The slope is that of messages above this share of the largest: short ones wait for
# hosts, not for their bytes.
_LONG = 0.125
# Beyond a bucket, and on a line, gaps are alike in so far.
_ALIKE = 0.01
_NOISE = 4.0  # standard errors that a difference may be chance
# No message's gap is so much shorter than its bytes take, but where a bucket lets
# them by.
_BY_AT_ONCE = 0.05
# Of what a byte takes in a train, what it must take by itself beyond a bucket.
_WAITS_ALONE = 0.5
_UNCERTAIN = 0.1
_OF_BYTES = ("gap_ns", "gap_per_byte_ns")
_OF_CALLS = ("send_overhead_ns", "receive_overhead_ns")


@dataclass(frozen=True)
class TrainTimes(Result):
    """What messages of one size took, in 10th percentiles over the rounds."""

    size_bytes: int
    single_ns: Estimate  # PRTT(1, 0, s)
    train_ns: Estimate  # PRTT(n, 0, s)
    gap_ns: Estimate  # (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1)
    spaced_ns: Estimate | None = None  # PRTT(n, d, s)
    send_ns: Estimate | None = None  # of a send call


@dataclass(frozen=True)
class LogGP(Result):
    """The parameters of LogGP [1]_, None where the trains do not give one.

    References
    ----------
    .. [1] Alexandrov, Ionescu, Schauser, Scheiman (1995). LogGP: incorporating
       long messages into the LogP model. SPAA '95.
    """

    #: 'line': gaps grow in step with size; 'bucket': a token bucket lets the first
    #: bytes of a train by; 'none': neither, or too few trains.
    model: Literal["line", "bucket", "none"]
    #: Why this model.
    reason: str
    #: By parameter why it is None, or what is in it that is not its own.
    missing: dict[str, str]
    #: Of a train, as sent; 0 where there was none.
    messages: int
    #: From one send of a spaced train to the next; 0 where there was none.
    spacing_ns: float
    rounds: int
    #: Trains and single messages that the figures rest on.
    n: int
    #: Trains that are in no figure, by why.
    left_out: dict[str, int]
    confidence: float
    #: By size.
    sizes: tuple[TrainTimes, ...] = ()
    #: L: one way of a message of one byte, at the 10th percentile: wire, its headers
    #: with it, devices, the receiver's wake-up. Half of what neither o nor G explain
    #: of a round trip, since nothing in it distinguishes the directions.
    latency_ns: Estimate | None = None
    #: o_s: how long a send call of the smallest message takes: the sender's CPU is
    #: busy for so long. Where both hosts are one kernel, part of the receiver's work
    #: may be in it.
    send_overhead_ns: Estimate | None = None
    #: o_r: how long a receive call of the smallest message takes, once it is there.
    receive_overhead_ns: Estimate | None = None
    #: g: the least time from one message to the next beyond their bytes', at the
    #: slowest of sender, link, responder and way back: headers, and hosts' work.
    gap_ns: Estimate | None = None
    #: G: time for a byte of a long message's payload on the slowest part of the way,
    #: there or back, headers included.
    gap_per_byte_ns: Estimate | None = None
    #: Of that part, headers counted; None where hosts may be that part.
    bandwidth_bits_per_second: Estimate | None = None
    #: 1 / G.
    goodput_bits_per_second: Estimate | None = None
    #: Of a token bucket, headers counted: what of a train it lets by at once.
    bucket_bytes: Estimate | None = None


def fit_loggp(
    size_bytes: ArrayLike,
    messages: ArrayLike,
    spacing_ns: ArrayLike,
    train_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    reply_mode: ReplyMode,
    send_ns: ArrayLike | None = None,
    receive_ns: ArrayLike | None = None,
    packets: Packets | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> LogGP:
    """Fit the LogGP model by Netgauge's differences [1]_.

    PRTT(n, d, s) is the time from the first of `n` messages of `s` bytes, one sent
    every `d` (0: back to back), to the last reply. In the model

        PRTT(1, 0, s) = 2 (L + o_s + o_r) + (s - 1) G + (r - 1) G    for replies of r
        (PRTT(n, 0, s) - PRTT(1, 0, s)) / (n - 1) = g + (s - 1) G
        (PRTT(n, d, s) - PRTT(1, 0, s)) / (n - 1) = max(d, g + (s - 1) G)

    G is the slope of the second line over long messages, by Theil and Sen, and g what
    it leaves of the smallest message's gap. Messages that a token bucket lets by are
    closer than their bytes allow; then G is that of the sizes which each exceed the
    bucket, if there are some. The overheads are calls that were timed: Netgauge takes
    o from PRTT(n, d, s) where `d` begins when a send returns, which these do not.
    Figures are of 10th percentiles, and intervals of a bootstrap of whole rounds, as
    of `fit_round_trips`; those of L and g hold what one size leaves open.

    Parameters
    ----------
    size_bytes, messages, spacing_ns, train_ns, round_index : array_like, shape (n,)
        One entry for each train, all of whose replies came: bytes of each message,
        their number (1: a single message), the time from one send to the next, its
        PRTT and its round. Of trains the longest are used.
    reply_mode : 'echo' or int
        Whether each reply is as long as its message, or has so many bytes.
    send_ns, receive_ns : array_like, shape (n,), optional
        Of single messages, how long the send call took, and the receive call of a
        reply that was there. NaN where it is not known.
    packets : Packets, optional
        How the messages are cut. Without it bandwidth is that of payload.

    References
    ----------
    .. [1] Hoefler, Lichei, Rehm (2007). Low-overhead LogGP parameter assessment
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
    >>> found.missing["send_overhead_ns"]
    'no send call was timed'
    """
    columns = {
        "size_bytes": column_of("size_bytes", size_bytes),
        "messages": column_of("messages", messages),
        "spacing_ns": column_of("spacing_ns", spacing_ns),
        "train_ns": column_of("train_ns", train_ns),
        "round_index": column_of("round_index", round_index),
    }
    _check(columns)
    check_options(reply_mode, confidence, resamples)
    calls = {
        name: _call_times(name, values, columns["size_bytes"].size)
        for name, values in (("send_ns", send_ns), ("receive_ns", receive_ns))
    }
    trains = _Trains(columns, calls, packets or Packets(), resamples, seed)
    return _fit(trains, reply_mode, confidence)


@dataclass(frozen=True)
class _Gaps:
    """Low delays of the sizes of which there are singles and trains enough."""

    size_bytes: Floats  # shape (k,), ascending
    single_ns: Floats  # draws, shape (1 + b, k): the first row is the estimate
    train_ns: Floats
    gap_ns: Floats
    of_a_size: float  # trains or singles, the fewer

    def noise_ns(self) -> Floats:
        """Return the standard error of each gap."""
        return np.asarray(self.gap_ns[1:].std(axis=0))


@dataclass(frozen=True)
class _Trains:
    columns: dict[str, Floats]
    calls: dict[str, Floats | None]
    packets: Packets
    resamples: int
    seed: int
    step_ns: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "step_ns", clock_step(self.columns["train_ns"]))

    @property
    def single(self) -> Bools:
        return np.asarray(self.columns["messages"] == 1)

    @property
    def longest(self) -> int:
        """Messages of the longest trains; 0 where there are none."""
        count = self.columns["messages"]
        return int(count[count > 1].max(initial=0))

    def back_to_back(self) -> Bools:
        spacing = self.columns["spacing_ns"]
        return np.asarray((self.columns["messages"] == self.longest) & (spacing == 0))

    def spaced(self) -> tuple[Bools, float]:
        """Return which trains have the widest spacing, and that; 0 of none."""
        spacing = self.columns["spacing_ns"]
        of = self.columns["messages"] == self.longest
        widest = float(spacing[of].max(initial=0.0))
        return of & (spacing == widest) & (widest > 0), widest

    def low(
        self, chosen: Bools, of: Floats | None = None, stream: int = 0
    ) -> tuple[LowDelays, Floats]:
        """Return the low times of these by size, and their draws, the clock's in them.

        Rounds weigh alike in all, so that what hit a whole round cancels in the
        difference; what the clock's step leaves open does not: `stream` parts it.
        """
        times = self.columns["train_ns"] if of is None else of
        low = low_delays(
            self.columns["size_bytes"][chosen],
            times[chosen],
            self.columns["round_index"][chosen],
            fewest=FEWEST_ROUND_TRIPS,
            resamples=self.resamples,
            seed=self.seed,
            step_ns=0.0,
        )
        draws = low.draws_ns
        if self.step_ns:
            rng = np.random.default_rng([self.seed, stream])
            draws[1:] += within_step(rng, low.delay_ns, self.step_ns, self.resamples)
        return low, draws

    def gaps(self) -> _Gaps:
        """Return what singles and trains without spacing have in common."""
        single, single_ns = self.low(self.single, stream=1)
        train, train_ns = self.low(self.back_to_back(), stream=2)
        sizes, i, j = np.intersect1d(
            single.size_bytes, train.size_bytes, return_indices=True
        )
        single_ns, train_ns = single_ns[:, i], train_ns[:, j]
        each = [low.count / max(1, low.size_bytes.size) for low in (single, train)]
        gap_ns = (train_ns - single_ns) / max(1, self.longest - 1)
        return _Gaps(sizes, single_ns, train_ns, gap_ns, min(each))

    def call(self, name: str) -> tuple[Floats, Floats] | None:
        """Return the sizes whose calls were timed, and draws of their low times."""
        times = self.calls[name]
        if times is None:
            return None
        low, draws = self.low(self.single & ~np.isnan(times), times, stream=3)
        return (low.size_bytes, draws) if low.size_bytes.size else None

    def call_of(self, name: str, size: float) -> Floats | None:
        """Return draws of the low time of calls of one size, where they were timed."""
        sizes, draws = self.call(name) or (np.empty(0), np.empty((0, 0)))
        (at,) = np.flatnonzero(sizes == size)[:1].tolist() or (None,)
        return None if at is None else draws[:, at]


def _fit(trains: _Trains, reply_mode: ReplyMode, confidence: float) -> LogGP:
    gaps = trains.gaps()
    freedom = 2 * LOW * gaps.of_a_size
    scale = Scale(
        trains.columns["size_bytes"].size, confidence, 1, 1.0, (freedom, freedom)
    )
    _, spacing_ns = trains.spaced()
    found = LogGP(
        model="none",
        reason="",
        missing={},
        messages=trains.longest,
        spacing_ns=spacing_ns,
        rounds=int(np.unique(trains.columns["round_index"]).size),
        n=scale.n,
        left_out={},
        confidence=confidence,
        sizes=tuple(_times(trains, gaps, scale)),
    )
    if gaps.size_bytes.size < FEWEST_SIZES:
        return _without(
            found,
            ("latency_ns", *_OF_CALLS, *_OF_BYTES),
            f"it needs {FEWEST_SIZES} sizes with {FEWEST_ROUND_TRIPS} single messages"
            f" and as many trains each, got {gaps.size_bytes.size}: more rounds, or a"
            " longer --duration",
        )
    found, paid = _with_bytes(found, trains, gaps, scale)
    return _with_latency(found, trains, gaps, scale, paid, reply_mode)


def _times(trains: _Trains, gaps: _Gaps, scale: Scale) -> Iterator[TrainTimes]:
    """Return the times of each size, with the intervals that draws of rounds give."""
    chosen, spacing = trains.spaced()
    low, draws = trains.low(chosen, stream=4)
    spaced = dict(zip(low.size_bytes, draws.T, strict=True)) if spacing else {}
    sizes, calls = trains.call("send_ns") or (np.empty(0), np.empty((0, 0)))
    sends = dict(zip(sizes, calls.T, strict=True))

    def slope_of(draws: Floats | None) -> Estimate | None:
        return None if draws is None else scale.slope(draws)

    for k, size in enumerate(gaps.size_bytes):
        yield TrainTimes(
            size_bytes=int(size),
            single_ns=scale.slope(gaps.single_ns[:, k]),
            train_ns=scale.slope(gaps.train_ns[:, k]),
            gap_ns=scale.slope(gaps.gap_ns[:, k]),
            spaced_ns=slope_of(spaced.get(size)),
            send_ns=slope_of(sends.get(size)),
        )


def _with_bytes(
    found: LogGP, trains: _Trains, gaps: _Gaps, scale: Scale
) -> tuple[LogGP, Floats | None]:
    """Return G, and by it g or the bucket; and draws of G, of payload, of a line."""
    long = _long(gaps.size_bytes)
    wire = trains.packets.wire_bytes(gaps.size_bytes)
    slopes, starts = weighted_theil_sen(wire[long], gaps.gap_ns[:, long])
    paid = slopes / trains.packets.payload_share
    early = _early(trains, gaps, float(slopes[0]))
    if early is not None:
        return _with_bucket(found, trains, gaps, scale, early), None
    reason = f"gaps grow in step with the bytes from {_bytes(gaps, long)} on"
    if slopes[0] < HOST_NS_PER_BYTE:
        # what hosts do with a byte differs from size to size
        pieces = np.diff(gaps.gap_ns[0, long]) / np.diff(wire[long])
        scale_of_bytes = replace(scale, slope_reach=tuple(pieces.tolist()))
        reason = "the hosts' work is all that a message waits for"
    else:
        scale_of_bytes = scale
        left = gaps.gap_ns[0, long] - slopes[0] * wire[long] - starts[0]
        if why := _refused(gaps, long, left, scale.slope(paid)):
            return _without(found, _OF_BYTES, why), None
    line = replace(
        _with_rate(found, trains, scale_of_bytes, slopes),
        model="line",
        reason=reason,
        gap_ns=scale.slope(gaps.gap_ns[:, 0] - (gaps.size_bytes[0] - 1) * paid),
    )
    return line, paid


def _with_rate(found: LogGP, trains: _Trains, scale: Scale, slopes: Floats) -> LogGP:
    """Return G, and the rate that it is."""
    share = trains.packets.payload_share
    per_byte, paid = scale.slope(slopes), scale.slope(slopes / share)
    if per_byte.value < HOST_NS_PER_BYTE:
        missing = {"bandwidth_bits_per_second": hosts_hide(per_byte.value)}
        return replace(found, gap_per_byte_ns=paid, missing=found.missing | missing)
    return replace(
        found,
        gap_per_byte_ns=paid,
        bandwidth_bits_per_second=rate_of(per_byte),
        goodput_bits_per_second=rate_of(paid),
    )


def _long(sizes: Floats) -> Bools:
    """Return which sizes give G: those near the largest, three of them or more."""
    long = np.asarray(sizes > _LONG * sizes[-1])
    long[-FEWEST_BESIDE:] = True
    return long


def _bytes(gaps: _Gaps, chosen: Bools) -> str:
    return f"{gaps.size_bytes[chosen].min():.0f} B"


def _refused(gaps: _Gaps, long: Bools, left: Floats, slope: Estimate) -> str | None:
    """Say what speaks against the line of long messages; None where nothing does."""
    much = np.maximum(_ALIKE * gaps.gap_ns[0, long], _NOISE * gaps.noise_ns()[long])
    ns = f"{slope.value:.3g} ns a byte [{slope.low:.3g}, {slope.high:.3g}]"
    if (np.abs(left) > much).any():
        worst = int(np.argmax(np.abs(left)))
        return (
            "gaps are no line of the size: that of messages of"
            f" {gaps.size_bytes[long][worst]:.0f} bytes is {left[worst] / 1e3:+.3g} us"
            " off it"
        )
    if slope.low <= 0:
        return f"gaps do not grow measurably with size: {ns}"
    if slope.high - slope.value > _UNCERTAIN * slope.value:
        return f"G is uncertain by over {_UNCERTAIN:.0%}: {ns}; send more rounds"
    return None


def _early(trains: _Trains, gaps: _Gaps, slope: float) -> Bools | None:
    """Return of which sizes messages follow sooner than their bytes can; None of none.

    By the slope of the longest, in packets as full as they may be: TCP may put the
    messages of a train together.
    """
    least = gaps.size_bytes / trains.packets.payload_share * slope
    short = least - gaps.gap_ns[0]
    early = (short > _BY_AT_ONCE * least) & (short > _NOISE * gaps.noise_ns())
    return early if slope >= HOST_NS_PER_BYTE and early.any() else None


def _with_bucket(
    found: LogGP, trains: _Trains, gaps: _Gaps, scale: Scale, early: Bools
) -> LogGP:
    """Return a token bucket: G of the sizes beyond it, and how much it lets by."""
    largest = gaps.size_bytes[early].max()
    by = "a token bucket lets the first bytes of a train by: messages up to"
    by += f" {largest:.0f} bytes follow sooner than their bytes can"
    found = replace(_without(found, ("gap_ns",), by), model="bucket", reason=by)
    wire = trains.packets.wire_bytes(gaps.size_bytes)
    beyond = _beyond(wire, gaps)
    if beyond is None:
        why = f"{by}, and no two sizes are beyond it: send some that are larger"
        return _without(replace(found, reason=why), ("gap_per_byte_ns",), why)
    slopes = np.asarray((gaps.gap_ns / wire)[:, beyond].mean(axis=1))
    rated = replace(
        _with_rate(found, trains, scale, slopes),
        reason=f"{by}; G is of those from {_bytes(gaps, beyond)} on",
    )
    return replace(
        rated, bucket_bytes=_bucket(trains, gaps, scale, slopes, early & ~beyond)
    )


def _beyond(wire: Floats, gaps: _Gaps) -> Bools | None:
    """Return which of the largest sizes exceed the bucket each by itself; None: none.

    Their gaps are in proportion to their bytes, and single messages wait, too.
    """
    pace, single = gaps.gap_ns[0] / wire, gaps.single_ns[0]
    beyond = np.zeros(wire.size, bool)
    for k in range(wire.size - 1, 0, -1):
        alone = (single[k] - single[k - 1]) / (wire[k] - wire[k - 1])
        alike = abs(pace[k - 1] - pace[-1]) <= _ALIKE * pace[-1]
        if not alike or alone < _WAITS_ALONE * pace[-1]:
            break
        beyond[k - 1 : k + 1] = True
    return beyond if beyond.any() else None


def _bucket(
    trains: _Trains, gaps: _Gaps, scale: Scale, slopes: Floats, chosen: Bools
) -> Estimate | None:
    """Return what a bucket let by of trains whose single messages it lets by whole."""
    n = trains.longest
    wire = trains.packets.wire_bytes(gaps.size_bytes)
    let_by = n * wire - (n - 1) * gaps.gap_ns / slopes[:, np.newaxis]
    waited = gaps.gap_ns[0] > _WAITS_ALONE * wire * slopes[0]
    chosen = chosen & waited & (wire < let_by[0])
    if not chosen.any():
        return None
    return scale.slope(np.median(let_by[:, chosen], axis=1))


def _with_latency(
    found: LogGP,
    trains: _Trains,
    gaps: _Gaps,
    scale: Scale,
    paid: Floats | None,
    reply_mode: ReplyMode,
) -> LogGP:
    """Return o and L, of the smallest message."""
    missing = dict(found.missing)
    half = gaps.single_ns[:, 0] / 2
    if paid is not None:
        sent = float(gaps.size_bytes[0])
        replied = sent if reply_mode == "echo" else reply_mode
        half = half - paid * (sent - 1 + replied - 1) / 2
    overheads: list[Estimate | None] = []
    step, reasons = 0.5 * trains.step_ns, []
    for name, call in (("o_s", "send"), ("o_r", "receive")):
        draws = trains.call_of(f"{call}_ns", gaps.size_bytes[0])
        if draws is None:
            missing[f"{call}_overhead_ns"] = f"no {call} call was timed"
            reasons.append(f"{name} is in it, which nothing tells")
            overheads.append(None)
            continue
        half = half - draws
        over = scale.slope(draws)
        overheads.append(replace(over, high=over.high + step))
    if reply_mode != "echo" and reply_mode > gaps.size_bytes[0] and found.gap_ns:
        missing["gap_ns"] = "the bytes of longer replies are in it"
    if found.model == "none":
        reasons.append("the time of the bytes is in it, since G is not told")
    latency: Estimate | None = scale.slope(half)
    if latency and latency.high < 0:
        latency, reasons = None, [_LONGER]
    if reasons:
        missing["latency_ns"] = "; ".join(reasons)
    return replace(
        found,
        missing=missing,
        latency_ns=latency and replace(latency, high=latency.high + step / 2),
        send_overhead_ns=overheads[0],
        receive_overhead_ns=overheads[1],
    )


_LONGER = (
    "the calls take longer than the way there and back: the other end's work is in"
    " them, as where both share a CPU"
)


def _without(found: LogGP, names: tuple[str, ...], reason: str) -> LogGP:
    missing = dict.fromkeys(names, reason)
    return replace(
        found, reason=found.reason or reason, missing=found.missing | missing
    )


def _call_times(name: str, values: ArrayLike | None, size: int) -> Floats | None:
    if values is None:
        return None
    times = np.asarray(values, np.float64)
    if times.shape != (size,):
        raise ValueError(f"{name} must have shape ({size},), got {times.shape}")
    if (times < 0).any() or np.isinf(times).any():
        wrong = times[(times < 0) | np.isinf(times)][0]
        raise ValueError(f"{name} must be 0 or more and finite, got {wrong:.0f}")
    return times


def _check(columns: dict[str, Floats]) -> None:
    lengths = {column.size for column in columns.values()}
    if len(lengths) > 1:
        names = ", ".join(columns)
        raise ValueError(f"{names} must have equal length, got {sorted(lengths)}")
    for name, least in (
        ("size_bytes", 1),
        ("messages", 1),
        ("spacing_ns", 0),
        ("train_ns", 1),
        ("round_index", 0),
    ):
        column = columns[name]
        if (column < least).any():
            raise ValueError(f"{name} must be {least} or more, got {column.min():.0f}")
