"""Agents' pages of samples without agents: recordings, step by step, on real sockets.

What is there to be given is what the test has released, so that nothing depends on
when it is asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from latprof_agent.capture.recording_writer import STREAM_END, RecordingWriter
from latprof_agent.fleet.fleet import Fleet
from latprof_agent.fleet.pulls import Access, Pulled, PullError, pull
from latprof_agent.service.config import Address
from latprof_analysis.records.recording import CLOCKS, NAME, Recording

Change = Callable[[dict[str, Any]], None]


class _Writer(RecordingWriter):
    """Writes the clocks that were recorded."""

    recorded: Any = None

    def _clocks(self) -> Any:
        return self.recorded


def packed(
    folder: Path,
    change: Change = lambda _header: None,
    change_rings: Change = lambda _rings: None,
) -> list[bytes]:
    """The header's bytes of a recording, changed, and those of each step, changed."""
    recording = Recording(folder / NAME)
    header = {k: v for k, v in recording.header.items() if k != "format"}
    change(header)
    parts: list[bytes] = []
    frames: list[bytes] = []
    writer = _Writer(parts.append, recording.layout.rings, header, apart=True)
    frames.append(b"".join(parts))
    for step in recording.steps():
        parts.clear()
        writer.recorded = step.beside[CLOCKS]
        change_rings(step.rings)
        writer.step(step.drained_ns, step.rings)
        frames.append(b"".join(parts))
    return frames


class SampleServer:
    """Gives the frames that were released; `answer` may be put in the place of that."""

    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames
        self.released = len(frames)
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.give
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = Address(*self.server.server_address[:2])

    def give(self, request: BaseHTTPRequestHandler) -> None:
        """Answer as an agent does."""
        since = int(request.path.partition("since=")[2] or 1)
        data = b"".join([self.frames[0], *self.frames[since : self.released]])
        send(request, data + STREAM_END, {"Latprof-Next": str(self.released)})


def send(request: BaseHTTPRequestHandler, data: bytes, headers: dict[str, str]) -> None:
    """Send an answer of this content."""
    request.send_response(200)
    for name, text in {"Content-Length": str(len(data)), **headers}.items():
        request.send_header(name, text)
    request.end_headers()
    request.wfile.write(data)


@contextmanager
def serving(*recordings: list[bytes]) -> Iterator[list[SampleServer]]:
    """Serve each from a server of its own."""
    servers = [SampleServer(frames) for frames in recordings]
    threads = [threading.Thread(target=s.server.serve_forever) for s in servers]
    for thread in threads:
        thread.start()
    try:
        yield servers
    finally:
        for served, thread in zip(servers, threads, strict=True):
            served.server.shutdown()
            thread.join()
            served.server.server_close()


class Asked:
    """Asks agents for a fleet, one after the other, as its `Puller` does."""

    def __init__(self, fleet: Fleet, *agents: Address, timeout: float = 60.0) -> None:
        self.fleet = fleet
        self._places = dict.fromkeys(agents, "")
        self._access = Access(timeout)
        fleet.watch(agents)
        fleet.forget = lambda agent: self._places.update({agent: ""})

    def ask(self, unix_seconds: float = 0.0) -> None:
        """Ask all, and hand on what they gave."""
        found = []
        for agent, place in list(self._places.items()):
            try:
                answer = asyncio.run(pull(agent, place, self._access))
                self._places[agent] = answer.next
                found.append(Pulled(agent, answer, unix_seconds))
            except PullError as error:
                found.append(Pulled(agent, error, unix_seconds))
        self.fleet.take(found)
