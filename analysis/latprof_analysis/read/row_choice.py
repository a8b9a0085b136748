"""Rows of a long table: a column of names says what the value beside it is.

Values of different names are no sample: which are meant is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.result import ReadError, shown
from latprof_analysis.read.rows import Text
from latprof_analysis.text import printable

# A column with more of them has no names of what was measured.
MOST_NAMES = 50
_ANY = "*"
_MOST_LISTED = 12
# Of the column of names, or of values, of a long table; and what may be one.
_NAMES = re.compile(
    r"_*(?:metric|measure|measurement|quantity|series|statistic|stat|indicator|variable|"
    r"field|parameter|property|counter|units?)(?:[ _.-]?(?:name|id|type|key))?_*",
    re.I,
)
_PERHAPS_NAMES = re.compile(
    r"_*(?:name|key|label|kind|type|what|item|tag|category|class|operation|op|test|"
    r"probe|event|stage|phase|step)(?:[ _.-]?(?:name|id|type|key))?_*",
    re.I,
)
_VALUES = re.compile(
    r"(?:\w+[ _.-])?(?:val|values?|readings?|data)(?:[ _.-]\w+)?", re.I
)
# Medians so far apart are of different quantities, or units.
_APART = 10.0


@dataclass(frozen=True)
class RowChoice:
    """Which rows are meant, by the texts of columns.

    Attributes
    ----------
    wanted : dict of str to list of str
        By column its texts, any of which is right; a ``*`` is right for all.
    """

    wanted: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, where: Sequence[str]) -> RowChoice:
        """Return the choice of some ``COLUMN=TEXT``.

        Examples
        --------
        >>> RowChoice.of(["metric=a", "metric=b", "host=*"]).wanted
        {'metric': ['a', 'b'], 'host': ['*']}
        """
        wanted: dict[str, list[str]] = {}
        for one in where:
            name, equals, text = one.partition("=")
            if not (name.strip() and equals):
                raise ValueError(f"where must be COLUMN=TEXT, got {shown(one)}")
            wanted.setdefault(name.strip(), []).append(text.strip())
        return cls(wanted)

    def __str__(self) -> str:
        """Write it for people."""
        return " and ".join(
            f"{printable(name, 40)}={' or '.join(printable(x, 40) for x in texts)}"
            for name, texts in self.wanted.items()
        )

    def columns(self, labels: Sequence[str]) -> list[str]:
        """Return the columns of text to read, of a file with these of few texts."""
        return [*self.wanted, *(name for name in labels if name not in self.wanted)]

    def has(self, row: Mapping[str, str]) -> bool:
        """Whether a row is meant."""
        return all(
            _ANY in texts or row[name].strip() in texts
            for name, texts in self.wanted.items()
        )

    def rows(self, texts: Mapping[str, Text], length: int) -> NDArray[np.bool_]:
        """Return which rows are meant, of columns of text."""
        found = np.ones(length, bool)
        for name, wanted in self.wanted.items():
            codes, labels = texts[name]
            # the last one is of an empty cell
            right = [_ANY in wanted or (x.strip() in wanted) for x in (*labels, "")]
            found &= np.array(right)[codes]
        return found

    def check(
        self,
        path: Path,
        texts: Mapping[str, Text],
        latency_column: str,
        values: NDArray[np.float64],
    ) -> list[str]:
        """Refuse rows that would be taken together and are no sample; say of others.

        Parameters
        ----------
        texts : mapping
            Columns of text with few values, of the rows that are meant.
        values : ndarray, shape (n,)
            Their latencies; NaN where a row has none.
        """
        notes = []
        for name, (codes, labels) in texts.items():
            there = np.unique(codes[~np.isnan(values)]).tolist()
            if not 2 <= len(there) <= MOST_NAMES:
                continue
            of = {labels[i] if i >= 0 else "": values[codes == i] for i in there}
            n = {label: int((~np.isnan(each)).sum()) for label, each in of.items()}
            if name not in self.wanted and self._is_asked(name, latency_column, of):
                raise ReadError(path, _asked(name, n))
            notes.append(
                f"taken together: of column {printable(name, 40)} {_listed(n)}"
            )
        return notes

    def _is_asked(
        self, name: str, latency_column: str, of: Mapping[str, NDArray[np.float64]]
    ) -> bool:
        """Whether values of several names must not be taken together unasked."""
        if _NAMES.fullmatch(name):
            return True
        if not self.wanted and (
            _PERHAPS_NAMES.fullmatch(name) or _VALUES.fullmatch(latency_column)
        ):
            return True
        medians = [float(np.nanmedian(values)) for values in of.values()]
        return max(medians) > _APART * min(medians)


def _asked(name: str, n: Mapping[str, int]) -> str:
    column = printable(name, 40)
    return (
        f"column {column} has {len(n)} names, whose values are no one sample:"
        f" {_listed(n)}; say --where '{column}=NAME', or '{column}=*' for all together"
    )


def _listed(n: Mapping[str, int]) -> str:
    most = sorted(n.items(), key=lambda one: -one[1])
    named = [
        f"{shown(label) if label else 'empty'} ({count:,})" for label, count in most
    ]
    rest = len(named) - _MOST_LISTED
    return ", ".join(named[:_MOST_LISTED]) + (f" and {rest} more" if rest > 0 else "")
