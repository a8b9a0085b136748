"""Pieces of a table's file that can be read apart, by processes or other machines.

A piece of a CSV is a range of bytes that begins and ends between two rows; one of
a Parquet file is a range of row groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from latprof_analysis.readers import lines
from latprof_analysis.readers.parquet import is_parquet, opened_parquet
from latprof_analysis.readers.table import opened

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
        begin = 0
        while begin < size or not found:
            end = size
            if begin + PIECE_BYTES < size:
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
