"""A Parquet file with a documented schema -> typed columns, by pyarrow."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from latprof_analysis.read.result import ReadError, Skipped
from latprof_analysis.read.rows import TYPES
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
    """Whether the file is whole."""
    try:
        with opened(path) as file:
            pq.read_metadata(file)
    except (ReadError, OSError, pa.ArrowException):
        return False
    return True


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; the reason in one line where that fails."""
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
    parts = []
    row = 1
    with opened_parquet(path) as file:
        names = file.schema_arrow.names
        wanted = wanted_columns(path, names, schema, columns)
        chosen = [column.name for column in wanted]
        for batch in file.iter_batches(_ROWS_AT_ONCE, columns=chosen):
            parts.append(parsed_batch(path, batch, wanted, schema, row, skipped))
            row += len(batch)
    return completed(parts, skipped, schema, names, columns)


def parsed_batch(
    path: Path,
    batch: Any,
    wanted: list[Column],
    schema: Schema,
    first_row: int,
    skipped: Skipped,
) -> Any:
    """Return the good rows of a batch, as a table."""
    table = pa.Table.from_batches([batch])
    table = pa.table({c.name: _typed(path, table[c.name], c) for c in wanted})
    rows = np.arange(first_row, first_row + len(table))
    return sorted_out(table, wanted, schema, rows, skipped)


def _typed(path: Path, values: Any, column: Column) -> Any:
    if values.type == TYPES[column.kind]:
        return values
    try:
        if column.kind == "text" and pa.types.is_dictionary(values.type):
            values = _labelled(values)
        return values.cast(TYPES[column.kind])
    except pa.ArrowException as error:
        raise ReadError(
            path, f"column {column.name} must be a {column.kind}: {error}"
        ) from error


def _labelled(values: Any) -> Any:
    """Return texts with labels that are texts, each of them once."""
    return pa.chunked_array(
        [
            pa.DictionaryArray.from_arrays(
                chunk.indices.cast(pa.int32()), chunk.dictionary.cast(pa.string())
            )
            for chunk in values.chunks
        ],
        TYPES["text"],
    )


def column_names(path: Path) -> list[str]:
    """Return the names of a Parquet file's columns."""
    with opened_parquet(path) as file:
        return list(file.schema_arrow.names)
