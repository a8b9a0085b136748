"""Cells of a column of latencies that are no latency: which stand for a loss.

What a file does not say is not guessed: a word as ``timeout``, or -1, stands where an
answer should have been; an empty cell may be that of a row of something else.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from latprof_analysis.read.result import shown
from latprof_analysis.text import counted

_EMPTY, _NONE = "empty", "none"
# As tools, spreadsheets and libraries write that no answer came.
_WORDS = frozenset(
    (
        *(
            "timeout",
            "time-out",
            "time out",
            "timedout",
            "timed out",
            "request timed out",
        ),
        *("etimedout", "lost", "loss", "no reply", "no response", "no answer"),
        *("unreachable", "fail", "failed", "failure", "error", "err"),
        *("drop", "dropped", "-", "--", "---", "*"),
        *("?", "nan", "-nan", "na", "n/a", "#n/a"),
        *("n.a.", "null", "none", "nil", "inf", "infinity"),
    )
)
_NUMBERS = frozenset([-1.0])
_MOST_WORDS = 6  # that are named one by one


@dataclass(frozen=True)
class LossCells:
    """Which cells are no latency, and which of these are losses.

    Attributes
    ----------
    words : frozenset of str
        Of losses, in lower case.
    numbers : frozenset of float
        Of losses.
    empty : bool
        Whether an empty cell is a loss.
    said : bool
        Whether somebody said which are losses: then a file without any had none.
    """

    words: frozenset[str] = _WORDS
    numbers: frozenset[float] = _NUMBERS
    empty: bool = False
    said: bool = False

    @classmethod
    def of(cls, lost_if: str | None, *, only_column: bool) -> LossCells:
        """Return those of ``--lost-if``, or the usual ones.

        An empty cell is a loss where nobody says otherwise, and its column is the only
        one: there is nothing else of which its row could be.

        Examples
        --------
        >>> cells = LossCells.of("timeout,-1", only_column=False)
        >>> [cells.is_lost(cell) for cell in ("Timeout", "-1.0", "", "*")]
        [True, True, False, False]
        """
        if lost_if is None:
            return cls(empty=only_column)
        values = [value.strip().casefold() for value in lost_if.split(",")]
        if values == [_NONE]:
            return cls(frozenset(), frozenset(), empty=False, said=False)
        if "" in values or _NONE in values:
            raise ValueError(
                f"lost_if must be values with commas between, {_EMPTY} or {_NONE}, got"
                f" {shown(lost_if)}"
            )
        numbers = set()
        for value in values:
            with suppress(ValueError):
                numbers.add(float(value))
        words = frozenset(values) - {_EMPTY}
        return cls(words, frozenset(numbers), _EMPTY in values, said=True)

    @cached_property
    def may_be_latencies(self) -> bool:
        """Whether a number from 0 stands for a loss."""
        return any(number >= 0 for number in self.numbers)

    def is_lost(self, cell: str) -> bool:
        """Whether a cell stands for a loss."""
        word = cell.strip().casefold()
        if not word:
            return self.empty
        return word in self.words or _is_one_of(word, self.numbers)

    def is_word(self, cell: str) -> bool:
        """Whether a cell is known to be no latency: empty, or such a word."""
        word = cell.strip().casefold()
        known = not word or word in _WORDS or _is_one_of(word, _NUMBERS)
        return known or self.is_lost(cell)

    def found(self, counts: Mapping[str, int], cells: int) -> tuple[Any, list[str]]:
        """Say for JSON, and in sentences, how often which cells were taken for what.

        `counts` is of cells that are no latency, of `cells` in all.
        """
        rows = [
            {
                "cell": cell,
                "count": count,
                "taken_as": "lost" if self.is_lost(cell) else "left out",
            }
            for cell, count in sorted(counts.items(), key=lambda one: -one[1])
        ]
        lost = [row for row in rows if row["taken_as"] == "lost"]
        others = [row for row in rows if row["taken_as"] != "lost"]
        notes = []
        if lost:
            hint = "" if self.said else " (--lost-if none: none of them)"
            notes.append(f"counted as lost: {_listed(lost, cells)}{hint}")
        if others:
            values = [str(row["cell"] or _EMPTY) for row in others[:_MOST_WORDS]]
            hint = f"--lost-if={shlex.quote(','.join(values))} counts them"
            notes.append(
                f"left out, not counted as lost: {_listed(others, cells)} ({hint})"
            )
        return rows, notes


def _is_one_of(word: str, numbers: frozenset[float]) -> bool:
    with suppress(ValueError):
        return float(word) in numbers
    return False


def _listed(rows: list[dict[str, Any]], cells: int) -> str:
    """Name cells, and count them: "3 of 9 cells: 2 'timeout', 1 empty"."""
    named = [
        f"{row['count']:,} {shown(row['cell']) if row['cell'] else _EMPTY}"
        for row in rows[:_MOST_WORDS]
    ]
    if rest := sum(row["count"] for row in rows[_MOST_WORDS:]):
        named.append(f"{rest:,} of other words")
    total = sum(row["count"] for row in rows)
    return f"{total:,} of {counted(cells, 'cell')}: {', '.join(named)}"
