"""The agent's server on a real socket, over made totals."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from latprof_agent.monitor.totals import Totals
from latprof_agent.service.metrics.families import DEFAULT_EDGES
from latprof_agent.service.states import States
from latprof_agent.service.web.hosts import Hosts
from latprof_agent.service.web.passwords import Passwords
from latprof_agent.service.web.routes import Pages, Settings
from latprof_agent.service.web.server import Limits, Server, ServerThread
from latprof_agent.service.web.story_pages import StoryPages
from made_totals import busy_host

PATIENCE_SECONDS = 60.0


class Served:
    """A server, and what steps as the monitor does."""

    def __init__(
        self,
        totals: Totals,
        limits: Limits,
        users=None,
        tls=None,
        host="127.0.0.1",
        stories=None,
        hosts=(),
        sample=None,
    ):
        self.totals = totals
        self.made = self.steps = 0
        self.longest_step = 0.0
        self._wake = threading.Event()
        self._ending = False
        self.states = States(self._wake.set)
        self.states.ready = True
        self.holding = threading.Lock()  # held by a test: the monitor is stuck
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.listener = socket.create_server((host, 0), family=family)
        self.host, self.port = self.listener.getsockname()[:2]
        settings = Settings(
            Hosts(hosts), Passwords(users or {}), DEFAULT_EDGES, {"by": "<service>"}
        )
        pages = StoryPages(stories) if stories else None
        self.pages = Pages(self.states, settings, list, pages, sample)
        self.server = Server(self.listener, self.pages.respond, tls, limits)

    def make(self) -> Totals:
        """A new state."""
        self.made += 1
        return replace(self.totals, t_ns=time.monotonic_ns())

    def step_until_end(self) -> None:
        """Do what the thread that measures does."""
        last = time.monotonic()
        while not self._ending:
            with self.holding:
                self.states.answer(self.make)
            self.steps += 1
            self._wake.wait(0.02)
            self._wake.clear()
            now = time.monotonic()
            self.longest_step = max(self.longest_step, now - last)
            last = now

    def end(self) -> None:
        """Stop stepping."""
        self._ending = True
        self._wake.set()

    def connect(self, source: str | None = None) -> socket.socket:
        """A connection, from another address of this host if told."""
        return socket.create_connection(
            (self.host, self.port),
            PATIENCE_SECONDS,
            source_address=(source, 0) if source else None,
        )

    def get(self, path="/metrics", method="GET", tls=None, **headers):
        """Answer, body and all."""
        if tls:
            found = http.client.HTTPSConnection(
                self.host, self.port, timeout=PATIENCE_SECONDS, context=tls
            )
        else:
            found = http.client.HTTPConnection(
                self.host, self.port, timeout=PATIENCE_SECONDS
            )
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        found.request(method, path, headers=named)
        answer = found.getresponse()
        answer.text = answer.read()
        found.close()
        return answer

    def send(self, data: bytes) -> bytes:
        """Send bytes as they are; all that comes back until the end."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    """Read until the other side ends it."""
    found = b""
    try:
        while some := connection.recv(1 << 16):
            found += some
    except (ConnectionResetError, ssl.SSLEOFError):
        pass
    return found


@contextmanager
def served(groups: int = 2, limits: Limits | None = None, **more) -> Iterator[Served]:
    """Serve while the block runs."""
    made = Served(busy_host(groups), limits or Limits(), **more)
    stepping = threading.Thread(target=made.step_until_end)
    stepping.start()
    thread = ServerThread(made.server)
    thread.start()
    try:
        yield made
    finally:
        thread.stop()
        made.end()
        stepping.join()
        made.listener.close()
