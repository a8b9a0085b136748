"""operations.csv: each operation on a store that a run of `ops` did, and its parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latprof_analysis.read.schema import Column, Schema, Wrong
from latprof_analysis.stages import BLANK
from latprof_analysis.text import plural

FILE = "operations.csv"
# They sum to time_ns where all are known.
PARTS = ("client_ns", "network_ns", "server_ns", "server_queue_ns", "client_queue_ns")
FIRST, WARMUP, MEASURED = "first", "warmup", "measured"


def _count(name: str, about: str, *, needed: bool = False) -> Column:
    return Column(name, "count", needed=needed, blank=not needed, about=about)


def _apart(numbers: Mapping[str, NDArray[np.int64]]) -> list[Wrong]:
    """Find operations whose parts are all known, and are not their time."""
    if not {*PARTS} <= numbers.keys():
        return []
    parts = [numbers[name] for name in PARTS]
    known = np.all([part != BLANK for part in parts], axis=0)
    bad = known & (np.sum(parts, axis=0) != numbers["time_ns"])
    return [(bad, lambda _: "its parts do not sum to time_ns")]


SCHEMA = Schema(
    (
        Column("backend", "text", about="REDIS, ENDPOINT, FLOOR"),
        Column("op", "text", about="GET, SET, EXISTS, EVICT"),
        _count("payload_size_bytes", "blank for operations without a payload"),
        Column("phase", "text", about="first (of a connection), warmup, measured"),
        _count("round", "of its phase, from 0", needed=True),
        _count("start_ns", "when the client called, CLOCK_MONOTONIC", needed=True),
        _count("time_ns", "until the call returned", needed=True),
        _count("wrong", "1 where the result was not as it should be", needed=True),
        _count("client_cpu_ns", "CPU time of the client's thread meanwhile"),
        _count("exchanges", "that the probes saw in its time"),
        _count("retransmits", "segments of them that were sent again"),
        _count("response_ns", "of these exchanges: first send to last byte read"),
        _count("client_ns", "time_ns less response_ns"),
        _count("network_ns", "both ways, less what waited at the client"),
        _count("server_ns", "request read to reply sent, and its pauses in a reply"),
        _count("server_queue_ns", "request readable, and not yet read"),
        _count("client_queue_ns", "some of the reply readable, and not yet read"),
    ),
    check=_apart,
)


class Operations(NamedTuple):
    """Rows of operations.csv: texts as lists, numbers with BLANK for none.

    Of several run folders the number ``run`` counts them from 0.
    """

    texts: Mapping[str, list[str]]
    numbers: Mapping[str, NDArray[np.int64]]

    def where(self, **wanted: str) -> NDArray[np.intp]:
        """Return which rows have these texts, in their order."""
        found = np.ones(len(self.numbers["time_ns"]), bool)
        for name, text in wanted.items():
            found &= np.array(self.texts[name], object) == text
        return np.flatnonzero(found)


def read_operations(folders: Iterable[Path], notes: list[str]) -> Operations | None:
    """Read the operations of run folders together; None where no folder has any.

    Rows that are wrong are left out, of which a note is made.

    Raises
    ------
    ReadError
        Where a file is none of operations.
    """
    from latprof_analysis.read.table import TableReader

    parts = []
    runs: list[int] = []
    for number, folder in enumerate(folders):
        if (path := folder / FILE).is_file():
            reader = TableReader(path, SCHEMA)
            found = list(reader)
            parts += found
            runs += [number] * len(found)
            reader.skipped.check(reader.rows)
            if reader.skipped.count:
                notes.append(
                    f"{folder.name}: {plural(reader.skipped.count, 'operation')} left "
                    f"out, such as {reader.skipped.rows[0]}"
                )
    if not parts:
        return None
    texts: dict[str, list[str]] = {name: [] for name in SCHEMA.texts}
    for rows in parts:
        for name, column in texts.items():
            index, words = rows.texts[name]
            column += [words[i] if i >= 0 else "" for i in index.tolist()]
    plain = (name for name in SCHEMA.names if name not in texts)
    numbers = {
        name: np.concatenate([rows.numbers[name] for rows in parts]) for name in plain
    }
    counts = [len(rows) for rows in parts]
    return Operations(texts, numbers | {"run": np.repeat(np.array(runs), counts)})
