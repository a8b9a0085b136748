"""`latprof fleet` from its start to its end: agents are asked, and all is shown."""

from __future__ import annotations

import math
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

from latprof_analysis.say import say, say_json_line

from latprof_agent.errors import LatprofError
from latprof_agent.fleet.dns_names import Names, NamesThread
from latprof_agent.fleet.fleet import Fleet, Say
from latprof_agent.fleet.fleet_config import FleetConfig
from latprof_agent.fleet.fleet_document import document, lines_of
from latprof_agent.fleet.fleet_pages import FleetPages
from latprof_agent.fleet.fleet_totals import FleetTotals
from latprof_agent.fleet.pulls import Puller
from latprof_agent.fleet.shards import Shard
from latprof_agent.service.config import Address
from latprof_agent.service.service import listening, tls_context
from latprof_agent.service.web.hosts import Hosts, own_names
from latprof_agent.service.web.passwords import Passwords
from latprof_agent.service.web.server import Server, ServerThread

_STEP_SECONDS = 0.2
_CLEAR = "\x1b[H\x1b[2J"


@dataclass(frozen=True)
class Output:
    """What becomes of intervals."""

    as_json: bool = False
    duration_seconds: float = math.inf


class FleetRun:
    """Asks, joins, answers and shows, from `run` until a signal or its time ends it."""

    def __init__(
        self,
        config: FleetConfig,
        reread: Callable[[], FleetConfig],  # raises LatprofError
        output: Output,
        shard: Shard,
        say_problem: Say,
        listener: socket.socket,
    ) -> None:
        self._config, self._reread = config, reread
        self._output = output
        self._say = say_problem
        self._lock = threading.Lock()
        self._ending = self._reload_asked = False
        self.fleet = Fleet(say_problem, shard)
        self._puller = Puller(config.interval_seconds, config.access)
        self.fleet.forget = self._puller.forget
        self._shard = shard
        self._names = NamesThread(Names(say_problem))
        self._given = config.all_agents()
        self._agents = self._asked(self._given)
        self.fleet.watch(self._agents)
        self._pages = FleetPages(
            self.fleet,
            self._lock,
            *_settings(config),
            FleetTotals(),
            config.interval_seconds,
        )
        self._server = Server(listener, self._pages.respond, tls_context(config.tls))

    def _asked(self, given: list[Address]) -> list[Address]:
        """Return the agents of this shard: given ones, and those that names have."""
        agents = dict.fromkeys([*given, *sorted(self._names.agents)])
        return [agent for agent in agents if self._shard.asks(agent)]

    def end(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """End soon; for signals."""
        self._ending = True

    def reload(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Read the configuration, and the file of agents, again; for signals."""
        self._reload_asked = True

    def run(self) -> None:
        """Do it all."""
        server = ServerThread(self._server)
        server.start()
        self._puller.start(self._agents)
        self._names.start(self._config.dns)
        try:
            self._follow(server)
        finally:
            self._names.stop()
            self._puller.stop()
            server.stop()

    def _follow(self, server: ServerThread) -> None:
        begun = since = time.monotonic()
        until = begun + self._output.duration_seconds
        while not self._ending and time.monotonic() < until:
            server.check()
            self._puller.wait(_STEP_SECONDS)
            pulled = self._puller.take()
            with self._lock:
                self.fleet.take(pulled)
                if self.fleet.is_due():
                    self.fleet.join()
            now = time.monotonic()
            if now - since >= self._config.interval_seconds:
                self._show(now - since)
                since = now
            self._read_again()
            self._follow_names()
        with self._lock:
            self.fleet.join()
        self._show(time.monotonic() - since)

    def _show(self, seconds: float) -> None:
        with self._lock:
            over = self._pages.over = self.fleet.end_interval()
            found = document(self.fleet, over, seconds)
        if self._output.as_json:
            say_json_line(found)
            return
        if sys.stdout.isatty():
            sys.stdout.write(_CLEAR)
        for line in (*lines_of(found), ""):
            say(line)
        sys.stdout.flush()

    def _follow_names(self) -> None:
        """Ask those that names have now."""
        self._names.check()
        agents = self._asked(self._given)
        if set(agents) == set(self._agents):
            return
        self._agents = agents
        try:
            with self._lock:
                self.fleet.watch(agents)
        except LatprofError as error:
            self._say(str(error))
        self._puller.change(list(self.fleet.hosts))

    def _read_again(self) -> None:
        if not self._reload_asked:
            return
        self._reload_asked = False
        try:
            later = self._reread()
            given = later.all_agents()
            agents = self._asked(given)
            context = tls_context(later.tls)
            with self._lock:
                self.fleet.watch(agents)
        except LatprofError as error:
            self._say(f"the configuration stays as it was: {error}")
            return
        self._server.tls = context
        self._pages.hosts, self._pages.passwords = _settings(later)
        self._puller.access = later.access
        self._given, self._agents = given, agents
        self._puller.change(agents)
        self._names.change(later.dns)
        for name in ("listen", "interval_seconds"):
            if getattr(later, name) != getattr(self._config, name):
                self._say(
                    f"{name.removesuffix('_seconds')} changes with the next start"
                )


def _settings(config: FleetConfig) -> tuple[Hosts, Passwords]:
    names = {*own_names(), config.listen.host.lower(), *config.hosts}
    return Hosts(names), Passwords(config.users)


def run_fleet(
    config: FleetConfig,
    reread: Callable[[], FleetConfig],
    output: Output,
    shard: Shard,
    say_problem: Say,
) -> None:
    """Watch a fleet until SIGTERM or SIGINT; SIGHUP reloads. Raises LatprofError."""
    with listening(config.listen) as listener:
        run = FleetRun(config, reread, output, shard, say_problem, listener)
        for number, handler in (
            (signal.SIGTERM, run.end),
            (signal.SIGINT, run.end),
            (signal.SIGHUP, run.reload),
        ):
            signal.signal(number, handler)
        scheme = "https" if config.tls else "http"
        host, port = listener.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        say_problem(f"{scheme}://{shown}:{port}/metrics")
        run.run()
