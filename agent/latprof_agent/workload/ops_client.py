"""The client of `ops`: does operations on a store, and logs each of them.

A program by itself, so that nothing of the agent's takes its time: what to do comes
as a JSON line on stdin, and then a line for when to begin: GO, or CLEAN for another
client, which could not remove its keys. The log on stdout has a JSON object a line:
what it is `connected` to, each `operation`, when it began and ended `measuring`, how
the server itself `counted`, that nothing is left there (`cleaned`), and why it
`failed`. All times are CLOCK_MONOTONIC in ns.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

# What is done to a key that is not there, as psbench does it.
WITHOUT_PAYLOAD = ("EXISTS", "EVICT")
# The server's own names of them.
COMMANDS = {"GET": "get", "SET": "set", "EXISTS": "exists", "EVICT": "del"}

GO, CLEAN = "go", "clean"

Cell = tuple[str, int | None]  # operation, payload bytes


class Redis:
    """A redis server, by redis-py as it comes, but nothing is tried twice."""

    def __init__(self, plan: dict[str, Any]) -> None:
        import redis
        from redis._parsers import _HiredisParser, _RESP2Parser
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        self.refusals: type[Exception] = redis.RedisError
        parsers = {"hiredis": _HiredisParser, "python": _RESP2Parser}
        pool = redis.ConnectionPool(
            host=plan["host"],
            port=plan["port"],
            protocol=2,
            retry=Retry(NoBackoff(), 0),
            # a slow link is no fault; who waits looks whether packets still come
            socket_timeout=None,
            parser_class=parsers[plan["parser"]],
        )
        self._redis = redis.Redis(connection_pool=pool)

    def get(self, key: str) -> object:
        return self._redis.get(key)

    def set(self, key: str, data: bytes) -> bool:
        return self._redis.set(key, data) is True

    def exists(self, key: str) -> bool:
        return bool(self._redis.exists(key))

    def evict(self, key: str) -> bool:
        """Remove a key; whether it was there."""
        return bool(self._redis.delete(key))

    def _info(self, section: str) -> dict[str, Any]:
        """What the server says of itself; a proxy before it may refuse to."""
        try:
            found: Any = self._redis.info(section)
        except self.refusals:
            return {}
        return dict(found)

    def why(self, error: Exception) -> str:
        """Say what an error was."""
        return str(error)

    def described(self) -> str:
        """Name the server."""
        return f"redis {self._info('server').get('redis_version', '')}".strip()

    def counted(self) -> dict[str, dict[str, float]]:
        """What the server itself says of the commands that we use, if it does."""
        stats = self._info("commandstats")
        return stats and {
            op: stats.get(f"cmdstat_{name}", {"calls": 0, "usec": 0})
            for op, name in COMMANDS.items()
        }


class Endpoint:
    """A ProxyStore endpoint, by its client's functions over one session."""

    def __init__(self, plan: dict[str, Any]) -> None:
        import requests
        from proxystore.endpoint import client

        self.refusals: type[Exception] = requests.exceptions.RequestException
        host = plan["host"]
        host = f"[{host}]" if ":" in host else host
        session = requests.Session()
        session.trust_env = False  # no proxy, no netrc
        self._to: dict[str, Any] = {
            "address": f"http://{host}:{plan['port']}",
            "session": session,
        }
        self._client = client

    def get(self, key: str) -> object:
        return self._client.get(key=key, **self._to)

    def set(self, key: str, data: bytes) -> bool:
        self._client.put(key=key, data=data, **self._to)
        return True

    def exists(self, key: str) -> bool:
        return bool(self._client.exists(key=key, **self._to))

    def evict(self, key: str) -> bool:
        """Remove a key; the endpoint does not say whether it was there."""
        self._client.evict(key=key, **self._to)
        return False

    def why(self, error: BaseException) -> str:
        """Say what an error was: the one that others only wrap, in long words."""
        while inner := error.__cause__ or _context(error):
            error = inner
        return getattr(error, "strerror", None) or str(error)

    def described(self) -> str:
        """Name the server."""
        import proxystore

        return f"proxystore {proxystore.__version__}"

    def counted(self) -> dict[str, dict[str, float]]:
        """Count nothing: an endpoint does not."""
        return {}


def _context(error: BaseException) -> BaseException | None:
    """Return what was being handled, unless its handler says that it does not matter.

    A response that ends early is that, not the number that could not be read of it.
    """
    return None if error.__suppress_context__ else error.__context__


STORES: dict[str, type[Redis | Endpoint]] = {"redis": Redis, "proxystore": Endpoint}


def log_event(event: str, **what: Any) -> None:
    """Write a line of the log."""
    line = json.dumps({"event": event, **what}) + "\n"
    os.write(sys.stdout.fileno(), line.encode())


class Client:
    """Does the operations of a plan, in random order by rounds."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.store = STORES[plan["backend"]](plan)
        self._plan = plan
        self._random = random.Random(plan["seed"])
        self._prefix = plan["prefix"]
        self._payloads = {n: self._random.randbytes(n) for n in plan["sizes"]}
        self._first = True
        self._asked_to_end = False
        signal.signal(signal.SIGINT, self._end)

    def _end(self, *_signal: object) -> None:
        self._asked_to_end = True

    def run(self) -> None:
        """Do all of it; raises what the store's library does where it refuses."""
        self._do("warmup", 0, ("EXISTS", None))
        log_event("connected", to=self.store.described())
        try:
            self._rounds()
        finally:
            with suppress(self.store.refusals, OSError):  # who waits has it done
                self.clean()

    def _rounds(self) -> None:
        # a GET needs its key, so it is set before the first of them
        for size in self._payloads:
            self._do("warmup", 0, ("SET", size))
        for number in range(self._plan["warmup"]):
            for cell in self._cells():
                self._do("warmup", number, cell)
        before = self.store.counted()
        log_event("measuring", ns=time.monotonic_ns())
        for number in range(self._plan["rounds"]):
            for cell in self._cells():
                self._do("measured", number, cell)
        log_event("measured", ns=time.monotonic_ns())
        after = self.store.counted()
        log_event("counted", commands=_differences(before, after))

    def _cells(self) -> Iterator[Cell]:
        """Each operation and size once, in random order, until asked to end."""
        cells: list[Cell] = []
        for op in self._plan["ops"]:
            without = op in WITHOUT_PAYLOAD
            cells += [(op, None)] if without else [(op, n) for n in self._payloads]
        self._random.shuffle(cells)
        for cell in cells:
            if self._asked_to_end:
                return
            yield cell

    def _do(self, phase: str, number: int, cell: Cell) -> None:
        op, size = cell
        call, right = self._call(op, size)
        cpu_ns = time.thread_time_ns()
        start_ns = time.monotonic_ns()
        found = call()
        end_ns = time.monotonic_ns()
        cpu_ns = time.thread_time_ns() - cpu_ns
        log_event(
            "operation",
            op=op,
            size=size,
            phase="first" if self._first else phase,
            round=number,
            start_ns=start_ns,
            end_ns=end_ns,
            cpu_ns=cpu_ns,
            right=right(found),
        )
        self._first = False

    def _call(
        self, op: str, size: int | None
    ) -> tuple[Callable[[], object], Callable[[object], bool]]:
        """Return what to time, and what checks its result."""
        key = f"{self._prefix}:{size or 'none'}"
        store = self.store
        if size is None:
            absent = store.exists if op == "EXISTS" else store.evict
            return lambda: absent(key), lambda found: found is False
        data = self._payloads[size]
        if op == "GET":
            return lambda: store.get(key), lambda found: found == data
        return lambda: store.set(key, data), lambda found: found is True

    def clean(self) -> None:
        """Leave nothing in the store; raises what its library does where it refuses."""
        for size in self._payloads:
            self.store.evict(f"{self._prefix}:{size}")
        log_event("cleaned")


def _differences(
    before: dict[str, dict[str, float]], after: dict[str, dict[str, float]]
) -> dict[str, dict[str, float]]:
    return {
        op: {name: counted[name] - before[op][name] for name in ("calls", "usec")}
        for op, counted in after.items()
        if op in before
    }


def main() -> int:
    """Do what stdin says; a failure is in the log."""
    plan = json.loads(sys.stdin.readline())
    try:
        client = Client(plan)
    except ImportError as error:
        log_event("failed", why=str(error), missing=error.name)
        return 1
    log_event("ready")
    word = sys.stdin.readline().strip()
    if not word:
        return 0
    try:
        {GO: client.run, CLEAN: client.clean}[word]()
    except (client.store.refusals, OSError) as error:
        log_event("failed", why=client.store.why(error) or type(error).__name__)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
