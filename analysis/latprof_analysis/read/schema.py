"""How a delimited format is documented: its columns, and what must hold in a row."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
# Which rows are wrong, and why the i-th is.
Wrong = tuple[Mask, Callable[[int], str]]


@dataclass(frozen=True)
class Column:
    """A column of a schema.

    Parameters
    ----------
    kind : {'count', 'number', 'text'}
        A whole number from 0 (Int64); a number from 0 (float64); text (category).
    needed : bool
        A file without the column is not of this format.
    blank : bool
        A cell may be empty: there is no value.
    about : str
        What it says, for people.
    """

    name: str
    kind: Literal["count", "number", "text"]
    needed: bool = True
    blank: bool = False
    about: str = ""


@dataclass(frozen=True)
class Schema:
    """The columns of a format, and what else must hold in each row.

    `check` has the columns of numbers that are there: whole ones are BLANK where
    there is none, others NaN. `ends_whole`: its writer ends every
    line. `spaced`: a space follows each delimiter. `ruler`: lines that begin so are
    no rows. `end`: a line that begins so and what follows are none. `guarded`: texts
    are as `csv_cells.guarded` leaves them.
    """

    columns: tuple[Column, ...]
    check: Callable[[Mapping[str, NDArray[Any]]], list[Wrong]] | None = None
    delimiter: str = ","
    ends_whole: bool = False
    spaced: bool = False
    ruler: bytes = b""
    end: bytes = b""
    guarded: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def texts(self) -> tuple[str, ...]:
        """Names of those of text."""
        return tuple(c.name for c in self.columns if c.kind == "text")

    def limited(self, names: Collection[str] | None) -> list[Column]:
        """Return the columns of these names; all, if none are given."""
        return [c for c in self.columns if names is None or c.name in names]
