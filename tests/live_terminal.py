"""A program on a pseudo-terminal that stays: what is typed, what its screen shows."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

DEADLINE_SECONDS = 30.0
_FRAME = re.compile(rb"\x1b\[H(.*?)\x1b\[J", re.DOTALL)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
ALTERNATE, MAIN = b"\x1b[?1049h", b"\x1b[?1049l"


class LiveTerminal:
    """The program's controlling terminal, and we who look at it."""

    def __init__(
        self,
        words: Sequence[str],
        columns: int = 80,
        lines: int = 24,
        **environment: str,
    ) -> None:
        self.ours, self.theirs = os.openpty()
        self.written = b""
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.theirs)
        kept = {k: v for k, v in os.environ.items() if k not in _OURS}
        self.process = subprocess.Popen(
            [*_WITH_TERMINAL, *words],
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env=kept | {"TERM": "xterm-256color", "LANG": "C.UTF-8"} | environment,
        )

    def __enter__(self) -> LiveTerminal:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)

    def resize(self, columns: int, lines: int) -> None:
        size = struct.pack("4H", lines, columns, 0, 0)
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def look(self, seconds: float = 0.1) -> None:
        """Read what is there, or comes soon."""
        while select.select([self.ours], [], [], seconds)[0]:
            with suppress(OSError):
                self.written += os.read(self.ours, 1 << 16)
            seconds = 0.0

    @property
    def frame(self) -> bytes:
        """The newest whole frame, as it was written."""
        frames = _FRAME.findall(self.written)
        return frames[-1] if frames else b""

    @property
    def screen(self) -> list[str]:
        """The lines of it, without styles."""
        text = self.frame.replace(b"\x1b[K", b"").decode()
        return _STYLE.sub("", text).replace("\r", "").split("\n")

    def wait(self, holds: Callable[[], Any], what: str) -> Any:
        """Look until something holds; of the screen, of the process."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not (found := holds()):
            assert time.monotonic() < until, (what, self.screen, self.written[-2000:])
            self.look()
        return found

    def wait_for(self, text: str) -> list[str]:
        """Look until the screen shows a text; the screen then."""
        self.wait(lambda: any(text in line for line in self.screen), text)
        return self.screen

    def finish(self) -> int:
        """Look until the program has ended; its exit status."""
        self.wait(lambda: self.process.poll() is not None, "end")
        self.look()
        return self.process.wait()

    @property
    def after(self) -> str:
        """What was written after the alternate screen was left."""
        return self.written.rpartition(MAIN)[2].decode()

    @property
    def is_restored(self) -> bool:
        """Whether modes, screen and cursor are as before."""
        last = {
            name: max(self.written.rfind(on), -1) < self.written.rfind(off)
            for name, on, off in (
                ("screen", ALTERNATE, MAIN),
                ("cursor", b"\x1b[?25l", b"\x1b[?25h"),
            )
        }
        return all(last.values()) and termios.tcgetattr(self.theirs) == self.before

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)


# A session of its own, whose terminal this is.
_WITH_TERMINAL = ("setsid", "--ctty")
_OURS = ("COLUMNS", "LINES", "NO_COLOR", "TERM", "LANG", "LC_ALL", "FORCE_COLOR")
