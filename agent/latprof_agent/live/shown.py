"""All that the view shows at a moment: windows, and what of them was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from latprof_agent.live.chosen import Chosen, Page
from latprof_agent.live.figures import figures_of
from latprof_agent.live.history import History
from latprof_agent.live.rows import Row, ordered, rows_of
from latprof_agent.monitor.totals import Exemplar, Group, Own, Totals
from latprof_agent.probes.grouping import Grouping

MOST_EXEMPLARS = 200


_ALL = 0.995  # of the time


def all_measured(own: Own) -> bool:
    """Whether the budget for our own cost left no part of the time out."""
    return own.covered_seconds >= _ALL * own.seconds


@dataclass(frozen=True)
class Watched:
    """What is measured now: how it is kept apart, and the filter's words."""

    grouping: Grouping = field(default_factory=Grouping)
    filter: str = ""


@dataclass(frozen=True)
class Window:
    """One interval, and all since the zero, which few ask for."""

    watched: Watched
    interval: Totals
    now: Totals
    zero: Totals = field(default_factory=Totals)

    @cached_property
    def whole(self) -> Totals:
        return self.now.since(self.zero)


@dataclass
class Shown:
    """The model of the view: takes windows, gives rows."""

    history: History = field(default_factory=History)
    exemplars: list[Exemplar] = field(default_factory=list)  # newest last
    _window: Window | None = None
    _rows: dict[bool, list[Row]] = field(default_factory=dict)

    def take(self, window: Window) -> None:
        """Take in a window."""
        figures = figures_of(window.interval)
        self.history.add(figures, window.interval.own.seconds)
        self.exemplars += window.interval.exemplars
        del self.exemplars[:-MOST_EXEMPLARS]
        self._window = window
        self._rows = {False: rows_of(window.interval, figures)}

    def forget(self) -> None:
        """Begin anew: other groups, or other sums."""
        self.history.clear()
        self.exemplars.clear()
        self._window, self._rows = None, {}

    def copy(self) -> Shown:
        """Return what a paused view goes on to show."""
        return Shown(
            self.history.copy(), list(self.exemplars), self._window, dict(self._rows)
        )

    @property
    def window(self) -> Window | None:
        return self._window

    def rows(self, chosen: Chosen) -> list[Row]:
        """Return the rows in the order that was chosen."""
        if self._window is None:
            return []
        if chosen.whole not in self._rows:
            whole = self._window.whole
            self._rows[chosen.whole] = rows_of(whole, figures_of(whole))
        return ordered(
            self._rows[chosen.whole], chosen.sort, backwards=chosen.backwards
        )

    def own(self, chosen: Chosen) -> Own:
        """Return what the measuring itself cost, over the same time."""
        assert self._window
        totals = self._window.whole if chosen.whole else self._window.interval
        return totals.own

    def slow(self, chosen: Chosen) -> list[Exemplar]:
        """Return the newest first, of the opened group or of all."""
        group = slow_group(chosen)
        return [e for e in reversed(self.exemplars) if group in (None, e.group)]

    def story_of(self, exemplar: Exemplar) -> dict[str, Any] | None:
        """Return why it was slow, as `latprof story` reads it, if that is known."""
        stories = self._window.now.stories if self._window else {}
        return stories.get((exemplar.pid, exemplar.t_ns))


def slow_group(chosen: Chosen) -> Group | None:
    """Return the group whose slow ones are shown; None: all of them."""
    return chosen.group if chosen.back == Page.GROUP else None
