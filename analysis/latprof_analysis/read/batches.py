"""The rows of a run's tables, batch by batch, in bounded memory.

A table's file is read in pieces, by processes or on other machines: of a CSV a range
of bytes that begins and ends between two rows, of Parquet a range of row groups.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from latprof_analysis.read.lines import LONGEST_LINE_BYTES, QUOTED_LINES
from latprof_analysis.read.parquet import is_parquet, opened_parquet
from latprof_analysis.read.paths import expand, opened
from latprof_analysis.read.rows import Rows
from latprof_analysis.read.run_folder import SCHEMAS, table_file
from latprof_analysis.read.table import TableReader

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
    parquet = is_parquet(path)
    found = _row_groups(path) if parquet else _ranges(path)
    return [Piece(path, table, begin, end, parquet, rows) for begin, end, rows in found]


def _row_groups(path: Path) -> list[tuple[int, int, int]]:
    with opened_parquet(path) as file:
        metadata = file.metadata
        groups = metadata.num_row_groups
        rows = [metadata.row_group(i).num_rows for i in range(groups)]
    found = []
    begin = 0
    for end in range(1, groups + 1):
        if end == groups or sum(rows[begin : end + 1]) > PIECE_ROWS:
            found.append((begin, end, sum(rows[begin:end])))
            begin = end
    return found or [(0, 0, 0)]


def _ranges(path: Path) -> list[tuple[int, int, int]]:
    with opened(path) as file:
        # as long as the first of them are
        file.readline(LONGEST_LINE_BYTES)
        sample = file.read(1 << 16)
        row_bytes = max(1, len(sample) // max(1, sample.count(b"\n")))
        size = file.seek(0, os.SEEK_END)
        edges = [0]
        # what is packed would be unpacked anew up to where each piece begins
        if size == os.fstat(file.fileno()).st_size:
            while edges[-1] + PIECE_BYTES < size:
                edges.append(_between_rows(file, edges[-1] + PIECE_BYTES))
    if edges[-1] < size:
        edges.append(size)
    return [(begin, end, (end - begin) // row_bytes) for begin, end in pairwise(edges)]


def _between_rows(file: BinaryIO, offset: int) -> int:
    """Return where a row begins, at an offset or behind it; the file's end if none.

    A newline may stand within quotes, which end in the same line or a few lines
    further on: the line in which they end has an odd number of them. Behind that many
    lines with an even number, or none, a row begins.
    """
    file.seek(offset)
    plain = -1  # it may begin in the middle of a line
    while plain < QUOTED_LINES:
        line = file.readline(LONGEST_LINE_BYTES)
        if not line:
            break
        even = line.endswith(b"\n") and line.count(b'"') % 2 == 0
        plain = plain + 1 if even else 0
    return file.tell()


class PieceReader(TableReader):
    """Reads a piece of the file of a run's table."""

    def __init__(self, piece: Piece, columns: Collection[str] | None = None) -> None:
        super().__init__(
            piece.path,
            SCHEMAS[piece.table],
            columns,
            parquet=piece.parquet,
            begin=piece.begin,
            end=piece.end,
            threads=False,  # processes are its threads
        )


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
        if path := table_file(folder, table):
            reader = TableReader(
                path,
                SCHEMAS[table],
                columns,
                parquet=is_parquet(path),
                threads=False,
            )
            yield from reader
            reader.skipped.check(reader.rows)
