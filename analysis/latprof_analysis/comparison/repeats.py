"""A quantile of repeated runs: the run is what was drawn."""

from __future__ import annotations

import math

import numpy as np

from latprof_analysis.comparison.change import (
    QuantileChange,
    QuantileOf,
    exponential,
    recovered,
)
from latprof_analysis.comparison.worth import (
    Effect,
    Floats,
    Runs,
    critical,
    spread_of_runs,
)
from latprof_analysis.quantiles import rank, samples_needed
from latprof_analysis.text import plural


def compare_repeats(a: Runs, b: Runs, p: float) -> QuantileChange:
    """Compare the `p` quantile of two sides, of which one or both have several runs."""
    sides = [_runs_quantiles(side, p) for side in (a, b)]
    of_a, of_b = (
        _quantile_of_runs(side, values)
        for side, values in zip((a, b), sides, strict=True)
    )
    if not of_a or not of_b:
        return QuantileChange(p, of_a, of_b, None, None, None, _few_in_runs(a, b, p))
    if max(of_a.runs, of_b.runs) < 2:
        reason = f"only one run on each side has {samples_needed(p)} values or more"
        ratio, difference = recovered(of_a, of_b)
        return QuantileChange(p, of_a, of_b, ratio, difference, None, reason)
    difference, p_value = _between_runs(*sides)
    ratio = None
    if min(map(np.min, sides)) > 0:
        logs, p_value = _between_runs(*map(np.log, sides))
        ratio = exponential(logs)
    if difference.value and not any(map(np.ptp, sides)):
        reason = (
            "the runs of each side do not differ at all: how they would, is not told"
        )
        return QuantileChange(p, of_a, of_b, ratio, difference, None, reason)
    return QuantileChange(p, of_a, of_b, ratio, difference, p_value, None)


def _runs_quantiles(side: Runs, p: float) -> Floats:
    """Return the quantile of each run that has values enough."""
    enough = [np.sort(run) for run in side if run.size >= samples_needed(p)]
    return np.array([run[rank(p, run.size) - 1] for run in enough], np.float64)


def _quantile_of_runs(side: Runs, quantiles: Floats) -> QuantileOf | None:
    k = quantiles.size
    if not k:
        return None
    n = sum(run.size for run in side)
    if quantiles.min() <= 0:
        return QuantileOf(float(quantiles.mean()), None, None, n, None, k)
    logs = np.log(quantiles)
    low = high = None
    if k > 1:
        half = critical(k - 1) * float(logs.std(ddof=1)) / math.sqrt(k)
        low, high = (float(np.exp(logs.mean() + end)) for end in (-half, half))
    return QuantileOf(float(np.exp(logs.mean())), low, high, n, None, k)


def _between_runs(a: Floats, b: Floats) -> tuple[Effect, float]:
    found = spread_of_runs(a, b)
    difference = float(b.mean() - a.mean())
    half = found.critical * found.error
    effect = Effect(difference, difference - half, difference + half)
    return effect, found.p_value(difference)


def _few_in_runs(a: Runs, b: Runs, p: float) -> str:
    most = min(max(run.size for run in side) for side in (a, b))
    return f"{plural(most, 'value')} in a run, {samples_needed(p)} are needed"
