"""The bytes of rows -> typed columns, and which cells are wrong.

pyarrow takes most blocks as they are. One that it refuses, or of which it takes what
we do not, is read as text, and each column by itself; of a column in which not all
cells are alike each distinct cell is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from latprof_analysis.csv_cells import unguarded
from latprof_analysis.read.result import shown
from latprof_analysis.read.rows import TYPES, from_chunk, raw
from latprof_analysis.read.schema import Column, Schema, Wrong

# A whole number may have been saved as a float. Spaces and digits are those of ASCII:
# others are no number to any parser.
_SPACE = r"[ \t-\r]*"
_WHOLE = rf"{_SPACE}([+-]?[0-9]{{1,19}})(?:\.0*)?{_SPACE}"
# of so many digits all fit 64 bits
_PLAIN = _WHOLE.replace("19", "18")
_MOST = 2**63
_DECIMAL = (
    rf"{_SPACE}([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{{1,4}})?){_SPACE}"
)
_INFINITE = rf"{_SPACE}([+-]?inf(?:inity)?){_SPACE}"

# Characters of a cell that is a name.
LONGEST_TEXT = 1000


def parse(
    data: bytes,
    names: list[str],
    columns: Sequence[Column],
    schema: Schema,
    *,
    threads: bool = True,
) -> tuple[Any, list[Wrong]]:
    """Parse rows to a table with the types of `rows.TYPES`.

    A cell that is no number is missing in its column and told among the wrong.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where rows have not their fields.
    """
    types = {column.name: TYPES[column.kind] for column in columns}
    if not data:
        return pa.schema(types.items()).empty_table(), []
    if schema.spaced and b'"' not in data:
        cut = schema.delimiter.encode()
        data = re.sub(re.escape(cut) + b" +", cut, data)
    if not _is_odd(data, columns):
        try:
            table = _read(data, names, types, schema, threads)
        except pa.ArrowInvalid:
            pass
        else:
            return _bare(table) if schema.guarded and b"'" in data else table, []
    return _by_column(data, names, columns, schema)


def _read(
    data: bytes, names: list[str], types: dict[str, Any], schema: Schema, threads: bool
) -> Any:
    quoted = b'"' in data
    return csv.read_csv(
        pa.BufferReader(data),
        read_options=csv.ReadOptions(
            column_names=names, block_size=1 << 20, use_threads=threads
        ),
        parse_options=csv.ParseOptions(
            delimiter=schema.delimiter,
            quote_char='"' if quoted else False,
            newlines_in_values=quoted,
            ignore_empty_lines=False,
        ),
        convert_options=csv.ConvertOptions(
            column_types=types,
            include_columns=list(types),
            null_values=[""],
            strings_can_be_null=True,
        ),
    )


def _is_odd(data: bytes, columns: Sequence[Column]) -> bool:
    """Whether there may be numbers which pyarrow takes and we do not."""
    # to find that there is no x at all is much faster
    if any(x in data and b"0" + x in data for x in (b"x", b"X")):
        return True
    numbers = any(column.kind == "number" for column in columns)
    return numbers and b"nan" in data.lower()


def _by_column(
    data: bytes, names: list[str], columns: Sequence[Column], schema: Schema
) -> tuple[Any, list[Wrong]]:
    texts = {column.name: pa.string() for column in columns}
    try:
        table = _read(data, names, texts, schema, True)
    except pa.ArrowInvalid:  # bytes that are no UTF-8, perhaps
        data = data.decode("utf-8", "replace").encode()
        table = _read(data, names, texts, schema, True)
    found: dict[str, Any] = {}
    wrong: list[Wrong] = []
    for column in columns:
        cells = table[column.name]
        if schema.spaced:
            cells = _by_label(cells, lambda text: text.lstrip(" ") or None)
        if column.kind == "text":
            found[column.name] = cells.cast(TYPES["text"])
        else:
            found[column.name], bad = _converted(cells, column)
            wrong += bad
    parsed = pa.table(found, pa.schema([(c.name, TYPES[c.kind]) for c in columns]))
    return _bare(parsed) if schema.guarded else parsed, wrong


def _by_label(cells: Any, change: Callable[[str], Any]) -> Any:
    """Return what a function makes of each distinct text."""
    whole = cells.cast(TYPES["text"]).unify_dictionaries().combine_chunks()
    made = pa.array([change(label) for label in whole.dictionary.to_pylist()])
    return pa.chunked_array([made.take(whole.indices)])


def _converted(cells: Any, column: Column) -> tuple[Any, list[Wrong]]:
    """Return the cells of a column as numbers, and which are none."""
    import pyarrow.compute as pc

    kind = TYPES[column.kind]
    pattern = _PLAIN if column.kind == "count" else _DECIMAL
    if pc.all(pc.match_substring_regex(cells, rf"\A{pattern}\z")).as_py() is not False:
        plain = pc.replace_substring_regex(cells, rf"\A{pattern}\z", r"\1")
        return pc.replace_substring_regex(plain, r"\A\+", "").cast(kind), []
    texts = cells.cast(TYPES["text"]).unify_dictionaries().combine_chunks()
    labels: list[str] = texts.dictionary.to_pylist()
    number = _whole if column.kind == "count" else _decimal
    values = [number(label) for label in labels]
    numbers = pa.array(values, kind).take(texts.indices)
    return numbers, _why_no_numbers(texts, labels, values, column)


def _whole(cell: str) -> int | None:
    found = re.fullmatch(_WHOLE, cell)
    number = int(found[1]) if found else _MOST
    return number if -_MOST <= number < _MOST else None


def _decimal(cell: str) -> float | None:
    found = re.fullmatch(_DECIMAL, cell) or re.fullmatch(_INFINITE, cell, re.I)
    return float(found[1]) if found else None


def _why_no_numbers(
    texts: Any, labels: list[str], values: list[Any], column: Column
) -> list[Wrong]:
    codes = from_chunk(texts.indices, -1)
    # the last one is of a cell that is empty
    none = np.array([*(value is None for value in values), False])
    must = "a whole number" if column.kind == "count" else "a number"

    def why(i: int) -> str:
        return f"{column.name} must be {must}, got {shown(labels[codes[i]])}"

    return [(none[codes], why)]


def _bare(table: Any) -> Any:
    """Return a table with the texts of which a writer made these by `guarded`."""
    for at, column in enumerate(table.schema):
        if column.type != TYPES["text"]:
            continue
        chunks = table[column.name].chunks
        labels = {label for chunk in chunks for label in chunk.dictionary.to_pylist()}
        if any(unguarded(label) != label for label in labels):
            texts = _by_label(table[column.name], unguarded).cast(TYPES["text"])
            table = table.set_column(at, column.name, texts)
    return table


def out_of_range(
    values: Any, column: Column, numbers: Callable[[], NDArray[Any]]
) -> list[Wrong]:
    """Find cells that are negative, not finite, or empty where they must not be.

    Parameters
    ----------
    values : pyarrow.ChunkedArray
    column : Column
    numbers : callable
        Gives them as an array, where they are to be looked at one by one.
    """
    name = column.name
    if column.kind == "text":
        return _wrong_texts(values, column)
    found: list[Wrong] = []
    if values.null_count and not column.blank:
        found.append((values.is_null().to_numpy(), lambda _: f"{name} is missing"))
    if column.kind == "count":
        if not any(len(c) and raw(c).min() < 0 for c in values.chunks):
            return found
        counts = numbers()
        negative = (counts < 0) & ~values.is_null().to_numpy()
    else:
        counts = numbers()
        infinite = np.isinf(counts)
        if infinite.any():
            found.append((infinite, lambda _: f"{name} must be finite"))
        negative = counts < 0
    if negative.any():
        found.append((negative, lambda i: f"{name} must be 0 or more, got {counts[i]}"))
    return found


def _lengths(texts: Any) -> NDArray[np.int64]:
    """Return the length of each text; never the texts, of which one may be long."""
    codes = from_chunk(texts.indices, -1)
    lengths = np.array([*map(len, texts.dictionary.to_pylist()), 0])
    return np.asarray(lengths[codes])


def _wrong_texts(values: Any, column: Column) -> list[Wrong]:
    """Find cells that are empty, or no names: each would be repeated for every row."""
    name = column.name
    labels = [chunk.dictionary.to_pylist() for chunk in values.chunks]
    long = any(len(label) > LONGEST_TEXT for some in labels for label in some)
    empty = values.null_count or any("" in some for some in labels)
    if not long and (column.blank or not empty):
        return []
    texts = np.concatenate([_lengths(chunk) for chunk in values.chunks])
    found: list[Wrong] = []
    if not column.blank and empty:
        found.append((texts == 0, lambda _: f"{name} is missing"))
    if long:
        why = f"{name} has more than {LONGEST_TEXT} characters"
        found.append((texts > LONGEST_TEXT, lambda _: why))
    return found
