"""A scan on a Dask cluster: pieces to its workers, parts merged as a tree.

Parts are pure functions of files, so what a lost worker had is done again by
another. The tree merges neighbours only, which keeps the order of the rows.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from latprof_analysis.errors import LatprofError, UsageError
from latprof_analysis.study.scan import Part, Task, scan_piece

# Longer than a cluster in the same network ever needs.
CONNECT_SECONDS = 5
# So long the last worker may be away.
ALONE_SECONDS = 20
POLL_SECONDS = 1
BRANCHES = 4


class ClusterError(LatprofError):
    """The cluster cannot be reached, or does not do the work."""


def scan_on_cluster(
    tasks: list[Task], address: str, progress: Callable[[int, int], None] | None
) -> Part:
    """Scan the pieces on the cluster at an address, and merge them there.

    Raises
    ------
    UsageError
        Where dask.distributed is not installed, or the address is none.
    ClusterError
        Where no scheduler answers, it has no worker, or its workers die.
    ReadError
        As `scan_piece` raises it.
    """
    client = _connected(address)
    try:
        with client.as_current():
            return _scanned(client, tasks, address, progress)
    finally:
        client.close(timeout=CONNECT_SECONDS)


def _connected(address: str) -> Any:
    try:
        from distributed import Client
        from distributed.comm import resolve_address
    except ImportError as error:
        raise UsageError(
            "--dask needs dask.distributed; install latprof with its extra dask"
        ) from error
    try:
        # what Client refuses it says once more, with a traceback, when it is collected
        resolve_address(address)
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except ValueError as error:
        raise UsageError(
            f"--dask: {address!r} is no address like tcp://HOST:PORT"
        ) from error
    except OSError as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s; is"
            " it running, and of the same version of dask?"
        ) from error
    try:
        _check_workers(client, address)
    except BaseException:
        client.close(timeout=CONNECT_SECONDS)
        raise
    return client


def _check_workers(client: Any, address: str) -> None:
    if not client.nthreads():
        raise ClusterError(f"the Dask cluster at {address} has no worker; start one")
    answers = client.run(_import, on_error="return")
    failed = [f"{a} ({e})" for a, e in answers.items() if isinstance(e, Exception)]
    if failed:
        raise ClusterError(
            f"a worker of the Dask cluster cannot import latprof_analysis: {failed[0]};"
            " install the same version of it there"
        )


def _import() -> None:
    """Do nothing: to get here, a worker has imported this module."""


def _scanned(client: Any, tasks: list[Task], address: str, progress: Any) -> Part:
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    parts = [client.submit(scan_piece, _absolute(task), pure=False) for task in tasks]
    level, merges = list(parts), []
    while len(level) > 1:
        level = [
            client.submit(_merged, level[i : i + BRANCHES], pure=False)
            for i in range(0, len(level), BRANCHES)
        ]
        merges += level
    try:
        rows = {
            part.key: task.piece.rows for part, task in zip(parts, tasks, strict=True)
        }
        _follow(client, parts + merges, rows, address, progress)
        found: Part = _merged(client.gather(level))
    except (KilledWorker, FutureCancelledError) as error:
        raise ClusterError(
            f"workers of the Dask cluster at {address} died again and again; see"
            " their logs (is there enough memory?)"
        ) from error
    for task in tasks:
        _rename(found, task.piece.path.absolute(), task.piece.path)
    return found


def _absolute(task: Task) -> Task:
    """Return the task with a path that holds in any directory."""
    return replace(task, piece=replace(task.piece, path=task.piece.path.absolute()))


def _rename(part: Part, path: Path, name: Path) -> None:
    """Call a file again as the caller did."""
    if path != name and path in part.files:
        file = part.files.pop(path)
        file.skipped.path = str(name)
        file.skipped.rows = [replace(row, path=str(name)) for row in file.skipped.rows]
        part.files[name] = file


def _merged(parts: list[Part]) -> Part:
    whole = Part()
    for part in parts:
        # what a worker holds may be asked for again: it must stay as it is
        whole.merge(pickle.loads(pickle.dumps(part)))
    return whole


def _follow(
    client: Any, futures: list[Any], rows: dict[str, int], address: str, progress: Any
) -> None:
    """Wait for all futures, as long as there is a worker to do them."""
    from distributed import wait

    planned = sum(rows.values())
    waiting = futures
    since = time.monotonic()
    while waiting:
        with suppress(TimeoutError):
            wait(waiting, timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
        left = [future for future in waiting if not future.done()]
        if len(left) < len(waiting) or client.nthreads():
            since = time.monotonic()
        if time.monotonic() - since > ALONE_SECONDS:
            raise ClusterError(f"the Dask cluster at {address} has no worker any more")
        waiting = left
        if progress:
            undone = sum(rows.get(future.key, 0) for future in waiting)
            progress(planned - undone, planned)
