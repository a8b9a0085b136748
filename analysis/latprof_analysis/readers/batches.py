"""The rows of a run's tables, batch by batch, in bounded memory.

By pyarrow where it is installed; what is not plainly right there is looked at
again by `table` and `parquet`, which tell wrong rows one by one. So both ways give
the same rows and leave out the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from latprof_analysis.readers import cells
from latprof_analysis.readers.batch import Batch, from_chunks
from latprof_analysis.readers.lines import Block, Layout, blocks
from latprof_analysis.readers.parquet import opened_parquet, parsed_batch
from latprof_analysis.readers.paths import expand
from latprof_analysis.readers.pieces import Piece, Section, pieces_of
from latprof_analysis.readers.result import Skipped
from latprof_analysis.readers.run_folder import SCHEMAS, table_file
from latprof_analysis.readers.schema import Column, Schema
from latprof_analysis.readers.table import (
    opened,
    parsed_rows,
    read_header,
    wanted_columns,
)

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
