"""Rows of a table, column by column: as arrays, one by one, or as a DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from latprof_analysis.read.schema import Column
from latprof_analysis.stages import BLANK

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
Text = tuple[NDArray[np.int32], Sequence[str]]
T = TypeVar("T")

# Of a column's kind.
TYPES = {
    "count": pa.int64(),
    "number": pa.float64(),
    "text": pa.dictionary(pa.int32(), pa.string()),
}


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


class Rows:
    """Rows of a table, all of them right.

    Parameters
    ----------
    table : pyarrow.Table
        Its columns have the types of `TYPES`.
    columns : sequence of Column
        Those that are there for the caller; what the table lacks is blank.

    Attributes
    ----------
    table : pyarrow.Table
    numbers : mapping of str to ndarray, shape (n,)
        Whole numbers (int64), BLANK where there is no value, and others (float64), NaN
        where there is none.
    texts : mapping of str to (ndarray of int32, list of str)
        Columns of text: which label each row has, -1 for none, and the labels.
    """

    def __init__(self, table: Any, columns: Sequence[Column]) -> None:
        self.table = table
        self._columns = columns
        kinds = {column.name: column.kind for column in columns}
        texts = [name for name, kind in kinds.items() if kind == "text"]
        others = [name for name in kinds if name not in texts]
        # of the table, not of this object: a cycle would keep it for long
        self.numbers: Mapping[str, NDArray[Any]] = _Columns(
            others, partial(_numbers, table, kinds)
        )
        self.texts: Mapping[str, Text] = _Columns(texts, partial(_text, table))

    def __len__(self) -> int:
        return len(self.table)

    def __reduce__(self) -> tuple[type[Rows], tuple[Any, Sequence[Column]]]:
        """Take the table alone to another process."""
        return type(self), (self.table, self._columns)

    def with_column(self, column: Column, values: Any) -> Rows:
        """Return the same rows with one column more."""
        table = self.table.append_column(column.name, values)
        return Rows(table, [*self._columns, column])

    def row(self, i: int) -> dict[str, Any]:
        """Return one row by column; None where blank."""
        found: dict[str, Any] = {}
        for column in self._columns:
            if column.kind == "text":
                codes, labels = self.texts[column.name]
                found[column.name] = labels[codes[i]] if codes[i] >= 0 else None
            else:
                value = self.numbers[column.name][i].item()
                blank = value == BLANK or np.isnan(value)
                found[column.name] = None if blank else value
        return found

    def take(self, rows: NDArray[np.intp]) -> Rows:
        """Return some of the rows, with only their own labels of text."""
        return Rows(_own_labels(self.table.take(rows)), self._columns)

    def frame(self) -> pd.DataFrame:
        """Return the rows with all columns, as `read_runs` has them."""
        import pandas as pd

        there = self.table.column_names
        found = {
            column.name: _array(
                self.table[column.name] if column.name in there else None,
                column.kind,
                len(self),
            )
            for column in self._columns
        }
        return pd.DataFrame(found, copy=False)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Put rows of the same columns together, one after the other."""
        return cls(pa.concat_tables([part.table for part in parts]), parts[0]._columns)


def blank_frame(columns: Sequence[Column]) -> pd.DataFrame:
    """Return a DataFrame without rows."""
    return Rows(pa.schema([]).empty_table(), columns).frame()


def _own_labels(table: Any) -> Any:
    """Leave out labels that are of other rows: there may be any number of them.

    Never decoded: Arrow would make room for the mean of all labels in every row.
    """
    for at, field in enumerate(table.schema):
        if not pa.types.is_dictionary(field.type):
            continue
        texts = table[field.name].unify_dictionaries().combine_chunks()
        codes = texts.indices.fill_null(-1).to_numpy(zero_copy_only=False)
        used, places = np.unique(np.append(codes, -1), return_inverse=True)
        own = pa.DictionaryArray.from_arrays(
            pa.array(places[:-1].astype(np.int32) - 1, mask=codes < 0),
            texts.dictionary.take(pa.array(used[1:])),
        )
        table = table.set_column(at, field, own)
    return table


def _numbers(table: Any, kinds: Mapping[str, str], name: str) -> NDArray[Any]:
    whole = kinds[name] == "count"
    if name not in table.column_names:
        return np.full(len(table), BLANK if whole else np.nan)
    return from_chunks(table[name]) if whole else np.asarray(table[name].to_numpy())


def _text(table: Any, name: str) -> Text:
    if name not in table.column_names:
        return np.full(len(table), -1, np.int32), []
    column = table[name].unify_dictionaries().combine_chunks()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    labels = column.dictionary.to_pylist()
    if "" in labels:  # which Parquet knows beside null
        codes = np.where(codes == labels.index(""), -1, codes)
    return codes, labels


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
        part[:] = raw(chunk)
        if chunk.null_count:
            there = np.frombuffer(chunk.buffers()[0], np.uint8)
            bits = np.unpackbits(there, bitorder="little")
            part[bits[chunk.offset : chunk.offset + len(chunk)] == 0] = BLANK
    return numbers


def raw(chunk: Any) -> Ints:
    """Return the values of int64 as they lie there; where it is null any."""
    end = chunk.offset + len(chunk)
    return np.frombuffer(chunk.buffers()[1], np.int64, end)[chunk.offset :]


def _array(column: Any, kind: str, length: int) -> Any:
    """Return a column as pandas has it."""
    import pandas as pd

    if kind == "text":
        there = {} if column is None else {"text": column}
        codes, labels = _text(pa.table(there), "text")
        codes = codes if there else np.full(length, -1, np.int32)
        known = [label for label in labels if label]
        places = np.cumsum([label != "" for label in labels], dtype=np.int32) - 1
        if len(known) < len(labels):
            codes = np.where(codes < 0, -1, places[codes])
        return pd.Categorical.from_codes(codes, categories=pd.Index(known, dtype="str"))
    if kind == "number":
        return np.full(length, np.nan) if column is None else column.to_numpy()
    numbers = np.zeros(length, np.int64) if column is None else from_chunks(column)
    blank = np.ones(length, bool) if column is None else numbers == BLANK
    return pd.arrays.IntegerArray(np.where(blank, 1, numbers), blank)
