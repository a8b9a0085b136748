"""A delimited file with a documented schema -> typed columns.

Rows are read in blocks, so that wrong ones cost only their block.
"""

from __future__ import annotations

import csv
import os
import stat
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from latprof_analysis.read import cells
from latprof_analysis.read.lines import (
    LONGEST_LINE_BYTES,
    Block,
    Layout,
    blocks,
    counted,
    split_fields,
)
from latprof_analysis.read.result import ReadError, Skipped, shown
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.read.unpacked import MAGIC, unpacked
from latprof_analysis.text import printable

if TYPE_CHECKING:
    import pandas as pd

_LONGEST_HEADER_BYTES = 64 << 10
_PACKED = (
    (MAGIC, "is packed by gzip twice; unpack it once"),
    (b"\x28\xb5\x2f\xfd", "is compressed by zstd; unpack it"),
    (b"PK\x03\x04", "is a zip archive; unpack it"),
    (b"\xff\xfe", "is UTF-16; save it as UTF-8"),
    (b"\xfe\xff", "is UTF-16; save it as UTF-8"),
)
# Of a column's name in an error, and how many of them.
_SHOWN_NAME = 40
_SHOWN_COLUMNS = 8
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass
class Table:
    """Rows that were read, and those that were not."""

    rows: Rows
    skipped: Skipped
    ignored_columns: list[str]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, in the schema's order."""
        return self.rows.frame()


def read_table(
    path: Path,
    schema: Schema,
    *,
    columns: Collection[str] | None = None,
    header_line: int = 1,
) -> Table:
    """Read the columns of a schema; the header stands in `header_line`.

    Columns that the schema does not know are ignored, and named in the result;
    those that the file lacks and does not need are empty. `columns` limits what is
    kept. Raises ReadError where the file is none of this format.
    """
    skipped = Skipped(path)
    with opened(path) as file:
        names = read_header(path, file, schema, header_line)
        wanted = wanted_columns(path, names, schema, columns)
        layout = Layout(
            len(names), schema.delimiter, schema.ends_whole, schema.ruler, schema.end
        )
        first = header_line + 1
        parts = [
            parsed_rows(block, layout, names, wanted, schema, skipped)
            for block in blocks(file, layout, first, skipped)
        ]
    return completed(parts, skipped, schema, names, columns)


def completed(
    parts: Sequence[Any],
    skipped: Skipped,
    schema: Schema,
    names: list[str],
    columns: Collection[str] | None,
) -> Table:
    """Return the table of rows that were read, with the columns that the file lacks.

    Raises ReadError if most rows were wrong.
    """
    empty = pa.schema([]).empty_table()
    whole = pa.concat_tables(parts) if parts else empty
    skipped.check(len(whole))
    known = {column.name for column in schema.columns}
    kept = [c for c in schema.columns if columns is None or c.name in columns]
    ignored = [name for name in names if name not in known]
    return Table(Rows(whole, kept), skipped, ignored)


def opened(path: Path) -> BinaryIO:
    """Open a file to read; the reason in one line where that fails.

    What is no file on a disk is refused, since it may never end, or never begin: a
    FIFO, a device, a socket, and files that the kernel makes up, of 0 bytes. What
    gzip packed is unpacked on the way; what must be unpacked first is refused.
    """
    try:
        file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115
    except OSError as error:
        raise ReadError(path, (error.strerror or str(error)).lower()) from error
    try:
        if why := _why_no_file(file):
            raise ReadError(path, f"it {why}")
        if file.peek(len(MAGIC)).startswith(MAGIC):
            file = unpacked(path, file)
        if why := _why_unreadable(file):
            raise ReadError(path, f"it {why}")
    except ReadError:
        file.close()
        raise
    return file


def _why_no_file(file: BufferedReader) -> str | None:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        return "is no regular file"
    return None if status.st_size else "is empty"


def _why_unreadable(file: BufferedReader) -> str | None:
    start = file.peek(4)
    if not start:
        return "is empty"
    return next((why for magic, why in _PACKED if start.startswith(magic)), None)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_header(path: Path, file: BinaryIO, schema: Schema, line: int = 1) -> list[str]:
    """Return the names of a file's columns, from the line in which they stand."""
    for _ in range(line - 1):
        file.readline(LONGEST_LINE_BYTES)
    raw = file.readline(_LONGEST_HEADER_BYTES + 1)
    if not raw.strip():
        raise ReadError(path, "it is empty" if line == 1 else "its header is missing")
    if len(raw) > _LONGEST_HEADER_BYTES:
        raise ReadError(path, f"its header has more than {_LONGEST_HEADER_BYTES} bytes")
    text = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").strip()
    try:
        names = [name.strip() for name in split_fields(text, schema.delimiter)]
    except csv.Error as error:
        check_line_ends(path, raw)
        raise ReadError(path, f"its header has wrong quotes: {error}") from error
    twice = sorted(name for name, times in Counter(names).items() if times > 1)
    if twice:
        raise ReadError(path, f"its header has column {shown(twice[0])} twice")
    return names


def check_line_ends(path: Path, line: bytes) -> None:
    """Refuse lines that end as those of old Macintoshes did, which are one to us."""
    if b"\r" in line.rstrip(b"\r\n"):
        why = "its lines end in CR alone; save it with LF, or CR and LF"
        raise ReadError(path, why)


def column_list(names: Sequence[str]) -> str:
    """Name the first columns of a file."""
    told = ", ".join(printable(name, _SHOWN_NAME) for name in names[:_SHOWN_COLUMNS])
    return told + (", ..." if len(names) > _SHOWN_COLUMNS else "")


def wanted_columns(
    path: Path, names: list[str], schema: Schema, columns: Collection[str] | None
) -> list[Column]:
    """Return what to read of a file with columns of these names."""
    missing = [c.name for c in schema.columns if c.needed and c.name not in names]
    if missing:
        s = "" if len(missing) == 1 else "s"
        has = column_list(names)
        raise ReadError(path, f"column{s} {', '.join(missing)} missing; it has {has}")
    return [
        column
        for column in schema.columns
        if column.name in names and (columns is None or column.name in columns)
    ]


def parsed_rows(
    block: Block,
    layout: Layout,
    names: list[str],
    wanted: list[Column],
    schema: Schema,
    skipped: Skipped,
    *,
    threads: bool = True,
) -> Any:
    """Parse a block to a table of pyarrow, and leave out its wrong rows."""
    try:
        table, wrong = cells.parse(block.data, names, wanted, schema, threads=threads)
    except pa.ArrowInvalid:
        block = counted(block, layout, skipped)
        table, wrong = cells.parse(block.data, names, wanted, schema, threads=threads)
    return sorted_out(table, wanted, schema, block.lines, skipped, wrong)


def sorted_out(
    table: Any,
    wanted: Sequence[Column],
    schema: Schema,
    lines: NDArray[np.int64],
    skipped: Skipped,
    wrong: Sequence[Wrong] = (),
) -> Any:
    """Return the good rows; the others go to `skipped` with the first reason."""
    found = [*wrong]
    numbers = Rows(table, wanted).numbers
    for column in wanted:
        name = column.name
        found += cells.out_of_range(
            table[name], column, partial(numbers.__getitem__, name)
        )
    found += schema.check(numbers) if schema.check else []
    bad = np.zeros(len(table), bool)
    for mask, _ in found:
        bad |= mask
    if not bad.any():
        return table
    told = np.flatnonzero(bad)[: skipped.room]
    whys = [next(why(i) for mask, why in found if mask[i]) for i in told]
    skipped.add_many([int(x) for x in lines[told]], whys, int(bad.sum()))
    return table.filter(pa.array(~bad))


def first_line(path: Path) -> str:
    """Return a file's first line; bytes that are no UTF-8 become U+FFFD."""
    with opened(path) as file:
        raw = file.readline(_LONGEST_HEADER_BYTES)
    return raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").strip()
