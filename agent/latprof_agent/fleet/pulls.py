"""Asking agents for their samples, all at once; none can keep another from answering.

Each agent has a task of its own: a request at each interval, with a time and so many
bytes, of which nothing is believed. An answer that nobody has taken yet keeps its agent
from being asked again.
"""

from __future__ import annotations

import asyncio
import base64
import os
import queue
import ssl
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

from latprof_analysis.text import printable

from latprof_agent.service.config import Address
from latprof_agent.service.web.routes import LOST, NEXT
from latprof_agent.watched_thread import WatchedThread

MOST_BYTES = 12 << 20  # an agent keeps 8 MB
_MOST_HEADER_BYTES = 16 << 10
_PIECE_BYTES = 1 << 16
_MOST_CHARACTERS = 200  # of what an agent says of itself

# Why there is no answer, as a label has it.
UNREACHABLE, SLOW, REFUSED, GARBAGE = "unreachable", "slow", "refused", "garbage"


@dataclass(frozen=True)
class Access:
    """How agents are asked."""

    timeout_seconds: float = 5.0
    tls: ssl.SSLContext | None = None
    user: str = ""
    password: str = ""

    def headers(self, agent: Address) -> str:
        """Write the headers of a request."""
        lines = [f"Host: {agent}", "Connection: close"]
        if self.user:
            given = base64.b64encode(f"{self.user}:{self.password}".encode())
            lines.append(f"Authorization: Basic {given.decode()}")
        return "\r\n".join(lines)


class PullError(Exception):
    """An agent that gave nothing: why, and in words."""

    def __init__(self, cause: str, words: str) -> None:
        super().__init__(words)
        self.cause = cause


@dataclass(frozen=True)
class Answer:
    """What an agent gave: a recording, packed, and from where to go on."""

    packed: bytes
    next: str
    lost_records: int


@dataclass(frozen=True)
class Pulled:
    """The outcome of asking one agent."""

    agent: Address
    answer: Answer | PullError
    unix_seconds: float


async def pull(agent: Address, since: str, access: Access) -> Answer:
    """Ask an agent for what is new; raises PullError."""
    try:
        async with asyncio.timeout(access.timeout_seconds):
            return await _pull(agent, since, access)
    except TimeoutError as error:
        words = f"no answer within {access.timeout_seconds:g} s"
        raise PullError(SLOW, words) from error
    except (OSError, EOFError) as error:
        raise PullError(UNREACHABLE, _why(error)) from error
    except (ValueError, asyncio.LimitOverrunError) as error:
        raise PullError(GARBAGE, "it speaks no HTTP that we know") from error


def _why(error: Exception) -> str:
    """Say why there is no connection, without the address that the system adds."""
    number = getattr(error, "errno", None) or 0
    if number > 0:
        return os.strerror(number)
    return str(getattr(error, "strerror", None) or "the connection broke")


async def _pull(agent: Address, since: str, access: Access) -> Answer:
    reader, writer = await asyncio.open_connection(
        *agent, ssl=access.tls, limit=_MOST_HEADER_BYTES
    )
    try:
        asked = f"/samples?since={quote(since)}" if since else "/samples"
        text = f"GET {asked} HTTP/1.1\r\n{access.headers(agent)}\r\n\r\n"
        writer.write(text.encode())
        head = await reader.readuntil(b"\r\n\r\n")
        headers = _headers(head)
        return Answer(
            await _body(reader, int(headers["content-length"])),
            headers.get(NEXT.lower(), "")[:_MOST_CHARACTERS],
            min(int(headers.get(LOST.lower(), "0")), 1 << 62),
        )
    except KeyError as error:
        raise ValueError("no length") from error
    finally:
        writer.transport.abort()


def _headers(head: bytes) -> dict[str, str]:
    """Read status and headers of an answer; raises PullError or ValueError."""
    first, *lines = head.decode("latin-1").split("\r\n")
    version, status, *_ = f"{first} ".split(" ")
    if not version.startswith("HTTP/1."):
        raise ValueError("no HTTP")
    if int(status) != HTTPStatus.OK:
        raise PullError(REFUSED, _refusal(int(status)))
    pairs = (line.partition(":") for line in lines if line)
    return {name.lower(): text.strip() for name, _, text in pairs}


def _refusal(status: int) -> str:
    known = {
        HTTPStatus.UNAUTHORIZED: "it wants a name and a password: give [access] user "
        "and password_file in the configuration",
        HTTPStatus.NOT_FOUND: "it has no /samples: it is an older latprof, has "
        "samples = false, or is no agent",
        HTTPStatus.MISDIRECTED_REQUEST: "it is asked by a name that is not its own: "
        "put hosts = [NAME] into its configuration",
    }
    for code, words in known.items():
        if code == status:
            return words
    return f"it answers {status}"


async def _body(reader: asyncio.StreamReader, size: int) -> bytes:
    if not 0 <= size <= MOST_BYTES:
        raise PullError(
            GARBAGE, f"its answer has {size} bytes, of {MOST_BYTES} allowed"
        )
    parts, left = [], size
    while left:
        part = await reader.read(min(left, _PIECE_BYTES))
        if not part:
            raise EOFError
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


class Puller:
    """Asks agents from a thread of its own, from `start` to `stop`."""

    def __init__(self, interval_seconds: float, access: Access) -> None:
        self._interval = interval_seconds
        self.access = access
        self._results: queue.SimpleQueue[Pulled] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[Address, asyncio.Task[None]] = {}
        self._taken: dict[Address, asyncio.Event] = {}
        self._places: dict[Address, str] = {}
        self._some = threading.Event()
        self._thread = WatchedThread("pulling of samples", self._loop.run_forever)

    def start(self, agents: Iterable[Address]) -> None:
        """Begin to ask."""
        self._thread.start()
        self.change(agents)

    def change(self, agents: Iterable[Address]) -> None:
        """Ask these from now on, and no others."""
        self._loop.call_soon_threadsafe(self._change, frozenset(agents))

    def _change(self, agents: frozenset[Address]) -> None:
        for gone in self._tasks.keys() - agents:
            self._tasks.pop(gone).cancel()
            self._places.pop(gone, None)
        for count, fresh in enumerate(sorted(agents - self._tasks.keys())):
            # not all at one time
            delay = self._interval * (count % 16) / 16
            self._tasks[fresh] = self._loop.create_task(self._ask(fresh, delay))

    async def _ask(self, agent: Address, delay: float) -> None:
        taken = self._taken[agent] = asyncio.Event()
        while True:
            await asyncio.sleep(delay)
            begun = self._loop.time()
            found: Answer | PullError
            try:
                since = self._places.get(agent, "")
                found = await pull(agent, since, self.access)
                self._places[agent] = found.next
            except PullError as error:
                found = error
            taken.clear()
            self._results.put(Pulled(agent, found, time.time()))
            self._some.set()
            await taken.wait()
            delay = max(0.0, self._interval - (self._loop.time() - begun))

    def forget(self, agent: Address) -> None:
        """Ask an agent for all that it has, the next time."""
        self._loop.call_soon_threadsafe(self._places.pop, agent, None)

    def take(self) -> list[Pulled]:
        """Return what has come since the last time; raises what ended the thread."""
        self._thread.check()
        self._some.clear()
        found: list[Pulled] = []
        with suppress(queue.Empty):
            while True:
                found.append(self._results.get_nowait())
        for one in found:
            if one.agent in self._taken:
                self._loop.call_soon_threadsafe(self._taken[one.agent].set)
        return found

    def wait(self, seconds: float) -> bool:
        """Wait for an answer; False where none has come."""
        return self._some.wait(seconds)

    def stop(self) -> None:
        """Ask no more."""

        def end() -> None:
            for task in self._tasks.values():
                task.cancel()
            self._loop.call_soon(self._loop.stop)

        self._loop.call_soon_threadsafe(end)
        self._thread.join()
        self._loop.close()


def words_of(error: PullError) -> str:
    """Return what may be shown."""
    return printable(str(error))[:_MOST_CHARACTERS]
