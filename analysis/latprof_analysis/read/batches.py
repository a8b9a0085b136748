"""The rows of a run's tables, batch by batch, in bounded memory.

By pyarrow where it is installed; what is not plainly right there is looked at
again by `table` and `parquet`, which tell wrong rows one by one. So both ways give
the same rows and leave out the same ones.

A table's file is read in pieces, by processes or on other machines: of a CSV a range
of bytes that begins and ends between two rows, of Parquet a range of row groups.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from latprof_analysis.read import cells, lines
from latprof_analysis.read.lines import Block, Layout, blocks
from latprof_analysis.read.parquet import is_parquet, opened_parquet, parsed_batch
from latprof_analysis.read.paths import expand
from latprof_analysis.read.result import Skipped
from latprof_analysis.read.run_folder import SCHEMAS, table_file
from latprof_analysis.read.schema import Column, Schema
from latprof_analysis.read.table import opened, parsed_rows, read_header, wanted_columns
from latprof_analysis.stages import BLANK

Ints = NDArray[np.int64]
Text = tuple[NDArray[np.int32], Sequence[str]]
T = TypeVar("T")


class _Columns(Mapping[str, T], Generic[T]):
    """Columns that are made when they are first asked for."""

    def __init__(self, names: Sequence[str], make: Callable[[str], T]) -> None:
        self._names = names
        self._make = make
        self._made: dict[str, T] = {}

    def __getitem__(self, name: str) -> T:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class Batch:
    """Rows of a table, all of them right.

    Parameters
    ----------
    rows : DataFrame or pyarrow.Table
    columns : sequence of Column
        Those that are there for the caller; what the file lacks is blank.

    Attributes
    ----------
    numbers : mapping of str to ndarray of int64, shape (n,)
        Columns of whole numbers; BLANK where there is no value.
    texts : mapping of str to (ndarray of int32, list of str)
        Columns of text: which label each row has, -1 for none, and the labels.
    """

    def __init__(self, rows: Any, columns: Sequence[Column]) -> None:
        self._rows = rows
        self._columns = columns
        texts = [column.name for column in columns if column.kind == "text"]
        others = [column.name for column in columns if column.kind != "text"]
        # of the rows, not of this object: a cycle would keep them for long
        self.numbers: Mapping[str, Ints] = _Columns(others, partial(_number, rows))
        self.texts: Mapping[str, Text] = _Columns(texts, partial(_text, rows))

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, i: int) -> dict[str, Any]:
        """Return one row by column; None where blank."""
        found: dict[str, Any] = {}
        for column in self._columns:
            if column.kind == "text":
                codes, labels = self.texts[column.name]
                found[column.name] = labels[codes[i]] if codes[i] >= 0 else None
            else:
                value = int(self.numbers[column.name][i])
                found[column.name] = None if value == BLANK else value
        return found

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Return some of the rows, with only their own labels of text."""
        if not isinstance(self._rows, pd.DataFrame):
            return Batch(_own_labels(self._rows.take(rows)), self._columns)
        taken = self._rows.iloc[rows].copy()
        for name in self.texts:
            if name in taken:
                taken[name] = taken[name].cat.remove_unused_categories()
        return Batch(taken, self._columns)

    def frame(self) -> pd.DataFrame:
        """Return the rows with all columns, as `read_runs` has them."""
        by_pandas = isinstance(self._rows, pd.DataFrame)
        there = _names(self._rows)
        found = {}
        for column in self._columns:
            name, kind = column.name, column.kind
            if name not in there:
                found[name] = cells.blanks(len(self), kind)
            elif by_pandas:
                found[name] = self._rows[name].array
            else:
                found[name] = cells.from_arrow(self._rows[name], kind)
        return pd.DataFrame(found, copy=False)

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> list[Batch]:
        """Put batches of pyarrow together, which is faster than their frames."""
        if any(isinstance(batch._rows, pd.DataFrame) for batch in batches):
            return list(batches)
        whole = cells.arrow("").concat_tables([batch._rows for batch in batches])
        return [cls(whole, batches[0]._columns)]


def _own_labels(table: Any) -> Any:
    """Encode texts anew: a file may have any number of labels in other rows."""
    pa = cells.arrow("")
    plain = [
        pa.field(f.name, pa.string()) if pa.types.is_dictionary(f.type) else f
        for f in table.schema
    ]
    return table.cast(pa.schema(plain)).cast(table.schema)


def _names(rows: Any) -> list[str]:
    by_pandas = isinstance(rows, pd.DataFrame)
    return list(rows.columns if by_pandas else rows.column_names)


def _number(rows: Any, name: str) -> Ints:
    if name not in _names(rows):
        return np.full(len(rows), BLANK)
    if isinstance(rows, pd.DataFrame):
        values: Ints = rows[name].to_numpy("int64", na_value=BLANK)
        return values
    return from_chunks(rows[name])


def _text(rows: Any, name: str) -> Text:
    if name not in _names(rows):
        return np.full(len(rows), -1, np.int32), []
    if isinstance(rows, pd.DataFrame):
        values: Any = rows[name].array
        return values.codes.astype(np.int32), values.categories.tolist()
    column = rows[name].unify_dictionaries().combine_chunks()
    codes = column.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return codes, column.dictionary.to_pylist()


def from_chunks(column: Any) -> Ints:
    """Return a column of pyarrow's int64, BLANK where it is null.

    By its buffers: faster than its own functions by a factor of ten.
    """
    if not column.null_count:
        whole: Ints = column.to_numpy()
        return whole
    numbers = np.empty(len(column), np.int64)
    begin = 0
    for chunk in column.chunks:
        part = numbers[begin : begin + len(chunk)]
        begin += len(chunk)
        there, values = chunk.buffers()
        rows = slice(chunk.offset, chunk.offset + len(chunk))
        part[:] = np.frombuffer(values, np.int64, rows.stop)[rows]
        if chunk.null_count:
            bits = np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")
            part[bits[rows] == 0] = BLANK
    return numbers


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

    def __iter__(self) -> Iterator[Batch]:
        source = self._row_groups if self.piece.parquet else self._ranges
        for rows in _gathered(source()):
            self.rows += len(rows)
            yield Batch(rows, self.columns)

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
                yield self._of_batch(batch, wanted)
                self.lines += len(batch)

    def _of_batch(self, batch: Any, wanted: list[Column]) -> Any:
        pa = cells.arrow("")
        types = cells.arrow_types()
        schema = pa.schema([(column.name, types[column.kind]) for column in wanted])
        try:
            table = pa.Table.from_batches([batch]).select(schema.names).cast(schema)
        except pa.ArrowException:
            table = None
        if table is not None and _is_right(table, wanted, self.schema):
            return table
        first = self.lines + 1
        path = self.piece.path
        return parsed_batch(path, batch, wanted, self.schema, first, self.skipped)

    def _ranges(self) -> Iterator[Any]:
        piece = self.piece
        with opened(piece.path) as file:
            names = read_header(piece.path, file, self.schema)
            wanted = self._wanted(names)
            layout = Layout(len(names), ends_whole=self.schema.ends_whole)
            begin = file.tell() if piece.is_first else piece.begin
            section = Section(file, begin, piece.end)
            first = 2 if piece.is_first else 1
            has_parser = cells.arrow(".csv") is not None
            for block in blocks(
                section, layout, first, self.skipped, parser_counts=has_parser
            ):
                yield self._of_block(block, layout, names, wanted)
            self.lines = section.lines + first - 1

    def _of_block(
        self, block: Block, layout: Layout, names: list[str], wanted: list[Column]
    ) -> Any:
        kinds = {column.name: column.kind for column in wanted}
        table = cells.arrow_table(block.data, names, kinds, self.schema, threads=False)
        if table is not None and _is_right(table, wanted, self.schema):
            return table
        return parsed_rows(block, layout, names, wanted, self.schema, self.skipped)


def _gathered(source: Iterator[Any]) -> Iterator[Any]:
    """Put tables of pyarrow together until they are a batch."""
    waiting: list[Any] = []
    for rows in source:
        if isinstance(rows, pd.DataFrame):
            yield rows
            continue
        waiting.append(rows)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            together, waiting = cells.arrow("").concat_tables(waiting), []
            yield together
    if waiting:
        yield cells.arrow("").concat_tables(waiting)


def _is_right(table: Any, wanted: list[Column], schema: Schema) -> bool:
    """Whether no row of a table is wrong, by a quick look."""
    compute = cells.arrow(".compute")
    for column in wanted:
        values = table[column.name]
        if values.null_count and not column.blank:
            return False
        if column.kind == "count":
            least = compute.min(values).as_py()
            if least is not None and least < 0:
                return False
        elif not all(0 < len(label) <= cells.LONGEST_TEXT for label in _labels(values)):
            return False
    checked = [column for column in wanted if column.name in schema.checked]
    return schema.check is None or not schema.check(_numbers(table, checked))


def _labels(values: Any) -> set[str]:
    return {label for chunk in values.chunks for label in chunk.dictionary.to_pylist()}


def _numbers(table: Any, columns: list[Column]) -> pd.DataFrame:
    """Return columns as whole numbers, BLANK where there is none."""
    found = {column.name: from_chunks(table[column.name]) for column in columns}
    return pd.DataFrame(found, copy=False)


def read_batches(
    paths: Path | str | Iterable[Path | str],
    table: str,
    *,
    columns: Collection[str] | None = None,
) -> Iterator[Batch]:
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
