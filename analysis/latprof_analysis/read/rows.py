"""Rows of a table, column by column: as arrays, one by one, or as a DataFrame.

Between numpy and Arrow values go by their buffers: what pyarrow has for it loads
pandas first, which takes longer than all else of a small run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from latprof_analysis.grouping import Places, parted
from latprof_analysis.read.schema import OF_HOSTS, Column
from latprof_analysis.stages import BLANK

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
Text = tuple[NDArray[np.int32], Sequence[str]]
T = TypeVar("T")

# Numbers below this are counted in a table of them.
_TABLE = 1 << 20

# Of a column's kind.
TYPES = {
    "count": pa.int64(),
    "number": pa.float64(),
    "text": pa.dictionary(pa.int32(), pa.string()),
}


class _Made(Mapping[str, T], Generic[T]):
    """Columns that are made when they are first asked for."""

    def __init__(self, names: Sequence[str], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = cache(make)

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        return self._make(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Columns:
    """Columns of rows, as arrays that are made when they are first asked for.

    Parameters
    ----------
    numbers, texts : mapping
    length : int

    Attributes
    ----------
    numbers : mapping of str to ndarray, shape (n,)
        Whole numbers (int64), BLANK where there is no value, and others (float64), NaN
        where there is none.
    texts : mapping of str to (ndarray of int32, list of str)
        Columns of text: which label each row has, -1 for none, and the labels.
    """

    def __init__(
        self,
        numbers: Mapping[str, NDArray[Any]],
        texts: Mapping[str, Text],
        length: int,
    ) -> None:
        self.numbers = numbers
        self.texts = texts
        self._length = length

    def __len__(self) -> int:
        return self._length

    def at(self, rows: NDArray[Any]) -> Columns:
        """Return some of the rows, by their places or by a mask."""
        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        numbers, texts = self.numbers, self.texts
        return Columns(
            _Made(tuple(numbers), lambda name: numbers[name][places]),
            _Made(tuple(texts), lambda name: (texts[name][0][places], texts[name][1])),
            len(places),
        )

    def keyed(self, *names: str) -> tuple[Ints, dict[int, tuple[str | None, ...]]]:
        """Return a number for each row, alike in columns of text, and its texts.

        Numbers rise in the order of the labels; None stands where there is no text.
        """
        texts = [self.texts[name] for name in names]
        key, most = np.zeros(len(self), np.int64), 1
        for codes, labels in texts:
            key = key * (len(labels) + 1) + codes + 1
            most *= len(labels) + 1
            if most > _TABLE:  # else it may overflow
                key = np.unique(key, return_inverse=True)[1]
                most = int(key.max(initial=0)) + 1
        first = np.full(most, -1)
        first[key[::-1]] = np.arange(len(self) - 1, -1, -1)
        found = {}
        for group in np.flatnonzero(first >= 0).tolist():
            own = [(int(codes[first[group]]), labels) for codes, labels in texts]
            found[group] = tuple(labels[i] if i >= 0 else None for i, labels in own)
        return key, found

    def split(self, *names: str) -> Iterator[tuple[tuple[str | None, ...], Places]]:
        """Give the places of rows that are alike in columns of text, and the texts."""
        key, texts = self.keyed(*names)
        for group, rows in parted(key, np.arange(len(self))):
            yield texts[group], rows

    def floats(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers as doubles, NaN where it is blank."""
        values = self.numbers[name]
        return np.where(values == BLANK, np.nan, values.astype(np.float64))

    def are(self, name: str, label: str) -> NDArray[np.bool_]:
        """Return which rows have this text."""
        codes, labels = self.texts[name]
        place = labels.index(label) if label in labels else len(labels)
        return np.asarray(codes == place)

    @classmethod
    def of(cls, rows: Columns | pd.DataFrame) -> Columns:
        """Return the columns of a DataFrame, whose numbers are counts or ns.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"kind": ["a", None], "rtt_ns": [5.0, None]})
        >>> rows = Columns.of(frame)
        >>> rows.floats("rtt_ns").tolist(), rows.texts["kind"][0].tolist()
        ([5.0, nan], [0, -1])
        """
        if isinstance(rows, Columns):
            return rows
        frame, names = rows, tuple(rows.columns)
        return cls(
            _Made(names, lambda name: _of_series(frame[name])),
            _Made(names, lambda name: _codes_of(frame[name])),
            len(frame),
        )


class Rows(Columns):
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
    """

    def __init__(self, table: Any, columns: Sequence[Column]) -> None:
        self.table = table
        self._columns = columns
        kinds = {column.name: column.kind for column in columns}
        texts = [name for name, kind in kinds.items() if kind == "text"]
        others = [name for name in kinds if name not in texts]
        # of the table, not of this object: a cycle would keep it for long
        super().__init__(
            _Made(others, lambda name: _numbers(table, name, kinds[name])),
            _Made(texts, lambda name: _text(table, name)),
            len(table),
        )

    def __reduce__(self) -> tuple[type[Rows], tuple[Any, Sequence[Column]]]:
        """Take the table alone to another process."""
        return type(self), (self.table, self._columns)

    def with_text(
        self, name: str, codes: NDArray[np.int32], labels: Sequence[str]
    ) -> Rows:
        """Return the same rows with a column of text, new or in another's place."""
        texts = _dictionary(codes, labels)
        there = self.table.column_names
        if name in there:
            table = self.table.set_column(there.index(name), name, texts)
            return Rows(table, self._columns)
        return Rows(
            self.table.append_column(name, texts),
            [*self._columns, Column(name, "text")],
        )

    def row(self, i: int) -> dict[str, Any]:
        """Return one row by column; None where blank.

        A column that only folders of several hosts have is left out where it is blank.
        """
        found: dict[str, Any] = {}
        for column in self._columns:
            if column.kind == "text":
                codes, labels = self.texts[column.name]
                found[column.name] = labels[codes[i]] if codes[i] >= 0 else None
            else:
                value = self.numbers[column.name][i].item()
                blank = value == BLANK or np.isnan(value)
                found[column.name] = None if blank else value
        return {n: v for n, v in found.items() if v is not None or n not in OF_HOSTS}

    def take(self, rows: NDArray[np.intp]) -> Rows:
        """Return some of the rows, with only their own labels of text."""
        return Rows(_own_labels(self.table.take(_to_arrow(rows))), self._columns)

    def frame(self) -> pd.DataFrame:
        """Return the rows with all columns, as `read_runs` has them."""
        import pandas as pd

        found = {c.name: _array(self.table, c) for c in self._columns}
        return pd.DataFrame(found, copy=False)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """Put rows of the same columns together, one after the other."""
        return cls(pa.concat_tables([part.table for part in parts]), parts[0]._columns)


def frame_of(name: str) -> cached_property[pd.DataFrame]:
    """Return a property: of an object's `rows` those of a name, as a DataFrame.

    It is made when it is first asked for; without columns where there are no rows.
    """

    def frame(owner: Any) -> pd.DataFrame:
        import pandas as pd  # a screen of figures has no need of it

        return owner.rows[name].frame() if name in owner.rows else pd.DataFrame()

    return cached_property(frame)


def no_rows(columns: Sequence[Column]) -> Rows:
    """Return a table without rows."""
    return Rows(pa.schema([]).empty_table(), columns)


def _of_series(column: pd.Series[Any]) -> NDArray[Any]:
    """Return numbers of pandas as int64, BLANK where there is none."""
    if column.dtype.kind in "iu":
        return np.asarray(column.to_numpy(np.int64, na_value=BLANK))
    values = column.to_numpy(np.float64, na_value=np.nan)
    blank = np.isnan(values)
    return np.where(blank, BLANK, np.rint(np.where(blank, 0, values)).astype(np.int64))


def _codes_of(column: pd.Series[Any]) -> Text:
    """Return texts of pandas as codes; its categories keep their order."""
    if not hasattr(column, "cat"):
        column = column.astype("category")
    labels = [str(label) for label in column.cat.categories]
    return column.cat.codes.to_numpy(np.int32), labels


def _own_labels(table: Any) -> Any:
    """Leave out labels that are of other rows: there may be any number of them.

    Never decoded: Arrow would make room for the mean of all labels in every row.
    """
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            codes, labels = labelled(table[field.name])
            used, places = np.unique(np.append(codes, -1), return_inverse=True)
            codes = places[:-1].astype(np.int32) - 1
            own = _dictionary(codes, [labels[code] for code in used[1:]])
            table = table.set_column(at, field, own)
    return table


def _numbers(table: Any, name: str, kind: str) -> NDArray[Any]:
    blank = BLANK if kind == "count" else np.nan
    if name not in table.column_names:
        return np.full(len(table), blank)
    parts = [_from_chunk(chunk, blank) for chunk in table[name].chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.full(0, blank)


def _text(table: Any, name: str) -> Text:
    if name not in table.column_names:
        return np.full(len(table), -1, np.int32), []
    return labelled(table[name])


def labelled(column: Any) -> Text:
    """Return which label each row of a column of text has, -1 for none, and these."""
    whole = column.unify_dictionaries().combine_chunks()
    codes, labels = _from_chunk(whole.indices, -1), whole.dictionary.to_pylist()
    if "" in labels:  # which Parquet knows beside null
        blank = labels.index("")
        codes = np.where(codes == blank, -1, codes - (codes > blank))
        del labels[blank]
    return codes, labels


def _from_chunk(chunk: Any, blank: Any) -> NDArray[Any]:
    """Return an array of pyarrow's numbers, `blank` where it is null."""
    values = raw(chunk)
    if not chunk.null_count:
        return values
    there = np.frombuffer(chunk.buffers()[0], np.uint8)
    bits = np.unpackbits(there, bitorder="little")
    null = bits[chunk.offset : chunk.offset + len(chunk)] == 0
    return np.where(null, np.array(blank, values.dtype), values)


def raw(chunk: Any) -> NDArray[Any]:
    """Return numbers as they lie there; where it is null any."""
    end = chunk.offset + len(chunk)
    dtype = chunk.type.to_pandas_dtype()
    return np.frombuffer(chunk.buffers()[1], dtype, end)[chunk.offset :]


def _to_arrow(values: NDArray[Any]) -> Any:
    """Return numbers as an array of pyarrow, null where they are negative."""
    there = pa.py_buffer(np.packbits(values >= 0, bitorder="little"))
    kind, data = pa.from_numpy_dtype(values.dtype), np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [there, pa.py_buffer(data)])


def _dictionary(codes: NDArray[np.int32], labels: Sequence[str]) -> Any:
    """Return a column of text by its labels, null where the code is -1."""
    words = [label.encode() for label in labels]
    ends = np.cumsum([0, *map(len, words)], dtype=np.int32)
    buffers = (pa.py_buffer(ends), pa.py_buffer(b"".join(words)))
    texts = pa.StringArray.from_buffers(len(words), *buffers)
    return pa.DictionaryArray.from_arrays(_to_arrow(codes), texts)


def _array(table: Any, column: Column) -> Any:
    """Return a column as pandas has it."""
    import pandas as pd

    if column.kind == "text":
        codes, labels = _text(table, column.name)
        categories = pd.Index(labels, dtype="str")
        return pd.Categorical.from_codes(codes, categories=categories)
    numbers = _numbers(table, column.name, column.kind)
    if column.kind == "number":
        return numbers
    blank = numbers == BLANK
    return pd.arrays.IntegerArray(np.where(blank, 1, numbers), blank)
