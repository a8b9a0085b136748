"""What a quantile of two samples comes to: ratio, difference, probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from latprof_analysis.comparison.worth import Effect


@dataclass(frozen=True)
class QuantileOf:
    """A quantile of one side.

    `n` values in `runs` runs, worth `n_effective` independent ones (None with
    several runs); ``low`` and ``high`` are None where nothing bounds it. Of several
    runs it is the geometric mean of theirs.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    n_effective: float | None
    runs: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON; times in ns."""
        times = ("value", "low", "high")
        return {f"{k}_ns" if k in times else k: v for k, v in vars(self).items()}


@dataclass(frozen=True)
class QuantileChange:
    """A quantile of B against that of A.

    Attributes
    ----------
    p : float
    a, b : QuantileOf or None
        None where too few values were seen for that percentile.
    ratio : Effect or None
        B over A. None where A has 0, or a side is missing.
    difference : Effect or None
        B less A, in the unit of the values.
    p_value : float or None
        Probability of so large a difference if there is none. None where it cannot
        be told.
    reason : str or None
        Why there is no `p_value`.
    """

    p: float
    a: QuantileOf | None
    b: QuantileOf | None
    ratio: Effect | None
    difference: Effect | None
    p_value: float | None
    reason: str | None

    def is_above(self, share: float) -> bool:
        """Whether B is above A by more than a share, with the whole interval."""
        if self.ratio is None:
            # more than nothing is above any share of it
            return self.difference is not None and (self.difference.low or 0.0) > 0
        return self.ratio.low is not None and self.ratio.low > 1 + share


def recovered(a: QuantileOf, b: QuantileOf) -> tuple[Effect | None, Effect]:
    """Return ratio and difference, their intervals from those of both sides."""
    plain = _apart((a.value, a.low, a.high), (b.value, b.low, b.high))
    if a.value <= 0 or b.value <= 0:
        return None, plain
    logs = [tuple(map(_log, (of.value, of.low, of.high))) for of in (a, b)]
    return exponential(_apart(*logs)), plain


def _apart(a: tuple[float | None, ...], b: tuple[float | None, ...]) -> Effect:
    """Return b less a; each is a value with its low and high."""
    (at, low_a, high_a), (bt, low_b, high_b) = a, b
    assert at is not None and bt is not None
    low = high = None
    if low_b is not None and high_a is not None:
        low = bt - at - math.hypot(bt - low_b, high_a - at)
    if high_b is not None and low_a is not None:
        high = bt - at + math.hypot(high_b - bt, at - low_a)
    return Effect(bt - at, low, high)


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and value > 0 else None


def exponential(logs: Effect) -> Effect:
    low, high = (None if v is None else math.exp(v) for v in (logs.low, logs.high))
    return Effect(math.exp(logs.value), low, high)
