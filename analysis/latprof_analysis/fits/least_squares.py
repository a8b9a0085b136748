"""Least squares on means of five: a much used procedure, beside the default answer.

Ping-pong round trips of each size are averaged by fives in the order in which they
came, and scipy's `linregress` draws D = a S + b through the means. Bandwidth is
taken as the change of size over the change of delay.

What it leaves open, and how it is read here: outliers are to be removed before the
fit, but no rule is given, so Tukey's fences are used for each size; the factor 2 of
an echo and the headers are not spoken of, so ``bandwidth_as_written`` has neither.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from latprof_analysis.fits.fit_input import check_options, check_rows, column_of
from latprof_analysis.fits.fit_result import Estimate, ReplyMode
from latprof_analysis.fits.rounds import Floats
from latprof_analysis.text import NS_PER_SECOND

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
    slope = _estimate(line.slope, t * line.stderr, means.size)
    factor = None if reply_mode is None else 2 if reply_mode == "echo" else 1
    return LeastSquares(
        slope_ns_per_byte=slope,
        fixed_delay_seconds=_estimate(
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


def _estimate(value: float, half_width: float, n: int) -> Estimate:
    return Estimate(
        float(value), float(value - half_width), float(value + half_width), n
    )


def _bandwidth(slope: Estimate, factor: int) -> Estimate | None:
    if slope.low <= 0:
        return None
    rate = factor * 8 * NS_PER_SECOND
    return Estimate(rate / slope.value, rate / slope.high, rate / slope.low, slope.n)
