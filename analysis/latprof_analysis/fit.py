"""The line D = a S + b of round trip times against message size.

What stands between a slope and a bandwidth, each with its own module: headers
(`wire`), queueing and bursts (`rounds`), outlying sizes (`theilsen`), and links
that are no line at all (`hinge`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from latprof_analysis.fit_result import (
    Estimate,
    Fit,
    Hinge,
    ReplyMode,
    Segment,
)
from latprof_analysis.hinge import FEWEST_BESIDE, HingeFit, fit_sides
from latprof_analysis.rounds import Floats, LowDelays, low_delays
from latprof_analysis.verdict import Line, fit_line, verdict
from latprof_analysis.wire import Packets

FEWEST_SIZES = 4
FEWEST_ROUND_TRIPS = 10  # of one size: the 10th percentile is then the minimum

# Hosts spend about 0.1 ns a byte (0.15 us a segment): over 10% of such a slope.
_HOST_NS_PER_BYTE = 1.0
# Below it the 10th percentile is the minimum, which a bootstrap cannot follow.
_SAFE_ROUNDS = 20
NS_PER_SECOND = 1e9


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
    wire both ways, by Theil and Sen; intervals come from a bootstrap of whole
    rounds. A line that the delays contradict is refused.

    Parameters
    ----------
    size_bytes, rtt_ns, round_index : array_like, shape (n,)
        One entry for each round trip that was answered, in any order and without
        the warm-up: bytes of the request, its round trip time, and its round.
        Sizes must have been sent in random order within rounds, or a burst of
        noise that hits one size passes for the link's doing.
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
    sizes = column_of("size_bytes", size_bytes)
    rtt = column_of("rtt_ns", rtt_ns)
    rounds = column_of("round_index", round_index)
    check_rows(sizes, rtt, rounds)
    check_options(reply_mode, confidence, resamples)
    packets = packets or Packets()

    low = low_delays(
        sizes, rtt, rounds, fewest=FEWEST_ROUND_TRIPS, resamples=resamples, seed=seed
    )
    unfitted = fit_without_line(low, reply_mode, confidence)
    if low.size_bytes.size < FEWEST_SIZES:
        return unfitted
    x = crossing_bytes(low.size_bytes, packets, reply_mode)
    return fit_low_delays(x, low, unfitted, packets)


def fit_low_delays(
    wire_bytes: Floats, low: LowDelays, unfitted: Fit, packets: Packets
) -> Fit:
    """Fit low delays to the bytes that crossed the wire, and judge the line."""
    line = fit_line(wire_bytes, low)
    scale = Scale(
        low.count, unfitted.confidence, unfitted.factor, packets.payload_share
    )
    model, reason = verdict(line, low, scale.per_payload_byte(line.slopes))
    tested = replace(
        unfitted,
        model=model,
        reason=reason,
        unexplained_share=line.unexplained_share,
        delta_bic=line.hinge.delta_bic if line.hinge else None,
    )
    if model == "line":
        return _with_line(tested, line, scale)
    if model == "hinge" and line.hinge:
        return replace(tested, hinge=_hinge(wire_bytes, low, line.hinge, scale))
    return tested


@dataclass(frozen=True)
class Scale:
    """From draws of slopes and intercepts to estimates in the units of a Fit."""

    n: int
    confidence: float
    factor: int
    payload_share: float

    def estimate(self, draws: Floats, unit: float = 1.0) -> Estimate:
        tail = (1 - self.confidence) / 2
        low, high = np.quantile(draws[1:], [tail, 1 - tail])
        value = draws[0]
        bounds = min(low, value), max(high, value)
        return Estimate(
            float(value * unit),
            float(bounds[0] * unit),
            float(bounds[1] * unit),
            self.n,
        )

    def per_payload_byte(self, slopes: Floats) -> Estimate:
        return self.estimate(slopes, self.factor / self.payload_share)

    def bandwidth(self, slopes: Floats, share: float = 1.0) -> Estimate | None:
        """Return the rate behind slopes; None if it may be anything."""
        slope = self.estimate(slopes)
        if slope.low <= 0:
            return None
        rate = share * 8 * NS_PER_SECOND
        return Estimate(rate / slope.value, rate / slope.high, rate / slope.low, self.n)


def crossing_bytes(
    size_bytes: Floats, packets: Packets, reply_mode: ReplyMode
) -> Floats:
    """Return the bytes on the wire of a whole round trip."""
    request = packets.wire_bytes(size_bytes)
    if reply_mode == "echo":
        return 2 * request
    return request + packets.wire_bytes(reply_mode)


def fit_without_line(low: LowDelays, reply_mode: ReplyMode, confidence: float) -> Fit:
    """Return what can be said before any line is drawn."""
    sizes = low.size_bytes.size
    return Fit(
        model="none",
        reason=(
            f"a line needs {FEWEST_SIZES} sizes with {FEWEST_ROUND_TRIPS} round trips"
            f" each, got {sizes}"
        ),
        caveats=_caveats(low),
        reply_mode=reply_mode,
        factor=2 if reply_mode == "echo" else 1,
        sizes=sizes,
        rounds=low.rounds,
        n=low.count,
        confidence=confidence,
    )


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
    if 0 < low.size_bytes.size < 2 * FEWEST_BESIDE:
        found.append(f"a bend cannot be seen in fewer than {2 * FEWEST_BESIDE} sizes")
    return tuple(found)


def _with_line(tested: Fit, line: Line, scale: Scale) -> Fit:
    host_limited = bool(line.slopes[0] < _HOST_NS_PER_BYTE)
    caveat = (
        "at this speed the hosts' own work on each byte is over a tenth of the slope: "
        "the figure is that of hosts and link together"
    )
    return replace(
        tested,
        caveats=tested.caveats + ((caveat,) if host_limited else ()),
        bandwidth_bits_per_second=scale.bandwidth(line.slopes),
        goodput_bits_per_second=scale.bandwidth(line.slopes, scale.payload_share),
        fixed_delay_seconds=scale.estimate(line.intercepts_ns, 1 / NS_PER_SECOND),
        slope_ns_per_byte=scale.per_payload_byte(line.slopes),
        host_limited=host_limited,
    )


def _hinge(x: Floats, low: LowDelays, hinge: HingeFit, scale: Scale) -> Hinge:
    delays = np.vstack([low.delay_ns, low.resampled_ns])
    below, above = fit_sides(x, delays, hinge.split)
    meet = (below[1] - above[1]) / (above[0] - below[0])
    nearest = slice(hinge.split - 1, hinge.split + 1)
    return Hinge(
        knot_bytes=scale.estimate(np.interp(meet, x[nearest], low.size_bytes[nearest])),
        below=_segment(*below, scale),
        above=_segment(*above, scale),
    )


def _segment(slopes: Floats, intercepts_ns: Floats, scale: Scale) -> Segment:
    return Segment(
        slope_ns_per_byte=scale.per_payload_byte(slopes),
        bandwidth_bits_per_second=scale.bandwidth(slopes),
        intercept_seconds=scale.estimate(intercepts_ns, 1 / NS_PER_SECOND),
    )


def column_of(name: str, values: ArrayLike) -> Floats:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise ValueError(f"{name} must have shape (n,), got {column.shape}")
    if not np.isfinite(column).all():
        wrong = column[~np.isfinite(column)][0]
        raise ValueError(f"{name} must be finite, got {wrong}")
    return column


def check_rows(sizes: Floats, rtt: Floats, rounds: Floats) -> None:
    if not sizes.size == rtt.size == rounds.size:
        raise ValueError(
            "size_bytes, rtt_ns and round_index must have equal length, "
            f"got {sizes.size}, {rtt.size} and {rounds.size}"
        )
    if (sizes <= 0).any():
        raise ValueError(f"size_bytes must be more than 0, got {sizes.min():.0f}")
    if (rtt <= 0).any():
        raise ValueError(f"rtt_ns must be more than 0, got {rtt.min():.0f}")
    if (rounds < 0).any():
        raise ValueError(f"round_index must be 0 or more, got {rounds.min():.0f}")


def check_options(reply_mode: ReplyMode, confidence: float, resamples: int) -> None:
    if reply_mode != "echo" and (isinstance(reply_mode, str) or reply_mode < 1):
        raise ValueError(
            f"reply_mode must be 'echo' or a number of bytes, got {reply_mode!r}"
        )
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if resamples < 100:
        raise ValueError(f"resamples must be 100 or more, got {resamples}")
