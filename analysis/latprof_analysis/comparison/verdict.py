"""From an effect, its interval and its corrected probability to one word."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from latprof_analysis.comparison.worth import Effect

Verdict = Literal["slower", "faster", "same", "no evidence", "too few", "mixed"]

# Of found changes at most so many of 100 may be due to chance.
ALPHA = 0.05


def verdict(
    ratio: Effect | None,
    difference: Effect | None,
    p_adjusted: float | None,
    smallest: float,
) -> Verdict:
    """Judge an effect.

    Slower or faster: the corrected probability is at most 5%, the interval does not
    hold "no change", and the estimate is beyond `smallest`. Same: a change below
    `smallest`, or an interval that lies within it. No evidence: neither.

    Parameters
    ----------
    ratio, difference : Effect or None
        B over A, B less A. The ratio is None where A is 0; the difference decides
        then.
    p_adjusted : float or None
        None where it cannot be told.
    smallest : float
        Share of A below which a change does not matter.

    Examples
    --------
    >>> ten_percent = Effect(1.10, 1.05, 1.15)
    >>> [verdict(ten_percent, None, p, 0.01) for p in (0.001, 0.2, None)]
    ['slower', 'no evidence', 'too few']
    >>> verdict(Effect(1.001, 0.998, 1.004), None, 0.4, 0.01)
    'same'
    """
    effect, none = (ratio, 1.0) if ratio else (difference, 0.0)
    if p_adjusted is None or effect is None:
        return "too few"
    low = effect.low if effect.low is not None else -float("inf")
    high = effect.high if effect.high is not None else float("inf")
    margin = smallest if ratio else 0.0
    if p_adjusted <= ALPHA and not low <= none <= high:
        if abs(effect.value - none) < margin:
            return "same"
        return "slower" if effect.value > none else "faster"
    within = none - margin <= low and high <= none + margin
    return "same" if within else "no evidence"


def together(verdicts: Collection[Verdict]) -> Verdict:
    """Return what the percentiles of one group say together.

    Examples
    --------
    >>> together(["same", "slower", "too few"]), together(["slower", "faster"])
    ('slower', 'mixed')
    >>> together(["too few", "no evidence"]), together(["same", "too few"])
    ('no evidence', 'same')
    """
    if {"slower", "faster"} <= set(verdicts):
        return "mixed"
    order: tuple[Verdict, ...] = ("slower", "faster", "no evidence", "same")
    return next((word for word in order if word in verdicts), "too few")
