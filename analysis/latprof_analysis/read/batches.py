"""The rows of a run's tables, batch by batch, in bounded memory.

A table's file is read in pieces, by processes or on other machines: of a CSV a range
of bytes that begins and ends between two rows, of Parquet a range of row groups.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from latprof_analysis.read import lines
from latprof_analysis.read.lines import Layout, blocks
from latprof_analysis.read.parquet import is_parquet, opened_parquet, parsed_batch
from latprof_analysis.read.paths import expand
from latprof_analysis.read.result import Skipped
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.run_folder import SCHEMAS, table_file
from latprof_analysis.read.schema import Column, Schema
from latprof_analysis.read.table import opened, parsed_rows, read_header, wanted_columns

PIECE_BYTES = 128 << 20
PIECE_ROWS = 500_000


@dataclass(frozen=True)
class Piece:
    """A part of the file of a run's table.

    Attributes
    ----------
    path : Path
    table : {'messages', 'round_trips', 'exchanges', 'histograms'}
    begin, end : int
        Bytes of a CSV (the first piece has the header, too), else row groups.
    parquet : bool
    rows : int
        How many there are, about.
    """

    path: Path
    table: str
    begin: int
    end: int
    parquet: bool
    rows: int

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its file."""
        return self.begin == 0


def pieces_of(path: Path, table: str) -> list[Piece]:
    """Cut the file of a table into pieces, in order; at least one."""
    return _row_groups(path, table) if is_parquet(path) else _ranges(path, table)


def _row_groups(path: Path, table: str) -> list[Piece]:
    with opened_parquet(path) as file:
        metadata = file.metadata
        groups = metadata.num_row_groups
        rows = [metadata.row_group(i).num_rows for i in range(groups)]
    found: list[Piece] = []
    begin = 0
    for end in range(1, groups + 1):
        if end == groups or sum(rows[begin : end + 1]) > PIECE_ROWS:
            count = sum(rows[begin:end])
            found.append(Piece(path, table, begin, end, True, count))
            begin = end
    return found or [Piece(path, table, 0, 0, True, 0)]


def _ranges(path: Path, table: str) -> list[Piece]:
    found: list[Piece] = []
    with opened(path) as file:
        row_bytes = _row_bytes(file)
        size = file.seek(0, 2)
        # what is packed would be unpacked anew up to where each piece begins
        in_pieces = size == os.fstat(file.fileno()).st_size
        begin = 0
        while begin < size or not found:
            end = size
            if in_pieces and begin + PIECE_BYTES < size:
                end = _between_rows(file, begin + PIECE_BYTES)
            rows = (end - begin) // row_bytes
            found.append(Piece(path, table, begin, end, False, rows))
            begin = end
    return found


def _row_bytes(file: BinaryIO) -> int:
    """Estimate the length of a row from the first of them."""
    file.readline(lines.LONGEST_LINE_BYTES)
    sample = file.read(1 << 16)
    return max(1, len(sample) // max(1, sample.count(b"\n")))


def _between_rows(file: BinaryIO, offset: int) -> int:
    """Return where a row begins, at an offset or behind it; the file's end if none.

    A newline may stand within quotes, which end in the same line or a few lines
    further on. Behind that many lines without any quote a row begins.
    """
    file.seek(offset)
    plain = -1  # it may begin in the middle of a line
    while plain < lines.QUOTED_LINES:
        line = file.readline(lines.LONGEST_LINE_BYTES)
        if not line:
            break
        plain = plain + 1 if line.endswith(b"\n") and b'"' not in line else 0
    return file.tell()


class Section:
    """A range of a file's bytes as a `LineSource`; counts its lines."""

    def __init__(self, file: BinaryIO, begin: int, end: int) -> None:
        file.seek(begin)
        self._file = file
        self._left = end - begin
        self.lines = 0

    def read(self, size: int) -> bytes:
        """Return up to so many bytes."""
        return self._taken(self._file.read(min(size, self._left)))

    def readline(self, size: int) -> bytes:
        """Return a line, or so many bytes of it."""
        return self._taken(self._file.readline(min(size, self._left)))

    def _taken(self, data: bytes) -> bytes:
        self._left -= len(data)
        self.lines += lines.newlines(data)
        return data


BATCH_ROWS = 250_000


class PieceReader:
    """Reads a piece batch by batch; what it left out is told when it is through.

    Attributes
    ----------
    skipped : Skipped
        Wrong rows, by their line in the piece; in the first of a file, in the file.
    lines : int
        Lines of the piece (rows of a Parquet file).
    rows : int
        Rows that were right.
    ignored : list of str
        Columns that the schema does not know.
    """

    def __init__(self, piece: Piece, columns: Collection[str] | None = None) -> None:
        self.piece = piece
        self.schema: Schema = SCHEMAS[piece.table]
        self.columns = [
            column
            for column in self.schema.columns
            if columns is None or column.name in columns
        ]
        self._limit = columns
        self.skipped = Skipped(piece.path)
        self.lines = 0
        self.rows = 0
        self.ignored: list[str] = []

    def __iter__(self) -> Iterator[Rows]:
        source = self._row_groups if self.piece.parquet else self._ranges
        for table in _gathered(source()):
            self.rows += len(table)
            yield Rows(table, self.columns)

    def _wanted(self, names: list[str]) -> list[Column]:
        known = {column.name for column in self.schema.columns}
        self.ignored = [name for name in names if name not in known]
        return wanted_columns(self.piece.path, names, self.schema, self._limit)

    def _row_groups(self) -> Iterator[Any]:
        piece = self.piece
        with opened_parquet(piece.path) as file:
            names = file.schema_arrow.names
            wanted = self._wanted(names)
            groups = list(range(piece.begin, piece.end))
            chosen = [column.name for column in wanted]
            for batch in file.iter_batches(
                BATCH_ROWS, row_groups=groups, columns=chosen, use_threads=False
            ):
                first = self.lines + 1
                yield parsed_batch(
                    piece.path, batch, wanted, self.schema, first, self.skipped
                )
                self.lines += len(batch)

    def _ranges(self) -> Iterator[Any]:
        piece, schema = self.piece, self.schema
        with opened(piece.path) as file:
            names = read_header(piece.path, file, schema)
            wanted = self._wanted(names)
            layout = Layout(len(names), ends_whole=schema.ends_whole)
            begin = file.tell() if piece.is_first else piece.begin
            section = Section(file, begin, piece.end)
            first = 2 if piece.is_first else 1
            for block in blocks(section, layout, first, self.skipped):
                # processes are its threads
                yield parsed_rows(
                    block, layout, names, wanted, schema, self.skipped, threads=False
                )
            self.lines = section.lines + first - 1


def _gathered(source: Iterator[Any]) -> Iterator[Any]:
    """Put tables together until they are a batch."""
    waiting: list[Any] = []
    for rows in source:
        waiting.append(rows)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            together, waiting = pa.concat_tables(waiting), []
            yield together
    if waiting:
        yield pa.concat_tables(waiting)


def read_batches(
    paths: Path | str | Iterable[Path | str],
    table: str,
    *,
    columns: Collection[str] | None = None,
) -> Iterator[Rows]:
    """Stream a table of run folders, folders of them and patterns together.

    Wrong rows are left out; as in `read_runs` the file is refused, at its end, if
    most are wrong.

    Parameters
    ----------
    table : {'messages', 'round_trips', 'exchanges', 'histograms'}
    columns : collection of str, optional
        Limits what is read.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> path = folder / "messages.csv"
    >>> _ = path.write_text("protocol,kind,size_bytes,hops\\ntcp,request,64,\\n")
    >>> for batch in read_batches(folder, "messages", columns=["size_bytes", "hops"]):
    ...     print(batch.row(0))
    {'size_bytes': 64, 'hops': None}
    """
    for folder in expand(paths):
        path = table_file(folder, table)
        for piece in pieces_of(path, table) if path else ():
            reader = PieceReader(piece, columns)
            yield from reader
            reader.skipped.check(reader.rows)
