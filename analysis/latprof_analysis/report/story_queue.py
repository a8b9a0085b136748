"""What a slow message met in a device's queue, in words."""

from __future__ import annotations

from typing import Any

from latprof_analysis.text import percent, short_number

_Queue = dict[str, Any]


def queue_words(queue: _Queue) -> str:
    """Name a queue, what stood in it before a message, and whose most of it was."""
    name, backlog = str(queue["name"]), int(queue["backlog_bytes"])
    if not backlog:
        return f"{name}, with nothing before it"
    most = "" if queue["fifo"] else "at most "
    words = f"{name} behind {most}{size_words(backlog)}"
    first = queue["before"][0]
    share = percent(first["bytes"] / backlog)
    return f"{words}, of which {owner_words(first)} {share}"


def owner_words(owner: dict[str, Any]) -> str:
    """Say whose bytes they were."""
    if owner["pid"]:
        others = owner["processes"] - 1
        also = f" and {others} more with its socket" if others else ""
        return f"{owner['comm']} (pid {owner['pid']}{also})"
    return str(owner["flow"] or "an unknown sender")


def size_words(count: int) -> str:
    """Write a number of bytes that was counted."""
    for unit, size in (("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{short_number(count / size)} {unit}"
    return f"{count} bytes"
