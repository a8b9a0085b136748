"""What the arguments of a comparison name, read, and split into sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from latprof_analysis.exchange_parts import PARTS
from latprof_analysis.readers import Samples, expand, read, read_runs
from latprof_analysis.readers.histograms import Histograms, read_histograms
from latprof_analysis.readers.paths import is_run_folder
from latprof_analysis.readers.result import joined, shown
from latprof_analysis.stages import PROBE_STATISTICS, STAGES

STAGE_COLUMNS = tuple(f"{stage}_ns" for stage in (*STAGES, "wakeup", "end_to_end"))
PART_COLUMNS = tuple(f"{part}_ns" for part in PARTS)
_COLUMNS = {
    *("protocol", "kind", "size_bytes", "send_ns", *STAGE_COLUMNS),
    *("sent_ns", "rtt_ns", "lost", PROBE_STATISTICS),
    *("way", "request_sent_ns", "request_ready_ns", *PART_COLUMNS),
}
_BACKEND = "backend"


@dataclass(frozen=True)
class Tables:
    """One side as its reader gave it: tables of run folders, or samples.

    `histograms` are of all runs of the side together.
    """

    name: str
    messages: pd.DataFrame | None
    round_trips: pd.DataFrame | None
    exchanges: pd.DataFrame | None
    samples: Samples | None
    documents: dict[str, dict[str, Any]]
    notes: list[str]
    histograms: Histograms = field(default_factory=dict)


def read_tables(
    arguments: Sequence[str], by: str | None = None, **columns: str | None
) -> list[Tables]:
    """Read the sides of a comparison.

    Parameters
    ----------
    arguments : sequence of str
        Each a run folder, a file, a pattern, or a folder of runs, whose runs are
        then repeats of one side.
    by : str, optional
        A column of the files by whose values sides are told apart, instead of by
        the arguments. A single ProxyStore CSV is split by its backends unasked.
    **columns
        ``latency_column``, ``unit`` and ``size_column``, as `readers.read` takes
        them.
    """
    given = [str(argument).rstrip("/") or "/" for argument in arguments]
    tables = [
        _read(argument, name, **columns)
        for argument, name in zip(arguments, _names(given), strict=True)
    ]
    if by is None and len(tables) == 1 and _has(tables[0], _BACKEND):
        by = _BACKEND
    if by is not None:
        return _split(tables, by)
    return [
        _kinds_with(table, _BACKEND) if _has(table, _BACKEND) else table
        for table in tables
    ]


def _names(given: list[str]) -> list[str]:
    """Name sides as they were given; of equal ones say the place."""
    return [
        name if given.count(name) == 1 else f"{name} ({place})"
        for place, name in enumerate(given, 1)
    ]


def _read(argument: str, name: str, **columns: str | None) -> Tables:
    paths = expand(argument)
    if not any(columns.values()) and all(map(is_run_folder, paths)):
        runs = read_runs(paths, columns=_COLUMNS)
        notes = _notes(runs.notes, runs.skipped_rows)
        tables = runs.messages, runs.round_trips, runs.exchanges
        found = read_histograms(paths, notes)
        return Tables(name, *tables, None, runs.documents, notes, found)
    samples = read(paths, **columns)
    notes = _notes(samples.meta.get("notes", []), samples.skipped_rows)
    documents = samples.meta.get("runs", {})
    return Tables(name, None, None, None, samples, documents, notes)


def _notes(notes: list[str], skipped_rows: int) -> list[str]:
    if skipped_rows:
        return [*notes, f"rows that were wrong and left out: {skipped_rows}"]
    return list(notes)


def _has(tables: Tables, column: str) -> bool:
    samples = tables.samples
    return (
        samples is not None
        and samples.table is not None
        and (column in samples.table and len(samples.table) == len(samples.frame))
    )


def _column(tables: Tables, name: str) -> pd.Series[str]:
    """Return a column of the file's own table as text."""
    if not _has(tables, name):
        raise ValueError(
            f"cannot compare by {shown(name)}: {shown(tables.name)} has no such"
            " column of every latency"
        )
    assert tables.samples is not None and tables.samples.table is not None
    return tables.samples.table[name].astype(str).reset_index(drop=True)


def _kinds_with(tables: Tables, column: str) -> Tables:
    """Put the text of a column before what was done."""
    samples = tables.samples
    assert samples is not None
    kinds = _column(tables, column) + " " + samples.frame["kind"].astype(str)
    frame = samples.frame.assign(kind=kinds.astype("category"))
    return replace(tables, samples=replace(samples, frame=frame))


def _split(tables: Sequence[Tables], by: str) -> list[Tables]:
    """Make a side of each value of a column; files go before what was done."""
    parts: dict[str, list[Samples]] = {}
    for table in tables:
        column, samples = _column(table, by), table.samples
        assert samples is not None
        kinds = samples.frame["kind"].astype(str)
        if len(tables) > 1:
            kinds = Path(table.name).stem + " " + kinds
        named = samples.frame.assign(kind=kinds.astype("category"))
        for value in column.unique():
            frame = named[column == value].reset_index(drop=True)
            part = replace(samples, frame=frame, table=None)
            parts.setdefault(value, []).append(part)
    notes = [note for table in tables for note in table.notes]
    return [
        Tables(value, None, None, None, joined(found), {}, notes)
        for value, found in parts.items()
    ]
