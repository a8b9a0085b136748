"""What a scan has to do: which pieces of which tables, and what to keep of each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from latprof_analysis.readers.detection import detect
from latprof_analysis.readers.paths import TABLES, expand
from latprof_analysis.readers.pieces import Piece, pieces_of
from latprof_analysis.readers.result import ReadError
from latprof_analysis.readers.run_documents import read_documents
from latprof_analysis.readers.run_folder import run_names, table_file
from latprof_analysis.scans.drawn import EVEN_ROWS, STRETCH_ROWS
from latprof_analysis.scans.scan_part import Task


def tasks_of(
    paths: Path | str | Iterable[Path | str],
    documents: dict[str, dict[str, Any]],
    notes: list[str],
) -> list[Task]:
    """Cut the tables of run folders into pieces; documents and notes are added to.

    Raises
    ------
    ReadError
        Where a file is no table of a run.
    """
    found: list[tuple[str, Piece]] = []
    folders = expand(paths)
    for path, run in zip(folders, run_names(folders), strict=True):
        if path.is_dir():
            documents[run] = read_documents(path, run, notes)
        for table, file in _table_files(path):
            found += [(run, piece) for piece in pieces_of(file, table)]
    rows = {t: sum(p.rows for _, p in found if p.table == t) for t in TABLES}
    strides = {table: max(1, count // EVEN_ROWS) for table, count in rows.items()}
    runs = len({run for run, piece in found if piece.table == "messages"})
    # rows are estimated: of half as many, some may be left out
    stretch = STRETCH_ROWS // runs if 2 * rows["messages"] > EVEN_ROWS else 0
    return [
        Task(
            piece,
            run,
            number,
            strides[piece.table],
            stretch if piece.table == "messages" and piece.is_first else 0,
        )
        for number, (run, piece) in enumerate(found)
    ]


def _table_files(path: Path) -> list[tuple[str, Path]]:
    """Return the tables of a folder, or the one that a file is."""
    form = detect(path)
    if form == "run":
        files = {table: table_file(path, table) for table in TABLES}
        return [(table, file) for table, file in files.items() if file]
    table = form.replace("-", "_")
    if table not in TABLES:
        raise ReadError(path, f"it is no run folder, and no table of one, but {form}")
    return [(table, path)]
