"""What the caller names: files, run folders, folders of them, patterns."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable
from pathlib import Path

from latprof_analysis.read.result import ReadError

TABLES = ("messages", "round_trips", "exchanges")
HISTOGRAM_TABLE = "histograms"
TABLE_FILES = tuple(f"{table}.csv" for table in TABLES)
# Packed where somebody did so to keep a run.
TEXTS = (".csv", ".csv.gz")


def text_of(path: Path | str) -> str:
    """Return a path as text: a byte that is no UTF-8 becomes U+FFFD.

    Examples
    --------
    >>> text_of("run\\udcff")
    'run\ufffd'
    """
    return os.fsencode(path).decode("utf-8", "replace")


def is_run_folder(path: Path) -> bool:
    """Whether a folder has any of a run's files."""
    names = [f"{table}{end}" for table in TABLES for end in (*TEXTS, ".parquet")]
    return path.is_dir() and any((path / name).is_file() for name in names)


def expand(paths: Path | str | Iterable[Path | str]) -> list[Path]:
    """Return what paths, folders of run folders and patterns name, each once.

    A link to a folder, as ``runs/latest`` is, stands for that folder: it has the
    folder's name, and beside it in a pattern is not read again.
    """
    given = [paths] if isinstance(paths, Path | str) else list(paths)
    found = [behind_link(path) for name in given for path in _expand_one(str(name))]
    if not found:
        raise ValueError("paths must name at least one file or folder")
    once: dict[Path, Path] = {}
    for path in found:
        once.setdefault(path.resolve(), path)
    return list(once.values())


def behind_link(path: Path) -> Path:
    """Return the folder that a link leads to, and anything else as it is."""
    linked = path.is_symlink() and path.is_dir()
    return path.parent / path.readlink() if linked else path


def _expand_one(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        if is_run_folder(path):
            return [path]
        return sorted(inner for inner in path.iterdir() if is_run_folder(inner)) or [
            path
        ]
    if path.exists() or not glob.has_magic(name):
        return [path]
    matches = sorted(glob.glob(name, recursive=True))  # noqa: PTH207
    if not matches:
        raise ReadError(name, "no file or folder matches the pattern")
    return [Path(match) for match in matches]
