"""How far reading has come, for people who wait."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

# What takes less is done before anybody wonders.
_QUIET_SECONDS = 1.0
_EVERY_SECONDS = 0.2


def show_progress() -> Callable[[int, int], None] | None:
    """Return what tells rows read of rows in all on stderr, if that is a terminal."""
    if not sys.stderr.isatty():
        return None
    began = told = time.monotonic()

    def show(done: int, planned: int) -> None:
        nonlocal told
        now = time.monotonic()
        if done >= planned and told > began:
            sys.stderr.write("\r\x1b[K")
        elif now - began > _QUIET_SECONDS and now - told > _EVERY_SECONDS:
            left = (now - began) * (planned - done) / max(1, done)
            told = now
            sys.stderr.write(
                f"\r\x1b[Kread {done:,} of about {planned:,} rows, {left:.0f} s left"
            )
        sys.stderr.flush()

    return show
