"""Other lines D = a S + b through the same round trips, side by side.

The answer is that of `fit_round_trips`, which refuses links that are no line.
These never refuse: they show what the choice of an estimator is worth. All take
the same bytes on the wire, the same factor and the same draws of whole rounds.
Each estimator takes x and y of shape (n,) and weights that say how often each point
counts, and returns the slope and the intercept.

A line through all points solves "the sum of scores is 0". Drawing rounds weighs the
scores anew, and one Newton step from the line leads to the drawn line but for terms
of second order [1]_: a matrix product for all draws, where solving each took 20 s
of regression quantiles through 10,000 points.

Least squares on means of five is a much used procedure of its own. Ping-pong round
trips of each size are averaged by fives in the order in which they came, and
scipy's `linregress` draws D = a S + b through the means. Bandwidth is taken as the
change of size over the change of delay. What it leaves open, and how it is read
here: outliers are to be removed before the fit, but no rule is given, so Tukey's
fences are used for each size; the factor 2 of an echo and the headers are not
spoken of, so ``bandwidth_as_written`` has neither.

References
----------
.. [1] Salibian-Barrera and Zamar (2002). Bootstrapping robust estimates of
   regression. Annals of Statistics 30, 556-582.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import linprog
from scipy.special import ndtri

from latprof_analysis.fit.estimates import (
    Estimate,
    ReplyMode,
    Scale,
    check_options,
    check_rows,
    column_of,
)
from latprof_analysis.fit.rounds import (
    Floats,
    Ints,
    LowDelays,
    block_weights,
    low_delays,
)
from latprof_analysis.fit.slopes import theil_sen
from latprof_analysis.fit.verdict import fit_line
from latprof_analysis.fit.wire import Crossing, Packets
from latprof_analysis.text import NS_PER_SECOND

SlopeIntercept = tuple[float, float]

# Constants of 95% efficiency under normal noise.
HUBER_T = 1.345
TUKEY_C = 4.685
# A normal variable's median absolute value, in standard deviations.
_NORMAL_MAD = 0.6744897501960817
_STEPS = 100
_CLOSE = 1e-9  # of the residuals' scale, between two steps
_FLAT = 1e-12  # of y's range: residuals below are rounding


def least_squares_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    """Fit the line that leaves the smallest sum of squares.

    The best of all unbiased lines that are linear in y, if noise has one variance
    [1]_. That of queueing grows with load and comes in bursts: one long wait moves
    the line. It stands here since so many results were got by it.

    References
    ----------
    .. [1] Draper and Smith (1998). Applied Regression Analysis, 3rd ed.

    Examples
    --------
    >>> x = np.array([0.0, 1.0, 2.0, 3.0])
    >>> least_squares_line(x, 1 + 2 * x, np.ones(4))
    (2.0, 1.0)
    """
    total = weights.sum()
    mean_x, mean_y = weights @ x / total, weights @ y / total
    from_mean = x - mean_x
    spread = weights @ from_mean**2
    slope = weights @ (from_mean * (y - mean_y)) / spread
    return float(slope), float(mean_y - slope * mean_x)


def huber_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    """Fit Huber's M-estimate: squares near the line, absolute values far away.

    The scale is the median absolute residual, taken anew at each step [1]_. Noise
    on one side lifts the intercept; the slope is not biased where all sizes have
    the same noise.

    References
    ----------
    .. [1] Huber and Ronchetti (2009). Robust Statistics, 2nd ed., chapter 7.

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> slope, intercept = huber_line(x, 1 + 2 * x + 1e3 * (x == 7), np.ones(10))
    >>> round(slope, 6), round(intercept, 6)
    (2.0, 1.0)
    """
    return _reweighted(x, y, weights, huber_weight, least_squares_line(x, y, weights))


def tukey_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    """Fit Tukey's biweight M-estimate, from Huber's on: far points count nothing.

    References
    ----------
    .. [1] Beaton and Tukey (1974). The fitting of power series, meaning
       polynomials, illustrated on band-spectroscopic data. Technometrics 16,
       147-185.

    Examples
    --------
    >>> x = np.arange(10.0)
    >>> slope, intercept = tukey_line(x, 1 + 2 * x + 1e3 * (x == 6), np.ones(10))
    >>> round(slope, 6), round(intercept, 6)
    (2.0, 1.0)
    """
    return _reweighted(x, y, weights, tukey_weight, huber_line(x, y, weights))


def quantile_line(
    x: Floats, y: Floats, weights: Floats, p: float = 0.1
) -> SlopeIntercept:
    """Fit the line below which a share `p` of the points lies [1]_.

    What the 10th percentile of each size is where sizes repeat, without need of
    repetition: for traffic that was watched and has each size once.

    A linear programme; the dual is solved, which has two constraints however many
    points there are, and whose multipliers are the line.

    References
    ----------
    .. [1] Koenker and Bassett (1978). Regression quantiles. Econometrica 46, 33-50.

    Examples
    --------
    >>> x = np.arange(20.0)
    >>> slope, intercept = quantile_line(x, 1 + 2 * x + 9 * (x % 2), np.ones(20))
    >>> round(slope, 6), round(intercept, 6)
    (2.0, 1.0)
    """
    some = weights > 0
    x, y, weights = x[some], y[some], weights[some]
    unit_x, unit_y = float(np.abs(x).max()), float(np.ptp(y)) or 1.0
    terms = np.vstack([np.ones_like(x), x / unit_x])
    found = linprog(
        -(y - y.min()) / unit_y,
        A_eq=terms,
        b_eq=(1 - p) * terms @ weights,
        bounds=np.column_stack([np.zeros_like(x), weights]),
        method="highs-ds",
    )
    if not found.success:
        raise ValueError(f"quantile regression found no line: {found.message}")
    intercept, slope = -found.eqlin.marginals
    return float(slope * unit_y / unit_x), float(intercept * unit_y + y.min())


def huber_weight(u: Floats) -> Floats:
    """Return Huber's weight of residuals in scales."""
    return HUBER_T / np.maximum(np.abs(u), HUBER_T)


def tukey_weight(u: Floats) -> Floats:
    """Return Tukey's weight of residuals in scales."""
    inside: Floats = np.maximum(0.0, 1 - (u / TUKEY_C) ** 2) ** 2
    return inside


def residual_scale(residual: Floats) -> float:
    """Return the standard deviation of normal residuals with this median size."""
    return float(np.median(np.abs(residual))) / _NORMAL_MAD


def _reweighted(
    x: Floats,
    y: Floats,
    weights: Floats,
    weigh: Callable[[Floats], Floats],
    start: SlopeIntercept,
) -> SlopeIntercept:
    """Repeat weighted least squares until the line stands."""
    line, times = start, weights.astype(np.int64)
    flat = _FLAT * float(np.ptp(y))
    for _ in range(_STEPS):
        residual = y - line[0] * x - line[1]
        scale = residual_scale(np.repeat(residual, times))
        if scale <= flat:  # over half of the points are on the line
            return line
        last, line = line, least_squares_line(x, y, weights * weigh(residual / scale))
        moved = np.abs((line[0] - last[0]) * x + line[1] - last[1]).max()
        if moved < _CLOSE * scale:
            break
    return line


# Of residuals: their score, and its slope in the residual.
Scores = Callable[[Floats], tuple[Floats, Floats]]


def draw_lines(
    line: SlopeIntercept,
    scores: Scores,
    x: Floats,
    y: Floats,
    block: Ints,
    weights: Floats,
) -> tuple[Floats, Floats]:
    """Return slopes and intercepts of draws of blocks, the line itself first.

    Parameters
    ----------
    line : tuple of float
        Slope and intercept that solve the scores.
    scores : callable
        Scores of residuals, and their derivatives.
    x, y : ndarray, shape (n,)
    block : ndarray, shape (n,)
    weights : ndarray, shape (1 + b, blocks)
        Of `block_weights`; the first row is the sample itself.

    Examples
    --------
    >>> x, block = np.arange(6.0), np.array([0, 0, 1, 1, 2, 2])
    >>> y = np.array([0.1, 0.9, 2.0, 3.1, 3.9, 5.0])
    >>> line = tuple(np.polyfit(x, y, 1))
    >>> draw = np.array([[1.0, 1.0, 1.0], [1.0, 1.1, 0.9]])
    >>> slopes, _ = draw_lines(line, least_squares_scores, x, y, block, draw)
    >>> exact = np.polyfit(x, y, 1, w=np.sqrt(draw[1][block]))[0]
    >>> round(float(slopes[1]), 3), round(float(exact), 3)
    (0.989, 0.989)
    """
    slope, intercept = line
    score, derivative = scores(y - slope * x - intercept)
    unit = float(np.abs(x).max())
    terms = np.column_stack([x / unit, np.ones_like(x)])
    blocks = weights.shape[1]
    of_block = np.column_stack(
        [np.bincount(block, weights=score * term, minlength=blocks) for term in terms.T]
    )
    curvature = terms.T @ (terms * derivative[:, np.newaxis])
    steps = np.linalg.solve(curvature, of_block.T @ (weights - 1).T)
    return slope + steps[0] / unit, intercept + steps[1]


def least_squares_scores(residual: Floats) -> tuple[Floats, Floats]:
    """Return the residuals themselves."""
    return residual, np.ones_like(residual)


def huber_scores(residual: Floats) -> tuple[Floats, Floats]:
    """Return Huber's: the residual, and no more than 1.345 scales of it."""
    scale = residual_scale(residual)
    inside = np.abs(residual) <= HUBER_T * scale
    return residual * huber_weight(residual / scale), inside.astype(np.float64)


def tukey_scores(residual: Floats) -> tuple[Floats, Floats]:
    """Return Tukey's: the residual by its biweight, none beyond 4.685 scales."""
    scale = residual_scale(residual)
    share = np.minimum(1.0, (residual / (TUKEY_C * scale)) ** 2)
    derivative = (1 - share) * (1 - 5 * share)
    return residual * tukey_weight(residual / scale), derivative


def quantile_scores(residual: Floats, p: float = 0.1) -> tuple[Floats, Floats]:
    """Return `p` above the line and `p` - 1 below; their derivative is a density.

    It is that of the residuals within a bandwidth of 0 [1]_ [2]_.

    References
    ----------
    .. [1] Hall and Sheather (1988). On the distribution of a Studentized quantile.
       JRSS B 50, 381-391.
    .. [2] Koenker (2005). Quantile Regression. Cambridge University Press.
    """
    normal = float(ndtri(p))
    density = np.exp(-(normal**2) / 2) / np.sqrt(2 * np.pi)
    width = (1.5 * density**2 / (2 * normal**2 + 1)) ** (1 / 3)
    width *= float(ndtri(0.975)) ** (2 / 3) * residual.size ** (-1 / 3)
    ends = np.clip([p - width, p + width], 0, 1)
    low, high = np.quantile(residual, ends)
    near = (residual >= low) & (residual <= high)
    scores = np.where(residual < 0, p - 1.0, p)
    return scores, near / max(float(high - low), np.finfo(np.float64).tiny)


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


Outliers = Literal["fences", "kept"]
GROUP = 5
_FENCE = 1.5  # quartile ranges beyond the quartiles
_FEWEST_FOR_FENCES = 4
_FEWEST_MEANS = 3  # two leave no residual to judge by


@dataclass(frozen=True)
class LeastSquares:
    """The line through means of five.

    Intervals are those of least squares: they take the means for independent and
    their noise for normal, and are wrong where a burst or a bend is in the data.

    Attributes
    ----------
    slope_ns_per_byte : Estimate
        Of the round trip time per byte of payload. ``n`` of each estimate is the
        number of means.
    fixed_delay_seconds : Estimate
        The intercept, of the round trip.
    bandwidth_as_written : Estimate or None
        1 / slope in bit/s, no factor and no headers. None where the slope may be
        zero.
    bandwidth_bits_per_second : Estimate or None
        With the factor of the reply mode: payload per second. None without a
        reply mode.
    factor : int or None
        2 for a full echo, 1 for a reply of fixed size, None if not told.
    r_squared : float
        Share of the means' variance that the line explains.
    removed : int
        Round trips outside the fences.
    means, sizes, n : int
        Means, sizes and round trips that went in.
    """

    slope_ns_per_byte: Estimate
    fixed_delay_seconds: Estimate
    bandwidth_as_written: Estimate | None
    bandwidth_bits_per_second: Estimate | None
    reply_mode: ReplyMode | None
    factor: int | None
    outliers: Outliers
    r_squared: float
    removed: int
    means: int
    sizes: int
    n: int
    confidence: float

    def as_dict(self) -> dict[str, Any]:
        """Return all fields for JSON."""
        return asdict(self)


def fit_means_of_five(
    size_bytes: ArrayLike,
    rtt_ns: ArrayLike,
    *,
    outliers: Outliers = "fences",
    reply_mode: ReplyMode | None = None,
    confidence: float = 0.95,
) -> LeastSquares:
    """Fit a line by least squares to means of five round trips of one size.

    Parameters
    ----------
    size_bytes, rtt_ns : array_like, shape (n,)
        One entry for each round trip, in the order in which they came.
    outliers : {'fences', 'kept'}
        'fences' leaves out what is over 1.5 quartile ranges beyond the quartiles
        of its size [1]_.
    reply_mode : 'echo' or int, optional
        Whether the reply is as long as the request, or has so many bytes.
    confidence : float
        Of the intervals.

    References
    ----------
    .. [1] Tukey (1977). Exploratory Data Analysis, chapter 2.

    Examples
    --------
    >>> sizes = np.repeat([1000.0, 2000.0, 3000.0], 10)
    >>> line = fit_means_of_five(sizes, 5e4 + 160 * sizes, reply_mode="echo")
    >>> line.means, round(line.slope_ns_per_byte.value)
    (6, 160)
    >>> round(line.bandwidth_as_written.value / 1e6)
    50
    >>> round(line.bandwidth_bits_per_second.value / 1e6)
    100
    """
    sizes, rtt = column_of("size_bytes", size_bytes), column_of("rtt_ns", rtt_ns)
    check_rows(sizes, rtt, np.zeros_like(rtt))
    check_options("echo" if reply_mode is None else reply_mode, confidence, 100)
    if outliers not in get_args(Outliers):
        raise ValueError(f"outliers must be 'fences' or 'kept', got {outliers!r}")
    kept = np.ones(rtt.size, dtype=bool)
    if outliers == "fences":
        kept = _inside_fences(sizes, rtt)
    mean_sizes, means = _means_of_a_line(sizes[kept], rtt[kept])
    line = stats.linregress(mean_sizes, means)
    t = float(stats.t.ppf((1 + confidence) / 2, means.size - 2))
    slope = _with_error(line.slope, t * line.stderr, means.size)
    factor = None if reply_mode is None else 2 if reply_mode == "echo" else 1
    return LeastSquares(
        slope_ns_per_byte=slope,
        fixed_delay_seconds=_with_error(
            line.intercept / NS_PER_SECOND,
            t * line.intercept_stderr / NS_PER_SECOND,
            means.size,
        ),
        bandwidth_as_written=_bandwidth(slope, 1),
        bandwidth_bits_per_second=_bandwidth(slope, factor) if factor else None,
        reply_mode=reply_mode,
        factor=factor,
        outliers=outliers,
        r_squared=float(line.rvalue**2),
        removed=int((~kept).sum()),
        means=means.size,
        sizes=np.unique(mean_sizes).size,
        n=int(kept.sum()),
        confidence=confidence,
    )


def means_of_five(size_bytes: Floats, rtt_ns: Floats) -> tuple[Floats, Floats]:
    """Return sizes and mean delays of each five round trips of one size.

    The last group of a size may be smaller, and counts as much as the others.

    Examples
    --------
    >>> means_of_five(np.full(7, 64.0), np.arange(7.0))
    (array([64., 64.]), array([2. , 5.5]))
    """
    order = np.argsort(size_bytes, kind="stable")
    sizes, starts, counts = np.unique(
        size_bytes[order], return_index=True, return_counts=True
    )
    nth = np.arange(size_bytes.size) - np.repeat(starts, counts)
    groups = -(-counts // GROUP)
    first_group = np.concatenate([[0], np.cumsum(groups)])[:-1]
    group = np.repeat(first_group, counts) + nth // GROUP
    means = np.bincount(group, weights=rtt_ns[order]) / np.bincount(group)
    return np.repeat(sizes, groups), means


def _means_of_a_line(sizes: Floats, rtt: Floats) -> tuple[Floats, Floats]:
    """Return sizes and means of five, or say why no line goes through them."""
    mean_sizes, means = means_of_five(sizes, rtt)
    different = np.unique(mean_sizes).size
    if different < 2 or means.size < _FEWEST_MEANS:
        raise ValueError(
            f"a line needs 2 sizes and {_FEWEST_MEANS} means of {GROUP} or more,"
            f" got {different} and {means.size}; send more round trips"
        )
    if np.ptp(means) == 0:
        raise ValueError(f"rtt_ns must vary, got {means[0]:.0f} ns for all means")
    return mean_sizes, means


def _inside_fences(sizes: Floats, rtt: Floats) -> NDArray[np.bool_]:
    inside = np.ones(rtt.size, dtype=bool)
    for size in np.unique(sizes):
        of_size = sizes == size
        values = rtt[of_size]
        if values.size < _FEWEST_FOR_FENCES:
            continue
        low, high = np.quantile(values, [0.25, 0.75])
        reach = _FENCE * (high - low)
        inside[of_size] = (values >= low - reach) & (values <= high + reach)
    return inside


def _with_error(value: float, half_width: float, n: int) -> Estimate:
    return Estimate(
        float(value), float(value - half_width), float(value + half_width), n
    )


def _bandwidth(slope: Estimate, factor: int) -> Estimate | None:
    if slope.low <= 0:
        return None
    rate = factor * 8 * NS_PER_SECOND
    return Estimate(rate / slope.value, rate / slope.high, rate / slope.low, slope.n)
