"""Rows of exchanges.csv that turned out to be none are removed from the file.

That both ends of a connection talk at once may show late: rows are written by then.
What stands behind them moves up, so that the file needs no more room for it.
"""

from __future__ import annotations

import csv
import mmap
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from latprof_analysis.stages import EXCHANGE

from latprof_agent.sinks.sink import TakenBack

_ENDS = ("protocol", "client_address", "client_port", "server_address", "server_port")
_FIRST = ("request_sent_ns", "request_ready_ns", "request_read_ns")


class Removed(NamedTuple):
    """What a row that was removed had counted."""

    way: str
    cause: str
    messages: int
    size: int


def remove(table: int, conversations: Iterable[TakenBack]) -> Iterator[Removed]:
    """Remove the rows of these conversations from a table, by its descriptor."""
    wanted: dict[tuple[str, ...], list[TakenBack]] = defaultdict(list)
    for one in conversations:
        client = one.client_address, str(one.client_port)
        server = one.server_address, str(one.server_port)
        wanted[one.protocol, *client, *server].append(one)
    # of its own: the table's is for appending
    with Path(f"/proc/self/fd/{table}").open("r+b") as file:
        with mmap.mmap(file.fileno(), 0) as content:
            columns = _cells(content.readline())
            end = content.tell()
            while line := _row(content):
                cells = _cells(line)
                row = dict(zip(columns, cells, strict=False))
                whole = len(cells) >= len(columns)
                if cause := _cause(row, wanted) if whole else "":
                    yield _removed(row, cause)
                    continue
                if end + len(line) < content.tell():
                    content[end : end + len(line)] = line
                end += len(line)
        os.ftruncate(file.fileno(), end)


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode()]))


def _row(content: mmap.mmap) -> bytes:
    """Read a row: a name within quotes may have a newline."""
    line = content.readline()
    while line.count(b'"') % 2 and (more := content.readline()):
        line += more
    return line


def _cause(
    row: dict[str, str], wanted: Mapping[tuple[str, ...], list[TakenBack]]
) -> str:
    """Why a row is none of an exchange; "": it is one."""
    if row["kind"] != EXCHANGE:
        return ""
    begun = next((int(row[name]) for name in _FIRST if row[name]), 0)
    for one in wanted.get(tuple(row[name] for name in _ENDS), ()):
        if one.from_ns <= begun <= one.until_ns:
            return one.cause
    return ""


def _removed(row: dict[str, str], cause: str) -> Removed:
    messages = int(row["requests"] or 0) + int(row["replies"] or 0)
    size = int(row["request_bytes"] or 0) + int(row["reply_bytes"] or 0)
    return Removed(row["way"], cause, messages, size)
