"""Signals that must not cut a piece of work in half: `_ENDING`."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from latprof_agent.errors import InterruptedRun

# the last comes where `ulimit -t` is reached, and then each second
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGXCPU)


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Let them wait until the end of the block.

    Only the main thread is interrupted by signals, so elsewhere it does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def remember(number: int, _frame: FrameType | None) -> None:
        caught.append(number)

    before = {number: signal.getsignal(number) for number in _ENDING}
    for number, handler in before.items():
        if handler is not None and handler is not signal.SIG_IGN:
            signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None and handler is not signal.SIG_IGN:
                signal.signal(number, handler)
        for first in caught[:1]:
            signal.raise_signal(first)


@contextmanager
def signals_as_exit() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, where they would kill at once."""
    taken: list[int] = []
    if threading.current_thread() is threading.main_thread():
        taken = [
            number
            for number in (signal.SIGTERM, signal.SIGHUP)
            if signal.getsignal(number) is signal.SIG_DFL
        ]

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for ending in taken:
        signal.signal(ending, leave)
    try:
        yield
    finally:
        for ending in taken:
            signal.signal(ending, signal.SIG_DFL)


@dataclass
class Interrupt:
    """Set by the first of them; the second ends at once."""

    seen: bool = False

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self.seen = True

    def check(self) -> None:
        """Raise InterruptedRun where nothing was recorded that could be shown."""
        if self.seen:
            raise InterruptedRun("interrupted: nothing was recorded; run it again")

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Note signals instead of ending in the middle of something."""
        before = {number: signal.signal(number, self._note) for number in _ENDING}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
