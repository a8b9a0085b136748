"""What a reader read while a slow message waited for it, in words."""

from __future__ import annotations

from typing import Any

from latprof_analysis.report.story_queue import size_words
from latprof_analysis.text import duration, percent, plural

_Reads = dict[str, Any]


def reads_words(reads: _Reads, whole_ns: int) -> str:
    """Say behind how much a message of `whole_ns` in its queue was, and whose.

    Empty where there was nothing, or nothing that took half of the time.
    """
    if not reads["senders"] or not whole_ns:
        return ""
    first, *others = reads["senders"]
    took_ns = sum(sender["time_ns"] or 0 for sender in reads["senders"])
    if first["time_ns"] is not None and 2 * took_ns < whole_ns:
        return ""
    words = "behind" if reads["complete"] else "behind at least"
    if reads["messages"]:
        words += f" {plural(reads['messages'], 'message')} of"
    words += f" {size_words(reads['bytes'])}"
    if not others:
        return f"{words} of {_sender(first)}"
    if first["time_ns"] is None:
        share = percent(first["bytes"] / reads["bytes"]) if reads["bytes"] else "most"
        return f"{words}, of which {_sender(first)} {share}"
    share = percent(first["time_ns"] / whole_ns)
    return f"{words}, of which those of {_sender(first)} took {share}"


def accept_words(accept: dict[str, Any]) -> str:
    """Say how long a message that was there waited for its connection's accept."""
    if accept["waited_ns"] is None:
        return "not accepted when it came"
    return f"not accepted for {duration(accept['waited_ns'])}"


def _sender(sender: dict[str, Any]) -> str:
    if sender["own"]:
        return "its own flow"
    if sender["pid"]:
        return f"{sender['comm'] or 'an unknown process'} (pid {sender['pid']})"
    return str(sender["way"] or "an unknown sender")
