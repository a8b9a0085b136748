"""Rows of a table by column, from pyarrow or pandas: the same numbers from both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.readers import cells
from latprof_analysis.readers.schema import Column
from latprof_analysis.stages import BLANK

Ints = NDArray[np.int64]
Text = tuple[NDArray[np.int32], Sequence[str]]
T = TypeVar("T")


class _Columns(Mapping[str, T], Generic[T]):
    """Columns that are made when they are first asked for."""

    def __init__(self, names: Sequence[str], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = make
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Batch:
    """Rows of a table, all of them right.

    Parameters
    ----------
    rows : DataFrame or pyarrow.Table
    columns : sequence of Column
        Those that are there for the caller; what the file lacks is blank.

    Attributes
    ----------
    numbers : mapping of str to ndarray of int64, shape (n,)
        Columns of whole numbers; BLANK where there is no value.
    texts : mapping of str to (ndarray of int32, list of str)
        Columns of text: which label each row has, -1 for none, and the labels.
    """

    def __init__(self, rows: Any, columns: Sequence[Column]) -> None:
        self._rows = rows
        self._columns = columns
        texts = [column.name for column in columns if column.kind == "text"]
        others = [column.name for column in columns if column.kind != "text"]
        # of the rows, not of this object: a cycle would keep them for long
        self.numbers: Mapping[str, Ints] = _Columns(others, partial(_number, rows))
        self.texts: Mapping[str, Text] = _Columns(texts, partial(_text, rows))

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, i: int) -> dict[str, Any]:
        """Return one row by column; None where blank."""
        found: dict[str, Any] = {}
        for column in self._columns:
            if column.kind == "text":
                codes, labels = self.texts[column.name]
                found[column.name] = labels[codes[i]] if codes[i] >= 0 else None
            else:
                value = int(self.numbers[column.name][i])
                found[column.name] = None if value == BLANK else value
        return found

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Return some of the rows, with only their own labels of text."""
        if not isinstance(self._rows, pd.DataFrame):
            return Batch(_own_labels(self._rows.take(rows)), self._columns)
        taken = self._rows.iloc[rows].copy()
        for name in self.texts:
            if name in taken:
                taken[name] = taken[name].cat.remove_unused_categories()
        return Batch(taken, self._columns)

    def frame(self) -> pd.DataFrame:
        """Return the rows with all columns, as `read_runs` has them."""
        by_pandas = isinstance(self._rows, pd.DataFrame)
        there = _names(self._rows)
        found = {}
        for column in self._columns:
            name, kind = column.name, column.kind
            if name not in there:
                found[name] = cells.blanks(len(self), kind)
            elif by_pandas:
                found[name] = self._rows[name].array
            else:
                found[name] = cells.from_arrow(self._rows[name], kind)
        return pd.DataFrame(found, copy=False)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> list[Batch]:
        """Put batches of pyarrow together, which is faster than their frames."""
        if any(isinstance(batch._rows, pd.DataFrame) for batch in batches):
            return list(batches)
        whole = cells.arrow("").concat_tables([batch._rows for batch in batches])
        return [cls(whole, batches[0]._columns)]


def _own_labels(table: Any) -> Any:
    """Encode texts anew: a file may have any number of labels in other rows."""
    pa = cells.arrow("")
    plain = [
        pa.field(f.name, pa.string()) if pa.types.is_dictionary(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(plain)).cast(table.schema)


def _names(rows: Any) -> list[str]:
    by_pandas = isinstance(rows, pd.DataFrame)
    return list(rows.columns if by_pandas else rows.column_names)


def _number(rows: Any, name: str) -> Ints:
    if name not in _names(rows):
        return np.full(len(rows), BLANK)
    if isinstance(rows, pd.DataFrame):
        values: Ints = rows[name].to_numpy("int64", na_value=BLANK)
        return values
    return from_chunks(rows[name])


def _text(rows: Any, name: str) -> Text:
    if name not in _names(rows):
        return np.full(len(rows), -1, np.int32), []
    if isinstance(rows, pd.DataFrame):
        values: Any = rows[name].array
        return values.codes.astype(np.int32), values.categories.tolist()
    column = rows[name].unify_dictionaries().combine_chunks()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, column.dictionary.to_pylist()


def from_chunks(column: Any) -> Ints:
    """Return a column of pyarrow's int64, BLANK where it is null.

    By its buffers: faster than its own functions by a factor of ten.
    """
    if not column.null_count:
        whole: Ints = column.to_numpy()
        return whole
    numbers = np.empty(len(column), np.int64)
    begin = 0
    for chunk in column.chunks:
        part = numbers[begin : begin + len(chunk)]
        begin += len(chunk)
        there, values = chunk.buffers()
        rows = slice(chunk.offset, chunk.offset + len(chunk))
        part[:] = np.frombuffer(values, np.int64, rows.stop)[rows]
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")
            part[bits[rows] == 0] = BLANK
    return numbers
