"""The bytes of rows -> typed columns, and which cells are wrong."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.csv_cells import unguarded
from latprof_analysis.read.result import shown
from latprof_analysis.read.schema import Column, Schema, Wrong

Columns = dict[str, Any]

# 18 digits always fit 64 bits. A whole number may have been saved as a float.
# Spaces and digits are those of ASCII: others are no number to any parser.
_WHOLE = r"[ \t-\r]*\+?[0-9]{1,18}(?:\.0*)?[ \t-\r]*"
_NEGATIVE = r"[ \t-\r]*-[0-9]+(?:\.0*)?[ \t-\r]*"

# Characters of a cell that is a name.
LONGEST_TEXT = 1000


@cache
def arrow(module: str) -> Any:
    """Return a module of pyarrow, or None where it is not installed."""
    try:
        return importlib.import_module(f"pyarrow{module}")
    except ImportError:
        return None


def blanks(length: int, kind: str) -> Any:
    """Return a column without values."""
    if kind == "text":
        none = pd.Index([], dtype="str")
        return pd.Categorical.from_codes(np.full(length, -1, np.int8), categories=none)
    if kind == "count":
        return pd.arrays.IntegerArray(np.zeros(length, "i8"), np.ones(length, bool))
    return np.full(length, np.nan)


def parse(
    data: bytes, names: list[str], kinds: Mapping[str, str], schema: Schema
) -> tuple[Columns, list[Wrong]]:
    """Parse rows that each have their fields, by pandas.

    A cell that is no number is missing in its column and told among the wrong.
    """
    if not data:
        return {name: blanks(0, kind) for name, kind in kinds.items()}, []
    frame = _pandas(data, names, kinds, schema)
    columns: Columns = {}
    wrong: list[Wrong] = []
    for name, kind in kinds.items():
        if kind == "text":
            texts = frame[name].array
            if not _is_text(frame[name]):
                text = _pandas(data, names, {name: "cells"}, schema)[name]
                texts = pd.Categorical(text.astype("str"))
            columns[name] = _texts(_bare(texts) if schema.guarded else texts)
        elif _is_typed(frame[name], kind):
            columns[name] = _typed(frame[name], kind)
        else:
            text = _pandas(data, names, {name: "cells"}, schema)[name]
            columns[name], found = _by_cell(text, name, kind)
            wrong += found
    return columns, wrong


def _pandas(
    data: bytes, names: list[str], kinds: Mapping[str, str], schema: Schema
) -> pd.DataFrame:
    texts = {"text": "category", "cells": "str"}
    return pd.read_csv(
        BytesIO(data),
        header=None,
        names=names,
        usecols=list(kinds),
        dtype={name: texts[kind] for name, kind in kinds.items() if kind in texts},
        dtype_backend="numpy_nullable",
        sep=schema.delimiter,
        skipinitialspace=schema.spaced,
        keep_default_na=False,
        na_values=[""],
        low_memory=False,
        skip_blank_lines=False,
        encoding_errors="replace",
    )


def _texts(values: Any) -> Any:
    """Return a categorical; one without values has categories of text, too."""
    return values if len(values.categories) else blanks(len(values), "text")


def _bare(values: Any) -> Any:
    """Return the texts of which a writer made these with `csv_cells.guarded`."""
    texts = [unguarded(text) for text in values.categories]
    if texts == values.categories.tolist():
        return values
    # two of them may be the same
    places, distinct = pd.factorize(np.array(texts, object))
    codes = np.where(values.codes < 0, -1, places[values.codes])
    return pd.Categorical.from_codes(codes, categories=pd.Index(distinct, dtype="str"))


def _is_text(values: pd.Series[Any]) -> bool:
    """Whether categories are text: pandas makes numbers of 007 and truth of True."""
    categories = values.array.categories
    return not len(categories) or pd.api.types.is_string_dtype(categories)


def _is_typed(values: pd.Series[Any], kind: str) -> bool:
    if values.isna().all():
        return True
    return values.dtype == "Int64" or (kind == "number" and values.dtype == "Float64")


def _typed(values: pd.Series[Any], kind: str) -> Any:
    if kind == "count":
        return values.astype("Int64").array
    return values.to_numpy("float64", na_value=np.nan)


def _by_cell(text: pd.Series[Any], name: str, kind: str) -> tuple[Any, list[Wrong]]:
    """Convert the cells of a column in which some are no numbers."""
    there = text.notna().to_numpy(bool)
    cells = text.to_numpy(object)
    numbers = pd.to_numeric(text, errors="coerce").to_numpy("float64", na_value=np.nan)
    if kind == "number":
        bad = there & np.isnan(numbers)
        return numbers, [(bad, lambda i: _no_number(name, cells[i]))]
    whole = text.str.fullmatch(_WHOLE).fillna(False).to_numpy(bool)
    below = text.str.fullmatch(_NEGATIVE).fillna(False).to_numpy(bool)
    column = blanks(len(text), kind)
    column[whole] = [int(cell.split(".")[0]) for cell in cells[whole]]
    return column, [
        (below, lambda i: f"{name} must be 0 or more, got {shown(cells[i])}"),
        (
            there & ~whole & ~below,
            lambda i: f"{name} must be a whole number, got {shown(cells[i])}",
        ),
    ]


def _no_number(name: str, cell: object) -> str:
    return f"{name} must be a number, got {shown(cell)}"


def out_of_range(values: pd.Series[Any], column: Column) -> list[Wrong]:
    """Find cells that are negative, not finite, or empty where they must not be."""
    name = column.name
    found: list[Wrong] = []
    empty = values.isna().to_numpy()
    if not column.blank and empty.any():
        found.append((empty, lambda _: f"{name} is missing"))
    if column.kind == "text":
        return found + _too_long(values, name)
    negative = (values < 0).fillna(False).to_numpy(bool)
    if negative.any():
        found.append((negative, lambda i: f"{name} must be 0 or more, got {values[i]}"))
    infinite = np.isinf(values.to_numpy()) if column.kind == "number" else negative
    if infinite.any() and column.kind == "number":
        found.append((infinite, lambda _: f"{name} must be finite"))
    return found


def _too_long(values: pd.Series[Any], name: str) -> list[Wrong]:
    """Find texts that are no names: each would be repeated for every row."""
    lengths = np.array([len(label) for label in values.cat.categories], np.int64)
    if not (lengths > LONGEST_TEXT).any():
        return []
    long = np.r_[lengths > LONGEST_TEXT, False][values.cat.codes.to_numpy()]
    return [(long, lambda _: f"{name} has more than {LONGEST_TEXT} characters")]


def parse_arrow(
    data: bytes, names: list[str], kinds: Mapping[str, str], schema: Schema
) -> Columns | None:
    """Parse by pyarrow; None where it is absent, or anything needs a closer look."""
    table = arrow_table(data, names, kinds, schema)
    if table is None:
        return None
    return {name: from_arrow(table[name], kind) for name, kind in kinds.items()}


def arrow_table(
    data: bytes,
    names: list[str],
    kinds: Mapping[str, str],
    schema: Schema,
    *,
    threads: bool = True,
) -> Any:
    """Parse to a table of pyarrow; None as `parse_arrow`."""
    csv, pa = arrow(".csv"), arrow("")
    if csv is None or schema.spaced or b'"' in data or _is_odd(data, kinds):
        return None
    if schema.guarded and b"'" in data:
        return None
    types = arrow_types()
    try:
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=csv.ReadOptions(
                column_names=names, block_size=1 << 20, use_threads=threads
            ),
            parse_options=csv.ParseOptions(
                delimiter=schema.delimiter, quote_char=False, ignore_empty_lines=False
            ),
            convert_options=csv.ConvertOptions(
                column_types={name: types[kind] for name, kind in kinds.items()},
                include_columns=list(kinds),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except pa.ArrowInvalid:
        return None


def arrow_types() -> dict[str, Any]:
    """Return pyarrow's type of each kind of column."""
    pa = arrow("")
    return {
        "count": pa.int64(),
        "number": pa.float64(),
        "text": pa.dictionary(pa.int32(), pa.string()),
    }


def _is_odd(data: bytes, kinds: Mapping[str, str]) -> bool:
    """Whether there may be numbers which pyarrow takes and we do not."""
    # to find that there is no x at all is much faster
    if any(x in data and b"0" + x in data for x in (b"x", b"X")):
        return True
    return "number" in kinds.values() and b"nan" in data.lower()


def from_arrow(column: Any, kind: str) -> Any:
    """Return a column of pyarrow as pandas has it."""
    if kind == "text":
        texts = column.unify_dictionaries().to_pandas().array
        empty = texts.categories.intersection([""])  # Parquet knows it beside null
        return _texts(texts.remove_categories(empty))
    if kind == "number":
        return column.to_numpy()
    return pd.Series(
        column.to_pandas(types_mapper={arrow("").int64(): pd.Int64Dtype()}.get)
    ).array
