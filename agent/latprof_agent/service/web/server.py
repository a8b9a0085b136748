"""A server of HTTP that no scraper can keep from answering others.

One thread, with a share of one CPU; a bounded number of connections, of requests of
each client, of bytes in a header, of time for each step. Where a connection is one too
many, the oldest one of whoever has most ends, first of those that had an answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from latprof_agent.service.web.bounds import Bucket, Clients, PacedSelector, client_of
from latprof_agent.service.web.request import (
    MOST_HEADER_BYTES,
    Answer,
    Refusal,
    Request,
    read_request,
)
from latprof_agent.watched_thread import WatchedThread

_PIECE_BYTES = 1 << 16
_AT_ONCE = 16  # connections that are accepted before those that are there go on
_LINGER_SECONDS = 1.0
_RETRY_SECONDS = 0.1  # where there is no descriptor for a connection

_TOO_MANY = Answer.of(Refusal(HTTPStatus.TOO_MANY_REQUESTS, Retry_After="1"))

Respond = Callable[[Request], Awaitable[Answer]]


@dataclass(frozen=True)
class Limits:
    """What one scraper may take."""

    connections: int = 64  # of all together
    request_seconds: float = 5.0  # until its first byte, and from there to its last
    idle_seconds: float = 150.0  # from an answer to the next request
    answer_seconds: float = 20.0
    # of one client at once, and later; Prometheus asks every 15 s, browsers by hand
    requests: float = 20.0
    requests_per_second: float = 5.0
    # of each connection in any case: others may ask too much from the same address
    own_requests: float = 2.0
    own_requests_per_second: float = 1.0
    # of one CPU, for all; a scrape of 200 groups as text takes 0.14 s, and on a host
    # that is overloaded half a second, which no scrape should have to wait for
    cpu_share: float = 0.1
    cpu_burst_seconds: float = 1.0


class Server:
    """Answers on a listening socket; `refused` counts what was not answered, by why."""

    def __init__(
        self,
        listener: socket.socket,
        respond: Respond,
        tls: ssl.SSLContext | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.tls = tls  # of connections from now on
        self.refused: Counter[str] = Counter()
        self.limits = limits or Limits()
        # of each connection: what stands there was not asked for, and costs to read
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MOST_HEADER_BYTES)
        self._listener = listener
        self._respond = respond
        self._clients = Clients(self.limits.requests, self.limits.requests_per_second)
        # whose they are, the one that began its last step first at the front
        self._open: dict[asyncio.Task[None], str] = {}
        self._answered: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Answer until cancelled."""
        self._listener.setblocking(False)
        try:
            while True:
                await _readable(self._listener)
                try:
                    for _ in range(_AT_ONCE):
                        self._take(*self._listener.accept())
                except BlockingIOError:  # that was all, or who came has gone again
                    continue
                except OSError:
                    self.refused["no_descriptor"] += 1
                    await asyncio.sleep(_RETRY_SECONDS)
        finally:
            for task in self._open:
                task.cancel()

    def _take(self, connection: socket.socket, peer: tuple[str, int]) -> None:
        connection.setblocking(False)
        self._make_room()
        address = client_of(peer[0])
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._converse(connection, address))
        self._open[task] = address
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._open.pop(task, None)
        self._answered.discard(task)

    def _make_room(self) -> None:
        if len(self._open) < self.limits.connections:
            return
        ((crowd, _),) = Counter(self._open.values()).most_common(1)
        theirs = [task for task, address in self._open.items() if address == crowd]
        oldest = next((t for t in theirs if t in self._answered), theirs[0])
        self._forget(oldest)
        oldest.cancel()
        self.refused["too_many"] += 1

    def _step(self, *, answered: bool = False) -> None:
        """Note that the connection of this task begins something new."""
        task = asyncio.current_task()
        if task in self._open:
            self._open[task] = self._open.pop(task)
            if answered:
                self._answered.add(task)

    async def _converse(self, connection: socket.socket, address: str) -> None:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(MOST_HEADER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        patience = self.limits.request_seconds if self.tls else None
        try:
            transport, _ = await loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self.tls,
                ssl_handshake_timeout=patience,
            )
        except OSError:
            self.refused["tls"] += 1
            return
        # so that what is drained was sent; at 0 TLS pauses when it has sent all, and
        # goes on at the next write only
        transport.set_write_buffer_limits(high=1)
        writer = asyncio.StreamWriter(transport, protocol, reader, loop)
        try:
            if await self._requests(reader, writer, address):
                await _close(reader, writer)
        except TimeoutError:
            self.refused["slow"] += 1
        except OSError:
            self.refused["broken"] += 1
        finally:
            with suppress(AttributeError):  # closed TLS, Python 3.11.2
                transport.abort()

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> bool:
        """Answer the requests of one connection; False where there are too many."""
        limits = self.limits
        own = Bucket(limits.own_requests, limits.own_requests_per_second)
        first = await asyncio.wait_for(reader.read(1), limits.request_seconds)
        while first:
            self._step()
            await asyncio.sleep(0)  # others come between requests that came at once
            if not (own.take() or self._clients.take(address)):
                self.refused["too_many_requests"] += 1
                await self._send(writer, None, _TOO_MANY, keep=False)
                return False
            request = None
            try:
                async with asyncio.timeout(limits.request_seconds):
                    request = await read_request(reader, first, address)
                if not request:
                    return True
                self._step()
                async with asyncio.timeout(limits.answer_seconds):
                    answer = await self._respond(request)
            except Refusal as refusal:
                answer = Answer.of(refusal)
                self.refused[refusal.status.name.lower()] += 1
            # a header that was refused, or not read: what follows is no request
            keep = bool(request and request.keep)
            await self._send(writer, request, answer, keep=keep)
            self._step(answered=True)
            if not keep:
                return True
            first = await self._next(reader)
        return True

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        request: Request | None,
        answer: Answer,
        *,
        keep: bool,
    ) -> None:
        """Send an answer, piece by piece as its receiver takes them."""
        async with asyncio.timeout(self.limits.answer_seconds):
            writer.write(answer.head(keep=keep))
            body = b"" if request and request.method == "HEAD" else answer.body
            for begin in range(0, len(body), _PIECE_BYTES):
                writer.write(body[begin : begin + _PIECE_BYTES])
                await writer.drain()
            await writer.drain()

    async def _next(self, reader: asyncio.StreamReader) -> bytes:
        """Wait for the first byte of another request; nothing where none comes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.limits.idle_seconds):
                return await reader.read(1)
        return b""


async def _readable(listener: socket.socket) -> None:
    """Wait for a connection; cancelled as one comes, `loop.sock_accept` complains."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listener, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listener)


async def _close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close so that what was sent arrives: unread bytes would take it back."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            if not writer.can_write_eof():  # TLS
                writer.close()
                await writer.wait_closed()
                return
            writer.write_eof()
            while await reader.read(_PIECE_BYTES):
                pass


class ServerThread:
    """A server in a thread of its own, from `start` to `stop`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        limits = server.limits
        self._selector = PacedSelector(limits.cpu_share, limits.cpu_burst_seconds)
        self._loop = asyncio.SelectorEventLoop(self._selector)
        self._serving: asyncio.Task[None] | None = None
        self._stopped = False
        self._thread = WatchedThread("web server", self._run)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def _run(self) -> None:
        runner = asyncio.Runner(loop_factory=lambda: self._loop)
        with runner, suppress(asyncio.CancelledError):
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._serving = asyncio.current_task()
        if not self._stopped:  # before it began
            await self.server.serve()

    def check(self) -> None:
        """Raise LatprofError where an error has ended the thread."""
        self._thread.check()

    def stop(self) -> None:
        """End all connections and the thread."""

        def cancel() -> None:
            self._stopped = True
            if self._serving:
                self._serving.cancel()

        with suppress(RuntimeError):  # an error has ended it
            self._loop.call_soon_threadsafe(cancel)
        self._selector.hurry()
        self._thread.join()
