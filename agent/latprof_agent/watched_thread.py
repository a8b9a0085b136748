"""Threads whose end is seen, by whoever asks, and never as a traceback on a screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, TypeVar

from latprof_agent.errors import LatprofError

Result = TypeVar("Result")


class WatchedThread(threading.Thread):
    """A thread that never keeps the program from ending, and keeps what ended it."""

    def __init__(self, name: str, work: Callable[[], object]) -> None:
        super().__init__(name=name, target=work, daemon=True)
        self.failure: BaseException | None = None
        self._raised = False

    def run(self) -> None:
        """Work; an error becomes `failure`."""
        with ExitStack() as stack:
            stack.push(self._note)
            super().run()

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, if it began: whoever cleans up need not know."""
        if self.ident is not None:
            super().join(timeout)

    def _note(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> bool:
        self.failure = error
        return True

    def check(self) -> None:
        """Raise LatprofError, once, where an error has ended it."""
        if not self.failure or self._raised:
            return
        self._raised = True
        if isinstance(self.failure, LatprofError):
            raise self.failure
        what = " ".join(str(self.failure).split()) or "no reason given"
        raise LatprofError(
            f"the {self.name} has ended: {type(self.failure).__name__}: {what}; "
            "start again, and report it"
        ) from self.failure


class Apart(Generic[Result]):
    """Work that nobody waits for: after some seconds it is left behind."""

    def __init__(self, what: str, seconds: float, work: Callable[[], Result]) -> None:
        self._done: list[Result] = []
        self._thread = WatchedThread(what, lambda: self._done.append(work()))
        self._seconds = seconds
        self._until = time.monotonic() + seconds
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether `result` gives something."""
        return not self._thread.is_alive() or time.monotonic() >= self._until

    def result(self) -> Result:
        """What it gave, or raise what it raised; TimeoutError for what goes on."""
        if self._thread.failure:
            raise self._thread.failure
        if not self._done:
            raise TimeoutError(f"{self._thread.name} takes over {self._seconds:g} s")
        return self._done[0]
