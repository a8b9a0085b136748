"""The tables of a run folder as Parquet beside their CSV: smaller, faster to read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from latprof_analysis.csv_cells import unguarded
from latprof_analysis.read.parquet import RUN_TEXTS
from latprof_analysis.read.paths import TABLE_FILES, TABLES
from latprof_analysis.read.result import ReadError
from latprof_analysis.read.rows import TYPES
from latprof_analysis.read.run_folder import SCHEMAS
from latprof_analysis.read.schema import Schema
from latprof_analysis.read.table import opened, read_header

GROUP_ROWS = 250_000
_BLOCK_BYTES = 16 << 20
# Numbers of which a run has few, each of them many times.
_FEW = (
    "source_port",
    "destination_port",
    "size_bytes",
    "packets",
    "retransmits",
    "hops",
    "sender_pid",
    "reader_pid",
    "reply_bytes",
    "lost",
    "client_port",
    "server_port",
    "client_pid",
    "server_pid",
    "requests",
    "request_bytes",
    "replies",
    "pipelined",
)


def write_parquet(folder: Path | str) -> list[Path]:
    """Write the tables of a run folder as Parquet, cell by cell; the CSVs stay.

    A file appears when it is whole. What is wrong in a row stays in it, for the
    readers to tell; columns that are not known are text.

    Returns
    -------
    list of Path
        The files written.

    Raises
    ------
    ReadError
        Where a CSV is no table.
    OSError
        Where a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> path = folder / "messages.csv"
    >>> _ = path.write_text("protocol,kind,size_bytes,hops\\ntcp,request,64,\\n")
    >>> [written.name for written in write_parquet(folder)]
    ['messages.parquet']
    """
    folder = Path(folder)
    texts = [(table, folder / f"{table}.csv") for table in TABLES]
    there = [(table, path) for table, path in texts if path.is_file()]
    if not there:
        raise ReadError(folder, f"the folder has none of {', '.join(TABLE_FILES)}")
    return [_write(path, SCHEMAS[table]) for table, path in there]


def _write(path: Path, schema: Schema) -> Path:
    whole = path.with_suffix(".parquet")
    partial = path.with_suffix(".parquet.partial")
    try:
        with partial.open("wb") as file:
            convert(path, file, schema)
        partial.rename(whole)
    finally:
        partial.unlink(missing_ok=True)
    return whole


def convert(path: Path, file: BinaryIO, schema: Schema) -> None:
    """Write the CSV of a path as Parquet into a file that is open.

    Raises as `write_parquet` does.
    """
    types = _types(path, schema)
    few = [name for name, of in types.items() if name in _FEW or of != pa.int64()]
    many = [name for name in types if name not in few]
    try:
        with pq.ParquetWriter(
            file,
            pa.schema(types.items()),
            # of packed differences zstd makes no less, and takes longer to read
            compression="snappy",
            use_dictionary=few,
            column_encoding=dict.fromkeys(many, "DELTA_BINARY_PACKED"),
        ) as writer:
            for group in _groups(path, types, schema):
                writer.write_table(group)
    except pa.ArrowInvalid as error:
        raise ReadError(path, str(error).splitlines()[0]) from error


def _types(path: Path, schema: Schema) -> dict[str, Any]:
    """Return the type of each column of a file, whose last line must be whole."""
    text = pa.string()
    kinds = {column.name: column.kind for column in schema.columns}
    with opened(path) as file:
        names = read_header(path, file, schema)
        file.seek(-1, 2)
        if file.read() != b"\n":
            raise ReadError(path, "its last line was cut: the run was killed")
    return {
        name: text if kinds.get(name, "text") == "text" else TYPES[kinds[name]]
        for name in names
    }


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
    names = [name for name in types if schema.guarded and name in RUN_TEXTS]
    waiting = pa.schema(types.items()).empty_table()
    with file, reader:
        for batch in reader:
            found = _bare(pa.Table.from_batches([batch]), names)
            waiting = pa.concat_tables([waiting, found])
            while len(waiting) >= GROUP_ROWS:
                yield waiting.slice(0, GROUP_ROWS)
                waiting = waiting.slice(GROUP_ROWS)
    if len(waiting):
        yield waiting


def _bare(table: Any, names: list[str]) -> Any:
    """Return a table with texts of others as they are: Parquet is no spreadsheet's."""
    for name in names:
        column = table[name]
        if pc.any(pc.starts_with(column, "'")).as_py():
            texts = [text and unguarded(text) for text in column.to_pylist()]
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, pa.array(texts, pa.string()))
    return table
