"""What a comparison comes to: groups, loss and throughput, judged among all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from latprof_analysis.comparison.change import QuantileChange
from latprof_analysis.comparison.families import Correction
from latprof_analysis.comparison.figures import FigureRow
from latprof_analysis.comparison.rank import RankEffect
from latprof_analysis.comparison.setup import SetupDifference
from latprof_analysis.comparison.sides import Group, Side
from latprof_analysis.comparison.trips import TripsChange
from latprof_analysis.comparison.verdict import Verdict, together


@dataclass(frozen=True)
class Judged:
    """One percentile of a group: the change, and what it comes to among all."""

    change: QuantileChange
    p_adjusted: float | None
    verdict: Verdict


@dataclass(frozen=True)
class GroupChange:
    """A group of latencies of one side against the baseline's."""

    side: str
    group: Group
    percentiles: tuple[Judged, ...]
    rank: RankEffect
    rank_p_adjusted: float | None

    @property
    def verdict(self) -> Verdict:
        """What its percentiles say together."""
        return together([judged.verdict for judged in self.percentiles])

    @property
    def changed_ns(self) -> float:
        """The largest difference among the percentiles that changed."""
        found = [
            abs(judged.change.difference.value)
            for judged in self.percentiles
            if judged.verdict in ("slower", "faster") and judged.change.difference
        ]
        return max(found, default=0.0)


@dataclass(frozen=True)
class JudgedTrips:
    """Loss or throughput of one protocol of one side against the baseline's."""

    side: str
    protocol: str
    change: TripsChange
    p_adjusted: float | None
    verdict: Verdict


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
    """What `compare_sides` found.

    Attributes
    ----------
    sides : tuple of Side
        The first is the baseline.
    groups : tuple of GroupChange
        By side, then kind, stage and size.
    loss, throughput : tuple of JudgedTrips
        "slower" stands for more loss, or for fewer round trips a second.
    figures : tuple of FigureRow
        What cannot be judged, only shown.
    setup : dict of str to list of SetupDifference
        By side.
    warnings : tuple of str
    smallest : float
    correction : str
    """

    sides: tuple[Side, ...]
    groups: tuple[GroupChange, ...]
    loss: tuple[JudgedTrips, ...]
    throughput: tuple[JudgedTrips, ...]
    figures: tuple[FigureRow, ...]
    setup: dict[str, list[SetupDifference]]
    warnings: tuple[str, ...]
    smallest: float
    correction: Correction

    @property
    def repeated(self) -> bool:
        """Whether runs were drawn, not values of one run."""
        return any(len(side.runs) > 1 for side in self.sides)

    def slower_than(self, share: float) -> list[tuple[GroupChange, Judged]]:
        """Return what is slower by more than a share, with its whole interval."""
        return [
            (change, judged)
            for change in self.groups
            for judged in change.percentiles
            if judged.verdict == "slower" and judged.change.is_above(share)
        ]
