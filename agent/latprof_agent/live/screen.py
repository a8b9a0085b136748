"""The terminal while it shows a live view, and as it was before and after."""

from __future__ import annotations

import os
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[2J"  # alternate screen, no cursor
# first an end of whatever sequence a frame was cut in
_LEAVE = b"\x18\x1b[0m\x1b[?25h\x1b[?1049l"
_HOME, _LINE_END, _REST = b"\x1b[H", b"\x1b[K", b"\x1b[J"


class Screen:
    """A terminal's alternate screen, and its keyboard where there is one.

    Frames are written as far as the terminal takes them, so that a slow one stops
    nobody: of frames that wait only the newest is kept.
    """

    def __init__(self, output: int = 1, keyboard: int = 0) -> None:
        self.output = output
        self.keyboard = keyboard if os.isatty(keyboard) else None
        self._saved: list[Any] | None = None
        self._saved_of = keyboard
        self._writing = b""
        self._next = b""
        self.unblocked = -1  # where frames are written to
        self._stopped = self._continued = False

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Take the terminal, and give it back as it was, whatever happens."""
        before = {
            signal.SIGTSTP: signal.signal(signal.SIGTSTP, self._note_stop),
            signal.SIGCONT: signal.signal(signal.SIGCONT, self._note_continued),
        }
        self.unblocked = self._opened()
        try:
            self._enter()
            yield
        finally:
            self._leave()
            os.close(self.unblocked)
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines as they are now."""
        try:
            columns, lines = os.get_terminal_size(self.output)
        except OSError:
            columns, lines = 0, 0
        return columns or 80, lines or 24

    @property
    def is_waiting(self) -> bool:
        """Whether a frame is not written yet."""
        return bool(self._writing or self._next)

    def show(self, lines: list[str]) -> None:
        """Write lines over those that are there."""
        encoded = (line.encode(sys.stdout.encoding, "replace") for line in lines)
        body = b"\n".join(line + _LINE_END for line in encoded)
        self._next = _HOME + body + _REST
        self.write()

    def write(self) -> None:
        """Write what waits, as far as the terminal takes it."""
        with suppress(BlockingIOError):
            while self.is_waiting:
                if not self._writing:
                    self._writing, self._next = self._next, b""
                written = os.write(self.unblocked, self._writing)
                self._writing = self._writing[written:]

    def read(self) -> bytes:
        """Read what was typed; nothing where the keyboard is gone."""
        assert self.keyboard is not None
        try:
            data = os.read(self.keyboard, 4096)
        except OSError:
            data = b""
        if not data:
            self.keyboard = None
        return data

    def follow_job_control(self) -> bool:
        """Stop where Ctrl-Z was typed; whether the screen must be drawn anew."""
        if self._stopped:
            self._stop()
        elif not self._continued:
            return False
        self._stopped = self._continued = False
        self._writing = self._next = b""
        self._enter()
        return True

    def _stop(self) -> None:
        self._leave()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)  # returns when we may go on
        signal.signal(signal.SIGTSTP, self._note_stop)

    def _note_stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopped = True

    def _note_continued(self, _number: int, _frame: FrameType | None) -> None:
        self._continued = True

    def _opened(self) -> int:
        """Return the terminal as a file of our own, which alone does not block."""
        flags = os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            return os.open(os.ttyname(self.output), flags)
        except OSError:  # as in a container that has not this terminal's device
            return os.dup(self.output)

    def _enter(self) -> None:
        if self.keyboard is not None:
            mode = termios.tcgetattr(self.keyboard)
            # after SIGSTOP it may be as we had set it
            self._saved = self._saved or termios.tcgetattr(self.keyboard)
            mode[0] &= ~termios.IXON  # Ctrl-S stops nobody
            mode[3] &= ~(termios.ICANON | termios.ECHO)
            mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
            termios.tcsetattr(self.keyboard, termios.TCSANOW, mode)
        os.write(self.output, _ENTER)

    def _leave(self) -> None:
        self._writing = self._next = b""
        with suppress(OSError, termios.error):  # the terminal may be gone
            os.write(self.output, _LEAVE)
        if self._saved is not None:
            with suppress(OSError, termios.error):
                termios.tcsetattr(self._saved_of, termios.TCSANOW, self._saved)
                # what was typed for us is not for the shell
                termios.tcflush(self._saved_of, termios.TCIFLUSH)
            self._saved = None
