"""Other lines D = a S + b through the same round trips, side by side.

The answer is that of `fit_round_trips`, which refuses links that are no line.
These never refuse: they show what the choice of an estimator is worth. All take
the same bytes on the wire and the same factor; intervals come from one bootstrap:
whole rounds are drawn with replacement, and each line is drawn anew.

Least squares on means of five is a much used procedure of its own. Ping-pong round
trips of each size are averaged by fives in the order in which they came, and
scipy's `linregress` draws D = a S + b through the means. Bandwidth is taken as the
change of size over the change of delay. What it leaves open, and how it is read
here: outliers are to be removed before the fit, but no rule is given, so Tukey's
fences are used for each size; the factor 2 of an echo and the headers are not
spoken of, so ``bandwidth_as_written`` has neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import linprog

from latprof_analysis.fit.estimates import (
    Estimate,
    ReplyMode,
    Scale,
    check_options,
    checked_rows,
    rate_of,
)
from latprof_analysis.fit.line import fit_line
from latprof_analysis.fit.rounds import (
    BLOCKS,
    LOW,
    Floats,
    clock_step,
    low_delays,
    nth_in_run,
)
from latprof_analysis.fit.slopes import theil_sen
from latprof_analysis.fit.wire import Crossing, Packets
from latprof_analysis.stats import Result
from latprof_analysis.text import NS_PER_SECOND

SlopeIntercept = tuple[float, float]
# Of bytes that cross, and delays, each of shape (n,).
Estimator = Callable[[Floats, Floats], SlopeIntercept]
_PER_SIZE = 2  # sizes that a line needs
# Of more round trips, whole rounds are left out evenly: regression of a quantile
# through so many takes 40 ms, and is repeated for each draw.
_MOST_TRIPS = 5000
# Constants of 95% efficiency under normal noise.
_HUBER_T = 1.345
_TUKEY_C = 4.685
# A normal variable's median absolute value, in standard deviations.
_NORMAL_MAD = 0.6744897501960817
_STEPS = 100
_CLOSE = 1e-9  # of the residuals' scale, between two steps
_FLAT = 1e-12  # of the delays' range: residuals below are rounding
_low = partial(np.quantile, q=LOW, method="median_unbiased")
Outliers = Literal["fences", "kept"]
GROUP = 5
_FENCE = 1.5  # quartile ranges beyond the quartiles
_FEWEST_FOR_FENCES = 4
_FEWEST_MEANS = 3  # two leave no residual to judge by


@dataclass(frozen=True)
class LineEstimate(Result):
    """A line by one estimator; the units and the factor are those of a `Fit`."""

    name: str  # of the estimator: a key of ESTIMATORS
    meaning: str  # what it is, and what to beware of
    reply_mode: ReplyMode
    factor: int  # how often a byte crosses the link, by the recorded reply mode
    n: int  # round trips that the line went through: some of very many
    confidence: float
    slope_ns_per_byte: Estimate  # of payload, no factor applied
    bandwidth_bits_per_second: Estimate | None  # on the wire; None: slope may be 0
    fixed_delay_seconds: Estimate  # of the round trip


def compare_estimators(
    size_bytes: ArrayLike,
    rtt_ns: ArrayLike,
    round_index: ArrayLike,
    *,
    reply_mode: ReplyMode,
    packets: Packets | None = None,
    names: Sequence[str] | None = None,
    confidence: float = 0.95,
    resamples: int = 100,
    seed: int = 1,
) -> tuple[LineEstimate, ...]:
    """Fit a line by each of several estimators.

    Parameters
    ----------
    size_bytes, rtt_ns, round_index, reply_mode, packets
        As of `fit_round_trips`.
    names : sequence of str, optional
        Which ones; all of ``ESTIMATORS`` without it.
    confidence, resamples, seed
        Of the intervals, by a bootstrap of whole rounds. Of 100 draws the spread
        is known to 7%.

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
    sizes, rtt, rounds = checked_rows(size_bytes, rtt_ns, round_index)
    check_options(reply_mode, confidence, resamples)
    different = np.unique(sizes).size
    if different < _PER_SIZE:
        raise ValueError(f"a line needs {_PER_SIZE} sizes or more, got {different}")
    chosen = list(ESTIMATORS if names is None else names)
    unknown = [name for name in chosen if name not in ESTIMATORS]
    if unknown:
        raise ValueError(f"names must be of {', '.join(ESTIMATORS)}; got {unknown[0]}")
    cut = packets or Packets()
    x = Crossing.round_trip(sizes, cut, reply_mode).wire_bytes
    scale = Scale(
        rtt.size,
        confidence,
        factor=2 if reply_mode == "echo" else 1,
        payload_share=cut.payload_share,
        step_ns=clock_step(rtt),
    )
    draw: dict[str, Any] = {"resamples": resamples, "seed": seed}
    return tuple(
        _estimate(name, (x, rtt, rounds), reply_mode, scale, draw) for name in chosen
    )


@dataclass(frozen=True)
class LeastSquares(Result):
    """The line through means of five.

    Intervals are those of least squares: they take the means for independent and
    their noise for normal, and are wrong where a burst or a bend is in the data.
    """

    slope_ns_per_byte: Estimate  # of payload; `n` of each estimate counts means
    fixed_delay_seconds: Estimate  # the intercept, of the round trip
    # 1 / slope, no factor and no headers. None where the slope may be zero.
    bandwidth_as_written: Estimate | None
    # Payload per second, with the factor of the reply mode; None without one.
    bandwidth_bits_per_second: Estimate | None
    reply_mode: ReplyMode | None
    factor: int | None  # 2 for a full echo, 1 for a reply of fixed size
    outliers: Outliers
    r_squared: float  # share of the means' variance that the line explains
    removed: int  # round trips outside the fences
    means: int  # means, sizes and round trips that went in
    sizes: int
    n: int
    confidence: float


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
    none = np.zeros(np.shape(rtt_ns))
    sizes, rtt, _ = checked_rows(size_bytes, rtt_ns, none)
    check_options("echo" if reply_mode is None else reply_mode, confidence, 100)
    if outliers not in get_args(Outliers):
        raise ValueError(f"outliers must be 'fences' or 'kept', got {outliers!r}")
    kept = np.ones(rtt.size, dtype=bool)
    if outliers == "fences":
        kept = _inside_fences(sizes, rtt)
    mean_sizes, means = means_of_five(sizes[kept], rtt[kept])
    different, n = np.unique(mean_sizes).size, means.size
    if different < _PER_SIZE or n < _FEWEST_MEANS:
        raise ValueError(
            f"a line needs {_PER_SIZE} sizes and {_FEWEST_MEANS} means of {GROUP} or"
            f" more, got {different} and {n}; send more round trips"
        )
    if np.ptp(means) == 0:
        raise ValueError(f"rtt_ns must vary, got {means[0]:.0f} ns for all means")
    line = stats.linregress(mean_sizes, means)
    t = float(stats.t.ppf((1 + confidence) / 2, n - 2))
    slope = _with_error(line.slope, t * line.stderr, n)
    factor = None if reply_mode is None else 2 if reply_mode == "echo" else 1
    return LeastSquares(
        slope_ns_per_byte=slope,
        fixed_delay_seconds=_with_error(
            line.intercept / NS_PER_SECOND, t * line.intercept_stderr / NS_PER_SECOND, n
        ),
        bandwidth_as_written=rate_of(slope),
        bandwidth_bits_per_second=rate_of(slope, factor) if factor else None,
        reply_mode=reply_mode,
        factor=factor,
        outliers=outliers,
        r_squared=float(line.rvalue**2),
        removed=int((~kept).sum()),
        means=n,
        sizes=different,
        n=int(kept.sum()),
        confidence=confidence,
    )


def means_of_five(size_bytes: Floats, rtt_ns: Floats) -> tuple[Floats, Floats]:
    """Return sizes and mean delays of each five round trips of one size.

    The last group of a size may be smaller, and counts as much as the others.
    """
    order = np.argsort(size_bytes, kind="stable")
    sizes = size_bytes[order]
    begins = nth_in_run(np.diff(sizes, prepend=np.nan) != 0) % GROUP == 0
    group = np.cumsum(begins) - 1
    means = np.bincount(group, weights=rtt_ns[order]) / np.bincount(group)
    return sizes[begins], means


def _estimate(
    name: str,
    rows: tuple[Floats, Floats, Floats],
    reply_mode: ReplyMode,
    scale: Scale,
    draw: dict[str, Any],
) -> LineEstimate:
    meaning, fit = ESTIMATORS[name]
    if fit is None:
        low = low_delays(*rows, fewest=1, **draw)
        line = fit_line(low.size_bytes, low)
        slopes, intercepts = line.slopes, line.intercepts_ns
        scale = replace(scale, freedom=line.freedom)
    else:
        slopes, intercepts, n = _drawn(fit, *rows, scale.step_ns, **draw)
        scale = replace(scale, n=n)
    return LineEstimate(
        name=name,
        meaning=meaning,
        reply_mode=reply_mode,
        factor=scale.factor,
        n=scale.n,
        confidence=scale.confidence,
        slope_ns_per_byte=scale.per_payload_byte(slopes),
        bandwidth_bits_per_second=scale.bandwidth(slopes),
        fixed_delay_seconds=scale.intercept_seconds(intercepts),
    )


def _drawn(
    fit: Estimator,
    x: Floats,
    y: Floats,
    rounds: Floats,
    step_ns: float,
    resamples: int,
    seed: int,
) -> tuple[Floats, Floats, int]:
    """Return slopes and intercepts, the sample's first, and how many trips it has.

    Very many rounds are drawn in blocks of consecutive ones, as `low_delays` does.
    """
    of_round, rank = np.unique(rounds, return_inverse=True)
    every = -(-y.size // _MOST_TRIPS)
    kept = rank % every == 0
    if np.unique(x[kept]).size < _PER_SIZE:
        kept[:] = True
    x, y = x[kept], y[kept]
    _, of_size = np.unique(x, return_inverse=True)
    blocks = min(-(-of_round.size // every), BLOCKS)
    block = rank[kept] * blocks // of_round.size
    order = np.argsort(block, kind="stable")
    parts = np.split(order, np.searchsorted(block[order], np.arange(1, blocks)))
    rng = np.random.default_rng(seed)
    lines = [fit(x, y)]
    while len(lines) <= resamples:
        rows = np.concatenate([parts[i] for i in rng.integers(0, blocks, blocks)])
        within = step_ns * rng.uniform(-0.5, 0.5, of_size.max() + 1)[of_size[rows]]
        if np.unique(of_size[rows]).size >= _PER_SIZE:
            lines.append(fit(x[rows], y[rows] + within))
    slopes, intercepts = np.array(lines).T
    return slopes, intercepts, y.size


def least_squares_line(x: Floats, y: Floats) -> SlopeIntercept:
    """Fit the line that leaves the smallest sum of squares.

    The best of all unbiased lines that are linear in y, if noise has one variance
    [1]_. That of queueing grows with load and comes in bursts: one long wait moves
    the line. It stands here since so many results were got by it.

    References
    ----------
    .. [1] Draper and Smith (1998). Applied Regression Analysis, 3rd ed.
    """
    return _weighted_line(x, y, np.ones_like(x))


def _weighted_line(x: Floats, y: Floats, weights: Floats) -> SlopeIntercept:
    mean_x, mean_y = np.average(x, weights=weights), np.average(y, weights=weights)
    from_mean = x - mean_x
    slope = weights @ (from_mean * (y - mean_y)) / (weights @ from_mean**2)
    return float(slope), float(mean_y - slope * mean_x)


def huber_line(x: Floats, y: Floats) -> SlopeIntercept:
    """Fit Huber's M-estimate: squares near the line, absolute values far away.

    The scale is the median absolute residual, taken anew at each step [1]_. Noise
    on one side lifts the intercept; the slope is not biased where all sizes have
    the same noise.

    References
    ----------
    .. [1] Huber and Ronchetti (2009). Robust Statistics, 2nd ed., chapter 7.
    """

    def weigh(u: Floats) -> Floats:
        return _HUBER_T / np.maximum(np.abs(u), _HUBER_T)

    return _reweighted(x, y, weigh, least_squares_line(x, y))


def tukey_line(x: Floats, y: Floats) -> SlopeIntercept:
    """Fit Tukey's biweight M-estimate, from Huber's on: far points count nothing.

    References
    ----------
    .. [1] Beaton and Tukey (1974). The fitting of power series, meaning
       polynomials, illustrated on band-spectroscopic data. Technometrics 16,
       147-185.
    """

    def weigh(u: Floats) -> Floats:
        inside: Floats = np.maximum(0.0, 1 - (u / _TUKEY_C) ** 2) ** 2
        return inside

    return _reweighted(x, y, weigh, huber_line(x, y))


def _reweighted(
    x: Floats, y: Floats, weigh: Callable[[Floats], Floats], start: SlopeIntercept
) -> SlopeIntercept:
    """Repeat weighted least squares until the line stands."""
    line = start
    flat = _FLAT * float(np.ptp(y))
    for _ in range(_STEPS):
        residual = y - line[0] * x - line[1]
        scale = float(np.median(np.abs(residual))) / _NORMAL_MAD
        if scale <= flat:  # over half of the points are on the line
            return line
        weights = weigh(residual / scale)
        if np.ptp(x[weights > 0]) == 0:  # all that count are of one size
            return line
        last, line = line, _weighted_line(x, y, weights)
        moved = np.abs((line[0] - last[0]) * x + line[1] - last[1]).max()
        if moved < _CLOSE * scale:
            break
    return line


def quantile_line(x: Floats, y: Floats, p: float = LOW) -> SlopeIntercept:
    """Fit the line below which a share `p` of the points lies [1]_.

    What the 10th percentile of each size is where sizes repeat, without need of
    repetition: for traffic that was watched and has each size once.

    A linear programme; the dual is solved, which has two constraints however many
    points there are, and whose multipliers are the line.

    References
    ----------
    .. [1] Koenker and Bassett (1978). Regression quantiles. Econometrica 46, 33-50.
    """
    unit_x, unit_y = float(np.abs(x).max()), float(np.ptp(y)) or 1.0
    terms = np.vstack([np.ones_like(x), x / unit_x])
    found = linprog(
        -(y - y.min()) / unit_y,
        A_eq=terms,
        b_eq=(1 - p) * terms.sum(axis=1),
        bounds=(0, 1),
        method="highs-ds",
    )
    if not found.success:
        raise ValueError(f"quantile regression found no line: {found.message}")
    intercept, slope = -found.eqlin.marginals
    return float(slope * unit_y / unit_x), float(intercept * unit_y + y.min())


def _per_size(reduce: Callable[[Floats], Any], x: Floats, y: Floats) -> SlopeIntercept:
    """Draw Theil and Sen's line through one delay of each size."""
    sizes, of_size = np.unique(x, return_inverse=True)
    ends = np.cumsum(np.bincount(of_size))[:-1]
    parts = np.split(y[np.argsort(of_size, kind="stable")], ends)
    return theil_sen(sizes, np.array([float(reduce(part)) for part in parts]))


# None: the default answer, which is drawn as that is.
ESTIMATORS: dict[str, tuple[str, Estimator | None]] = {
    "p10_weighted_theil_sen": (
        "10th percentile per size, Theil-Sen weighted by distance: the line of the"
        " default answer",
        None,
    ),
    "p10_theil_sen": (
        "10th percentile per size, Theil-Sen: a line of short messages, where most"
        " sizes are short",
        partial(_per_size, _low),
    ),
    "least_squares": (
        "all round trips, least squares: one outlier moves it",
        least_squares_line,
    ),
    "huber": (
        "all round trips, Huber's M-estimate: its delay is a typical one, no floor",
        huber_line,
    ),
    "tukey": (
        "all round trips, Tukey's biweight: its delay is a typical one, no floor",
        tukey_line,
    ),
    # What NTP's clock filter keeps (RFC 5905).
    "minimum": (
        "minimum per size, Theil-Sen: its interval is too narrow, since draws of"
        " a sample cannot go below its minimum",
        partial(_per_size, np.min),
    ),
    "quantile_10": (
        "all round trips, regression of the 10th percentile",
        quantile_line,
    ),
}


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
