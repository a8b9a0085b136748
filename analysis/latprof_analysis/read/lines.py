"""A delimited file -> its header, and blocks of whole rows.

Numpy looks at the bytes; only a block in which something is out of line is gone
through line by line.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.paths import BYTE_ORDER_MARK
from latprof_analysis.read.result import ReadError, Skipped, shown
from latprof_analysis.read.schema import Schema

BLOCK_BYTES = 16 << 20
LONGEST_LINE_BYTES = 1 << 20
# A quote that is not closed within so many lines is an error of its line.
QUOTED_LINES = 20
LONGEST_HEADER_BYTES = 64 << 10
# Small enough to stay in a CPU's cache.
_CACHED_BYTES = 1 << 17


def read_header(path: Path, file: BinaryIO, schema: Schema, line: int = 1) -> list[str]:
    """Return the names of a file's columns, from the line in which they stand."""
    for _ in range(line - 1):
        file.readline(LONGEST_LINE_BYTES)
    raw = file.readline(LONGEST_HEADER_BYTES + 1)
    if not raw.strip():
        raise ReadError(path, "it is empty" if line == 1 else "its header is missing")
    if len(raw) > LONGEST_HEADER_BYTES:
        raise ReadError(path, f"its header has more than {LONGEST_HEADER_BYTES} bytes")
    text = raw.removeprefix(BYTE_ORDER_MARK).decode("utf-8", "replace").strip()
    try:
        names = [name.strip() for name in _fields(text, schema.delimiter)]
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


def _fields(record: str, delimiter: str) -> list[str]:
    """Split one record into its fields; csv.Error where its quotes are wrong."""
    return next(csv.reader([record], delimiter=delimiter, strict=True), [])


class Block(NamedTuple):
    """Rows, and their lines in the file."""

    data: bytes
    lines: NDArray[np.int64]


@dataclass
class Blocks:
    """Cuts a file, from where it stands to its byte `end`, into blocks of rows.

    What is no row goes to `skipped`; empty lines go nowhere, unless the schema has them
    as rows. Of rows without quotes the fields are not counted: a parser does that, and
    if there are others than `fields` in one, `counted` finds which.

    Attributes
    ----------
    line : int
        Number of the next line.
    """

    file: BinaryIO
    schema: Schema
    fields: int
    skipped: Skipped
    _: KW_ONLY
    line: int
    end: int = sys.maxsize

    def __post_init__(self) -> None:
        self._left = self.end - self.file.tell()

    def __iter__(self) -> Iterator[Block]:
        ended = False
        while not ended and (read := self._read(BLOCK_BYTES)):
            if not read.endswith(b"\n"):
                read += self._readline()
            rows = self._before_end(read)
            ended = len(rows) < len(read)
            rows, left_out = self._with_whole_end(rows)
            if count := _plain_lines(rows, self.schema.delimiter):
                block = Block(rows, np.arange(self.line, self.line + count))
            else:
                block, count = self._by_line(rows, self.line)
            self.line += count + left_out
            if len(block.lines):
                yield block

    def counted(self, block: Block) -> Block:
        """Return the rows of a block that have their fields."""
        return self._by_line(block.data, int(block.lines[0]))[0]

    def _read(self, size: int) -> bytes:
        data = self.file.read(min(size, self._left))
        self._left -= len(data)
        return data

    def _readline(self) -> bytes:
        line = self.file.readline(min(LONGEST_LINE_BYTES, self._left))
        self._left -= len(line)
        return line

    def _before_end(self, body: bytes) -> bytes:
        """Return what stands before the line that ends all rows."""
        end = self.schema.end
        if not end or body.startswith(end):
            return b"" if end else body
        place = body.find(b"\n" + end)
        return body if place < 0 else body[: place + 1]

    def _with_whole_end(self, body: bytes) -> tuple[bytes, int]:
        """Return the body with its last line ended or left out, and lines left out."""
        if body.endswith(b"\n"):
            return body, 0
        start = body.rfind(b"\n") + 1
        if len(body) - start >= LONGEST_LINE_BYTES:
            more = body
            while more and not more.endswith(b"\n"):
                more = self._readline()
            why = f"the line is longer than {LONGEST_LINE_BYTES} bytes"
        elif self.schema.ends_whole:
            why = "the line has no end: it was cut"
        else:
            return body + b"\n", 0
        self.skipped.add(self.line + body.count(b"\n"), why)
        return body[:start], 1

    def _by_line(self, body: bytes, line: int) -> tuple[Block, int]:
        """Sort the good rows from the bad; return those, and how many lines."""
        parts = body.split(b"\n")[:-1]
        good: list[bytes] = []
        numbers: list[int] = []
        i = 0
        while i < len(parts):
            record, taken = parts[i].rstrip(b"\r"), 1
            if self.schema.ruler and record.startswith(self.schema.ruler):
                record = b""
            if b'"' in record:
                record, taken = self._quoted(parts, i)
            why = self._why_wrong(record) if record else None
            if why:
                self.skipped.add(line + i, why)
            elif record or self.schema.empty_rows:
                good.append(record + b"\n")
                numbers.append(line + i)
            i += taken
        return Block(b"".join(good), np.array(numbers, np.int64)), len(parts)

    def _quoted(self, parts: list[bytes], i: int) -> tuple[bytes, int]:
        """Join the lines of a quoted record; where it does not end, return one."""
        record, taken = parts[i], 1
        while record.count(b'"') % 2 and taken < QUOTED_LINES:
            if i + taken == len(parts):
                more = self._readline()
                if not more:
                    break
                parts.append(more.removesuffix(b"\n"))
            record += b"\n" + parts[i + taken]
            taken += 1
        if taken > 1 and self._why_miscounted(record):
            record, taken = parts[i], 1
        return record.rstrip(b"\r"), taken

    def _why_wrong(self, record: bytes) -> str | None:
        if b"\0" in record:
            return "a NUL byte"
        if b"\r" in record and b'"' not in record:
            return "a carriage return within the line"
        return self._why_miscounted(record)

    def _why_miscounted(self, record: bytes) -> str | None:
        delimiter = self.schema.delimiter
        fields = record.count(delimiter.encode()) + 1
        if record.count(b'"') % 2:
            return "a quote that is not closed"
        if b'"' in record:
            try:
                fields = len(_fields(record.decode("utf-8", "replace"), delimiter))
            except csv.Error as error:
                return f"quotes: {error}"
        if fields == self.fields:
            return None
        s = "" if fields == 1 else "s"
        return f"{fields} field{s} where {self.fields} belong"


def _plain_lines(body: bytes, delimiter: str) -> int:
    """Count the lines; 0 if one is empty, or anything but its newline may end it."""
    if any(text in body for text in (b"\r", b"\0")):
        return 0
    text = np.frombuffer(body, np.uint8)
    if b'"' in body and not _are_whole_cells(text, delimiter):
        return 0
    count, ended = 0, True
    for i in range(0, len(text), _CACHED_BYTES):
        ends = text[i : i + _CACHED_BYTES] == ord("\n")
        if (ended and ends[0]) or (ends[1:] & ends[:-1]).any():
            return 0
        ended = bool(ends[-1])
        count += int(np.count_nonzero(ends))
    return count


def _are_whole_cells(text: NDArray[np.uint8], delimiter: str) -> bool:
    """Whether all that is quoted are whole cells, without a quote or a newline in it.

    `text` ends with a newline.
    """
    quotes = np.flatnonzero(text == ord('"'))
    opening, closing = quotes[::2], quotes[1::2]
    if opening.size != closing.size:
        return False
    newline = ord("\n")
    # before the first stands the newline of the header
    around = np.concatenate([text[opening[opening > 0] - 1], text[closing + 1]])
    if not ((around == ord(delimiter)) | (around == newline)).all():
        return False
    # from each quote to the next: within a cell, and between two of them
    return not np.logical_or.reduceat(text == newline, quotes)[::2].any()
