"""A scan on a Dask cluster: pieces to its workers, parts merged as a tree.

The tree merges neighbours only, which keeps the order of the rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from latprof_analysis.study.cluster import connected, failures_in_one_line, follow
from latprof_analysis.study.scan import OfPieces, Task
from latprof_analysis.version import VERSION

BRANCHES = 4
_T = TypeVar("_T", bound=Task)
_P = TypeVar("_P", bound=OfPieces)


def scan_on_cluster(
    tasks: Sequence[_T],
    scan: Callable[[_T], _P],
    nothing: Callable[[], _P],
    address: str,
    progress: Callable[[int, int], None] | None,
) -> _P:
    """Scan the pieces on the cluster at an address, and merge them there.

    Raises
    ------
    UsageError
        Where dask.distributed is not installed, or the address is none.
    ClusterError
        Where no scheduler answers, it has no worker, or its workers die.
    ReadError
        As `scan` raises it.
    """
    with connected(address, _version) as client:
        return _scanned(client, tasks, scan, nothing, address, progress)


def _version() -> str:
    """Say which version a worker has of this module."""
    return VERSION


def _scanned(
    client: Any,
    tasks: Sequence[_T],
    scan: Callable[[_T], _P],
    nothing: Callable[[], _P],
    address: str,
    progress: Any,
) -> _P:
    parts = [client.submit(scan, _absolute(task), pure=False) for task in tasks]
    level, merges = list(parts), []
    while len(level) > 1:
        level = [
            client.submit(_merged, level[i : i + BRANCHES], nothing, pure=False)
            for i in range(0, len(level), BRANCHES)
        ]
        merges += level
    with failures_in_one_line(address):
        rows = {
            part.key: task.piece.rows for part, task in zip(parts, tasks, strict=True)
        }
        follow(client, parts + merges, rows, address, progress)
        found: _P = _merged(client.gather(level), nothing)
    for task in tasks:
        _rename(found, task.piece.path.absolute(), task.piece.path)
    return found


def _absolute(task: _T) -> _T:
    """Return the task with a path that holds in any directory."""
    return replace(task, piece=replace(task.piece, path=task.piece.path.absolute()))


def _rename(part: OfPieces, path: Path, name: Path) -> None:
    """Call a file again as the caller did."""
    if path != name and path in part.files:
        file = part.files.pop(path)
        file.skipped.path = str(name)
        file.skipped.rows = [replace(row, path=str(name)) for row in file.skipped.rows]
        part.files[name] = file


def _merged(parts: list[_P], nothing: Callable[[], _P]) -> _P:
    whole = nothing()
    for part in parts:
        # what a worker holds may be asked for again: it must stay as it is
        whole.merge(pickle.loads(pickle.dumps(part)))
    return whole
