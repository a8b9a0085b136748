"""A Parquet file with a documented schema -> typed columns, by pyarrow."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.readers import cells
from latprof_analysis.readers.result import ReadError, Skipped, concatenated
from latprof_analysis.readers.schema import Column, Schema
from latprof_analysis.readers.table import (
    Table,
    completed,
    opened,
    sorted_out,
    wanted_columns,
)

MAGIC = b"PAR1"
_ROWS_AT_ONCE = 1 << 19


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet files do."""
    with opened(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def is_readable(path: Path) -> bool:
    """Whether pyarrow is there, and the file whole."""
    pq = cells.arrow(".parquet")
    if pq is None:
        return False
    try:
        pq.read_metadata(path)
    except (OSError, cells.arrow("").ArrowInvalid):
        return False
    return True


def read_parquet(
    path: Path, schema: Schema, *, columns: Collection[str] | None = None
) -> Table:
    """Read the columns of a schema; wrong rows are told by their number from 1."""
    pa, pq = cells.arrow(""), cells.arrow(".parquet")
    if pq is None:
        raise ReadError(path, "Parquet needs pyarrow; install it, or give the CSV")
    skipped = Skipped(path)
    frames = []
    row = 1
    try:
        file = pq.ParquetFile(path)
        names = file.schema_arrow.names
        wanted = wanted_columns(path, names, schema, columns)
        chosen = [column.name for column in wanted]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=chosen):
            frame = _frame(path, pa.Table.from_batches([batch]), wanted)
            rows = np.arange(row, row + len(frame))
            frames.append(sorted_out(frame, wanted, schema, rows, skipped))
            row += len(frame)
    except (OSError, pa.ArrowException) as error:
        why = str(error).splitlines()[0] if str(error) else "it is no Parquet file"
        raise ReadError(path, why) from error
    frame = concatenated(frames) if frames else pd.DataFrame()
    return completed(frame, skipped, schema, names, columns)


def _frame(path: Path, table: Any, wanted: list[Column]) -> pd.DataFrame:
    pa, types = cells.arrow(""), cells.arrow_types()
    parsed = {}
    for column in wanted:
        values = table[column.name]
        try:
            if column.kind == "text" and pa.types.is_dictionary(values.type):
                values = values.cast(pa.string())
            cast = values.cast(types[column.kind])
        except pa.ArrowException as error:
            raise ReadError(
                path, f"column {column.name} must be a {column.kind}: {error}"
            ) from error
        parsed[column.name] = cells.from_arrow(cast, column.kind)
    return pd.DataFrame(parsed, copy=False)


def column_names(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    pa, pq = cells.arrow(""), cells.arrow(".parquet")
    if pq is None:
        raise ReadError(path, "Parquet needs pyarrow; install it, or give the CSV")
    try:
        return list(pq.read_schema(path).names)
    except (OSError, pa.ArrowException) as error:
        raise ReadError(path, "it breaks off: no whole Parquet file") from error
