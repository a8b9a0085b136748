"""Figures that sum up many latencies, side by side: they can be shown, not judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.comparison.sides import Figure, Group, Side

REASON = (
    "a mean, a percentile or a maximum is one number: how far it would scatter is not"
    " in the file, so that the ratio has no interval and no verdict"
)


@dataclass(frozen=True)
class FigureRow:
    """One figure on each side, in ns; None where a side has none.

    `ratios` are over the baseline; `counts` say of how many messages.
    """

    group: Group
    statistic: str
    values: tuple[float | None, ...]
    counts: tuple[int | None, ...]

    @property
    def ratios(self) -> tuple[float | None, ...]:
        """Over the baseline."""
        base = self.values[0]
        return tuple(
            value / base if base and value is not None else None
            for value in self.values
        )

    def by_side(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the fields for JSON; one entry for each side."""
        columns = zip(names, self.values, self.counts, self.ratios, strict=True)
        return {
            "kind": self.group.kind,
            "size_bytes": self.group.size_bytes if self.group.size_bytes >= 0 else None,
            "statistic": self.statistic,
            "sides": {
                name: {"value_ns": value, "count": count, "ratio": ratio}
                for name, value, count, ratio in columns
            },
            "reason": REASON,
        }


def figure_rows(
    sides: Sequence[Side], wanted: Sequence[tuple[Group, str]]
) -> tuple[FigureRow, ...]:
    """Put figures side by side.

    Examples
    --------
    >>> get = Group("GET", "latency", 1000)
    >>> redis, endpoint = (Side(name, (name,), figures={(get, "mean"): [(ns, 3)]})
    ...                    for name, ns in (("REDIS", 2e5), ("ENDPOINT", 16e5)))
    >>> figure_rows([redis, endpoint], [(get, "mean")])[0].ratios
    (1.0, 8.0)
    """
    made = []
    for group, statistic in wanted:
        found = [
            _merged(statistic, side.figures.get((group, statistic), []))
            for side in sides
        ]
        values, counts = zip(*found, strict=True)
        made.append(FigureRow(group, statistic, values, counts))
    return tuple(made)


def _merged(
    statistic: str, figures: Sequence[Figure]
) -> tuple[float | None, int | None]:
    """Merge figures, where that can be done; of smoothed ones take the median."""
    known = [figure for figure in figures if not pd.isna(figure[0])]
    if not known:
        return None, None
    values = [float(value) for value, _ in known]
    counted = all(not pd.isna(count) for _, count in known)
    count = int(sum(int(count) for _, count in known)) if counted else None
    if len(known) == 1:
        return values[0], count
    if statistic in ("min", "max"):
        return (min if statistic == "min" else max)(values), count
    if statistic == "smoothed":
        return float(np.median(values)), len(values)
    if statistic == "mean" and count:
        total = sum(value * int(n) for value, (_, n) in zip(values, known, strict=True))
        return total / count, count
    return None, count
