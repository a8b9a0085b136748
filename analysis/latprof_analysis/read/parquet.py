"""Parquet files, by pyarrow: batches with typed columns, and a CSV as such a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from latprof_analysis.read.cells import bare
from latprof_analysis.read.lines import read_header
from latprof_analysis.read.paths import opened
from latprof_analysis.read.result import ReadError
from latprof_analysis.read.rows import TYPES
from latprof_analysis.read.schema import (
    EXCHANGES,
    MESSAGES,
    ROUND_TRIPS,
    Column,
    Schema,
)
from latprof_analysis.text import printable

MAGIC = b"PAR1"
_RUN_TEXTS = {*MESSAGES.texts, *ROUND_TRIPS.texts, *EXCHANGES.texts}
# A message has a dozen stamps, each of them a byte at least however it is packed.
_FEW_ROWS = 1_000_000
# The agent's row groups have 250,000 rows, and 100 MB.
_MOST_GROUP_BYTES = 1 << 30
GROUP_ROWS = 250_000
_BLOCK_BYTES = 16 << 20
# What pyarrow raises of a file that is broken: names of columns that are no UTF-8 too.
_BROKEN = (OSError, pa.ArrowException, UnicodeDecodeError, MemoryError)
_REASON_CHARACTERS = 200
# How numbers are named of which nearly every row has its own, or hardly any row one. Of
# others there are few, each of them many times.
_OWN = ("_ns", "sequence", "_at_arrival", "translated", "_statistics")


def is_parquet(path: Path) -> bool:
    """Whether a file begins as Parquet files do."""
    with opened(path) as file:
        return file.read(len(MAGIC)) == MAGIC


def is_readable(path: Path) -> bool:
    """Whether the file is whole."""
    try:
        with opened(path) as file:
            pq.read_metadata(file)
    except (ReadError, *_BROKEN):
        return False
    return True


@contextmanager
def opened_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; the reason in one line where that fails."""
    # not by its name, which pyarrow takes in UTF-8 only
    with opened(path) as raw:
        try:
            metadata = pq.read_metadata(raw)
        except _BROKEN as error:
            raise ReadError(path, "it breaks off: no whole Parquet file") from error
        _check_size(path, metadata)
        try:
            texts = [name for name in metadata.schema.names if name in _RUN_TEXTS]
            # texts as their numbers among the distinct ones
            with pq.ParquetFile(raw, metadata=metadata, read_dictionary=texts) as file:
                yield file
        except _BROKEN as error:
            raise ReadError(path, _reason(error)) from error


def _reason(error: BaseException) -> str:
    """What pyarrow says, in one line; a cell that it quotes may be long."""
    first = next(iter(str(error).splitlines()), "it cannot be decoded")
    return printable(first, _REASON_CHARACTERS)


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


def typed(path: Path, batch: Any, columns: list[Column]) -> Any:
    """Return a batch as a table with the types of `rows.TYPES`."""
    try:
        # pyarrow reads numbers of texts that a broken file's dictionary does not have
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise ReadError(path, f"its data are broken: {_reason(error)}") from error
    table = pa.Table.from_batches([batch])
    found = {}
    for column in columns:
        try:
            found[column.name] = table[column.name].cast(TYPES[column.kind])
        except pa.ArrowException as error:
            must = f"column {column.name} must be a {column.kind}"
            raise ReadError(path, f"{must}: {_reason(error)}") from error
    return pa.table(found)


def convert(path: Path, file: BinaryIO, schema: Schema) -> None:
    """Write a CSV cell by cell as Parquet into a file that is open.

    What is wrong in a row stays in it, for the readers to report; columns that are not
    known are text. Raises ReadError where the CSV is no table, or its end was cut.
    """
    kinds = {c.name: TYPES[c.kind] for c in schema.columns if c.kind != "text"}
    with opened(path) as text:
        names = read_header(path, text, schema)
        text.seek(-1, 2)
        if text.read() != b"\n":
            raise ReadError(path, "its last line was cut: the run was killed")
    types = {name: kinds.get(name, pa.string()) for name in names}
    own = [name for name in names if types[name] == pa.int64() and name.endswith(_OWN)]
    try:
        with pq.ParquetWriter(
            file,
            pa.schema(types.items()),
            # of packed differences zstd makes no less, and takes longer to read
            compression="snappy",
            use_dictionary=[name for name in names if name not in own],
            column_encoding=dict.fromkeys(own, "DELTA_BINARY_PACKED"),
        ) as writer:
            for group in _groups(path, types, schema):
                writer.write_table(group)
    except pa.ArrowInvalid as error:
        raise ReadError(path, _reason(error)) from error


def _groups(path: Path, types: dict[str, Any], schema: Schema) -> Iterator[Any]:
    """Read the rows as they stand, a row group at a time."""
    file = opened(path)  # by its name only where that is UTF-8
    reader = csv.open_csv(
        file,
        read_options=csv.ReadOptions(
            column_names=list(types), skip_rows=1, block_size=_BLOCK_BYTES
        ),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True
        ),
    )
    # Parquet is no spreadsheet's: texts of others are as they were
    texts = [name for name in schema.texts if schema.guarded and name in types]
    waiting = pa.schema(types.items()).empty_table()
    with file, reader:
        for batch in reader:
            found = bare(pa.Table.from_batches([batch]), texts)
            waiting = pa.concat_tables([waiting, found])
            while len(waiting) >= GROUP_ROWS:
                yield waiting.slice(0, GROUP_ROWS)
                waiting = waiting.slice(GROUP_ROWS)
    if len(waiting):
        yield waiting
