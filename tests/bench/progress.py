"""The line that says what is being measured now."""

from __future__ import annotations

import sys
from typing import TextIO


class Progress:
    """One line on a terminal, written over; silent where there is none."""

    def __init__(self, prefix: str, stream: TextIO = sys.stderr) -> None:
        self._prefix = prefix
        self._stream = stream

    def __call__(self, what: str) -> None:
        """Say what comes now."""
        if self._stream.isatty():
            self._stream.write(f"\r\x1b[K{self._prefix}: {what}")
            self._stream.flush()

    def done(self) -> None:
        """Take the line away."""
        if self._stream.isatty():
            self._stream.write("\r\x1b[K")
            self._stream.flush()
