"""What changed from a baseline to other runs: by stage, by size, and how surely.

Each effect, its interval and its probability, corrected for how many there are, come
to one word. Loss and throughput are beside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from latprof_analysis.compare.effects import (
    FigureChange,
    RankEffect,
    Verdict,
    checked_runs,
    compare_quantile,
    compare_ranks,
)
from latprof_analysis.compare.rates import (
    compare_loss,
    compare_lost,
    compare_rates,
    compare_throughput,
)
from latprof_analysis.compare.sides import (
    Group,
    SetupDifference,
    Side,
    setup_differences,
)
from latprof_analysis.read.result import shown
from latprof_analysis.text import plural

Correction = Literal["benjamini-hochberg", "holm", "none"]


def adjusted(
    p_values: ArrayLike, correction: Correction = "benjamini-hochberg"
) -> NDArray[np.float64]:
    """Correct probabilities for being one of many.

    ``"benjamini-hochberg"`` bounds the expected share of false ones among what is
    found [1]_, also where comparisons depend on each other in the same direction,
    as stages and sizes of a run do [2]_. ``"holm"`` bounds the probability of a
    single false one, however they depend [3]_.

    Parameters
    ----------
    p_values : array_like, shape (n,)
        Each in [0, 1].

    References
    ----------
    .. [1] Benjamini and Hochberg (1995). Controlling the false discovery rate.
       JRSS B 57, 289-300.
    .. [2] Benjamini and Yekutieli (2001). The control of the false discovery rate
       in multiple testing under dependency. Annals of Statistics 29, 1165-1188.
    .. [3] Holm (1979). A simple sequentially rejective multiple test procedure.
       Scandinavian Journal of Statistics 6, 65-70.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p_values must have shape (n,) and lie from 0 to 1")
    n = p.size
    if correction == "none" or not n:
        return p
    order = np.argsort(p, kind="stable")
    if correction == "holm":
        raised = np.maximum.accumulate(p[order] * np.arange(n, 0, -1))
    else:
        scaled = p[order] * n / np.arange(1, n + 1)
        raised = np.minimum.accumulate(scaled[::-1])[::-1]
    corrected = np.empty(n)
    corrected[order] = np.minimum(1.0, raised)
    return corrected


# Of found changes at most so many of 100 may be due to chance.
ALPHA = 0.05


def verdict(change: FigureChange, p_adjusted: float | None, smallest: float) -> Verdict:
    """Judge a change by its ratio; where A is 0 there is none, and by its difference.

    Slower or faster: the corrected probability is at most 5%, the interval does not
    hold "no change", and the estimate is beyond `smallest`, a share of A. Same: a
    change below `smallest`, or an interval that lies within it. No evidence: neither.

    Examples
    --------
    >>> from latprof_analysis.compare.effects import Effect
    >>> ten_percent = FigureChange(None, None, ratio=Effect(1.10, 1.05, 1.15))
    >>> [verdict(ten_percent, p, 0.01) for p in (0.001, 0.2, None)]
    ['slower', 'no evidence', 'too few']
    """
    ratio = change.ratio
    effect, none = (ratio, 1.0) if ratio else (change.difference, 0.0)
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


@dataclass(frozen=True)
class GroupChange:
    """A group of latencies of one side against the baseline's.

    `percentiles` are by their fraction.
    """

    side: str
    group: Group
    percentiles: dict[float, FigureChange]
    rank: RankEffect

    @property
    def verdict(self) -> Verdict:
        """What its percentiles say together."""
        said = {change.verdict for change in self.percentiles.values()}
        if {"slower", "faster"} <= said:
            return "mixed"
        order: tuple[Verdict, ...] = ("slower", "faster", "no evidence", "same")
        return next((word for word in order if word in said), "too few")

    @property
    def changed_ns(self) -> float:
        """The largest difference among the percentiles that changed."""
        found = [
            abs(change.difference.value)
            for change in self.percentiles.values()
            if change.verdict in ("slower", "faster") and change.difference
        ]
        return max(found, default=0.0)


@dataclass(frozen=True)
class Choice:
    """Which groups are compared; empty: all of them.

    `words` are stages, parts, protocols, kinds or ends: "end_to_end", "response",
    "tcp", "request", "rtt", "redis-server:7777".
    """

    words: Sequence[str] = ()
    sizes: Sequence[int] = ()

    def has(self, group: Group) -> bool:
        """Whether a group is among them."""
        return (not self.words or not group.words.isdisjoint(self.words)) and (
            not self.sizes or group.size_bytes in self.sizes
        )


@dataclass(frozen=True)
class Comparison:
    """What `compare_sides` found; `groups` are by side, then kind, stage and size."""

    sides: tuple[Side, ...]  # the first is the baseline
    groups: tuple[GroupChange, ...]
    # by side and what they are of
    loss: dict[tuple[str, Group], FigureChange]
    throughput: dict[tuple[str, Group], FigureChange]
    # by statistic what several sides have that cannot be judged, only shown
    figures: list[tuple[Group, str]]
    setup: dict[str, list[SetupDifference]]  # by side
    warnings: list[str]
    smallest: float
    correction: Correction

    @property
    def repeated(self) -> bool:
        """Whether runs were drawn, not values of one run."""
        return any(len(side.runs) > 1 for side in self.sides)


# Of five such changes four are seen.
_POWER = 0.8


def detectable(found: Comparison, side: str) -> dict[float, float]:
    """Return how small a change would have been seen, by percentile.

    A group that alone is slower by this share is found in four of five comparisons
    as wide and as many as these; the median over the groups. From the intervals, by
    the normal law. Percentiles that were judged nowhere are not in it.
    """
    normal = NormalDist()
    judged = [
        (change.side, p, one)
        for change in found.groups
        for p, one in change.percentiles.items()
        if one.p_adjusted is not None
    ]
    alpha = ALPHA if found.correction == "none" else ALPHA / max(1, len(judged))
    errors = normal.inv_cdf(1 - alpha / 2) + normal.inv_cdf(_POWER)
    shares: dict[float, list[float]] = {}
    for name, p, one in judged:
        ratio = one.ratio
        if name == side and ratio and ratio.low and ratio.high:
            error = math.log(ratio.high / ratio.low) / (2 * normal.inv_cdf(0.975))
            shares.setdefault(p, []).append(math.expm1(errors * error))
    return {p: float(np.median(some)) for p, some in sorted(shares.items())}


MOST_SIDES = 10
# Sides may differ by so much in the share of messages that have a stage.
_KNOWN_ALIKE = 0.1
_LOSS: dict[Verdict, Verdict] = {"slower": "more", "faster": "less"}
# A higher rate is the faster one.
_RATE: dict[Verdict, Verdict] = {"slower": "faster", "faster": "slower"}

_C = TypeVar("_C", FigureChange, RankEffect)
_T = TypeVar("_T")


def compare_sides(
    sides: Sequence[Side],
    *,
    percentiles: Sequence[float] = (0.5, 0.9, 0.99),
    smallest: float = 0.01,
    correction: Correction = "benjamini-hochberg",
    choice: Choice | None = None,
) -> Comparison:
    """Compare sides with the first of them, group by group.

    All percentiles of all groups of all sides are one family for the correction;
    rank effects are one, and losses and throughputs of each kind.

    Parameters
    ----------
    sides : sequence of Side
        2 to 10, as `read_sides` gives them.
    percentiles : sequence of float
        In (0, 1), which are judged.
    smallest : float
        Share below which a change does not matter.
    correction : str
        See `adjusted`.
    choice : Choice, optional
        Which groups to compare; the rest is not part of any family.

    Raises
    ------
    ValueError
        The sides have nothing in common, or their latencies are not the same
        quantity.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from latprof_analysis import read_sides
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> for name, least in (("a.csv", 2), ("b.csv", 1)):
    ...     rows = [f"{least + 77 * i % 200 / 999}\\n" for i in range(200)]
    ...     _ = (folder / name).write_text("ms\\n" + "".join(rows))
    >>> files = [str(folder / "a.csv"), str(folder / "b.csv")]
    >>> sides = read_sides(files, latency_column="ms", unit="ms")
    >>> (group,) = compare_sides(sides, percentiles=[0.5]).groups
    >>> group.percentiles[0.5].verdict
    'faster'
    """
    baseline, others = _checked(sides)
    wanted = choice or Choice()
    both = [
        (other, group)
        for other in others
        for group in sorted(baseline.series.keys() & other.series, key=Group.order)
        if wanted.has(group)
    ]
    times_of = Counter(key for side in sides for key in side.figures)
    figures = [
        key for key, times in times_of.items() if times > 1 and wanted.has(key[0])
    ]
    judge = partial(_judged, smallest=smallest, correction=correction)
    beside = partial(_beside, judge=judge, sides=sides, choice=wanted)
    loss = {
        **beside(compare_loss, _LOSS, lambda side: side.trips),
        **beside(compare_lost, _LOSS, lambda side: side.lost),
    }
    throughput = {
        **beside(compare_throughput, _RATE, lambda side: side.paced),
        **beside(compare_rates, _RATE, lambda side: side.rates),
    }
    if not (both or figures or throughput or loss):
        raise ValueError(_nothing(sides, wanted))
    series = [
        (
            checked_runs("baseline", baseline.series[group]),
            checked_runs("side", other.series[group]),
        )
        for other, group in both
    ]
    changes = [compare_quantile(a, b, p) for a, b in series for p in percentiles]
    judged = iter(judge(changes))
    ranks = _corrected([compare_ranks(a, b) for a, b in series], correction)
    setup = {other.name: setup_differences(baseline, other) for other in others}
    return Comparison(
        sides=tuple(sides),
        groups=tuple(
            GroupChange(other.name, group, {p: next(judged) for p in percentiles}, rank)
            for (other, group), rank in zip(both, ranks, strict=True)
        ),
        loss=loss,
        throughput=throughput,
        figures=figures,
        setup=setup,
        warnings=[
            *_warnings(sides, setup, judged=bool(both or throughput)),
            *_left_out(sides, wanted),
        ],
        smallest=smallest,
        correction=correction,
    )


def _checked(sides: Sequence[Side]) -> tuple[Side, Sequence[Side]]:
    if not 2 <= len(sides) <= MOST_SIDES:
        raise ValueError(f"sides must be 2 to {MOST_SIDES}, got {len(sides)}")
    baseline, *others = sides
    for other in others:
        if other.latency != baseline.latency:
            raise ValueError(
                f"cannot compare {shown(baseline.name)} with {shown(other.name)}: one"
                f" has {baseline.latency or 'stages of messages'}; the other"
                f" {other.latency or 'stages of messages'}"
            )
    return baseline, others


def _nothing(sides: Sequence[Side], choice: Choice) -> str:
    if any(choice.has(group) for side in sides for group in side.groups):
        return "nothing to compare: no kind, stage and size is in more than one input"
    if choice.words or choice.sizes:
        return "nothing to compare: no input has what --only and --sizes ask for"
    return "nothing to compare: the inputs have no latency"


def _corrected(found: Sequence[_C], correction: Correction) -> list[_C]:
    """Correct a family; what has no probability is not part of it."""
    known = [one.p_value for one in found if one.p_value is not None]
    corrected = iter(adjusted(known, correction).tolist())
    return [
        one if one.p_value is None else replace(one, p_adjusted=next(corrected))
        for one in found
    ]


def _judged(
    found: Sequence[FigureChange], smallest: float, correction: Correction
) -> list[FigureChange]:
    return [
        replace(one, verdict=verdict(one, one.p_adjusted, smallest))
        for one in _corrected(found, correction)
    ]


def _beside(
    compare: Callable[[Sequence[_T], Sequence[_T]], FigureChange],
    words: dict[Verdict, Verdict],
    of: Callable[[Side], Mapping[Group, Sequence[_T]]],
    *,
    judge: Callable[[Sequence[FigureChange]], list[FigureChange]],
    sides: Sequence[Side],
    choice: Choice,
) -> dict[tuple[str, Group], FigureChange]:
    """Judge loss or throughput by side and group, in words of their own."""
    baseline, *others = sides
    found = {
        (other.name, group): compare(runs, of(other)[group])
        for other in others
        for group, runs in of(baseline).items()
        if group in of(other) and choice.has(group)
    }
    return {
        key: replace(change, verdict=words.get(change.verdict, change.verdict))
        for key, change in zip(found, judge([*found.values()]), strict=True)
    }


def _warnings(
    sides: Sequence[Side], setup: dict[str, list[SetupDifference]], *, judged: bool
) -> Iterable[str]:
    if judged and all(len(side.runs) <= 1 for side in sides):
        yield (
            "one run on each side: the intervals hold what varies within a run, not"
            " what differs from run to run; repeat each 3 times or more, and give"
            " folders of runs"
        )
    elif judged and any(len(side.runs) <= 1 for side in sides):
        yield (
            "a side of one run is taken to vary from run to run as the other does; an"
            " odd run looks like a change: repeat it, too"
        )
    for name, differences in setup.items():
        if any(d.key == "plan.interval_ns" and "0" in d[1:] for d in differences):
            yield (
                f"{name}: one side is a closed loop, whose times count from the send"
                " call, the other an open one, whose times count from the intended"
                " time: round trips and the stages application and end_to_end are"
                " not the same quantity"
            )
    for side in sides[1:]:
        yield from _gaps(sides[0], side)
    for side in sides:
        yield from (f"{side.name}: {note}" for note in side.notes)


def _left_out(sides: Sequence[Side], choice: Choice) -> Iterable[str]:
    """Say what only one of two sides has."""
    baseline = sides[0]
    for other in sides[1:]:
        for one, without in ((baseline, other), (other, baseline)):
            only = list(filter(choice.has, one.groups - without.groups))
            if only:
                first = min(only, key=Group.order)
                named = " ".join(part for part in first[:2] if part != "latency")
                size = f" of {first.size_bytes} B" if first.size_bytes >= 0 else ""
                yield (
                    f"not compared: {plural(len(only), 'group')} that {one.name} has"
                    f" and {without.name} has not, such as {named}{size}"
                )


def _gaps(baseline: Side, other: Side) -> Iterable[str]:
    """Say where one side knows a stage of far fewer messages than the other."""
    for key in sorted(baseline.known.keys() & other.known.keys()):
        a, b = baseline.known[key], other.known[key]
        if min(a, b) > 0 and abs(a - b) > _KNOWN_ALIKE:
            yield (
                f"{' '.join(key)} is known of {100 * a:.0f}% of those of"
                f" {baseline.name}, of {100 * b:.0f}% of {other.name}: those without"
                " may be other ones"
            )
