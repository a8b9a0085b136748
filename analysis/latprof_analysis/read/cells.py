"""The bytes of rows -> typed columns without the rows of which a cell is wrong.

pyarrow takes most blocks as they are. One that it refuses, or of which it takes what
we do not, is read as text, and each column by itself; of a column in which not all
cells are alike each distinct cell is looked at.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import csv

from latprof_analysis.csv_cells import unguarded
from latprof_analysis.read.result import Skipped, shown
from latprof_analysis.read.rows import TYPES, Rows, labelled, raw
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

    A cell that is no number is missing in its column and is among the wrong.

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
    found = None
    wrong: list[Wrong] = []
    if not _is_odd(data, columns):
        with suppress(pa.ArrowInvalid):
            found = _read(data, names, types, schema, threads)
    if found is None:
        found, wrong = _by_column(data, names, columns, schema)
    if schema.guarded and b"'" in data:
        found = bare(found, [name for name in schema.texts if name in types])
    return found, wrong


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
            codes, labels = labelled(cells.cast(TYPES["text"]))
            stripped = [label.lstrip(" ") or None for label in labels]
            cells = _each(stripped, pa.string(), codes)
        if column.kind == "text":
            found[column.name] = cells.cast(TYPES["text"])
        else:
            found[column.name], bad = _converted(cells, column)
            wrong += bad
    return pa.table(found), wrong


def _each(values: list[Any], kind: Any, codes: NDArray[np.int32]) -> Any:
    """Return the value of each code; null where that is -1."""
    found = pa.array(values, kind).take(pa.array(codes, mask=codes < 0))
    return pa.chunked_array([found])


def bare(table: Any, names: Iterable[str]) -> Any:
    """Return a table with the texts of which a writer made these by `guarded`."""
    for name in names:
        kind = table[name].type
        codes, labels = labelled(table[name].cast(TYPES["text"]))
        found = [unguarded(label) for label in labels]
        if found != labels:
            at = table.schema.get_field_index(name)
            texts = _each(found, pa.string(), codes).cast(kind)
            table = table.set_column(at, name, texts)
    return table


def _converted(cells: Any, column: Column) -> tuple[Any, list[Wrong]]:
    """Return the cells of a column as numbers, and which are none."""
    import pyarrow.compute as pc  # takes long; most files have no need of it

    kind = TYPES[column.kind]
    pattern = _PLAIN if column.kind == "count" else _DECIMAL
    if pc.all(pc.match_substring_regex(cells, rf"\A{pattern}\z")).as_py() is not False:
        plain = pc.replace_substring_regex(cells, rf"\A{pattern}\z", r"\1")
        return pc.replace_substring_regex(plain, r"\A\+", "").cast(kind), []
    codes, labels = labelled(cells.cast(TYPES["text"]))
    values = [*map(_whole if column.kind == "count" else decimal, labels)]
    # the last one is of a cell that is empty
    none = np.array([*(value is None for value in values), False])
    must = "a whole number" if column.kind == "count" else "a number"

    def why(i: int) -> str:
        return f"{column.name} must be {must}, got {shown(labels[codes[i]])}"

    return _each(values, kind, codes), [(none[codes], why)]


def _whole(cell: str) -> int | None:
    found = re.fullmatch(_WHOLE, cell)
    number = int(found[1]) if found else _MOST
    return number if -_MOST <= number < _MOST else None


def decimal(cell: str) -> float | None:
    """Return the number in a cell; None where it has none."""
    found = re.fullmatch(_DECIMAL, cell) or re.fullmatch(_INFINITE, cell, re.I)
    return float(found[1]) if found else None


def good_rows(
    table: Any,
    columns: Sequence[Column],
    schema: Schema,
    lines: NDArray[np.int64],
    skipped: Skipped,
    wrong: Sequence[Wrong] = (),
) -> Any:
    """Return the good rows; the others go to `skipped` with the first reason."""
    rows = Rows(table, columns)
    found = [*wrong]
    for column in columns:
        of_kind = _wrong_texts if column.kind == "text" else _wrong_numbers
        found += of_kind(rows, column)
    found += schema.check(rows.numbers) if schema.check else []
    found += schema.check_texts(rows.texts) if schema.check_texts else []
    bad = np.zeros(len(table), bool)
    for mask, _ in found:
        bad |= mask
    if not bad.any():
        return table
    named = np.flatnonzero(bad)[: skipped.room]
    whys = [next(why(i) for mask, why in found if mask[i]) for i in named]
    skipped.add_many([int(x) for x in lines[named]], whys, int(bad.sum()))
    return table.filter(pa.array(~bad))


def _wrong_numbers(rows: Rows, column: Column) -> list[Wrong]:
    """Find numbers that are negative, not finite, or missing."""
    name, values = column.name, rows.table[column.name]
    found: list[Wrong] = []
    if values.null_count and not column.blank:
        found.append((values.is_null().to_numpy(), lambda _: f"{name} is missing"))
    # as they lie there: most are right
    if column.kind == "count" and not any(
        len(chunk) and raw(chunk).min() < 0 for chunk in values.chunks
    ):
        return found
    numbers = rows.numbers[name]
    infinite, negative = np.isinf(numbers), numbers < 0
    if infinite.any():
        found.append((infinite, lambda _: f"{name} must be finite"))
    if negative.any():
        negative &= values.is_valid().to_numpy()  # of which one may be BLANK itself
        must = f"{name} must be 0 or more"
        found.append((negative, lambda i: f"{must}, got {numbers[i]}"))
    return found


def _wrong_texts(rows: Rows, column: Column) -> list[Wrong]:
    """Find texts that are missing, or no names: each once, not for every row."""
    name, values = column.name, rows.table[column.name]
    labels = [x for chunk in values.chunks for x in chunk.dictionary.to_pylist()]
    found: list[Wrong] = []
    if not column.blank and (values.null_count or "" in labels):
        found.append((rows.texts[name][0] < 0, lambda _: f"{name} is missing"))
    if any(len(label) > LONGEST_TEXT for label in labels):
        codes, each = rows.texts[name]
        lengths = np.array([*map(len, each), 0])
        why = f"{name} has more than {LONGEST_TEXT} characters"
        found.append((lengths[codes] > LONGEST_TEXT, lambda _: why))
    return found
