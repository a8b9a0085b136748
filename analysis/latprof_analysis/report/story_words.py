"""What a slow message met, in words: a queue, what its reader read, what TCP knew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from latprof_analysis.text import duration, percent, plural, rate, short_number

_Queue = dict[str, Any]
_Reads = dict[str, Any]


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


def tcp_words(timeline: Sequence[dict[str, Any]]) -> str:
    """Say what it knew at the end of the longest span; "" where there is none."""
    spans = [span for span in timeline if "tcp" in span]
    if not spans:
        return ""
    tcp = max(spans, key=lambda span: span["time_ns"])["tcp"]
    ssthresh, pacing = tcp["ssthresh_packets"], tcp["pacing_bytes_per_second"]
    words = [
        f"cwnd {plural(tcp['cwnd_packets'], 'packet')}"
        + ("" if ssthresh is None else f" (ssthresh {ssthresh})"),
        f"{tcp['in_flight_packets']} in flight",
        f"{size_words(tcp['unsent_bytes'])} not sent",
        f"the peer's window {size_words(tcp['window_bytes'])}",
        f"RTO {duration(1000 * tcp['rto_us'])}",
        *([] if pacing is None else [f"paced at {rate(8 * pacing)}"]),
    ]
    return ", ".join(words)
