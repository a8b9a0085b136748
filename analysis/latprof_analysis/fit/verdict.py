"""Whether a straight line may stand for the delays, a hinge, or neither."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latprof_analysis.fit.estimates import Estimate, Model
from latprof_analysis.fit.rounds import CLOCK_NS, LOW, Floats, LowDelays
from latprof_analysis.fit.slopes import (
    DELTA_BIC,
    FEWEST_BESIDE,
    HingeFit,
    fit_hinge,
    fit_sides,
    weighted_theil_sen,
)

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
    return Line(
        slopes=np.append(slope, slopes),
        intercepts_ns=np.append(intercept, intercepts),
        freedom=_freedom(x, low),
        missed=_missed(low, residual),
        residual_ns=math.sqrt(square),
        unexplained_share=square / variance if variance > 0 else 0.0,
        hinge=hinge,
        upper_slope=_upper_slope(x, y, hinge),
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
    if hinge and hinge.delta_bic > DELTA_BIC and _matters(line, low, noise_ns):
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
    """Tell the size whose delay the line misses most, if that is much."""
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

    About twice as many values as lie below it tell the spread of a low quantile;
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
        told = parts - (weight * low.step_noise_ns) ** 2
        squares = float((np.maximum(told, 0) ** 2).sum())
        found.append(
            of_a_size * float(parts.sum()) ** 2 / squares if squares > 0 else math.inf
        )
    return found[0], found[1]


def _upper_slope(x: Floats, y: Floats, hinge: HingeFit | None) -> float | None:
    if hinge is None or x.size - hinge.split < 2:
        return None
    _, (slopes, _) = fit_sides(x, y[np.newaxis], hinge.split)
    return float(slopes[0])


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


def _matters(line: Line, low: LowDelays, noise_ns: float) -> bool:
    if line.hinge is None:
        return False
    bend_ns = line.hinge.bend * float(np.ptp(low.delay_ns))
    slope = float(line.slopes[0])
    # too few long messages for a slope of their own: it may be anything
    other = line.upper_slope is None or abs(line.upper_slope - slope) > _SLOPE * slope
    return other and line.hinge.bend > _BEND and bend_ns > _NOISE_RATIO * noise_ns
