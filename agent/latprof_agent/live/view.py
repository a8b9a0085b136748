"""The live view on a terminal: draws what windows and keys make of it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

from latprof_analysis.report.terminal import Terminal
from rich.text import Text

from latprof_agent.live.chosen import Chosen, Order, press
from latprof_agent.live.glyphs import glyphs_for
from latprof_agent.live.keyboard import Keyboard
from latprof_agent.live.pages import page
from latprof_agent.live.screen import Screen
from latprof_agent.live.shown import Shown, Watched, Window


class LiveView:
    """A `WindowSink` of windows that asks the keyboard while it waits."""

    def __init__(self, screen: Screen, watched: Watched) -> None:
        self._screen = screen
        self._watched = watched
        self._shown = self._seen = Shown()  # of now; what is drawn: older if paused
        self._chosen = Chosen()
        self._keyboard = Keyboard()
        self._glyphs = glyphs_for(sys.stdout.encoding)
        self._drawn_size = (0, 0)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Take the terminal, and give it back at the end."""
        with self._screen.taken():
            self._draw()
            yield

    def begin(self, watched: Watched) -> None:
        """Forget what was of other groups."""
        self._watched = watched
        self._shown = self._seen = Shown()
        self._choose(replace(self._chosen, paused=False))

    def take(self, window: Window) -> None:
        """Show an interval that is over."""
        self._shown.take(window)
        if not self._chosen.paused:
            self._draw()

    def show(self, text: str) -> None:
        """Show a message until the next key."""
        self._choose(replace(self._chosen, message=text))

    def wait(self, seconds: float) -> list[tuple[Order, str]]:
        """Wait for keys, and for room where a frame waits; what keys ask for."""
        keys = self._keys(seconds)
        asked = []
        for key in keys:
            seen = self._seen
            rows, slow = seen.rows(self._chosen), seen.slow(self._chosen)
            chosen = press(self._chosen, key, rows, slow)
            if chosen.order:
                asked.append((chosen.order, chosen.text))
            self._adopt(chosen)
        anew = self._screen.follow_job_control()
        if anew or keys or self._screen.size != self._drawn_size:
            self._draw()
        return asked

    def _keys(self, seconds: float) -> list[str]:
        with DefaultSelector() as selector:
            if self._screen.keyboard is not None:
                selector.register(self._screen.keyboard, EVENT_READ, "keys")
            if self._screen.is_waiting:
                selector.register(self._screen.unblocked, EVENT_WRITE, "room")
            ready = [key.data for key, _ in selector.select(seconds)]
        if "room" in ready:
            self._screen.write()
        if "keys" in ready:
            return self._keyboard.feed(self._screen.read())
        return self._keyboard.pause()

    def _adopt(self, chosen: Chosen) -> None:
        if chosen.paused != self._chosen.paused:
            self._seen = self._shown.copy() if chosen.paused else self._shown
        self._chosen = chosen

    def _choose(self, chosen: Chosen) -> None:
        self._adopt(chosen)
        self._draw()

    def _draw(self) -> None:
        size = self._drawn_size = self._screen.size
        lines = page(self._seen, self._chosen, self._watched, size, self._glyphs)
        self._screen.show(_rendered(lines, size[0]))


def _rendered(lines: list[Text], width: int) -> list[str]:
    """Return lines as a terminal of this width and its colours takes them."""
    console = Terminal(file=StringIO(), force_terminal=True, width=width)
    found = []
    for line in lines:
        with console.capture() as captured:
            console.print(line, no_wrap=True, overflow="crop", crop=True, end="")
        found.append(captured.get())
    return found
