"""A program on a pseudo-terminal, as a person would see it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Sequence
from pathlib import Path

DEADLINE_SECONDS = 120.0
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_a_terminal(
    words: Sequence[str], cwd: Path, *, columns: int = 100, home: Path | None = None
) -> tuple[int, str]:
    """Run a program to its end; its status and all that it wrote, without colours."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    shown = {"TERM": "xterm-256color", "COLUMNS": str(columns)}
    process = subprocess.Popen(
        list(words),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=cwd,
        env=os.environ | shown | ({"HOME": str(home)} if home else {}),
    )
    os.close(theirs)
    try:
        written = _read_all(ours)
    finally:
        os.close(ours)
        if process.poll() is None:
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
    text = written.decode(errors="replace").replace("\r\n", "\n")
    return process.wait(), _ESCAPES.sub("", text)


def _read_all(terminal: int) -> bytes:
    """Read until nobody holds the other side, or the deadline."""
    written, until = b"", time.monotonic() + DEADLINE_SECONDS
    while time.monotonic() < until:
        readable, _, _ = select.select([terminal], [], [], 1)
        try:
            chunk = os.read(terminal, 1 << 16) if readable else None
        except OSError:  # EIO: the last process has gone
            return written
        if chunk == b"":
            return written
        written += chunk or b""
    return written
