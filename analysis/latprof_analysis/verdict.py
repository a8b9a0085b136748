"""Whether a straight line may stand for the delays, a hinge, or neither."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from latprof_analysis.fit_result import Estimate, Model
from latprof_analysis.hinge import FEWEST_BESIDE, HingeFit, fit_hinge, fit_sides
from latprof_analysis.rounds import Floats, LowDelays
from latprof_analysis.theilsen import theil_sen

# A hinge replaces the line if the data say so (BIC), and if it matters: the bend
# is over 0.5% of the delays' range, and long messages see another bandwidth than
# the line's. Hosts bend every line a little at its short end.
_DELTA_BIC = 10.0
_BEND = 0.005
_SLOPE = 0.02
# A line without a bend is refused if it leaves over 1% of the delays' variance.
_UNEXPLAINED = 0.01
# Either must exceed what the spread between rounds explains by so much.
_NOISE_RATIO = 3.0
_CLOCK_NS = 1.0


@dataclass(frozen=True)
class Line:
    """Theil-Sen line; draws: the first from the data, the others resampled."""

    slopes: Floats  # ns per byte on the wire
    intercepts_ns: Floats
    residual_ns: float  # root mean square
    unexplained_share: float
    hinge: HingeFit | None
    upper_slope: float | None  # of the hinge's side of long messages


def fit_line(x: Floats, low: LowDelays) -> Line:
    """Draw the line through the low delays, and the hinge to hold against it."""
    y = low.delay_ns
    slopes, intercepts = theil_sen(x, np.vstack([y, low.resampled_ns]))
    residual = y - slopes[0] * x - intercepts[0]
    variance = float(np.mean((y - y.mean()) ** 2))
    square = float(np.mean(residual**2))
    hinge = fit_hinge(x, y, _CLOCK_NS)
    return Line(
        slopes=slopes,
        intercepts_ns=intercepts,
        residual_ns=math.sqrt(square),
        unexplained_share=square / variance if variance > 0 else 0.0,
        hinge=hinge,
        upper_slope=_upper_slope(x, y, hinge),
    )


def _upper_slope(x: Floats, y: Floats, hinge: HingeFit | None) -> float | None:
    if hinge is None or x.size - hinge.split < 2:
        return None
    _, (slopes, _) = fit_sides(x, y[np.newaxis], hinge.split)
    return float(slopes[0])


def verdict(line: Line, low: LowDelays, slope: Estimate) -> tuple[Model, str]:
    """Say which model the delays allow, and why; `slope` is in ns per payload byte."""
    noise_ns = math.sqrt(float(np.mean(low.noise_ns**2)))
    hinge = line.hinge
    if hinge and hinge.delta_bic > _DELTA_BIC and _matters(line, low, noise_ns):
        bend = f"{hinge.bend:.1%} of their range (delta BIC {hinge.delta_bic:.0f})"
        beside = min(hinge.split, low.size_bytes.size - hinge.split)
        if beside >= FEWEST_BESIDE:
            return "hinge", f"the delays bend away from a line by {bend}"
        return "none", (
            f"the delays bend away from a line by {bend}, with {beside} sizes on"
            f" one side of the bend where {FEWEST_BESIDE} are needed"
        )

    if slope.low <= 0:
        ns = f"{slope.value:.3g} ns a byte [{slope.low:.3g}, {slope.high:.3g}]"
        return "none", f"the delays do not grow measurably with size: {ns}"

    left = f"{line.unexplained_share:.2%} of the delays' variance"
    if (
        line.unexplained_share > _UNEXPLAINED
        and line.residual_ns > _NOISE_RATIO * noise_ns
    ):
        more = f"{line.residual_ns / 1e3:.3g} us where noise is {noise_ns / 1e3:.3g} us"
        return "none", f"a line leaves {left}: residuals of {more}"
    return "line", f"a line leaves {left} over {low.size_bytes.size} sizes"


def _matters(line: Line, low: LowDelays, noise_ns: float) -> bool:
    if line.hinge is None:
        return False
    bend_ns = line.hinge.bend * float(np.ptp(low.delay_ns))
    slope = float(line.slopes[0])
    # too few long messages for a slope of their own: it may be anything
    other = line.upper_slope is None or abs(line.upper_slope - slope) > _SLOPE * slope
    return other and line.hinge.bend > _BEND and bend_ns > _NOISE_RATIO * noise_ns
