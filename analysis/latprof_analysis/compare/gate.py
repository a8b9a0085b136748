"""Whether a change may pass: what is beyond a limit, and of what that is not known.

A limit that holds only where something can be told would pass what was measured too
little. So there are three outcomes: failed, where the whole interval is beyond the
limit; undecided, where the estimate is and the interval is not, or where nothing can
be told; passed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from latprof_analysis.compare.judgement import Comparison, GroupChange, Judged
from latprof_analysis.compare.rates import TripsChange
from latprof_analysis.text import percentile_name

Outcome = Literal["failed", "undecided", "passed"]
# Of latencies a gate looks at these, not at stages: of the many stages of two single
# runs that are alike, some always differ.
WHOLE = ("end_to_end", "response", "rtt", "latency")
_NO_TRIPS = "no round trips of a load generator are on both sides"
_ORDER: tuple[Outcome, ...] = ("failed", "undecided")  # the worst first


@dataclass(frozen=True)
class Limits:
    """By which shares B may be above A; None: whatever it is.

    Attributes
    ----------
    slower : float or None
        Of A's latency.
    lossier : float or None
        Of all requests: 0.01 lets one in a hundred more be lost.
    throughput_lower : float or None
        Of A's rate.
    """

    slower: float | None = None
    lossier: float | None = None
    throughput_lower: float | None = None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in vars(self).values())


@dataclass(frozen=True)
class Finding:
    """What keeps a comparison from passing.

    `what` is "latency", "loss" or "throughput"; `value`, `low` and `high` are of the
    ratio, of loss of the difference, None where not known.
    """

    outcome: Outcome
    what: Literal["latency", "loss", "throughput"]
    side: str
    kind: str
    stage: str = ""
    size_bytes: int = -1
    percentile: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Gate:
    """What came of the limits."""

    limits: Limits
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst of the findings."""
        found = {finding.outcome for finding in self.findings}
        return next((word for word in _ORDER if word in found), "passed")

    def as_dict(self) -> dict[str, Any]:
        """Return the fields for JSON."""
        return {
            "outcome": self.outcome,
            "limits": dict(vars(self.limits)),
            "findings": [
                vars(one)
                | {"size_bytes": one.size_bytes if one.size_bytes >= 0 else None}
                for one in self.findings
            ],
        }


def gate(found: Comparison, limits: Limits, *, stages: bool = False) -> Gate:
    """Hold a comparison against limits.

    Parameters
    ----------
    stages : bool
        Look at each stage that was compared, too, not at whole latencies only.

    Examples
    --------
    >>> import numpy as np
    >>> from latprof_analysis.compare import Side, compare_sides
    >>> from latprof_analysis.compare.sides import Group
    >>> rtt = Group("tcp round trip", "rtt", 64)
    >>> values = np.random.default_rng(1).exponential(1e5, 1000)
    >>> sides = [Side(name, (name,), series={rtt: [factor * values]})
    ...          for name, factor in (("before", 1.0), ("after", 1.3))]
    >>> compared = compare_sides(sides, percentiles=[0.5])
    >>> [gate(compared, Limits(slower=share)).outcome for share in (0.05, 0.25, 0.5)]
    ['failed', 'undecided', 'passed']
    """
    findings: list[Finding] = []
    if limits.slower is not None:
        findings += _latencies(found, limits.slower, stages)
    if limits.lossier is not None:
        findings += _losses(found, limits.lossier)
    if limits.throughput_lower is not None:
        findings += _throughputs(found, limits.throughput_lower)
    return Gate(limits, tuple(sorted(findings, key=lambda f: _ORDER.index(f.outcome))))


def _latencies(found: Comparison, limit: float, stages: bool) -> Iterator[Finding]:
    groups = [g for g in found.groups if stages or g.group.stage in WHOLE]
    if not groups:
        reason = "no latencies that can be judged are on both sides"
        yield Finding("undecided", "latency", "", "", reason=reason)
    for change in groups:
        told = [one for one in change.percentiles if one.p_adjusted is not None]
        if not told:
            reason = change.percentiles[0].change.reason or "too few values"
            yield Finding(
                "undecided", "latency", change.side, *change.group, reason=reason
            )
        for one in told:
            yield from _latency(change, one, limit)


def _latency(change: GroupChange, one: Judged, limit: float) -> Iterator[Finding]:
    outcome: Outcome = "undecided"
    if one.verdict == "slower" and one.change.is_above(limit):
        outcome = "failed"
    elif not one.change.seems_above(limit):
        return
    ratio = one.change.ratio
    yield Finding(
        outcome,
        "latency",
        change.side,
        *change.group,
        percentile=percentile_name(one.change.p),
        **(vars(ratio) if ratio else {}),
        reason="" if ratio else "the baseline has 0",
    )


def _losses(found: Comparison, limit: float) -> Iterator[Finding]:
    if not found.loss:
        yield Finding("undecided", "loss", "", "", reason=_NO_TRIPS)
    for one in found.loss:
        difference = one.change.difference
        low = difference.low if difference.low is not None else -1.0
        if difference.value > limit:
            failed = one.verdict == "slower" and low > limit
            yield _of_trips("loss", one.side, one.protocol, one.change, failed)


def _throughputs(found: Comparison, limit: float) -> Iterator[Finding]:
    if not found.throughput:
        yield Finding("undecided", "throughput", "", "", reason=_NO_TRIPS)
    for one in found.throughput:
        ratio = one.change.ratio
        if ratio is None or ratio.value < 1 - limit:
            high = ratio.high if ratio and ratio.high is not None else 1.0
            failed = one.verdict == "slower" and high < 1 - limit
            yield _of_trips("throughput", one.side, one.protocol, one.change, failed)


def _of_trips(
    what: Literal["loss", "throughput"],
    side: str,
    protocol: str,
    change: TripsChange,
    failed: bool,
) -> Finding:
    effect = change.difference if what == "loss" else change.ratio
    return Finding(
        "failed" if failed else "undecided",
        what,
        side,
        protocol,
        **(vars(effect) if effect else {}),
        reason=change.reason or "",
    )
