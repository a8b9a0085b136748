"""LogGP parameters from trains of messages: no factor 2, since the reply cancels.

A train's messages leave one behind the other, so the link's time for each shows in
the difference to a single message; what a reply adds is the same for both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fits.crossing import Crossing
from latprof_analysis.fits.fit import FEWEST_ROUND_TRIPS, FEWEST_SIZES
from latprof_analysis.fits.fit_input import check_options, column_of
from latprof_analysis.fits.fit_result import ReplyMode
from latprof_analysis.fits.rounds import Floats, LowDelays, low_delays
from latprof_analysis.fits.scale import Scale
from latprof_analysis.fits.train_result import LogGP
from latprof_analysis.fits.verdict import fit_line, verdict
from latprof_analysis.wire import Packets

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
