"""A Dask cluster: connected, its work followed, and what goes wrong in one line.

What its workers are given to do are pure functions of files, so what a lost worker had
is done again by another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from latprof_analysis.errors import LatprofError, UsageError
from latprof_analysis.extras import need_extra
from latprof_analysis.version import VERSION

# Longer than a cluster in the same network ever needs.
CONNECT_SECONDS = 5
# So long the last worker may be away.
ALONE_SECONDS = 20
POLL_SECONDS = 1


class ClusterError(LatprofError):
    """The cluster cannot be reached, or does not do the work."""


@contextmanager
def connected(address: str, version: Callable[[], str]) -> Iterator[Any]:
    """Give a client of the cluster at an address, whose workers have this version.

    `version` is asked for there: a function of the package that has the work's tasks.

    Raises
    ------
    UsageError
        Where dask.distributed is not installed, or the address is none.
    ClusterError
        Where no scheduler answers, it has no worker, or one of another version.
    """
    client = _client(address)
    try:
        _check_workers(client, address, version)
        with client.as_current():
            yield client
    finally:
        client.close(timeout=CONNECT_SECONDS)


def _client(address: str) -> Any:
    need_extra("dask", "--dask")
    from distributed import Client
    from distributed.comm import resolve_address

    try:
        # what Client refuses it says once more, with a traceback, when it is collected
        resolve_address(address)
        return Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except ValueError as error:
        raise UsageError(
            f"--dask: {address!r} is no address like tcp://HOST:PORT"
        ) from error
    except OSError as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} within {CONNECT_SECONDS} s; is"
            " it running, and of the same version of dask?"
        ) from error


def _check_workers(client: Any, address: str, version: Callable[[], str]) -> None:
    if not client.nthreads():
        raise ClusterError(f"the Dask cluster at {address} has no worker; start one")
    answers = client.run(version, on_error="return")
    package = version.__module__.partition(".")[0]
    failed = [f"{a} ({e})" for a, e in answers.items() if isinstance(e, Exception)]
    if failed:
        raise ClusterError(
            f"a worker of the Dask cluster cannot import {package}: {failed[0]};"
            " install the same version of it there"
        )
    for worker, theirs in answers.items():
        if theirs != VERSION:
            raise ClusterError(
                f"a worker of the Dask cluster has {package} {theirs}, and this is "
                f"{VERSION}: {worker}; install the same version there"
            )


@contextmanager
def failures_in_one_line(address: str) -> Iterator[None]:
    """Raise ClusterError where workers die of what they are asked to do."""
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError

    try:
        yield
    except (KilledWorker, FutureCancelledError) as error:
        raise ClusterError(
            f"workers of the Dask cluster at {address} died again and again; see"
            " their logs (is there enough memory?)"
        ) from error


def follow(
    client: Any, futures: list[Any], rows: dict[str, int], address: str, progress: Any
) -> None:
    """Wait for all futures, as long as there is a worker to do them.

    `rows` says by key how much each is of the work, of which `progress` is given what
    is done, and the whole. Raises ClusterError where no worker is left.
    """
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
