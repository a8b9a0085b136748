"""Agents by names of DNS: all addresses that a name has, asked again each minute."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterable

from latprof_analysis.text import printable

from latprof_agent.service.config import Address
from latprof_agent.watched_thread import WatchedThread

ASK_SECONDS = 60.0
# What a name has no more is asked for so long: answers of DNS may have some of all
# addresses in turn, or none while its server is started again.
KEPT_SECONDS = 300.0
LookUp = Callable[[str], Iterable[str]]


def addresses_of(name: str) -> list[str]:
    """Return all addresses of a name, without a port; raises OSError."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


class Names:
    """Addresses of names, by when an answer had them last."""

    def __init__(
        self,
        say: Callable[[str], None],
        look_up: LookUp = addresses_of,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` is given a line where a name has no answer, once until it has one."""
        self._say, self._look_up, self._now = say, look_up, now
        self._seen: dict[Address, dict[Address, float]] = {}
        self._problems: dict[Address, str] = {}

    def ask(self, names: Iterable[Address]) -> frozenset[Address]:
        """Ask for names with ports; return agents that they have or had lately."""
        names = tuple(names)
        self._seen = {name: self._seen.get(name, {}) for name in names}
        for name in names:
            self._ask(name)
        return frozenset(agent for of in self._seen.values() for agent in of)

    def _ask(self, name: Address) -> None:
        seen, problem = self._seen[name], ""
        try:
            found = self._look_up(name.host)
            now = self._now()
            seen.update({Address(host, name.port): now for host in found})
        except (OSError, UnicodeError) as error:
            now = self._now()
            why = getattr(error, "strerror", None) or "it is no name"
            problem = f"cannot find the addresses of {name.host}: {printable(str(why))}"
        for agent, last in list(seen.items()):
            if now - last > KEPT_SECONDS:
                del seen[agent]
        if problem and problem != self._problems.get(name):
            self._say(f"{problem}; it is asked again, and those that it had are kept")
        self._problems[name] = problem


class NamesThread:
    """Asks for names from a thread of its own, which DNS may keep waiting.

    Attributes
    ----------
    agents : frozenset of Address
        Those that are known now; put there by the thread.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._wanted: tuple[Address, ...] = ()
        self._wake = threading.Event()
        self._ending = False
        self._thread = WatchedThread("asking for names", self._run)
        self.agents: frozenset[Address] = frozenset()

    def start(self, wanted: Iterable[Address]) -> None:
        """Begin to ask for these."""
        self._wanted = tuple(wanted)
        self._thread.start()

    def change(self, wanted: Iterable[Address]) -> None:
        """Ask for these from now on, at once."""
        self._wanted = tuple(wanted)
        self._wake.set()

    def check(self) -> None:
        """Raise what ended the thread."""
        self._thread.check()

    def stop(self) -> None:
        """Ask no more; an answer that is waited for is not waited for any more."""
        self._ending = True
        self._wake.set()

    def _run(self) -> None:
        while not self._ending:
            self._wake.clear()
            self.agents = self._names.ask(self._wanted)
            self._wake.wait(ASK_SECONDS)
