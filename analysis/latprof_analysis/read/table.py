"""A file with a documented schema -> its rows; those that are wrong are named.

Rows are read in blocks, so that wrong ones cost only their block.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from latprof_analysis.read.cells import good_rows, parse
from latprof_analysis.read.lines import Block, Blocks, read_header
from latprof_analysis.read.parquet import opened_parquet, typed
from latprof_analysis.read.paths import opened
from latprof_analysis.read.result import ReadError, Skipped
from latprof_analysis.read.rows import Rows, no_rows
from latprof_analysis.read.schema import Column, Schema
from latprof_analysis.text import printable

if TYPE_CHECKING:
    import pandas as pd

BATCH_ROWS = 250_000
# Of a column's name in an error, and how many of them.
_SHOWN_NAME = 40
_SHOWN_COLUMNS = 8


@dataclass
class TableReader:
    """Reads a file, or a piece of it, batch by batch, in bounded memory.

    Columns that the schema does not know are ignored, and named; those that the file
    lacks and does not need are blank. What was left out is known when it is through.

    Parameters
    ----------
    limit : collection of str, optional
        Columns to read, of those of the schema.
    parquet : bool
        Whether the file is one.
    begin, end : int
        Bytes of a CSV (with 0 the header is before them), or row groups of Parquet.
    header_line : int
        Of a CSV.
    threads : bool
        Whether pyarrow may use more than one.

    Attributes
    ----------
    columns : list of Column
        Of the rows.
    skipped : Skipped
        Wrong rows, by their line in the piece (row of Parquet); in the first piece of
        a file, in the file.
    lines, rows : int
        Lines of the piece (rows of Parquet), and rows that were right.
    ignored : list of str
        Columns that the schema does not know.
    """

    path: Path
    schema: Schema
    limit: Collection[str] | None = None
    _: KW_ONLY
    parquet: bool = False
    begin: int = 0
    end: int = sys.maxsize
    header_line: int = 1
    threads: bool = True

    def __post_init__(self) -> None:
        self.columns = self.schema.limited(self.limit)
        self.skipped = Skipped(self.path)
        self.ignored: list[str] = []
        self.lines = self.rows = 0

    def __iter__(self) -> Iterator[Rows]:
        source = self._row_groups() if self.parquet else self._blocks()
        for table in _gathered(source):
            self.rows += len(table)
            yield Rows(table, self.columns)

    def frame(self) -> pd.DataFrame:
        """Return all rows; ReadError if most are wrong."""
        parts = list(self)
        self.skipped.check(self.rows)
        return (Rows.joined(parts) if parts else no_rows(self.columns)).frame()

    def _row_groups(self) -> Iterator[Any]:
        with opened_parquet(self.path) as file:
            wanted = self._wanted(file.schema_arrow.names)
            groups = list(range(file.num_row_groups))[self.begin : self.end]
            batches = file.iter_batches(
                BATCH_ROWS,
                row_groups=groups,
                columns=[column.name for column in wanted],
                use_threads=self.threads,
            )
            for batch in batches:
                first = self.lines + 1
                self.lines += len(batch)
                yield good_rows(
                    typed(self.path, batch, wanted),
                    wanted,
                    self.schema,
                    np.arange(first, first + len(batch)),
                    self.skipped,
                )

    def _blocks(self) -> Iterator[Any]:
        with opened(self.path) as file:
            names = read_header(self.path, file, self.schema, self.header_line)
            wanted = self._wanted(names)
            line = self.header_line + 1
            if self.begin:
                file.seek(self.begin)
                line = 1
            blocks = Blocks(
                file, self.schema, len(names), self.skipped, line=line, end=self.end
            )
            for block in blocks:
                yield self._good(block, blocks, names, wanted)
            self.lines = blocks.line - 1

    def _good(
        self, block: Block, blocks: Blocks, names: list[str], wanted: list[Column]
    ) -> Any:
        schema, threads = self.schema, self.threads
        try:
            table, wrong = parse(block.data, names, wanted, schema, threads=threads)
        except pa.ArrowInvalid:
            block = blocks.counted(block)
            table, wrong = parse(block.data, names, wanted, schema, threads=threads)
        return good_rows(table, wanted, schema, block.lines, self.skipped, wrong)

    def _wanted(self, names: list[str]) -> list[Column]:
        """Return what to read of a file with columns of these names."""
        self.ignored = [name for name in names if name not in self.schema.names]
        needed = [column.name for column in self.schema.columns if column.needed]
        if missing := [name for name in needed if name not in names]:
            s = "" if len(missing) == 1 else "s"
            has = column_list(names)
            why = f"column{s} {', '.join(missing)} missing; it has {has}"
            raise ReadError(self.path, why)
        return [column for column in self.columns if column.name in names]


def column_list(names: Sequence[str]) -> str:
    """Name the first columns of a file."""
    listed = ", ".join(printable(name, _SHOWN_NAME) for name in names[:_SHOWN_COLUMNS])
    return listed + (", ..." if len(names) > _SHOWN_COLUMNS else "")


def _gathered(source: Iterable[Any]) -> Iterator[Any]:
    """Put tables together until they are a batch."""
    waiting: list[Any] = []
    for table in source:
        waiting.append(table)
        if sum(map(len, waiting)) >= BATCH_ROWS:
            together, waiting = pa.concat_tables(waiting), []
            yield together
    if waiting:
        yield pa.concat_tables(waiting)
