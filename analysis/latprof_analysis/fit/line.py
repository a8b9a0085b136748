"""The line D = a S + b of delays against message size: round trips, or one way.

What stands between a slope and a bandwidth, each with its own module: headers
(`wire`), queueing and bursts (`rounds`), outlying sizes and links that are no line at
all (`slopes`). What has no reply in it, a stage or a one-way delay, takes the same low
delays, line and verdict, and has no factor to get wrong.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.fit.caveats import (
    HOST_NS_PER_BYTE,
    host_share,
    hosts_hide,
    packet_cost,
    with_range,
)
from latprof_analysis.fit.estimates import (
    Bends,
    Estimate,
    Fit,
    Hinge,
    Model,
    ReplyMode,
    Scale,
    Segment,
    check_options,
    checked_rows,
    residuals_of,
)
from latprof_analysis.fit.rounds import CLOCK_NS, LOW, Floats, LowDelays, low_delays
from latprof_analysis.fit.slopes import (
    DELTA_BIC,
    FEWEST_BESIDE,
    HingeFit,
    fit_hinge,
    fit_hinges,
    fit_sides,
    weighted_theil_sen,
)
from latprof_analysis.fit.wire import Crossing, Packets
from latprof_analysis.text import duration

FEWEST_LONG = 4
_LONG = 0.125  # of the largest size
_DIFFERENCE = 0.005  # of the slope
_ERRORS = 2.576  # standard errors: 99% of a normal law
# Parts end at these shares of the largest message.
_PARTS = (0.25, 0.5, 0.75)
# They are looked at where so large residuals come from noise alone but this seldom.
_LACKS = 0.01
FEWEST_SIZES = 4
FEWEST_ROUND_TRIPS = 10  # of one size: the 10th percentile is then the minimum
_KNOT_SIZES = 4097
# Below it the 10th percentile is the minimum, which a bootstrap cannot follow.
_SAFE_ROUNDS = 20
# Of the delays' variance: what makes intervals wider by 5%.
_STEP_SHOWS = 0.1
NO_REPLY = 0  # as reply_mode of a Fit

# A hinge replaces the line if the data say so (BIC), and if it matters: the bend
# is over 0.5% of the delays' range, and long messages see another bandwidth than
# the line's. Hosts bend every line a little at its short end.
_BEND = 0.005
_SLOPE = 0.01
# A line without a bend is refused if it leaves over 1% of the delays' variance.
_UNEXPLAINED = 0.01
# Either must exceed what the spread between rounds explains by so much.
_NOISE_RATIO = 3.0
# An answer that may be wrong by so much is none.
_UNCERTAIN = 0.1
# Nor is a line that misses the delay of a size by so much: behind a token bucket the
# line of long messages has short ones arrive before they are sent.
_MISS = 0.03
_MISS_NOISE = 4.0


def fit_round_trips(
    size_bytes: ArrayLike,
    rtt_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    reply_mode: ReplyMode,
    packets: Packets | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> Fit:
    """Fit bandwidth and fixed delay to round trip times.

    The 10th percentile of each size is regressed on the bytes that cross the
    wire both ways, by Theil and Sen with pairs weighted by distance; intervals come
    from a bootstrap of whole rounds. A line that the delays contradict is refused:
    a hinge is better, long messages differ, or the slope is uncertain by a tenth.

    Parameters
    ----------
    size_bytes, rtt_ns, round_index : array_like, shape (n,)
        One entry for each round trip that was answered, without the warm-up: bytes
        of the request, its round trip time, and its round. Sizes must have been
        sent in random order within rounds, or a burst of noise that hits one size
        passes for the link's doing.
    reply_mode : 'echo' or int
        Whether the reply is as long as the request, or has so many bytes.
    packets : Packets, optional
        How the messages are cut. Without it the bandwidth is that of payload.
    confidence : float
        Of all intervals.
    resamples, seed : int
        Of the bootstrap.

    Examples
    --------
    A link of 100 Mbit/s and 1 ms each way, with up to 50 us of queueing:

    >>> rng, tcp = np.random.default_rng(7), Packets.tcp()
    >>> sizes = np.tile([64, 1000, 4000, 16000, 64000], 40)
    >>> rounds = np.repeat(np.arange(40), 5)
    >>> rtt_ns = 2e6 + 2 * 80 * tcp.wire_bytes(sizes) + rng.uniform(0, 5e4, 200)
    >>> fit = fit_round_trips(sizes, rtt_ns, rounds, reply_mode="echo", packets=tcp)
    >>> fit.model, fit.factor, round(fit.bandwidth_bits_per_second.value / 1e6)
    ('line', 2, 100)
    >>> round(1e3 * fit.fixed_delay_seconds.value, 2)
    2.0
    """
    check_options(reply_mode, confidence, resamples)
    rows = checked_rows(size_bytes, rtt_ns, round_index)
    return _fit(rows, reply_mode, packets, confidence, resamples, seed)


def fit_one_way(
    size_bytes: ArrayLike,
    delay_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    packets: Packets | None = None,
    confidence: float = 0.95,
    resamples: int = 1000,
    seed: int = 1,
) -> Fit:
    """Fit a line to delays of one direction.

    Parameters
    ----------
    size_bytes, delay_ns, round_index : array_like, shape (n,)
        One entry for each message. The delay may be 0.
    packets, confidence, resamples, seed
        As of `fit_round_trips`.

    Returns
    -------
    Fit
        With ``reply_mode`` 0 and ``factor`` 1; ``fixed_delay_seconds`` is that of
        the one way.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(7)
    >>> sizes = np.tile([64, 1000, 4000, 16000, 64000], 40)
    >>> rounds = np.repeat(np.arange(40), 5)
    >>> fit = fit_one_way(sizes, 1e6 + 80 * sizes + rng.uniform(0, 5e4, 200), rounds)
    >>> fit.model, fit.factor, round(fit.bandwidth_bits_per_second.value / 1e6)
    ('line', 1, 100)
    """
    check_options("echo", confidence, resamples)
    rows = checked_rows(size_bytes, delay_ns, round_index, name="delay_ns")
    return _fit(rows, None, packets, confidence, resamples, seed)


def _fit(
    rows: tuple[Floats, Floats, Floats],
    reply_mode: ReplyMode | None,
    packets: Packets | None,
    confidence: float,
    resamples: int,
    seed: int,
) -> Fit:
    """Fit delays of round trips, or without a reply mode of one direction."""
    low = low_delays(*rows, fewest=FEWEST_ROUND_TRIPS, resamples=resamples, seed=seed)
    sizes, cut = low.size_bytes.size, packets or Packets()
    each = "messages" if reply_mode is None else "round trips"
    unfitted = Fit(
        model="none",
        reason=f"a line needs {FEWEST_SIZES} sizes with {FEWEST_ROUND_TRIPS} {each}"
        f" each, got {sizes}",
        caveats=_caveats(low),
        reply_mode=NO_REPLY if reply_mode is None else reply_mode,
        factor=2 if reply_mode == "echo" else 1,
        sizes=sizes,
        rounds=low.rounds,
        n=low.count,
        confidence=confidence,
    )
    if sizes < FEWEST_SIZES:
        return unfitted
    if reply_mode is None:
        crossing = Crossing.one_way(low.size_bytes, cut)
    else:
        crossing = Crossing.round_trip(low.size_bytes, cut, reply_mode)
    return fit_low_delays(crossing, low, unfitted)


def fit_low_delays(crossing: Crossing, low: LowDelays, unfitted: Fit) -> Fit:
    """Fit low delays to the bytes that crossed the wire, and judge the line."""
    wire_bytes, packets = crossing.wire_bytes, crossing.cut
    line = fit_line(wire_bytes, low)
    scale = Scale(
        low.count,
        unfitted.confidence,
        unfitted.factor,
        packets.payload_share,
        line.freedom,
        low.step_ns,
    )
    host_limited = bool(line.slopes[0] < HOST_NS_PER_BYTE)
    against = None
    if not host_limited:
        against = line.missed or _too_early(unfitted, line, low)
        against = against or long_messages_differ(wire_bytes, low)
    line_ns = line.slopes[0] * wire_bytes + line.intercepts_ns[0]
    model, reason = verdict(line, low, scale.per_payload_byte(line.slopes), against)
    tested = replace(
        unfitted,
        model=model,
        reason=reason,
        unexplained_share=line.unexplained_share,
        delta_bic=line.hinge.delta_bic if line.hinge else None,
        bends=_bends(wire_bytes, low, line, scale),
        packet_cost=packet_cost(crossing, low, unfitted.confidence),
        packets_told=packets.say_packets(low.size_bytes),
        residuals=residuals_of(low, line_ns),
    )
    if model == "line":
        return _with_line(
            replace(tested, host_limited=host_limited), crossing, low, line, scale
        )
    if model == "hinge" and line.hinge:
        hinge = _hinge(wire_bytes, low, line.hinge, scale, packets)
        return replace(tested, hinge=hinge)
    return tested


@dataclass(frozen=True)
class Line:
    """Weighted Theil-Sen line; draws: the first from the data, the others resampled."""

    slopes: Floats  # ns per byte on the wire
    intercepts_ns: Floats
    freedom: tuple[float, float]  # degrees that the draws' spread is known by
    missed: str | None  # a size whose delay the line misses
    residual_ns: float  # root mean square
    unexplained_share: float
    hinge: HingeFit | None
    upper_slope: float | None  # of the hinge's side of long messages


def fit_line(x: Floats, low: LowDelays) -> Line:
    """Draw the line through the low delays, and the hinge to hold against it.

    The draws stand around the line, not around the delays: by a median, delays that
    lie off the line by their own noise would have draws too wide by 15% (98% cover
    where 95 were asked for). Of the intercept half of that is kept, since sizes with
    a narrow spread by chance would draw it too tight.
    """
    y = low.delay_ns
    (slope,), (intercept,) = weighted_theil_sen(x, y[np.newaxis])
    residual = y - slope * x - intercept
    slopes, _ = weighted_theil_sen(x, low.resampled_ns - residual)
    _, intercepts = weighted_theil_sen(x, low.resampled_ns - residual / 2)
    variance = float(np.mean((y - y.mean()) ** 2))
    square = float(np.mean(residual**2))
    hinge = fit_hinge(x, y, low.resolution_ns)
    upper_slope = None
    if hinge and x.size - hinge.split >= 2:
        upper_slope = float(fit_sides(x, y[np.newaxis], hinge.split)[1][0][0])
    return Line(
        slopes=np.append(slope, slopes),
        intercepts_ns=np.append(intercept, intercepts),
        freedom=_freedom(x, low),
        missed=_missed(low, residual),
        residual_ns=math.sqrt(square),
        unexplained_share=square / variance if variance > 0 else 0.0,
        hinge=hinge,
        upper_slope=upper_slope,
    )


def verdict(
    line: Line, low: LowDelays, slope: Estimate, against: str | None = None
) -> tuple[Model, str]:
    """Say which model the delays allow, and why.

    `slope` is in ns per payload byte; `against` is what else speaks against a line
    that would do otherwise.
    """
    noise_ns = math.sqrt(float(np.mean(low.noise_ns**2)))
    hinge = line.hinge
    if hinge and hinge.delta_bic > DELTA_BIC and _matters(hinge, line, low, noise_ns):
        bend = f"{hinge.bend:.1%} of their range (delta BIC {hinge.delta_bic:.0f})"
        beside = min(hinge.split, low.size_bytes.size - hinge.split)
        if beside >= FEWEST_BESIDE:
            return "hinge", f"the delays bend away from a line by {bend}"
        return "none", (
            f"the delays bend away from a line by {bend}, with {beside} sizes on"
            f" one side of the bend where {FEWEST_BESIDE} are needed"
        )

    left = f"{line.unexplained_share:.2%} of the delays' variance"
    refused = _refused(line, noise_ns, slope, left)
    if refused or against:
        return "none", refused or f"{against} (a line leaves {left})"
    return "line", f"a line leaves {left} over {low.size_bytes.size} sizes"


def _missed(low: LowDelays, residual: Floats) -> str | None:
    """Return the size whose delay the line misses most, if that is much."""
    share = np.abs(residual) / np.maximum(np.abs(low.delay_ns), CLOCK_NS)
    share[np.abs(residual) < _MISS_NOISE * low.noise_ns] = 0
    worst = int(np.argmax(share))
    if share[worst] < _MISS:
        return None
    return (
        f"a line misses the delay of messages of {low.size_bytes[worst]:.0f} bytes,"
        f" {low.delay_ns[worst] / 1e3:.4g} us, by {residual[worst] / -1e3:+.3g} us"
    )


def _freedom(x: Floats, low: LowDelays) -> tuple[float, float]:
    """Return the degrees of freedom of slope and intercept, by Satterthwaite [1]_.

    About twice as many values as lie below it give the spread of a low quantile;
    what a clock's step leaves open is known.

    References
    ----------
    .. [1] Satterthwaite (1946). An approximate distribution of estimates of
       variance components. Biometrics Bulletin 2, 110-114.
    """
    of_a_size = 2 * LOW * low.count / low.size_bytes.size
    from_mean = x - x.mean()
    slope = from_mean / (from_mean @ from_mean)
    intercept = 1 / x.size - x.mean() * slope
    found = []
    for weight in (slope, intercept):
        parts = (weight * low.noise_ns) ** 2
        known = parts - (weight * low.step_noise_ns) ** 2
        squares = float((np.maximum(known, 0) ** 2).sum())
        found.append(
            of_a_size * float(parts.sum()) ** 2 / squares if squares > 0 else math.inf
        )
    return found[0], found[1]


def _refused(line: Line, noise_ns: float, slope: Estimate, left: str) -> str | None:
    """Say what in slope and residuals speaks against the line."""
    ns = f"{slope.value:.3g} ns a byte [{slope.low:.3g}, {slope.high:.3g}]"
    if slope.low <= 0:
        return f"the delays do not grow measurably with size: {ns}"
    if (
        line.unexplained_share > _UNEXPLAINED
        and line.residual_ns > _NOISE_RATIO * noise_ns
    ):
        more = f"{line.residual_ns / 1e3:.3g} us where noise is {noise_ns / 1e3:.3g} us"
        return f"a line leaves {left}: residuals of {more}"
    if slope.high - slope.value > _UNCERTAIN * slope.value:
        return f"the slope is uncertain by over {_UNCERTAIN:.0%}: {ns}"
    return None


def _matters(hinge: HingeFit, line: Line, low: LowDelays, noise_ns: float) -> bool:
    bend_ns = hinge.bend * float(np.ptp(low.delay_ns))
    slope = float(line.slopes[0])
    # too few long messages for a slope of their own: it may be anything
    other = line.upper_slope is None or abs(line.upper_slope - slope) > _SLOPE * slope
    return other and hinge.bend > _BEND and bend_ns > _NOISE_RATIO * noise_ns


def parts_of_line(
    wire_bytes: Floats, low: LowDelays, line: Line, confidence: float = 0.95
) -> tuple[tuple[float, ...], tuple[float, ...], str | None]:
    """Return what sizes up to 1/4, 1/2 and 3/4, and above, say else than the whole.

    A line may be good enough, and so well known that its interval excludes what
    half of the sizes say. Where the sizes are off the line by more than the spread
    between rounds explains, each part is held against the whole; one that differs
    at 99% by the bootstrap of whole rounds is named.

    Returns
    -------
    slope_ends : tuple of float
        The ends of their slopes' intervals, in ns per byte on the wire.
    intercept_ends_ns : tuple of float
        The same of the intercepts, of the parts with the shortest messages.
    most : str or None
        Which one differs most from the whole, if by over 0.5%.
    """
    line_ns = line.slopes[0] * wire_bytes + line.intercepts_ns[0]
    lack = residuals_of(low, line_ns).lack_of_fit_p
    if lack is None or lack >= _LACKS:
        return (), (), None
    slopes, intercepts = weighted_theil_sen(wire_bytes, low.draws_ns)
    scale = Scale(low.count, confidence, 1, 1.0, line.freedom)
    slope_ends: list[float] = []
    intercept_ends: list[float] = []
    most, most_of = 0.0, ""
    for name, part in _parts(low.size_bytes):
        slope, intercept = weighted_theil_sen(wire_bytes[part], low.draws_ns[:, part])
        if _differ(slope, slopes):
            found = scale.slope(slope)
            slope_ends += [found.low, found.high]
            more = slope[0] / slopes[0] - 1
            if abs(more) > abs(most):
                most, most_of = more, name
        if part[0] and _differ(intercept, intercepts):
            found = scale.estimate(intercept, freedom=line.freedom[1])
            intercept_ends += [found.low, found.high]
    text = _say_part(most_of, most) if abs(most) >= _DIFFERENCE else None
    return tuple(slope_ends), tuple(intercept_ends), text


def long_messages_differ(wire_bytes: Floats, low: LowDelays) -> str | None:
    """Return how the slope of the long messages differs; None if it does not.

    Compares the slope of the low delays of all sizes and of those over an eighth of
    the largest, if there are 4 of these. It differs if by 0.5% and if the bootstrap
    of whole rounds bears that out at 99%.
    """
    least = _LONG * low.size_bytes.max(initial=0)
    long = low.size_bytes > least
    if long.sum() < FEWEST_LONG or long.all():
        return None
    whole, _ = weighted_theil_sen(wire_bytes, low.draws_ns)
    upper, _ = weighted_theil_sen(wire_bytes[long], low.draws_ns[:, long])
    more = upper / whole - 1
    if abs(more[0]) < _DIFFERENCE or not _differ(upper / whole, np.ones_like(whole)):
        return None
    return _say_part(f"messages over {least:.0f} bytes", more[0])


def _parts(size_bytes: Floats) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    for share, upper in product(_PARTS, (False, True)):
        end = share * size_bytes[-1]
        part = (size_bytes > end) == upper
        if part.sum() > 1 and not part.all():
            yield f"messages {'over' if upper else 'up to'} {end:.0f} bytes", part


def _say_part(part: str, more: float) -> str:
    than = "more" if more > 0 else "less"
    return f"of {part} a byte takes {abs(more):.1%} {than} than of all"


def _differ(part: Floats, whole: Floats) -> bool:
    """Say whether draws of a part differ from the whole's at 99%."""
    more = part - whole
    return bool(abs(more[0]) > _ERRORS * more[1:].std())


def _caveats(low: LowDelays) -> tuple[str, ...]:
    found = []
    if low.skipped_bytes:
        sizes = ", ".join(map(str, low.skipped_bytes[:5]))
        more = ", ..." if len(low.skipped_bytes) > 5 else ""
        found.append(
            f"sizes left out for fewer than {FEWEST_ROUND_TRIPS} round trips: "
            f"{sizes}{more} bytes"
        )
    if low.rounds < _SAFE_ROUNDS:
        found.append(
            f"intervals are too narrow with fewer than {_SAFE_ROUNDS} rounds, "
            f"got {low.rounds}"
        )
    if low.unused_sizes:
        found.append(
            f"{low.size_bytes.size} of {low.size_bytes.size + low.unused_sizes} sizes"
            " were used, evenly spaced"
        )
    noise = float((low.noise_ns**2).sum())
    if low.size_bytes.size * low.step_noise_ns**2 > _STEP_SHOWS * noise:
        found.append(
            f"delays were written in steps of {duration(low.step_ns)}: intervals hold"
            " what that leaves open, and if all were cut down the fixed delay is half"
            " a step more"
        )
    if 0 < low.size_bytes.size < 2 * FEWEST_BESIDE:
        found.append(f"a bend cannot be seen in fewer than {2 * FEWEST_BESIDE} sizes")
    return tuple(found)


def _with_line(
    tested: Fit, crossing: Crossing, low: LowDelays, line: Line, scale: Scale
) -> Fit:
    slope_ends, intercept_ends, most = parts_of_line(
        crossing.wire_bytes, low, line, scale.confidence
    )
    scale = replace(scale, slope_reach=slope_ends, intercept_reach_ns=intercept_ends)
    if most:
        held = f"{most}: the intervals reach to that"
        tested = replace(tested, caveats=(*tested.caveats, held))
    found = replace(
        tested,
        fixed_delay_seconds=scale.intercept_seconds(line.intercepts_ns),
        slope_ns_per_byte=scale.per_payload_byte(line.slopes),
    )
    if tested.host_limited:
        return replace(found, caveats=(*tested.caveats, hosts_hide(line.slopes[0])))
    rated = replace(
        found,
        host_share=host_share(line.slopes[0]),
        bandwidth_bits_per_second=scale.bandwidth(line.slopes),
        goodput_bits_per_second=scale.bandwidth(line.slopes, scale.payload_share),
    )
    return with_range(rated)


def _too_early(unfitted: Fit, line: Line, low: LowDelays) -> str | None:
    """Say whether the line would have messages of no bytes answered before sent."""
    fixed = float(line.intercepts_ns[0])
    high = fixed + 2 * float(line.intercepts_ns[1:].std())
    # Of one way between two hosts the clocks' offset is in the delay.
    if not unfitted.reply_mode or fixed >= 0 or high >= low.delay_ns.min():
        return None
    return (
        f"by the line a message of no bytes is answered {-fixed / 1e3:.3g} us before"
        " it is sent: a token bucket lets short messages by, or holds them up"
    )


def _bends(x: Floats, low: LowDelays, line: Line, scale: Scale) -> Bends | None:
    if line.hinge is None or line.hinge.delta_bic < DELTA_BIC:
        return None
    knots, slopes, delta_bic = fit_hinges(x, low.delay_ns, low.resolution_ns)
    unit = scale.factor / scale.payload_share
    return Bends(
        knots_bytes=tuple(np.interp(knots, x, low.size_bytes).tolist()),
        slopes_ns_per_byte=tuple((slopes * unit).tolist()),
        delta_bic=delta_bic,
    )


def _hinge(
    x: Floats, low: LowDelays, hinge: HingeFit, scale: Scale, packets: Packets
) -> Hinge:
    below, above = fit_sides(x, low.draws_ns, hinge.split)
    meet = (below[1] - above[1]) / (above[0] - below[0])
    nearest = slice(hinge.split - 1, hinge.split + 1)
    # Headers come in steps: back from the wire by way of sizes in between.
    first, last = low.size_bytes[nearest].tolist()
    sizes = np.linspace(first, last, _KNOT_SIZES)
    wire = packets.wire_bytes(sizes)
    crossing = np.interp(wire, wire[[0, -1]], x[nearest])
    return Hinge(
        knot_bytes=scale.between(np.interp(meet, crossing, sizes)),
        below=_segment(*below, scale),
        above=_segment(*above, scale),
    )


def _segment(slopes: Floats, intercepts_ns: Floats, scale: Scale) -> Segment:
    return Segment(
        slope_ns_per_byte=scale.per_payload_byte(slopes),
        bandwidth_bits_per_second=scale.bandwidth(slopes),
        intercept_seconds=scale.intercept_seconds(intercepts_ns),
    )
