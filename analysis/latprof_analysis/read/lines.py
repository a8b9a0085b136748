"""A delimited file -> blocks of whole rows with the right number of fields.

Numpy looks at the bytes; only a block in which something is out of line is gone
through line by line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.result import Skipped

BLOCK_BYTES = 16 << 20
LONGEST_LINE_BYTES = 1 << 20
# A quote that is not closed within so many lines is an error of its line.
QUOTED_LINES = 20
_NEWLINE = 10
# Small enough to stay in a CPU's cache.
_CACHED_BYTES = 1 << 17
# Of a line of a text, as other tools print them.
LONGEST_TEXT_BYTES = 64 << 10


class LineSource(Protocol):
    """What lines are read from."""

    def read(self, size: int, /) -> bytes:
        """Return up to so many bytes."""

    def readline(self, size: int, /) -> bytes:
        """Return a line, or so many bytes of it."""


@dataclass(frozen=True)
class Layout:
    """How a file's rows are cut.

    `ends_whole` says that its writer ends every row with a newline, so that a last
    line without one was cut. Lines that begin with `ruler` are no rows, nor is
    what follows a line that begins with `end`.
    """

    fields: int
    delimiter: str = ","
    ends_whole: bool = False
    ruler: bytes = b""
    end: bytes = b""


@dataclass(frozen=True)
class Block:
    """Rows that each have their fields; `lines` are their lines in the file.

    Of one that is not `counted` the fields are still to be counted: by a parser
    that does so itself, or by `counted`.
    """

    data: bytes
    lines: NDArray[np.int64]
    counted: bool = True


def numbered(file: LineSource) -> Iterator[tuple[int, bytes]]:
    """Give the lines of a text, counted from 1; of one without end its beginning.

    Examples
    --------
    >>> list(numbered(BytesIO(b"a\\nb")))
    [(1, b'a\\n'), (2, b'b')]
    """
    line = 0
    while text := file.readline(LONGEST_TEXT_BYTES):
        line += 1
        yield line, text
        while text and not text.endswith(b"\n"):
            text = file.readline(LONGEST_LINE_BYTES)


def blocks(
    file: LineSource,
    layout: Layout,
    first_line: int,
    skipped: Skipped,
) -> Iterator[Block]:
    """Cut the rest of a file, which begins with `first_line`, into blocks.

    What is no row goes to `skipped`; empty lines go nowhere. In plain blocks the
    fields of a row are not counted yet, where there are two or more: a parser does.

    Examples
    --------
    >>> import io
    >>> skipped = Skipped("a.csv")
    >>> file = io.BytesIO(b"1,2\\n3\\n4,5\\n")
    >>> found = blocks(file, Layout(2), 1, skipped)
    >>> [(b.data, b.lines) for b in (counted(b, Layout(2), skipped) for b in found)]
    [(b'1,2\\n4,5\\n', array([1, 3]))]
    >>> print(skipped.rows[0])
    a.csv:2: 1 field where 2 belong
    """
    line = first_line
    while body := file.read(BLOCK_BYTES):
        if not body.endswith(b"\n"):
            body += file.readline(LONGEST_LINE_BYTES)
        rows = _before_end(body, layout.end)
        ended, body = len(rows) < len(body), rows
        body, extra_lines = _with_whole_end(file, body, layout, line, skipped)
        if layout.fields > 1 and (count := _plain_lines(body)):
            block = Block(body, np.arange(line, line + count), counted=False)
        else:
            block, count = _count(file, body, layout, line, skipped)
        if len(block.lines):
            yield block
        line += count + extra_lines
        if ended:
            return


def _before_end(body: bytes, end: bytes) -> bytes:
    """Return what stands before the line that begins with `end`; all without one."""
    if not end or body.startswith(end):
        return b"" if end else body
    place = body.find(b"\n" + end)
    return body if place < 0 else body[: place + 1]


def _with_whole_end(
    file: LineSource, body: bytes, layout: Layout, line: int, skipped: Skipped
) -> tuple[bytes, int]:
    """Return the body with its last line ended or left out, and lines left out."""
    if body.endswith(b"\n"):
        return body, 0
    start = body.rfind(b"\n") + 1
    if len(body) - start >= LONGEST_LINE_BYTES:
        more = body
        while more and not more.endswith(b"\n"):
            more = file.readline(LONGEST_LINE_BYTES)
        why = f"the line is longer than {LONGEST_LINE_BYTES} bytes"
    elif layout.ends_whole:
        why = "the line has no end: it was cut"
    else:
        return body + b"\n", 0
    skipped.add(line + body.count(b"\n"), why)
    return body[:start], 1


def counted(block: Block, layout: Layout, skipped: Skipped) -> Block:
    """Return the rows of a block that have their fields."""
    line = int(block.lines[0]) if len(block.lines) else 1
    return _count(BytesIO(), block.data, layout, line, skipped)[0]


def _count(
    file: LineSource, body: bytes, layout: Layout, line: int, skipped: Skipped
) -> tuple[Block, int]:
    """Return the rows that have their fields, and how many lines there were."""
    if count := _clean_rows(body, layout):
        return Block(body, np.arange(line, line + count)), count
    return _by_line(file, body, layout, line, skipped)


def newlines(body: bytes) -> int:
    """Count the newlines; much faster than `bytes.count`."""
    text = np.frombuffer(body, np.uint8)
    parts = range(0, len(text), _CACHED_BYTES)
    return sum(
        int(np.count_nonzero(text[i : i + _CACHED_BYTES] == _NEWLINE)) for i in parts
    )


def _plain_lines(body: bytes) -> int:
    """Count the lines; 0 if one is empty, or anything but its newline may end it."""
    if any(text in body for text in (b'"', b"\r", b"\0")):
        return 0
    text = np.frombuffer(body, np.uint8)
    count, ended = 0, True
    for i in range(0, len(text), _CACHED_BYTES):
        ends = text[i : i + _CACHED_BYTES] == _NEWLINE
        if (ended and ends[0]) or (ends[1:] & ends[:-1]).any():
            return 0
        ended = bool(ends[-1])
        count += int(np.count_nonzero(ends))
    return count


def _clean_rows(body: bytes, layout: Layout) -> int:
    """Count the lines; 0 if one has not its fields, or needs a closer look."""
    if not _plain_lines(body):
        return 0
    text = np.frombuffer(body, np.uint8)
    ends = text[(text == _NEWLINE) | (text == ord(layout.delimiter))]
    if ends.size % layout.fields:
        return 0
    is_end = ends.reshape(-1, layout.fields) == _NEWLINE
    each_once = is_end[:, -1].all() and np.count_nonzero(is_end) == len(is_end)
    return len(is_end) if each_once else 0


def _by_line(
    file: LineSource, body: bytes, layout: Layout, line: int, skipped: Skipped
) -> tuple[Block, int]:
    """Sort the good rows from the bad; return those, and how many lines there were."""
    parts = body.split(b"\n")[:-1]
    good: list[bytes] = []
    numbers: list[int] = []
    delimiter = layout.delimiter.encode()
    i = 0
    while i < len(parts):
        record, taken = parts[i].rstrip(b"\r"), 1
        if layout.ruler and record.startswith(layout.ruler):
            record = b""
        if b'"' in record:
            record, taken = _quoted(file, parts, i, layout)
        why = _why_wrong(record, layout, delimiter) if record else None
        if why:
            skipped.add(line + i, why)
        elif record:
            good.append(record)
            numbers.append(line + i)
        i += taken
    data = b"\n".join(good) + b"\n" if good else b""
    return Block(data, np.array(numbers, np.int64)), len(parts)


def _quoted(
    file: LineSource, parts: list[bytes], i: int, layout: Layout
) -> tuple[bytes, int]:
    """Join the lines of a quoted record; where it does not end, return one line."""
    record, taken = parts[i], 1
    while record.count(b'"') % 2 and taken < QUOTED_LINES:
        if i + taken == len(parts):
            more = file.readline(LONGEST_LINE_BYTES)
            if not more:
                break
            parts.append(more.removesuffix(b"\n"))
        record += b"\n" + parts[i + taken]
        taken += 1
    if taken > 1 and _why_unquoted(record, layout):
        record, taken = parts[i], 1
    return record.rstrip(b"\r"), taken


def _why_wrong(record: bytes, layout: Layout, delimiter: bytes) -> str | None:
    if b"\0" in record:
        return "a NUL byte"
    if b'"' in record:
        return _why_unquoted(record, layout)
    if b"\r" in record:
        return "a carriage return within the line"
    return _why_miscounted(record.count(delimiter) + 1, layout)


def _why_unquoted(record: bytes, layout: Layout) -> str | None:
    if record.count(b'"') % 2:
        return "a quote that is not closed"
    try:
        fields = split_fields(record.decode("utf-8", "replace"), layout.delimiter)
    except csv.Error as error:
        return f"quotes: {error}"
    return _why_miscounted(len(fields), layout)


def _why_miscounted(fields: int, layout: Layout) -> str | None:
    if fields == layout.fields:
        return None
    return f"{fields} field{'' if fields == 1 else 's'} where {layout.fields} belong"


def split_fields(record: str, delimiter: str) -> list[str]:
    """Split one record into its fields; csv.Error where its quotes are wrong."""
    return next(csv.reader([record], delimiter=delimiter, strict=True), [])
