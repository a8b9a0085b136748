"""One measured figure: its spread, and the bar and the goal it stands beside."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Figure:
    """A figure of `n` rounds: their median, quartiles and extremes.

    The smaller, the better, unless `more_is_better`. `bar` and `goal` are None
    where the figure only explains another.
    """

    name: str
    unit: str
    value: float
    quartiles: tuple[float, float]
    least: float
    most: float
    n: int
    bar: float | None = None
    goal: float | None = None
    note: str = ""
    more_is_better: bool = False

    @property
    def verdict(self) -> str:
        """What to call the figure beside its bar and goal."""
        if self.bar is None:
            return ""
        if not self._reaches(self.bar):
            return "MISSED"
        return "goal" if self.goal is None or self._reaches(self.goal) else "bar"

    def _reaches(self, wanted: float) -> bool:
        return self.value >= wanted if self.more_is_better else self.value <= wanted

    def line(self) -> str:
        """Write it on one line."""
        value = f"{_number(self.value)} {self.unit}"
        found = f"{self.name:<48} {value:>12}  n {self.n:<3}"
        if self.n > 1:
            low, high = map(_number, self.quartiles)
            found += f" quartiles {low}..{high}"
            found += f", all {_number(self.least)}..{_number(self.most)}"
        if self.bar is not None:
            goal = "" if self.goal is None else f", goal {self.goal:g}"
            found += f"; bar {self.bar:g}{goal}: {self.verdict}"
        return found + (f" ({self.note})" if self.note else "")

    def as_dict(self) -> dict[str, Any]:
        """Give all of it for JSON."""
        return asdict(self) | {"verdict": self.verdict}


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def figure(name: str, unit: str, rounds: Sequence[float], **rest: Any) -> Figure:
    """Sum up the rounds of one measurement."""
    least, most = min(rounds), max(rounds)
    quartiles = (least, most)
    if len(rounds) > 1:
        low, _, high = statistics.quantiles(rounds, n=4, method="inclusive")
        quartiles = (low, high)
    value = statistics.median(rounds)
    return Figure(name, unit, value, quartiles, least, most, len(rounds), **rest)


def beside(rounds: Sequence[bool]) -> str:
    """Say in how many rounds other programs' probes were attached, if in any."""
    disturbed = sum(rounds)
    return f"{disturbed} of {len(rounds)} runs beside others' probes" * bool(disturbed)


def in_turn(states: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Number the rounds of each state; every other round goes backwards.

    So none of them always comes first.
    """
    for i in range(rounds):
        for state in states if i % 2 == 0 else reversed(states):
            yield i, state


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Divide pairs of rounds that were measured one after the other."""
    return [a / b for a, b in zip(above, below, strict=True)]
