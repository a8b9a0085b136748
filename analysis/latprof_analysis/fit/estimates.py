"""What a fit says, with its uncertainty: of round trips, and of trains.

What the fits are given is checked here, each with one plain sentence; draws of slopes
and intercepts become estimates in the units of a `Fit`; what a line leaves of the
delays is reported. Student's and chi-square's tails are reckoned without scipy, whose
import takes 20 MB: the agent fits lines all the time, and is to stay small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.fit.rounds import Floats, LowDelays
from latprof_analysis.stats import Result, beta
from latprof_analysis.stats.quantiles import normal_quantile
from latprof_analysis.text import NS_PER_SECOND, rate, rate_span

Model = Literal["line", "hinge", "none"]
# A full echo, or replies of so many bytes, which may be 0.
ReplyMode = Literal["echo"] | int
# With fewer degrees the expansion is off by more than 0.01% at 97.5%.
_FEWEST_EXPANDED = 5.0
_FEWEST_SIGNS = 10  # in both kinds: below, the normal law of runs is rough


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval and the round trips behind it."""

    value: float
    low: float
    high: float
    n: int


def rate_of(slope_ns: Estimate, share: float = 1.0) -> Estimate | None:
    """Return a share of the bit/s at which a byte takes so many ns.

    None where it may take none, since the rate may then be anything.
    """
    if not slope_ns.low > 0:  # or is no number
        return None
    bits = share * 8 * NS_PER_SECOND
    low, high = bits / slope_ns.high, bits / slope_ns.low
    return Estimate(bits / slope_ns.value, low, high, slope_ns.n)


@dataclass(frozen=True)
class RateRange:
    """Between which rates the link's own lies, in bit/s, and why no closer.

    Those of the bandwidth's interval, widened by what else may be in the slope.
    """

    low: float
    # None where all of the slope may be the hosts', or where what packets take beyond
    # their bytes is not separated since nobody knows how messages are cut.
    high: float | None
    reason: str = ""  # empty where that is all of it


@dataclass(frozen=True)
class Segment:
    """The line on one side of a hinge's knot.

    Its bandwidth is ``factor / slope`` and no more: which of the two sides shows the
    link, if one does, and whether the factor holds there, the delays do not show.
    """

    slope_ns_per_byte: Estimate
    bandwidth_bits_per_second: Estimate | None
    intercept_seconds: Estimate


@dataclass(frozen=True)
class Hinge:
    """Two lines that meet at messages of `knot_bytes`.

    Intervals take as known which sizes lie on which side; the knot's is bounded by
    the two sizes around it.
    """

    knot_bytes: Estimate
    below: Segment
    above: Segment

    @property
    def sentence(self) -> str:
        """At which rates the bytes below and above cross, with their intervals."""
        knot = f"{self.knot_bytes.value:.0f} bytes"
        return (
            f"up to {knot} {_pace(self.below)}, what is above {_pace(self.above)};"
            " which of the two is the link's the delays do not tell"
        )


@dataclass(frozen=True)
class Bends:
    """A continuous line of several straight pieces through the low delays.

    None of the slopes is the link's until something that needs no model (dispersion,
    stages) says so.
    """

    # Where they meet, in bytes of the message, ascending; between two sizes sent.
    knots_bytes: tuple[float, ...]
    # Of each piece, one more than knots: of the round trip time per byte of payload,
    # no factor applied.
    slopes_ns_per_byte: tuple[float, ...]
    delta_bic: float  # BIC of the straight line less BIC of these pieces


@dataclass(frozen=True)
class PacketCost:
    """What a packet takes beyond the bytes of it and its headers."""

    reason: str  # what was found, or why nothing is known
    per_packet_ns: Estimate | None = None  # for one packet and one crossing
    # At which the bytes alone cross; equal to the line's where packets take nothing.
    bandwidth_bits_per_second: Estimate | None = None


@dataclass(frozen=True)
class Residuals:
    """Residuals of each size, ascending, against the Theil-Sen line.

    References
    ----------
    .. [1] Wald and Wolfowitz (1940). On a test whether two samples are from the
       same population. Annals of Mathematical Statistics 11, 147-162.
    .. [2] Draper and Smith (1998). Applied Regression Analysis, 3rd ed.: lack of fit.
    """

    size_bytes: tuple[int, ...]
    p10_ns: tuple[float, ...]  # low delay less the line that was drawn through it
    median_ns: tuple[float, ...]  # median delay less the line: of a typical message
    largest_share: float  # largest absolute value of `p10_ns` as share of the line
    largest_at_bytes: int  # its size
    runs: int  # of sizes on one side of the line: few where the delays bend
    # Probability of so few runs or fewer if the signs were in random order [1]_; None
    # with fewer than 10 sizes.
    runs_p: float | None
    # Probability of residuals so large or larger if they came from the spread between
    # rounds alone: chi-square of residual over standard error [2]_. Of a real link it
    # is often small, since hosts bend every line a little; what counts is
    # `largest_share`. None where there is no spread.
    lack_of_fit_p: float | None


@dataclass(frozen=True)
class Fit(Result):
    """What the round trip times say of the link.

    Intervals hold what the draws of whole rounds leave open, what the steps of a
    coarse clock do, and what a part of the sizes says else than all of them.
    """

    #: 'line', 'hinge' or 'none': what describes the delays. Only a line gives a
    #: bandwidth.
    model: Model
    #: Why this model.
    reason: str
    #: What a reader of the figures should know.
    caveats: tuple[str, ...]
    #: As given: a full echo, or replies of so many bytes.
    reply_mode: ReplyMode
    #: How often a byte of the message crosses the link in the round trip, and so by how
    #: much the slope exceeds that of one crossing: 2 for a full echo that is sent after
    #: the whole request, 1 for a reply of fixed size. The bandwidth is
    #: ``factor / slope``. It does not hold where the directions overlap (an echo of
    #: bytes as they come, token buckets that refill while the other direction sends):
    #: there a full echo too has the slope of one crossing.
    factor: int
    #: What the fit rests on: message sizes, rounds, round trips.
    sizes: int
    rounds: int
    n: int
    confidence: float
    #: Wire rate, headers counted; that of hosts and link together. For a full echo over
    #: unequal directions the harmonic mean of both.
    bandwidth_bits_per_second: Estimate | None = None
    #: Where `bandwidth_bits_per_second` holds more than the link, or misses some of it,
    #: the link's own rate is between these. With both ends only where `packets_told`;
    #: else the link carries `low` or more.
    link_rate_range: RateRange | None = None
    #: What it carries of long messages' payload.
    goodput_bits_per_second: Estimate | None = None
    #: Bandwidth-independent delay of the whole round trip: both directions and both
    #: hosts, at the 10th percentile. Not halved, since nothing here shows how it
    #: divides. Takes a short reply's own bytes to cross at the same rate as the
    #: request's. Of a clock that counts in steps the interval reaches half a step
    #: further up, since it may have cut delays down.
    fixed_delay_seconds: Estimate | None = None
    #: Slope of the round trip time per byte of payload, headers included and no factor
    #: applied.
    slope_ns_per_byte: Estimate | None = None
    #: Share of the variance of the delays per size that the line leaves.
    unexplained_share: float | None = None
    #: How much better a hinge describes them; None if there were too few sizes.
    delta_bic: float | None = None
    #: The two lines, where ``model`` is 'hinge'; in JSON with their ``sentence``.
    hinge: Hinge | None = None
    #: One to three bends, where a hinge is better than a line by BIC, be they too small
    #: to refuse a line or not.
    bends: Bends | None = None
    #: What packets take beyond their bytes, by a fit of its own; where that is much,
    #: the line's bandwidth is lower than the link's.
    packet_cost: PacketCost | None = None
    #: What the line leaves of each size's delays; given for a refused line too.
    residuals: Residuals | None = None
    #: Share of the slope that may be the hosts' own work on each byte: the link's own
    #: rate may be higher by as much. Of datagrams it is measured. Of transit, which has
    #: none of that work, it is what the stamps may be off.
    host_share: float | None = None
    #: Headers and what a packet takes are not in the bandwidth: how messages are cut
    #: was given, or all of them go in one packet on any path (up to 1208 bytes). Links
    #: that each take a packet whole before they send it on add up, known or not.
    packets_told: bool = True
    #: The slope is so small that the hosts' own work is over a tenth of it: there is
    #: then no bandwidth.
    host_limited: bool | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON, and of a hinge its sentence."""
        fields = super().as_dict()
        if self.hinge:
            fields["hinge"]["sentence"] = self.hinge.sentence
        return fields


@dataclass(frozen=True)
class Scale:
    """What turns draws into estimates; the first of the draws is the estimate.

    The interval is Student's, of the draws' standard deviation: their percentiles
    are skewed as the sample's few lowest values happen to lie. `freedom` is of how
    many degrees that standard deviation is known. A clock that counts in steps of
    `step_ns` may write down the step before: the truth is then half a step later.
    Intervals of slope and intercept reach to what parts of the data say of them, as
    drawn.
    """

    n: int
    confidence: float
    factor: int
    payload_share: float
    freedom: tuple[float, float] = (math.inf, math.inf)
    step_ns: float = 0.0
    slope_reach: tuple[float, ...] = ()
    intercept_reach_ns: tuple[float, ...] = ()

    def slope(self, slopes: Floats, unit: float = 1.0) -> Estimate:
        """Return ns per byte, as drawn."""
        return self.estimate(slopes, unit, self.freedom[0], self.slope_reach)

    def per_payload_byte(self, slopes: Floats) -> Estimate:
        """Return ns per byte of payload, no factor applied."""
        return self.slope(slopes, self.factor / self.payload_share)

    def intercept_seconds(self, intercepts_ns: Floats) -> Estimate:
        """Return seconds of intercepts in ns."""
        reach, unit = self.intercept_reach_ns, 1 / NS_PER_SECOND
        found = self.estimate(intercepts_ns, unit, self.freedom[1], reach)
        return replace(found, high=found.high + self.step_ns / 2 / NS_PER_SECOND)

    def bandwidth(self, slopes: Floats, share: float = 1.0) -> Estimate | None:
        """Return the rate behind slopes; None if it may be anything."""
        return rate_of(self.slope(slopes), share)

    def estimate(
        self,
        draws: Floats,
        unit: float = 1.0,
        freedom: float = math.inf,
        reach: tuple[float, ...] = (),
    ) -> Estimate:
        """Return the first draw with Student's interval, in another unit."""
        value = float(draws[0])
        times = student_quantile(freedom, (1 + self.confidence) / 2)
        half = times * float(draws[1:].std())
        ends = [unit * end for end in (value - half, value + half, *reach)]
        return Estimate(value * unit, min(ends), max(ends), self.n)

    def between(self, draws: Floats) -> Estimate:
        """Return the first draw with the others' percentiles, for what has bounds."""
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(draws[1:], [tail, 1 - tail])
        value = float(draws[0])
        return Estimate(value, min(float(low), value), max(float(high), value), self.n)


def column_of(name: str, values: ArrayLike) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {column.shape}")
    if not np.isfinite(column).all():
        wrong = column[~np.isfinite(column)][0]
        raise ValueError(f"{name} must be finite, got {wrong}")
    return column


def checked_rows(
    size_bytes: ArrayLike,
    delay_ns: ArrayLike,
    round_index: ArrayLike,
    name: str = "rtt_ns",
) -> tuple[Floats, Floats, Floats]:
    """Check rows whose delays are called `name`; a round trip is never 0."""
    sizes = column_of("size_bytes", size_bytes)
    delays = column_of(name, delay_ns)
    rounds = column_of("round_index", round_index)
    if not sizes.size == delays.size == rounds.size:
        raise ValueError(
            f"size_bytes, {name} and round_index must have equal length, "
            f"got {sizes.size}, {delays.size} and {rounds.size}"
        )
    if (sizes <= 0).any():
        raise ValueError(f"size_bytes must be more than 0, got {sizes.min():.0f}")
    if name == "rtt_ns" and (delays <= 0).any():
        raise ValueError(f"rtt_ns must be more than 0, got {delays.min():.0f}")
    for each, column in ((name, delays), ("round_index", rounds)):
        if (column < 0).any():
            raise ValueError(f"{each} must be 0 or more, got {column.min():.0f}")
    return sizes, delays, rounds


def check_options(reply_mode: ReplyMode, confidence: float, resamples: int) -> None:
    if reply_mode != "echo" and (isinstance(reply_mode, str) or reply_mode < 0):
        raise ValueError(
            f"reply_mode must be 'echo' or a number of bytes, got {reply_mode!r}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if resamples < 100:
        raise ValueError(f"resamples must be 100 or more, got {resamples}")


def residuals_of(low: LowDelays, line_ns: Floats) -> Residuals:
    """Return what a line, given as its delay at each size, leaves of the delays."""
    left = low.delay_ns - line_ns
    share = np.abs(left) / np.maximum(np.abs(line_ns), 1.0)
    largest = int(np.argmax(share))
    runs, runs_p = runs_test(left)
    lack, noise_ns = None, low.noise_ns
    if (noise_ns > 0).all():
        squares = float(np.sum((left / noise_ns) ** 2))
        lack = chi_square_tail(left.size - 2, squares)
    return Residuals(
        size_bytes=tuple(int(size) for size in low.size_bytes),
        p10_ns=tuple(left.tolist()),
        median_ns=tuple((low.median_ns - line_ns).tolist()),
        largest_share=float(share[largest]),
        largest_at_bytes=int(low.size_bytes[largest]),
        runs=runs,
        runs_p=runs_p,
        lack_of_fit_p=lack,
    )


def runs_test(left: Floats) -> tuple[int, float | None]:
    """Count runs of signs, and say how probable so few are."""
    above = left[left != 0] > 0
    runs = int(np.count_nonzero(above[1:] != above[:-1])) + 1 if above.size else 0
    n, plus = above.size, int(above.sum())
    minus = n - plus
    if n < _FEWEST_SIGNS or min(plus, minus) == 0:
        return runs, None
    mean = 1 + 2 * plus * minus / n
    variance = (mean - 1) * (mean - 2) / (n - 1)
    z = (runs + 0.5 - mean) / math.sqrt(variance)
    return runs, math.erfc(-z / math.sqrt(2)) / 2


def student_quantile(freedom: float, probability: float) -> float:
    """Return Student's quantile, by Cornish and Fisher's expansion [1]_.

    Within 0.01% of the exact one at 0.975, 0.08% at 0.995.

    References
    ----------
    .. [1] Abramowitz and Stegun (1964). Handbook of Mathematical Functions, 26.7.5.
    """
    if freedom < _FEWEST_EXPANDED:
        return beta.student_quantile(freedom, probability)
    z = normal_quantile(probability)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**k for k, term in enumerate(terms, 1))


def chi_square_tail(freedom: int, value: float) -> float:
    """Return the probability of more than `value`, exactly [1]_.

    References
    ----------
    .. [1] Abramowitz and Stegun (1964), 26.4.4 and 26.4.5.
    """
    half = value / 2
    if half <= 0:
        return 1.0
    odd = freedom % 2
    tail = math.erfc(math.sqrt(half)) if odd else 0.0
    log_half = math.log(half)
    for k in range(freedom // 2):
        power = k + odd / 2
        tail += math.exp(power * log_half - half - math.lgamma(power + 1))
    return min(1.0, tail)


def _pace(side: Segment) -> str:
    """Say how fast the bytes of a side cross."""
    found, slope = side.bandwidth_bits_per_second, side.slope_ns_per_byte
    if found:
        return f"at {rate(found.value)} [{rate_span(found.low, found.high)}]"
    if slope.low <= 0:
        return "in no measurable time for a byte"
    return f"at {slope.value:.3g} ns a byte [{slope.low:.3g} to {slope.high:.3g}]"
