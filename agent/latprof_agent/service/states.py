"""States of what is measured, from the thread that measures to those that show them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

from latprof_agent.monitor.totals import Totals

FRESH_SECONDS = 1.0
_ALIVE_SECONDS = 10.0  # since the last step


class States:
    """The newest state, made for whoever asks, but at most once a second.

    So no state is older than that, none is made where nobody asks, and many who ask
    at once share one.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self.ready = False  # states can be made
        self._wake = wake  # the thread that measures
        self._lock = threading.Lock()
        self._asked: list[Future[Totals]] = []
        self._newest: Totals | None = None
        self._made = self._stepped = time.monotonic()

    def ask(self) -> Future[Totals]:
        """Ask for a state, from any thread."""
        asked: Future[Totals] = Future()
        with self._lock:
            if self._newest and time.monotonic() < self._made + FRESH_SECONDS:
                asked.set_result(self._newest)
                return asked
            self._asked.append(asked)
        self._wake()
        return asked

    def answer(self, make: Callable[[], Totals]) -> None:
        """Make a state if somebody waits for one; the thread that measures calls it."""
        self._stepped = time.monotonic()
        with self._lock:
            asked, self._asked = self._asked, []
        asked = [one for one in asked if one.set_running_or_notify_cancel()]
        if not asked:
            return
        made = make()
        with self._lock:
            self._newest, self._made = made, time.monotonic()
        for one in asked:
            one.set_result(made)

    def alive(self) -> bool:
        """Whether the thread that measures goes on."""
        return time.monotonic() < self._stepped + _ALIVE_SECONDS
