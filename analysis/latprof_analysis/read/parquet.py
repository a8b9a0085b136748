"""A Parquet file with a documented schema -> typed columns, by pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from latprof_analysis.read import cells
from latprof_analysis.read.result import ReadError, Skipped, concatenated
from latprof_analysis.read.run_schema import EXCHANGES, MESSAGES, ROUND_TRIPS
from latprof_analysis.read.schema import Column, Schema
from latprof_analysis.read.table import (
    Table,
    completed,
    opened,
    sorted_out,
    wanted_columns,
)

MAGIC = b"PAR1"
RUN_TEXTS = [
    column.name
    for schema in (MESSAGES, ROUND_TRIPS, EXCHANGES)
    for column in schema.columns
    if column.kind == "text"
]
_ROWS_AT_ONCE = 1 << 19
# A message has a dozen stamps, each of them a byte at least however it is packed.
_FEW_ROWS = 1_000_000
# The agent's row groups have 250,000 rows, and 100 MB.
_MOST_GROUP_BYTES = 1 << 30


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
        with opened(path) as file:
            pq.read_metadata(file)
    except (ReadError, OSError, cells.arrow("").ArrowException):
        return False
    return True


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; the reason in one line where it, or its reader, fails."""
    pa, pq = cells.arrow(""), cells.arrow(".parquet")
    if pq is None:
        raise ReadError(path, "Parquet needs pyarrow; install it, or give the CSV")
    # not by its name, which pyarrow takes in UTF-8 only
    with opened(path) as raw:
        try:
            metadata = pq.read_metadata(raw)
        except (OSError, pa.ArrowException) as error:
            raise ReadError(path, "it breaks off: no whole Parquet file") from error
        _check_size(path, metadata)
        try:
            texts = [name for name in metadata.schema.names if name in RUN_TEXTS]
            # texts as their numbers among the distinct ones
            with pq.ParquetFile(raw, metadata=metadata, read_dictionary=texts) as file:
                yield file
        except (OSError, pa.ArrowException, UnicodeDecodeError, MemoryError) as error:
            why = str(error).splitlines()[0] if str(error) else "it cannot be decoded"
            raise ReadError(path, why) from error


def _check_size(path: Path, metadata: Any) -> None:
    """Refuse a small file that would fill the memory."""
    size, rows = path.stat().st_size, metadata.num_rows
    if rows > max(_FEW_ROWS, size):
        raise ReadError(path, f"it claims {rows} rows in {size} bytes: no run's do so")
    groups = range(metadata.num_row_groups)
    largest = max((metadata.row_group(i).total_byte_size for i in groups), default=0)
    if largest > _MOST_GROUP_BYTES:
        raise ReadError(
            path,
            f"a row group has {largest >> 20} MiB unpacked, and at most"
            f" {_MOST_GROUP_BYTES >> 20} are read; write smaller ones, or give the CSV",
        )


def read_parquet(
    path: Path, schema: Schema, *, columns: Collection[str] | None = None
) -> Table:
    """Read the columns of a schema; wrong rows are told by their number from 1."""
    skipped = Skipped(path)
    frames = []
    row = 1
    with opened_parquet(path) as file:
        names = file.schema_arrow.names
        wanted = wanted_columns(path, names, schema, columns)
        chosen = [column.name for column in wanted]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=chosen):
            frames.append(parsed_batch(path, batch, wanted, schema, row, skipped))
            row += len(batch)
    frame = concatenated(frames) if frames else pd.DataFrame()
    return completed(frame, skipped, schema, names, columns)


def parsed_batch(
    path: Path,
    batch: Any,
    wanted: list[Column],
    schema: Schema,
    first_row: int,
    skipped: Skipped,
) -> pd.DataFrame:
    """Return the good rows of a batch."""
    frame = _frame(path, cells.arrow("").Table.from_batches([batch]), wanted)
    rows = np.arange(first_row, first_row + len(frame))
    return sorted_out(frame, wanted, schema, rows, skipped)


def _frame(path: Path, table: Any, wanted: list[Column]) -> pd.DataFrame:
    pa, types = cells.arrow(""), cells.arrow_types()
    parsed = {}
    for column in wanted:
        values = table[column.name]
        try:
            if column.kind == "text" and pa.types.is_dictionary(values.type):
                values = _labelled(values)
            cast = values.cast(types[column.kind])
        except pa.ArrowException as error:
            raise ReadError(
                path, f"column {column.name} must be a {column.kind}: {error}"
            ) from error
        parsed[column.name] = cells.from_arrow(cast, column.kind)
    return pd.DataFrame(parsed, copy=False)


def _labelled(values: Any) -> Any:
    """Return texts with labels that are texts, each of them once."""
    pa = cells.arrow("")
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(
                chunk.indices.cast(pa.int32()), chunk.dictionary.cast(pa.string())
            )
            for chunk in values.chunks
        ],
        pa.dictionary(pa.int32(), pa.string()),
    )


def column_names(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    with opened_parquet(path) as file:
        return list(file.schema_arrow.names)
