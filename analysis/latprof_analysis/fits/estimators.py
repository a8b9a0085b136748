"""Other lines D = a S + b through the same round trips, side by side.

The answer is that of `fit.fit_round_trips`, which refuses links that are no line.
These never refuse: they show what the choice of an estimator is worth. All take
the same bytes on the wire, the same factor and the same draws of whole rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from latprof_analysis.fits.crossing import Crossing
from latprof_analysis.fits.fit_input import check_options, check_rows, column_of
from latprof_analysis.fits.fit_result import Estimate, ReplyMode
from latprof_analysis.fits.one_step import (
    Scores,
    draw_lines,
    huber_scores,
    least_squares_scores,
    quantile_scores,
    tukey_scores,
)
from latprof_analysis.fits.point_lines import (
    SlopeIntercept,
    huber_line,
    least_squares_line,
    quantile_line,
    tukey_line,
)
from latprof_analysis.fits.resampling import block_weights
from latprof_analysis.fits.rounds import Floats, LowDelays, low_delays
from latprof_analysis.fits.scale import Scale
from latprof_analysis.fits.theilsen import theil_sen
from latprof_analysis.fits.verdict import fit_line
from latprof_analysis.wire import Packets

_PER_SIZE = 2  # sizes that a line needs
_FLAT = 1e-12  # of the delays' range: residuals below are rounding


@dataclass(frozen=True)
class LineEstimate:
    """A line by one estimator; the units and the factor are those of a `Fit`.

    Attributes
    ----------
    name : str
        Of the estimator: a key of ``ESTIMATORS``.
    meaning : str
        What it is, and what to beware of.
    factor : int
        How often a byte of the message crosses the link in a round trip, by the
        recorded reply mode.
    slope_ns_per_byte : Estimate
        Of the round trip time per byte of payload, no factor applied.
    bandwidth_bits_per_second : Estimate or None
        Wire rate, the factor applied. None where the slope may be zero.
    fixed_delay_seconds : Estimate
        Of the round trip.
    """

    name: str
    meaning: str
    reply_mode: ReplyMode
    factor: int
    n: int
    confidence: float
    slope_ns_per_byte: Estimate
    bandwidth_bits_per_second: Estimate | None
    fixed_delay_seconds: Estimate

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _Sample:
    size: Floats
    rtt: Floats
    rounds: Floats
    reply_mode: ReplyMode
    packets: Packets
    resamples: int
    seed: int

    def crossing(self, size: Floats) -> Floats:
        return Crossing.round_trip(size, self.packets, self.reply_mode).wire_bytes


# Slopes and intercepts, those of the sample first; degrees of freedom of each.
Draws = tuple[Floats, Floats, tuple[float, float]]
_MANY = (math.inf, math.inf)


def compare_estimators(
    size_bytes: ArrayLike,
    rtt_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    reply_mode: ReplyMode,
    packets: Packets | None = None,
    names: Sequence[str] | None = None,
    confidence: float = 0.95,
    resamples: int = 400,
    seed: int = 1,
) -> tuple[LineEstimate, ...]:
    """Fit a line by each of several estimators.

    Parameters
    ----------
    size_bytes, rtt_ns, round_index : array_like, shape (n,)
        As of `fit_round_trips`.
    reply_mode : 'echo' or int
        Whether the reply is as long as the request, or has so many bytes.
    packets : Packets, optional
        How the messages are cut. Without it the bandwidth is that of payload.
    names : sequence of str, optional
        Which ones; all of ``ESTIMATORS`` without it.
    confidence, resamples, seed
        Of the intervals, by a bootstrap of whole rounds.

    Examples
    --------
    >>> rng = np.random.default_rng(7)
    >>> sizes = np.tile([64, 1000, 4000, 16000, 64000], 40)
    >>> rounds = np.repeat(np.arange(40), 5)
    >>> rtt_ns = 2e6 + 2 * 80 * sizes + rng.uniform(0, 5e4, 200)
    >>> lines = compare_estimators(sizes, rtt_ns, rounds, reply_mode="echo")
    >>> [round(line.bandwidth_bits_per_second.value / 1e6) for line in lines]
    [100, 100, 100, 100, 100, 100, 100]
    """
    sample = _Sample(
        column_of("size_bytes", size_bytes),
        column_of("rtt_ns", rtt_ns),
        column_of("round_index", round_index),
        reply_mode,
        packets or Packets(),
        resamples,
        seed,
    )
    check_rows(sample.size, sample.rtt, sample.rounds)
    check_options(reply_mode, confidence, resamples)
    different = np.unique(sample.size).size
    if different < _PER_SIZE:
        raise ValueError(f"a line needs {_PER_SIZE} sizes or more, got {different}")
    chosen = list(ESTIMATORS if names is None else names)
    unknown = [name for name in chosen if name not in ESTIMATORS]
    if unknown:
        raise ValueError(f"names must be of {', '.join(ESTIMATORS)}; got {unknown[0]}")
    return tuple(_estimate(name, sample, confidence) for name in chosen)


def as_table(lines: Sequence[LineEstimate]) -> pd.DataFrame:
    """Return one row per estimator: values with their intervals, NaN where none."""
    return pd.DataFrame([_row(line) for line in lines]).set_index("name")


def _row(line: LineEstimate) -> dict[str, Any]:
    row: dict[str, Any] = {"name": line.name, "n": line.n, "factor": line.factor}
    for key in ("bandwidth_bits_per_second", "fixed_delay_seconds"):
        estimate = getattr(line, key)
        for part in ("value", "low", "high"):
            found = getattr(estimate, part) if estimate else float("nan")
            row[key if part == "value" else f"{key}_{part}"] = found
    return row


def _estimate(name: str, sample: _Sample, confidence: float) -> LineEstimate:
    meaning, draw = ESTIMATORS[name]
    slopes, intercepts, freedom = draw(sample)
    factor = 2 if sample.reply_mode == "echo" else 1
    n = sample.rtt.size
    scale = Scale(n, confidence, factor, sample.packets.payload_share, freedom)
    return LineEstimate(
        name=name,
        meaning=meaning,
        reply_mode=sample.reply_mode,
        factor=factor,
        n=n,
        confidence=confidence,
        slope_ns_per_byte=scale.per_payload_byte(slopes),
        bandwidth_bits_per_second=scale.bandwidth(slopes),
        fixed_delay_seconds=scale.intercept_seconds(intercepts),
    )


def _over_points(
    fit: Callable[[Floats, Floats, Floats], SlopeIntercept], scores: Scores
) -> Callable[[_Sample], Draws]:
    """Return an estimator of all round trips, drawn round by round."""

    def draw(sample: _Sample) -> Draws:
        block, weights = block_weights(
            sample.rounds, resamples=sample.resamples, seed=sample.seed
        )
        x = sample.crossing(sample.size)
        line = fit(x, sample.rtt, np.ones_like(x))
        slope, intercept = line
        left = np.abs(sample.rtt - slope * x - intercept)
        if np.median(left) <= _FLAT * np.ptp(sample.rtt):  # nothing to draw
            return np.full(len(weights), slope), np.full(len(weights), intercept), _MANY
        return *draw_lines(line, scores, x, sample.rtt, block, weights), _MANY

    return draw


def _low(sample: _Sample) -> LowDelays:
    return low_delays(
        sample.size,
        sample.rtt,
        sample.rounds,
        fewest=1,
        resamples=sample.resamples,
        seed=sample.seed,
    )


def _low_weighted(sample: _Sample) -> Draws:
    low = _low(sample)
    line = fit_line(sample.crossing(low.size_bytes), low)
    return line.slopes, line.intercepts_ns, line.freedom


def _low_theil_sen(sample: _Sample) -> Draws:
    low = _low(sample)
    delays = np.vstack([low.delay_ns, low.resampled_ns])
    return *theil_sen(sample.crossing(low.size_bytes), delays), _MANY


def _minimum_theil_sen(sample: _Sample) -> Draws:
    """Draw lines through minima: what NTP's clock filter keeps [1]_.

    References
    ----------
    .. [1] Mills and others (2010). RFC 5905: Network Time Protocol Version 4.
    """
    block, weights = block_weights(
        sample.rounds, resamples=sample.resamples, seed=sample.seed
    )
    sizes = np.unique(sample.size)
    least = np.empty((len(weights), sizes.size))
    for i, size in enumerate(sizes):
        of_size = sample.size == size
        order = np.argsort(sample.rtt[of_size], kind="stable")
        drawn = weights[:, block[of_size][order]] > 0
        # A draw may hold none of a size that most rounds lost: argmax is then 0.
        least[:, i] = sample.rtt[of_size][order][np.argmax(drawn, axis=1)]
    return *theil_sen(sample.crossing(sizes), least), _MANY


ESTIMATORS: dict[str, tuple[str, Callable[[_Sample], Draws]]] = {
    "p10_weighted_theil_sen": (
        "10th percentile per size, Theil-Sen weighted by distance: the line of the"
        " default answer",
        _low_weighted,
    ),
    "p10_theil_sen": (
        "10th percentile per size, Theil-Sen: a line of short messages, where most"
        " sizes are short",
        _low_theil_sen,
    ),
    "least_squares": (
        "all round trips, least squares: one outlier moves it",
        _over_points(least_squares_line, least_squares_scores),
    ),
    "huber": (
        "all round trips, Huber's M-estimate: its delay is a typical one, no floor",
        _over_points(huber_line, huber_scores),
    ),
    "tukey": (
        "all round trips, Tukey's biweight: its delay is a typical one, no floor",
        _over_points(tukey_line, tukey_scores),
    ),
    "minimum": (
        "minimum per size, Theil-Sen: its interval is too narrow, since draws of"
        " a sample cannot go below its minimum",
        _minimum_theil_sen,
    ),
    "quantile_10": (
        "all round trips, regression of the 10th percentile",
        _over_points(quantile_line, quantile_scores),
    ),
}
